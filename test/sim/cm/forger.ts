/** Messages of a stranger: ids that are almost right, or right ones in a state where they mean nothing. None changes anything. */
import type { Random } from '@node-roce/sim';
import { encodeCm } from '@node-roce/sim';
import type { Life } from './life.ts';
import type { Side } from './sides.ts';

/** The ids and the queue pair of a connection, as its owner knows them. */
interface Target {
  /** The owner's communication id, and the peer's. */
  own: number;
  peer: number;
  qpn: number;
}

type Forgery = (target: Target, wrong: number) => Uint8Array;

/** Forgeries for a connection whose owner knows its peer; `wrong` is never 0. */
const FORGERIES: Record<string, Forgery> = {
  'REJ of another id': ({ own, peer }, wrong) =>
    encodeCm('REJ', 1n, { localId: (peer ^ wrong) >>> 0, remoteId: own, rejected: 2, reason: 28 }),
  'REJ without an id': ({ own }) => encodeCm('REJ', 1n, { remoteId: own, rejected: 0, reason: 8 }),
  'REJ by a GUID that is unknown': ({ peer }) =>
    encodeCm('REJ', 1n, {
      localId: peer,
      rejected: 2,
      reason: 4,
      ariLength: 8,
      ari: new Uint8Array(8).fill(9),
    }),
  'DREQ of another id': ({ own, peer, qpn }, wrong) =>
    encodeCm('DREQ', 1n, { localId: (peer ^ wrong) >>> 0, remoteId: own, qpn }),
  'DREQ for another queue pair': ({ own, peer, qpn }, wrong) =>
    encodeCm('DREQ', 1n, { localId: peer, remoteId: own, qpn: (qpn ^ (wrong & 0xffff) ^ 0x10000) >>> 0 }),
  'DREP of another id': ({ own, peer }, wrong) =>
    encodeCm('DREP', 1n, { localId: (peer ^ wrong) >>> 0, remoteId: own }),
  'RTU of another id': ({ own, peer }, wrong) =>
    encodeCm('RTU', 1n, { localId: (peer ^ wrong) >>> 0, remoteId: own }),
  'REP of another id': ({ own, peer, qpn }, wrong) =>
    encodeCm('REP', 1n, { localId: (peer ^ wrong) >>> 0, remoteId: own, qpn, caGuid: 9n }),
  'MRA of another id': ({ own, peer }, wrong) =>
    encodeCm('MRA', 1n, { localId: (peer ^ wrong) >>> 0, remoteId: own, mraed: 1, serviceTimeout: 31 }),
  'APR of its peer': ({ own, peer }) => encodeCm('APR', 1n, { localId: peer, remoteId: own, status: 0 }),
};

/** Forgeries for one state: right in each field, but for the time. */
const UNTIMELY: Record<string, Record<string, Forgery>> = {
  REQ_RCVD: {
    'RTU before REP': ({ own, peer }) => encodeCm('RTU', 1n, { localId: peer, remoteId: own }),
    'DREQ before REP': ({ own, peer }) => encodeCm('DREQ', 1n, { localId: peer, remoteId: own }),
  },
  ESTABLISHED: {
    'DREP without DREQ': ({ own, peer }) => encodeCm('DREP', 1n, { localId: peer, remoteId: own }),
  },
  TIMEWAIT: {
    'RTU in TIMEWAIT': ({ own, peer }) => encodeCm('RTU', 1n, { localId: peer, remoteId: own }),
    'REJ in TIMEWAIT': ({ own, peer }) =>
      encodeCm('REJ', 1n, { localId: peer, remoteId: own, rejected: 2, reason: 10 }),
  },
};

/**
 * Sends one forgery to a side. Returns its name, and a complaint if it changed the state or made an event.
 * Answers are dropped: at most one.
 */
export function forge(
  side: Side,
  life: Life,
  peer: number,
  random: Random,
  now: number,
): { name: string; complaint?: string } {
  const state = side.state(life.id);
  const [name, forgery] = random.pick(Object.entries({ ...FORGERIES, ...UNTIMELY[state] }));
  const target = { own: life.communicationId, peer, qpn: life.qpn };
  side.receive(forgery(target, 1 + (random.next() % 0xfffffffe)), now);
  const answers = side.take().length;
  const events = side.events.length;
  const after = side.state(life.id);
  if (after === state && events === 0 && answers <= 1) return { name };
  return {
    name,
    complaint: `${name} of ${life.communicationId.toString(16)} (${side.kind}): ${state} became ${after}, ${events} events, ${answers} answers`,
  };
}
