/** Where in the send queue the next packet is: entry, packet, PSN, and the byte of the gather list. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import type { TxBatch } from '../batch.ts';
import type { Context } from '../context.ts';
import { SendWqe, SGE_WORDS, Sge } from '../entry-words.ts';
import type { Own } from '../own.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { indexAfter } from '../rings.ts';
import { addFragment, addFragments } from '../slots.ts';

/**
 * The five move together. Promise: the entry is one of the queue's in [head, started], the PSN is the entry's first and the packet's number, the
 * element and offset stand at the packet's first byte.
 */
export class SendCursor {
  /** Free-running index of the entry. */
  readonly entry: number = 0;
  /** Of the packet. */
  readonly psn: number = 0;
  #packet = 0;
  #element = 0;
  #offset = 0;

  /** Number of the packet in its entry. */
  get packet(): number {
    return this.#packet;
  }

  /** Before the first packet of an entry. */
  place(entry: number, psn: number): void {
    (this as Own<SendCursor>).entry = entry;
    (this as Own<SendCursor>).psn = psn;
    this.#packet = this.#element = this.#offset = 0;
  }

  /** At `psn`, which lies in the oldest incomplete entry, or is the next that was never sent. */
  seek(queue: SendQueue, psn: number, pathMtu: number): void {
    const { head } = queue;
    if (head === queue.started) this.place(head, psn);
    else this.#seekIn(queue, head, psn, pathMtu);
  }

  /** At `psn`, which lies in an entry that is started and not complete. */
  find(queue: SendQueue, psn: number, pathMtu: number): void {
    let entry = queue.head;
    while (queue.packetsOf(entry) === 0 || psnDiff(psn, queue.lastPsn(entry)) > 0) entry = indexAfter(entry);
    this.#seekIn(queue, entry, psn, pathMtu);
  }

  #seekIn(queue: SendQueue, entry: number, psn: number, pathMtu: number): void {
    this.place(entry, psn);
    this.#packet = psnDiff(psn, queue.firstPsn(entry));
    let offset = this.#packet * pathMtu;
    const { words } = queue;
    const w = queue.wordOf(entry);
    const count = Math.min(words[w + SendWqe.SGE_COUNT], queue.maxElements);
    while (this.#element < count) {
      const length = words[w + SendWqe.SGE + this.#element * SGE_WORDS + Sge.LENGTH];
      if (offset < length) break;
      offset -= length;
      this.#element++;
    }
    this.#offset = offset;
  }

  /** Past so many packets, the last of which is not the last of its entry. */
  step(packets: number): void {
    (this as Own<SendCursor>).psn = psnAdd(this.psn, packets);
    this.#packet += packets;
  }

  /** Past `psns` PSNs, and past entries that were executed locally. */
  advance(queue: SendQueue, psns: number): void {
    (this as Own<SendCursor>).psn = psnAdd(this.psn, psns);
    this.#packet += psns;
    if (this.#packet < queue.packetsOf(this.entry)) return;
    const { started } = queue;
    do (this as Own<SendCursor>).entry = indexAfter(this.entry);
    while (this.entry !== started && queue.packetsOf(this.entry) === 0);
    this.#packet = this.#element = this.#offset = 0;
  }

  /**
   * Adds the fragments of the next `length` bytes of the entry to a batch, and moves the element and offset past them.
   * False where a region or its memory went away meanwhile.
   */
  gather(
    { memory, regions }: Context,
    owner: Owner,
    queue: SendQueue,
    batch: TxBatch,
    length: number,
  ): boolean {
    const { words } = queue;
    const list = queue.wordOf(this.entry) + SendWqe.SGE;
    while (length > 0) {
      const w = list + this.#element * SGE_WORDS;
      // Once: another thread of the program may write a second value meanwhile.
      const size = words[w + Sge.LENGTH];
      const left = size - this.#offset;
      if (left <= 0) {
        this.#element++;
        this.#offset = 0;
        if (this.#element >= owner.cap.maxSendSge) return false;
        continue;
      }
      const take = Math.min(left, length);
      const mr = memory.byLkey(words[w + Sge.LKEY] | 0);
      if (!mr || mr.pd !== owner.pd) return false;
      const at = mr.locate(words[w + Sge.ADDRESS_HIGH], words[w + Sge.ADDRESS_LOW], size);
      if (at < 0) return false;
      if (mr.reach && !regions.fetched.pull(mr.reach, at + this.#offset, take)) return false;
      addFragment(batch, mr.region, mr.isNull ? 0 : at + this.#offset, take);
      this.#offset += take;
      length -= take;
    }
    return true;
  }

  /**
   * Adds a fragment of `length` bytes for each of up to `most` packets, as far as the element at hand has them, and moves the offset past them. The words
   * of the element, which the program may rewrite meanwhile, are read once. 0 where `gather` has to look.
   * @returns how many
   */
  gatherEach(
    { memory }: Context,
    owner: Owner,
    queue: SendQueue,
    batch: TxBatch,
    length: number,
    most: number,
  ): number {
    const { words } = queue;
    if (this.#element >= owner.cap.maxSendSge) return 0;
    const w = queue.wordOf(this.entry) + SendWqe.SGE + this.#element * SGE_WORDS;
    const size = words[w + Sge.LENGTH];
    const count = Math.min(most, Math.floor((size - this.#offset) / length));
    if (count <= 0) return 0;
    const mr = memory.byLkey(words[w + Sge.LKEY] | 0);
    if (mr === undefined || mr.pd !== owner.pd || mr.reach !== undefined || mr.isNull) return 0;
    const at = mr.locate(words[w + Sge.ADDRESS_HIGH] | 0, words[w + Sge.ADDRESS_LOW] | 0, size);
    if (at < 0) return 0;
    addFragments(batch, mr.region, at + this.#offset, length, count);
    this.#offset += count * length;
    return count;
  }
}
