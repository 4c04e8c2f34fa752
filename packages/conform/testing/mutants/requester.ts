/** Ways to break the requester of a reliable connection. */
import type { ModelPacket, Requester } from '@node-roce/sim';
import { Opcode, opcodeInfo, psnAdd, psnDiff } from '@node-roce/wire';
import { isRequest, type Mutant, type Victim } from '../broken-device.ts';

const rowOf = ({ opcode }: ModelPacket) => opcodeInfo(opcode)!;
const isAck = ({ opcode, aeth }: ModelPacket): boolean =>
  opcode === Opcode.RC_ACKNOWLEDGE && aeth !== undefined && aeth.syndrome >> 5 === 0;
const isNak = ({ aeth }: ModelPacket, syndrome: number): boolean => aeth?.syndrome === syndrome;
const isRnr = ({ aeth }: ModelPacket): boolean => aeth !== undefined && aeth.syndrome >> 5 === 1;
const NO_DATA = new Uint8Array(0);

/** Responses are changed before they are looked at. */
const response = (
  fits: (packet: ModelPacket, requester: Requester) => boolean,
  change: (packet: ModelPacket, requester: Requester, victim: Victim) => ModelPacket | undefined,
) =>
  ({
    hear: (packet, victim) => {
      const requester = victim.rc?.requester;
      if (requester === undefined || isRequest(packet) || !fits(packet, requester)) return packet;
      return change(packet, requester, victim);
    },
  }) satisfies Pick<Mutant, 'hear'>;

/** Requests are changed when they are sent. */
const request = (
  fits: (packet: ModelPacket, requester: Requester) => boolean,
  change: (packet: ModelPacket, requester: Requester, victim: Victim) => readonly ModelPacket[],
) =>
  ({
    send: (packet, victim) => {
      const requester = victim.rc?.requester;
      if (requester === undefined || !isRequest(packet) || !fits(packet, requester)) return [packet];
      return change(packet, requester, victim);
    },
  }) satisfies Pick<Mutant, 'send'>;

/** After each step. */
const always = (change: (requester: Requester, victim: Victim, now: number) => void) =>
  ({
    after: (victim, now) => {
      if (victim.rc !== undefined) change(victim.rc.requester, victim, now);
    },
  }) satisfies Pick<Mutant, 'after'>;

const oldestIs = ({ queue }: Requester, ...opcodes: string[]): boolean =>
  queue[0] !== undefined && opcodes.includes(queue[0].request.opcode);

const ackOf = (packet: ModelPacket, psn: number): ModelPacket => ({
  ...packet,
  opcode: Opcode.RC_ACKNOWLEDGE,
  psn,
  aeth: { syndrome: 0x1f, msn: 0 },
  original: undefined,
  payload: NO_DATA,
});

/** Past everything that was sent. */
const isPast = ({ psn }: ModelPacket, { sentUpTo }: Requester): boolean => psnDiff(psn, sentUpTo) >= 0;

/** A value that may only fall. */
function onlyFalling(key: 'retriesLeft' | 'rnrRetriesLeft') {
  return always((requester, { notes }) => {
    const least = Math.min((notes[key] as number | undefined) ?? 9, requester[key]);
    notes[key] = least;
    requester[key] = least;
  });
}

/** The response that the oldest READ waits for last, with all bytes that are missing. */
function endOfRead(packet: ModelPacket, requester: Requester): ModelPacket {
  const [work] = requester.queue;
  const { pathMtu } = requester.config;
  const offset = psnDiff(work.lastPsn, work.firstPsn) * pathMtu;
  requester.una = work.lastPsn;
  return {
    ...packet,
    opcode: offset === 0 ? Opcode.RC_RDMA_READ_RESPONSE_ONLY : Opcode.RC_RDMA_READ_RESPONSE_LAST,
    psn: work.lastPsn,
    aeth: { syndrome: 0x1f, msn: 0 },
    payload: work.request.local.slice(offset),
  };
}

export const requesterMutants: Readonly<Record<string, Mutant>> = {
  'an ACK acknowledges one request': {
    seenBy: ['ACK-11', 'EXT-01'],
    ...response(
      (p, q) => isAck(p) && psnDiff(p.psn, q.una) > 0,
      (p, q) => ({ ...p, psn: q.una }),
    ),
  },
  'an ACK of a PSN not sent is taken': {
    seenBy: ['ACK-12'],
    ...response(
      (p, q) => isAck(p) && isPast(p, q),
      (p, q) => ackOf(p, psnAdd(q.sentUpTo, -1)),
    ),
  },
  'an old ACK is taken': {
    seenBy: ['ACK-13'],
    ...response(
      (p, q) => isAck(p) && psnDiff(p.psn, q.una) < 0 && q.queue.length > 0,
      (p, q) => ackOf(p, q.una),
    ),
  },
  'the P_Key of responses is not looked at': {
    seenBy: ['ACK-14'],
    ...response(
      () => true,
      (p) => ({ ...p, pkey: 0xffff }),
    ),
  },
  'credits ignored': { seenBy: ['CRD-01'], attributes: () => ({ credits: false }) },
  'WRITEs wait for credits': {
    seenBy: ['CRD-02'],
    ...request(
      (p, q) => rowOf(p).isWrite && q.creditLimit !== 'none' && q.creditLimit > 0,
      () => [],
    ),
  },
  'no wait after an RNR NAK': {
    seenBy: ['RNR-11', 'RNR-12', 'RNR-13', 'RNR-14', 'RNR-31'],
    ...always((q, _, now) => {
      if (q.rnrUntil !== undefined) q.rnrUntil = now;
    }),
  },
  'half the wait after an RNR NAK': {
    seenBy: ['RNR-12', 'RNR-13', 'RNR-14'],
    ...always((q, { input }, now) => {
      if (q.rnrUntil !== undefined && input && isRnr(input)) q.rnrUntil = now + (q.rnrUntil - now) / 2;
    }),
  },
  'timer code 0 of an RNR NAK is no time': {
    seenBy: ['RNR-31'],
    ...always((q, { input }, now) => {
      if (q.rnrUntil !== undefined && input?.aeth?.syndrome === 0x20) q.rnrUntil = now;
    }),
  },
  'another packet after an RNR NAK': {
    seenBy: ['RNR-11', 'RNR-13'],
    ...always((q, { input }) => {
      if (q.rnrUntil !== undefined && input && isRnr(input)) q.next = psnAdd(q.una, 1);
    }),
  },
  'one RNR retry less': {
    seenBy: ['RNR-15', 'RNR-32'],
    attributes: ({ rnrRetry }) => ({ rnrRetry: rnrRetry === 7 ? 7 : rnrRetry - 1 }),
  },
  'RNR retries without end': { seenBy: ['RNR-15', 'RNR-32'], attributes: () => ({ rnrRetry: 7 }) },
  'rnr_retry 7 is seven': {
    seenBy: ['RNR-16'],
    attributes: ({ rnrRetry }) => ({ rnrRetry: Math.min(6, rnrRetry) }),
  },
  'a sequence NAK ends the RNR wait': {
    seenBy: ['RNR-17'],
    ...response(
      (p, q) => isNak(p, 0x60) && q.rnrUntil !== undefined,
      (p, q) => {
        q.rnrUntil = undefined;
        return p;
      },
    ),
  },
  'RNR retries not restored': { seenBy: ['RNR-18'], ...onlyFalling('rnrRetriesLeft') },
  'an RNR NAK of a PSN not sent is taken': {
    seenBy: ['RNR-20'],
    ...response(
      (p, q) => isRnr(p) && isPast(p, q),
      (p, q) => ackOf(p, psnAdd(q.sentUpTo, -1)),
    ),
  },
  'no AckReq': {
    seenBy: ['REQ-01'],
    ...request(
      () => true,
      (p) => [{ ...p, ackReq: false }],
    ),
  },
  'packets of half the path MTU': {
    seenBy: ['REQ-01', 'NAK-08', 'REQ-07'],
    attributes: ({ pathMtu }) => ({ pathMtu: pathMtu / 2 }),
  },
  'SE on every packet': {
    seenBy: ['REQ-02'],
    ...request(
      () => true,
      (p) => [{ ...p, solicited: true }],
    ),
  },
  'RETH with the length of the packet': {
    seenBy: ['REQ-02'],
    ...request(
      (p) => rowOf(p).isWrite && p.reth !== undefined,
      (p) => [{ ...p, reth: { ...p.reth!, length: p.payload.length } }],
    ),
  },
  'a SEND of 0 bytes not sent': {
    seenBy: ['REQ-04'],
    ...request(
      (p) => rowOf(p).isSend && p.payload.length === 0,
      () => [],
    ),
  },
  'a READ takes one PSN': {
    seenBy: ['REQ-07'],
    ...request(
      (p, q) => rowOf(p).isSend && oldestIs(q, 'RDMA_READ'),
      (p, q) => [{ ...p, psn: psnAdd(q.queue[0].firstPsn, 1) }],
    ),
  },
  'the timer fires at half the time': {
    seenBy: ['TMO-01', 'TMO-18', 'TMO-19', 'TMO-21'],
    attributes: ({ timeout }) => ({ timeout: Math.max(0, timeout - 2) }),
  },
  'the timer fires at eight times the time': {
    seenBy: ['TMO-01', 'TMO-18', 'TMO-19', 'TMO-21'],
    attributes: ({ timeout }) => ({ timeout: timeout + 2 }),
  },
  'timers of at most half a second': {
    seenBy: ['TMO-18', 'TMO-19'],
    attributes: ({ timeout }) => ({ timeout: Math.min(timeout, 16) }),
  },
  'one retry more': {
    seenBy: ['TMO-02'],
    attributes: ({ retryCnt }) => ({ retryCnt: retryCnt + 1 }),
  },
  'retries not restored': { seenBy: ['TMO-03'], ...onlyFalling('retriesLeft') },
  'timeout 0 is 14': {
    seenBy: ['TMO-04'],
    attributes: ({ timeout }) => ({ timeout: timeout === 0 ? 14 : timeout }),
  },
  'retry_cnt 7 is for ever': {
    seenBy: ['TMO-06', 'NAK-02'],
    ...always((q) => {
      q.retriesLeft = 7;
    }),
  },
  'no repetition at all': {
    seenBy: ['TMO-01', 'TMO-03', 'TMO-18', 'ATO-11', 'RD-11'],
    ...request(
      (p, q) => psnDiff(p.psn, psnAdd(q.sentUpTo, -1)) < 0 || q.cause === 'timeout',
      (p, _, { notes }) => {
        notes.sent ??= new Set<number>();
        const sent = notes.sent as Set<number>;
        const isNew = !sent.has(p.psn);
        sent.add(p.psn);
        return isNew ? [p] : [];
      },
    ),
  },
  'sequence NAK ignored': {
    seenBy: ['NAK-01', 'NAK-08'],
    ...response(
      (p) => isNak(p, 0x60),
      () => undefined,
    ),
  },
  'a sequence NAK acknowledges nothing': {
    seenBy: ['NAK-01'],
    ...response(
      (p) => isNak(p, 0x60),
      (p, q) => ({ ...p, psn: q.una }),
    ),
  },
  'a sequence NAK of a PSN not sent is taken': {
    seenBy: ['NAK-03'],
    ...response(
      (p, q) => isNak(p, 0x60) && isPast(p, q),
      (p, q) => ackOf(p, psnAdd(q.sentUpTo, -1)),
    ),
  },
  'the statuses of NAKs are mixed up': {
    seenBy: ['NAK-04', 'NAK-05', 'NAK-06', 'RD-09'],
    ...response(
      (p) => isNak(p, 0x61) || isNak(p, 0x62) || isNak(p, 0x63),
      (p) => ({
        ...p,
        aeth: { ...p.aeth!, syndrome: p.aeth!.syndrome === 0x63 ? 0x61 : p.aeth!.syndrome + 1 },
      }),
    ),
  },
  'a NAK within a message begins it anew': {
    seenBy: ['NAK-08'],
    ...always((q, { input }) => {
      if (input && isNak(input, 0x60) && q.queue.length > 0) q.next = q.una = q.queue[0].firstPsn;
    }),
  },
  'an RNR NAK within a message begins it anew': {
    seenBy: ['RNR-19'],
    ...always((q, { input }) => {
      if (input && isRnr(input) && q.queue.length > 0) q.next = q.una = q.queue[0].firstPsn;
    }),
  },
  'a fence is not heeded': {
    seenBy: ['REQ-05'],
    made: (pair) => {
      const post = pair.postSend.bind(pair);
      pair.postSend = (send) => post({ ...send, fence: false });
    },
  },
  'a FLUSH again with another address': {
    seenBy: ['PLC-06'],
    ...request(
      (p, q) => rowOf(p).isFlush && q.retriesLeft < q.config.retryCnt,
      (p) => [{ ...p, reth: { ...p.reth!, va: p.reth!.va + 8n } }],
    ),
  },
  'an ATOMIC WRITE again with other bytes': {
    seenBy: ['PLC-06'],
    ...request(
      (p, q) => rowOf(p).isAtomicWrite && q.retriesLeft < q.config.retryCnt,
      (p) => [{ ...p, payload: p.payload.map((byte) => byte ^ 1) }],
    ),
  },
  'an old NAK makes it repeat': {
    seenBy: ['NAK-09'],
    ...response(
      (p, q) => isNak(p, 0x60) && psnDiff(p.psn, q.una) < 0,
      (p, _, { inject }) => {
        inject({ opcode: Opcode.RC_SEND_ONLY, psn: p.psn, aeth: undefined });
        return undefined;
      },
    ),
  },
  'an atomic again with other operands': {
    seenBy: ['ATO-11'],
    ...request(
      (p, q) => p.atomicEth !== undefined && q.retriesLeft < q.config.retryCnt,
      (p) => [{ ...p, atomicEth: { ...p.atomicEth!, swapAdd: p.atomicEth!.swapAdd + 1n } }],
    ),
  },
  'no implied NAK by an ACK': {
    seenBy: ['ATO-12', 'RD-06'],
    ...response(
      (p, q) => isAck(p) && oldestIs(q, 'RDMA_READ', 'ATOMIC_FETCH_AND_ADD'),
      () => undefined,
    ),
  },
  'no implied NAK by a READ response': {
    seenBy: ['RD-13'],
    ...response(
      (p, q) => rowOf(p).isReadResponse && psnDiff(p.psn, q.una) > 0,
      () => undefined,
    ),
  },
  'a FETCH ADD with bytes in the field for the value compared with': {
    seenBy: ['ATO-14'],
    send: (p) => [p.atomicEth ? { ...p, atomicEth: { ...p.atomicEth, compare: 0xbadn } } : p],
  },
  'an ACK completes an atomic': {
    seenBy: ['ATO-13'],
    ...response(
      (p, q) => isAck(p) && oldestIs(q, 'ATOMIC_FETCH_AND_ADD'),
      (p) => ({ ...p, opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE, original: 0n }),
    ),
  },
  'a READ response completes an atomic': {
    seenBy: ['ATO-13'],
    ...response(
      (p, q) => rowOf(p).isReadResponse && oldestIs(q, 'ATOMIC_FETCH_AND_ADD'),
      (p) => ({ ...p, opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE, original: 0n, payload: NO_DATA }),
    ),
  },
  'an ACK completes a READ': {
    seenBy: ['RD-05'],
    ...response(
      (p, q) => isAck(p) && oldestIs(q, 'RDMA_READ'),
      (p, q) => endOfRead(p, q),
    ),
  },
  'LAST and ONLY complete a READ wherever they come': {
    seenBy: ['RD-03', 'RD-10'],
    ...response(
      (p, q) => rowOf(p).isReadResponse && rowOf(p).last && oldestIs(q, 'RDMA_READ'),
      (p, q) => endOfRead(p, q),
    ),
  },
  'a READ again from its beginning': {
    seenBy: ['RD-01', 'CM-20'],
    ...request(
      (p, q) => rowOf(p).isReadRequest && oldestIs(q, 'RDMA_READ') && p.psn !== q.queue[0].firstPsn,
      (p, q) => {
        const { request: work } = q.queue[0];
        return [{ ...p, reth: { ...work.remote!, length: work.local.length } }];
      },
    ),
  },
  'a response that came before is written': {
    seenBy: ['RD-02'],
    ...response(
      (p, q) => rowOf(p).isReadResponse && oldestIs(q, 'RDMA_READ') && psnDiff(p.psn, q.una) < 0,
      (p, q) => {
        const [{ request: work, firstPsn }] = q.queue;
        work.local.set(p.payload, psnDiff(p.psn, firstPsn) * q.config.pathMtu);
        return p;
      },
    ),
  },
  'a response past the end of a READ is written': {
    seenBy: ['RD-04'],
    ...response(
      (p) => rowOf(p).isReadResponse,
      (p, q, { notes }) => {
        notes.local ??= q.queue[0]?.request.local;
        notes.first ??= p.psn;
        const local = notes.local as Uint8Array | undefined;
        const first = notes.first as number;
        const offset = psnDiff(p.psn, first) * q.config.pathMtu;
        if (local && offset >= local.length) {
          new Uint8Array(local.buffer, local.byteOffset + offset).set(p.payload);
        }
        return p;
      },
    ),
  },
  'one READ more than agreed on': {
    seenBy: ['RD-07'],
    attributes: ({ maxRdAtomic }) => ({ maxRdAtomic: maxRdAtomic + 1 }),
  },
  'any response is the next one': {
    seenBy: ['RD-01', 'RD-08'],
    ...response(
      (p, q) => rowOf(p).isReadResponse && oldestIs(q, 'RDMA_READ') && psnDiff(p.psn, q.una) > 0,
      (p, q) => ({ ...p, psn: q.una }),
    ),
  },
};
