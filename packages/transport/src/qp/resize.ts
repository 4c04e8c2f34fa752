/** A new size of a queue pair's queues: whether what is posted fits (ibv_modify_qp(3), IBV_QP_CAP). */
import { SendFlags } from '../constants.ts';
import type { QpCap } from '../control.ts';
import { invalid } from '../errors.ts';
import { powerOfTwo, RecvWqe, type Ring, SendWqe } from '../rings.ts';

/** The rings of a size that the program has not taken up, and the size. */
export interface NextRings {
  readonly sq: Ring;
  /** Undefined with an SRQ. */
  readonly rq: Ring | undefined;
  readonly cap: QpCap;
}

/** Throws EINVAL where more is posted to the send queue than fits, or longer. */
export function checkSendsFit(ring: Ring, cap: QpCap): void {
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
export function checkReceivesFit(ring: Ring, cap: QpCap): void {
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
