/**
 * `rate_limit` of a queue pair: requests leave no faster than so many kilobits a second, counted over
 * whole IP packets (ibv_modify_qp(3); responses are not held back).
 */
import { TX_SLOT_WORDS, Tx, type TxBatch } from './batch.ts';
import type { Core } from './core.ts';
import type { QueuePair } from './qp.ts';

/** What may be caught up after a late turn, µs: more would be a burst. */
const CATCH_UP = 2_000;
/** UDP header and ICRC; then IPv4 or IPv6. */
const AROUND = 8 + 4;
const IPV4 = 20;
const IPV6 = 40;
/** The words of `::ffff:…` in the machine's byte order. */
const MAPPED = new Uint32Array(Uint8Array.of(0, 0, 0xff, 0xff).buffer)[0];

/** Whether the next packet may leave now; if not, a deadline is set for it. */
export function mayPace(core: Core, qp: QueuePair): boolean {
  if (qp.paceNext <= core.now) {
    qp.paceNext = Math.max(qp.paceNext, core.now - CATCH_UP);
    return true;
  }
  qp.paceDeadline = qp.paceNext;
  core.deadlines.update(qp);
  return false;
}

/** Packets between two AckReqs, so that an ACK comes every millisecond or two: later it would be overdue. */
export function pacedAckInterval(qp: QueuePair): number {
  const perMillisecond = qp.rateLimit / 8 / qp.pathMtu;
  return Math.min(Math.max(1, Math.floor(perMillisecond)), Math.max(4, qp.window >> 2));
}

/** The packet that was added last takes its time on the way. */
export function pace(qp: QueuePair, { slots, count }: TxBatch): void {
  const w = (count - 1) * TX_SLOT_WORDS;
  const { source } = qp;
  const ip = source[0] === 0 && source[1] === 0 && source[2] === MAPPED ? IPV4 : IPV6;
  const bytes = slots[w + Tx.HEADER_LENGTH] + slots[w + Tx.PAYLOAD_LENGTH] + slots[w + Tx.PAD] + AROUND + ip;
  qp.paceNext += (bytes * 8000) / qp.rateLimit;
}
