/** A REJ of the connection manager refused a connection. */
import { CmRejReason } from '@node-roce/wire';
import type { FindingOf } from '../facts.ts';
import type { CmExchange } from '../pair/cm-exchanges.ts';
import { event } from './chain.ts';
import { asked, cmFinding } from './cm.ts';
import { type Cause, moment, Rank, rule } from './rule.ts';

function find(exchange: CmExchange): FindingOf<'cm-rejected'>[] {
  const { reject, active, passive } = exchange;
  if (reject === undefined) return [];
  const by = reject.by === 'passive' ? passive.address : active.address;
  return [
    cmFinding(
      exchange,
      'cm-rejected',
      'error',
      `${by} rejected the connection ${moment(reject.time)}: ${reject.reason}`,
      rejectHint(exchange, reject.code),
    ),
  ];
}

function causes(exchange: CmExchange): Cause<'cm-rejected', 'cm-retries'>[] {
  const { reject, active, passive } = exchange;
  if (reject === undefined) return [];
  const [by, whom] = reject.by === 'passive' ? [passive, active] : [active, passive];
  return [
    {
      kind: 'cm-rejected',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 3,
      certainty: 'certain',
      text: `${by.address} rejected the connection with ${whom.address}: ${reject.reason}.`,
      culprit: by.address,
      chain: [...asked(exchange), ...event(reject.frame, `${by.address} rejects (REJ): ${reject.reason}`)],
      explains: ['cm-retries'],
    },
  ];
}

function rejectHint({ service, passive, reject }: CmExchange, code: number): string {
  switch (code) {
    case CmRejReason.INVALID_SERVICE_ID:
      return `Nothing listens on ${service ?? 'that service'} at ${passive.address}: start the server, or correct the address and port.`;
    case CmRejReason.CONSUMER_DEFINED:
      return 'The application refused, for a reason of its own that the private data of the REJ may hold (roce dump -x).';
    case CmRejReason.STALE_CONNECTION:
      return 'The peer still has a connection with this queue pair number, from before a restart: it goes away with its timeout; try again.';
    case CmRejReason.TIMEOUT:
      return `${reject?.by === 'active' ? 'The active' : 'The passive'} side gave up waiting: its messages or their answers are lost, or the application takes too long to accept.`;
    case CmRejReason.NO_QP:
    case CmRejReason.NO_EEC:
    case CmRejReason.NO_RESOURCES:
    case CmRejReason.INSUFFICIENT_RESP_RESOURCES:
      return 'The peer is out of resources: look at its limits of queue pairs, memory and max_dest_rd_atomic.';
    case CmRejReason.INVALID_GID:
    case CmRejReason.INVALID_LID:
    case CmRejReason.INVALID_ALT_GID:
      return 'The request names a GID that the peer does not have: check GID index, RoCE version and VLAN of both ends.';
    default:
      return 'IBTA vol 1 §12.6.7.2 lists the reasons; the log of the peer may have details.';
  }
}

export const cmRejected = rule({
  kinds: [
    {
      kind: 'cm-rejected',
      title: 'Connection rejected',
      when: 'a REJ of the connection manager refused a connection',
    },
  ],
  findInExchange: find,
  causeInExchange: causes,
});
