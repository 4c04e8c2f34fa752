/** A NAK that ends the queue pair: of each code the hint, and the verdict in words. */
import { formatPsn } from '../../units.ts';
import type { FatalNakName, FindingOf } from '../facts.ts';
import type { UnnumberedMessage } from '../track/messages.ts';
import { event } from './chain.ts';
import {
  ALL_SAID,
  type AllSaid,
  type Cause,
  finding,
  moment,
  Rank,
  rule,
  Stage,
  type Subject,
} from './rule.ts';

type NakKind = `nak-${FatalNakName}`;

const NAK_HINTS: Readonly<Record<FatalNakName, string>> = {
  'invalid-request':
    'The responder refuses this operation: do the access flags of its queue pair allow it, is the receive long enough, is an atomic aligned to 8 bytes, is the path MTU of both queue pairs the same, are there enough responder resources (max_dest_rd_atomic)?',
  'remote-access-error':
    "Check the R_Key, the address range and the access rights of the remote memory region or window, and that it is of the queue pair's protection domain and still registered.",
  'remote-operational-error':
    "Look at the responder's completions: a receive that is too short or whose memory is not valid, or a queue pair in the error state.",
  'invalid-rd-request': 'The responder does not support Reliable Datagram.',
  'reserved-nak': 'A NAK code that the specification reserves: look at the firmware of the responder.',
};

const FATAL: Readonly<Record<FatalNakName, (requester: string, responder: string, what: string) => string>> =
  {
    'invalid-request': (a, b, what) =>
      `${b} refused ${what} of ${a} as an invalid request; the connection ended.`,
    'remote-access-error': (a, b, what) =>
      `${a} has no right to the memory at ${b} (${what}: remote access error); the connection ended.`,
    'remote-operational-error': (a, b, what) =>
      `${b} could not carry out ${what} of ${a} (remote operational error); the connection ended.`,
    'invalid-rd-request': (a, b) =>
      `${b} does not support Reliable Datagram; it refused the request of ${a}.`,
    'reserved-nak': (a, b, what) =>
      `${b} refused ${what} of ${a} with a reserved NAK code; the connection ended.`,
  };

function find(subject: Subject): FindingOf<NakKind>[] {
  const { direction } = subject;
  const found: FindingOf<NakKind>[] = [];
  const peer = direction.peer;
  for (const nak of Object.keys(NAK_HINTS) as FatalNakName[]) {
    const events = peer?.record.events.get(`nak-${nak}`);
    if (events === undefined) continue;
    const failed = direction.requester?.messages.endedBy(nak);
    const what =
      failed === undefined ? 'a request' : `${failed.operation} (PSN ${formatPsn(failed.firstPsn)})`;
    found.push(
      finding(
        subject,
        events,
        `nak-${nak}`,
        'error',
        `${what} was refused with NAK ${nak.replaceAll('-', ' ')} ${moment(events.start)}; the connection ends with it`,
        NAK_HINTS[nak],
      ),
    );
  }
  return found;
}

const wordsOf = ({ operation }: UnnumberedMessage): string =>
  operation.replaceAll('_', ' ').replace('RDMA ', '');

function causes(subject: Subject): Cause<NakKind, AllSaid>[] {
  const { direction, requester, responder } = subject;
  return (Object.keys(FATAL) as FatalNakName[]).flatMap((nak): Cause<NakKind, AllSaid>[] => {
    const events = direction.peer?.record.events.get(`nak-${nak}`);
    if (events === undefined) return [];
    const failed = direction.requester?.messages.endedBy(nak);
    const what = failed === undefined ? 'a request' : `a ${wordsOf(failed)}`;
    const psn = failed === undefined ? '' : ` (PSN ${formatPsn(failed.firstPsn)})`;
    return [
      {
        kind: `nak-${nak}`,
        severity: 'error',
        rank: Rank.ENDS,
        weight: 1,
        certainty: 'certain',
        text: FATAL[nak](requester, responder, what),
        culprit: nak === 'remote-operational-error' ? responder : requester,
        chain: [
          ...event(failed?.firstFrame, `${requester} sends ${what}${psn}`),
          ...event(events.frames[0], `${responder} refuses it: NAK ${nak.replaceAll('-', ' ')}`),
        ],
        explains: ALL_SAID,
      },
    ];
  });
}

export const nak = rule({
  kinds: [
    {
      kind: 'nak-invalid-request',
      title: 'Invalid request',
      when: 'a NAK with this code ended the queue pair',
    },
    {
      kind: 'nak-remote-access-error',
      title: 'Remote access error',
      when: 'a NAK with this code ended the queue pair',
    },
    {
      kind: 'nak-remote-operational-error',
      title: 'Remote operational error',
      when: 'a NAK with this code ended the queue pair',
    },
    {
      kind: 'nak-invalid-rd-request',
      title: 'Invalid RD request',
      when: 'a NAK with this code ended the queue pair',
    },
    {
      kind: 'nak-reserved-nak',
      title: 'Reserved NAK',
      when: 'a NAK with a reserved code ended the queue pair',
    },
  ],
  find,
  stage: Stage.END,
  cause: causes,
});
