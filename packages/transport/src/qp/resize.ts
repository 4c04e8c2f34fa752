/** New sizes of a queue pair's queues: rings for them, and whether what is posted fits (ibv_modify_qp(3), IBV_QP_CAP). */
import { SendFlags } from '../constants.ts';
import type { Context } from '../context.ts';
import type { QpCap, QpResized } from '../control.ts';
import { RecvWqe, SendWqe } from '../entry-words.ts';
import { invalid, RoceError } from '../errors.ts';
import { type NewRing, powerOfTwo, type Ring, recvStride, sendStride } from '../rings.ts';

/** The queues of a queue pair; `rq` is undefined where receives are not posted to it. */
export interface Queues {
  readonly sq: Ring;
  readonly rq: Ring | undefined;
}

/**
 * Throws EINVAL where what is posted does not fit into queues of other sizes, EBUSY before the last resize is done.
 *
 * @param next the rings of the last resize, if the program has not taken them up
 */
export function checkResize({ sq, rq }: Queues, next: NextRings | undefined, cap: QpCap): void {
  if (next) {
    throw new RoceError('ERR_ROCE_BUSY', 'cap: the queues are still being resized', {
      errno: 'EBUSY',
      attribute: 'cap',
    });
  }
  checkSendsFit(sq, cap);
  if (rq) checkReceivesFit(rq, cap);
}

/** The sizes of the queues that were made for `cap`: rings may have more entries than were asked for, and there may be no ring. */
export function grantedCap(cap: QpCap, sq: Ring | undefined, rq: Ring | undefined): QpCap {
  const { maxSendSge, maxRecvSge, maxInlineData } = cap;
  return {
    maxSendWr: sq?.capacity ?? 0,
    maxRecvWr: rq?.capacity ?? 0,
    maxSendSge,
    maxRecvSge,
    maxInlineData,
  };
}

/** Rings of another size, which was checked, and which the program has not taken up. */
export class NextRings implements Queues {
  readonly sq: Ring;
  readonly rq: Ring | undefined;
  readonly cap: QpCap;

  constructor(context: Context, newRing: NewRing, cap: QpCap, hasReceives: boolean) {
    [this.sq, this.rq] = context.newRings(
      () => newRing(cap.maxSendWr, sendStride(cap.maxSendSge, cap.maxInlineData)),
      () => (hasReceives ? newRing(cap.maxRecvWr, recvStride(cap.maxRecvSge)) : undefined),
    );
    this.cap = grantedCap(cap, this.sq, this.rq);
  }

  /** Whether the program posts there and no more to the rings before. */
  isTakenUp({ sq, rq }: Queues): boolean {
    return sq.moved && (this.rq === undefined || rq?.moved === true);
  }

  /** Shows a state to threads that post there already. */
  show(state: number): void {
    this.sq.state = state;
    if (this.rq) this.rq.state = state;
  }

  /** The result of the call that resizes. @param rq the ring of receives that stays where there is no other */
  result(rq: Ring): QpResized {
    return { cap: this.cap, sendQueue: this.sq.shape, recvQueue: (this.rq ?? rq).shape };
  }
}

/** Throws EINVAL where more is posted to the send queue than fits, or longer. */
function checkSendsFit(ring: Ring, cap: QpCap): void {
  const { consumer, words } = ring;
  const end = ring.end(consumer);
  checkCount('cap.maxSendWr', (end - consumer) | 0, cap.maxSendWr);
  for (let i = consumer; i !== end; i = (i + 1) | 0) {
    const w = ring.wordOf(i);
    const inline = ((words[w + SendWqe.OPCODE_FLAGS] >>> 8) & SendFlags.INLINE) !== 0;
    if (inline) checkCount('cap.maxInlineData', words[w + SendWqe.LENGTH], cap.maxInlineData, false);
    else checkCount('cap.maxSendSge', words[w + SendWqe.SGE_COUNT], cap.maxSendSge, false);
  }
}

/** The same for receives. */
function checkReceivesFit(ring: Ring, cap: QpCap): void {
  const { consumer, words } = ring;
  const end = ring.end(consumer);
  checkCount('cap.maxRecvWr', (end - consumer) | 0, cap.maxRecvWr);
  for (let i = consumer; i !== end; i = (i + 1) | 0)
    checkCount('cap.maxRecvSge', words[ring.wordOf(i) + RecvWqe.SGE_COUNT], cap.maxRecvSge, false);
}

/** @param rounded the queue has a power of two of them */
function checkCount(attribute: string, posted: number, size: number, rounded = true): void {
  if (posted <= (rounded ? powerOfTwo(size) : size)) return;
  const what = rounded ? 'requests that are posted' : 'of a request that is posted';
  throw invalid(attribute, `${size} is less than the ${posted} ${what}`, `${posted} or more`);
}
