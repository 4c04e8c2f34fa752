/** The sending side of a raw packet queue pair: frames in a batch, which the port takes as it has room. */
import { TX_SLOT_WORDS, Tx, TxBatch } from '../batch.ts';
import { QpStateCode, SendFlags, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import { SendWqe, SGE_WORDS, Sge } from '../entry-words.ts';
import { RateLimit } from '../pacing/rate-limit.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { NULL_BYTES } from '../region.ts';
import { checkEntry } from '../requester/checks.ts';
import { addFragment } from '../slots.ts';
import type { FramePort } from './frames.ts';

/** Frames of a batch to the port. */
const BATCH = 64;
/** Batches in one call, each way: a thread may post as fast as the port takes, and the network go on for ever. */
export const BATCHES_MAX = 8;
/** Bytes of an Ethernet header: no frame is shorter. */
const HEADER_BYTES = 14;
/** No interface takes longer ones. */
const MAX_FRAME_BYTES = NULL_BYTES;
const EMSGSIZE = 90;
const EFAULT = 14;
const EINVAL = 22;

/** The queue pair as its sender sees it. */
export interface FrameOwner extends Owner {
  /** Calls `send` again at this time, µs. */
  wakeAt(time: number): void;
  /** The same in a moment: there is more to send. */
  wakeSoon(): void;
}

/**
 * Owns the frames that the port has not taken, and the pace. Promise: a frame is started in its batch, in order, and completes
 * when the port has processed it.
 */
export class FrameSender {
  readonly #context: Context;
  readonly #owner: FrameOwner;
  readonly #queue: SendQueue;
  readonly #port: FramePort;
  readonly #pacer = new RateLimit();
  readonly #batch: TxBatch;
  /** Slots of the batch that the port has processed. */
  #taken = 0;
  /** There may be more than fits into a batch. */
  #wanted = false;

  constructor(context: Context, owner: FrameOwner, queue: SendQueue, port: FramePort) {
    this.#context = context;
    this.#owner = owner;
    this.#queue = queue;
    this.#port = port;
    this.#batch = new TxBatch(context.regions, BATCH, BATCH * 33 + 33);
  }

  /** Sets `rate_limit`, kbit/s. */
  setRate(rate: number): void {
    this.#pacer.setRate(rate);
  }

  /** Sends the posted frames, as far as the port has room; what can't be sent fails in its turn. */
  send(): void {
    const batch = this.#batch;
    for (let batches = 0; batches < BATCHES_MAX; batches++) {
      if (batch.count > 0 && !this.#pass()) return;
      if (this.#owner.state !== QpStateCode.RTS) return;
      const status = this.#fill();
      if (batch.count > 0 && !this.#pass()) {
        // The entry that can't be sent is looked at again behind those before it.
        return;
      }
      if (this.#owner.state !== QpStateCode.RTS) return;
      if (status !== WcStatus.SUCCESS) {
        this.#queue.complete(status);
        this.#owner.sendFailed();
        return;
      }
      if (!this.#wanted) return;
    }
    this.#owner.wakeSoon();
  }

  /**
   * Fills the batch with frames; sets `#wanted` where there may be more.
   * @returns SUCCESS, or the status of the next entry, which can't be sent
   */
  #fill(): number {
    const queue = this.#queue;
    const batch = this.#batch;
    const now = this.#context.clock[0];
    this.#wanted = false;
    for (;;) {
      while (!queue.waiting) if (!queue.sleep()) return WcStatus.SUCCESS;
      if (batch.count === BATCH) {
        this.#wanted = true;
        return WcStatus.SUCCESS;
      }
      const index = queue.started;
      const w = queue.wordOf(index);
      const row = queue.rowOf(index);
      const { words } = queue;
      const length = words[w + SendWqe.LENGTH];
      const isInline = ((words[w + SendWqe.OPCODE_FLAGS] >>> 8) & SendFlags.INLINE) !== 0;
      const status = checkEntry(this.#context, this.#owner, queue, index, row, length, isInline);
      if (row === undefined || status !== WcStatus.SUCCESS) return status;
      if (length < HEADER_BYTES || length > MAX_FRAME_BYTES) return WcStatus.LOC_LEN_ERR;
      if (this.#pacer.limited) {
        const wait = this.#pacer.wait(now);
        if (wait > 0) {
          this.#owner.wakeAt(now + wait);
          return WcStatus.SUCCESS;
        }
        this.#pacer.chargeBytes(length);
      }
      const first = batch.fragmentCount;
      if (isInline) {
        addFragment(batch, this.#owner.sqRegion, (w + SendWqe.SGE) * 4, length);
      } else {
        const count = Math.min(words[w + SendWqe.SGE_COUNT], this.#owner.cap.maxSendSge);
        if (!this.#gather(words, w + SendWqe.SGE, count, length)) {
          batch.fragmentCount = first;
          return WcStatus.LOC_PROT_ERR;
        }
      }
      if (batch.count === 0) this.#context.batches.openFrames();
      const s = batch.count++ * TX_SLOT_WORDS;
      batch.slots[s + Tx.FRAGMENT_FIRST] = first;
      batch.slots[s + Tx.FRAGMENT_COUNT] = batch.fragmentCount - batch.slots[s + Tx.FRAGMENT_FIRST];
      batch.slots[s + Tx.PAYLOAD_LENGTH] = length;
      batch.slots[s + Tx.QPN] = this.#owner.qpn;
      queue.start(0, 0, row);
    }
  }

  /** Adds the `total` bytes of a list, which was checked. False where the program's thread has changed it since. */
  #gather(words: Uint32Array, first: number, count: number, total: number): boolean {
    let left = total;
    for (let i = 0, w = first; i < count; i++, w += SGE_WORDS) {
      const length = words[w + Sge.LENGTH];
      if (length === 0) continue;
      const mr = this.#context.memory.byLkey(words[w + Sge.LKEY] | 0);
      const at = mr?.locate(words[w + Sge.ADDRESS_HIGH], words[w + Sge.ADDRESS_LOW], length) ?? -1;
      if (mr?.pd !== this.#owner.pd || at < 0) return false;
      if (mr.reach && !this.#context.regions.fetched.pull(mr.reach, at, length)) return false;
      addFragment(this.#batch, mr.region, at, length);
      left -= length;
    }
    return left === 0;
  }

  /** Gives the batch to the port, and completes the entries that the port has processed. False where it has no room for all of it. */
  #pass(): boolean {
    const batch = this.#batch;
    const from = this.#taken;
    this.#taken = this.#port.send(batch, from);
    for (let i = from; i < this.#taken; i++) {
      const failure = this.#failureOf(batch.slots[i * TX_SLOT_WORDS + Tx.STATUS]);
      if (failure === WcStatus.SUCCESS) {
        this.#queue.complete(WcStatus.SUCCESS);
        if (this.#owner.state === QpStateCode.ERR) return false; // The completion queue has overrun.
        continue;
      }
      this.drop();
      this.#queue.complete(failure);
      this.#owner.sendFailed();
      return false;
    }
    if (this.#taken < batch.count) return false;
    this.drop();
    return true;
  }

  /** Returns the status of a request whose frame was looked at: too long or without memory fails; otherwise it is lost. */
  #failureOf(errno: number): number {
    if (errno === 0) {
      this.#owner.counters.sentPackets++;
      return WcStatus.SUCCESS;
    }
    this.#owner.counters.sendErrors++;
    if (errno === EMSGSIZE || errno === EINVAL) return WcStatus.LOC_LEN_ERR;
    return errno === EFAULT ? WcStatus.LOC_PROT_ERR : WcStatus.SUCCESS;
  }

  /** Forgets the frames that the port has not taken: the batch is empty again. */
  drop(): void {
    if (this.#batch.count > 0) this.#context.batches.closeFrames();
    this.#batch.clear();
    this.#taken = 0;
  }
}
