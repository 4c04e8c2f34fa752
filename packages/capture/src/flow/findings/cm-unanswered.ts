/** A REQ of the connection manager has no answer in the capture. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import type { CmExchange } from '../pair/cm-exchanges.ts';
import { event } from './chain.ts';
import { asked, cmFinding, intervals, requestsOf } from './cm.ts';
import { type Capture, type Cause, moment, Rank, rule } from './rule.ts';

/** An MRA is an answer: the passive side has the REQ, and takes longer (IBTA vol 1 §12.6.6). */
const isPatient = ({ messages }: CmExchange): boolean =>
  messages.some(({ name, from }) => name === 'MRA' && from === 'passive');

/** The time in which an answer to the last request was due is over. */
function isOverdue(exchange: CmExchange, captureEnd: number): boolean {
  const { offered } = exchange;
  const waited = captureEnd - requestsOf(exchange).at(-1)!.time;
  return waited >= (offered === undefined ? 0 : 4096 * 2 ** offered.remoteCmResponseTimeout);
}

function isUnanswered(exchange: CmExchange, captureEnd: number): boolean {
  const { reject, outcome } = exchange;
  if (reject !== undefined || outcome !== 'unanswered' || isPatient(exchange)) return false;
  // Else the capture ended while an answer was still due.
  return requestsOf(exchange).length > 1 || isOverdue(exchange, captureEnd);
}

function find(exchange: CmExchange, { summary }: Capture): FindingOf<'cm-unanswered'>[] {
  if (!isUnanswered(exchange, summary.duration)) return [];
  const { start, passive } = exchange;
  const requests = requestsOf(exchange);
  const often = requests.length === 1 ? 'once' : counted(requests.length, 'time');
  return [
    cmFinding(
      exchange,
      'cm-unanswered',
      'error',
      `no answer to the connection request is in the capture; it was sent ${often}${intervals(requests)}, first ${moment(start)}`,
      `Is ${passive.address} up, is its RDMA device active, and do packets to UDP port 4791 get there and back (firewall, path MTU)? A mirror of one direction shows no answers either.`,
    ),
  ];
}

function causes(exchange: CmExchange, { summary }: Capture): Cause<'cm-unanswered', 'cm-retries'>[] {
  if (!isUnanswered(exchange, summary.duration)) return [];
  const { active, passive } = exchange;
  const requests = requestsOf(exchange);
  const count = requests.length;
  return [
    {
      kind: 'cm-unanswered',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 3,
      // A path that loses them looks the same.
      certainty: 'likely',
      text: `${passive.address} did not answer the connection request of ${active.address}, sent ${counted(count, 'time')}.`,
      culprit: passive.address,
      chain: [
        ...asked(exchange),
        ...(count > 1 ? event(requests.at(-1)!.frame, 'the last REQ, without an answer') : []),
      ],
      explains: ['cm-retries'],
    },
  ];
}

export const cmUnanswered = rule({
  kinds: [
    {
      kind: 'cm-unanswered',
      title: 'Connection request unanswered',
      when: 'a REQ of the connection manager has no answer in the capture',
    },
  ],
  findInExchange: find,
  causeInExchange: causes,
});
