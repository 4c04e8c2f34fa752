/**
 * The receive queue of a queue pair: a ring of its own, or with an SRQ a ring of one entry that is refilled
 * from there. Either way the oldest entry is the one that the next message takes.
 */
import { bthSolicited, dethSrcQp, iethRkey, immDt } from '@node-roce/wire';
import type { CompletionQueue } from '../completion-queue.ts';
import { Access, WcFlags, WcOpcode, WcStatus } from '../constants.ts';
import { type Context, RUN_MAX } from '../context.ts';
import { Cqe, RecvWqe, Sge } from '../entry-words.ts';
import type { InboundPacket } from '../inbound.ts';
import type { MemoryRegion } from '../region.ts';
import { indexLess, type Ring } from '../rings.ts';
import { checkList, Scattered, scatter } from '../sge.ts';
import type { SharedReceiveQueue } from '../srq.ts';
import type { TaggedReceives } from '../tags/tagged-receives.ts';
import type { Owner } from './owner.ts';

/**
 * Owns which entry comes next and how far the entry in use is filled.
 *
 * Invariants: `head` is the ring's consumer, at most `capacity` behind its producer; an entry is in use only
 * if one is posted, and is filled no further than its room.
 */
export class ReceiveQueue {
  readonly #context: Context;
  readonly #owner: Owner;
  /** Protection domain of the entries' regions, and elements that an entry may have: the SRQ's, if there is one. */
  #pd: number;
  #maxSge: number;
  #cq: CompletionQueue;
  #ring: Ring;
  #srq: SharedReceiveQueue | undefined;
  /** Free-running count of entries completed. */
  #head = 0;
  /** The entry at `head` belongs to the message that is arriving. */
  #inUse = false;
  /** Bytes that the entry in use holds, and those that it was filled with. */
  #room = 0;
  #filled = 0;
  /** Bytes of the next packet that do not go into it; negative for those that are read instead. */
  #skip = 0;
  /** With a tag matching SRQ: which entry a message gets. */
  readonly tagged: TaggedReceives | undefined;

  constructor(
    context: Context,
    owner: Owner,
    cq: CompletionQueue,
    ring: Ring,
    srq: SharedReceiveQueue | undefined,
    tagged?: TaggedReceives,
  ) {
    this.#context = context;
    this.#owner = owner;
    this.#cq = cq;
    this.#ring = ring;
    this.#srq = srq;
    this.tagged = tagged;
    this.#pd = srq?.pd ?? owner.pd;
    this.#maxSge = srq?.maxSge ?? owner.cap.maxRecvSge;
  }

  get maxSge(): number {
    return this.#maxSge;
  }

  /** XRC: the next message takes its entry from this SRQ, and completes there. No entry is in use. */
  takeFrom(srq: SharedReceiveQueue, cq: CompletionQueue): void {
    this.#srq = srq;
    this.#cq = cq;
    this.#pd = srq.pd;
    this.#maxSge = srq.maxSge;
  }

  /** Whether an SRQ gives the entries. */
  get shared(): boolean {
    return this.#srq !== undefined;
  }

  /** The ring of a resize, which the program posts to by now; not with an SRQ. */
  moveTo(ring: Ring, maxSge: number): void {
    ring.takeOver(this.#ring, this.#head);
    this.#ring = ring;
    this.#maxSge = maxSge;
  }

  /** Entries posted and not completed; with an SRQ, 0 or 1. */
  get posted(): number {
    return (this.#ring.end(this.#head) - this.#head) | 0;
  }

  get inUse(): boolean {
    return this.#inUse;
  }

  /** Bytes of the message in the entry in use. */
  get filled(): number {
    return this.#filled;
  }

  /** Whether there is an entry for a message. */
  available(): boolean {
    return this.#ring.has(this.#head) || this.#srq?.peek() !== undefined;
  }

  /**
   * The message that begins has the oldest entry, which is available. One of an SRQ stays there until the message fills
   * or completes it, so that a message that is dropped at once takes none from the other queue pairs.
   * @param payload bytes of its first packet
   * @returns SUCCESS, or what is wrong with the entry's list
   */
  begin(payload = 0): number {
    this.#inUse = true;
    this.#filled = 0;
    this.#room = 0;
    this.#skip = this.tagged === undefined ? 0 : this.tagged.begin(payload);
    const shared = this.#srq !== undefined && this.posted === 0 ? this.#srq.peek() : undefined;
    const ring = shared ?? this.#ring;
    const w = ring.wordOf(shared?.consumer ?? this.#head);
    const count = ring.words[w + RecvWqe.SGE_COUNT];
    if (count > this.maxSge) {
      if (this.#srq) this.#context.event({ type: 'SRQ_ERR', srq: this.#srq.handle });
      return WcStatus.LOC_QP_OP_ERR;
    }
    const room = checkList(this.#context, this.#pd, ring, w + RecvWqe.SGE, count, Access.LOCAL_WRITE);
    if (room < 0) return WcStatus.LOC_PROT_ERR;
    this.#room = room;
    return WcStatus.SUCCESS;
  }

  /** An SRQ's oldest entry becomes this queue pair's own. */
  #take(srq: SharedReceiveQueue): void {
    if (this.posted > 0) return;
    srq.take(this.#ring);
    if (srq.reachesLimit()) this.#context.event({ type: 'SRQ_LIMIT_REACHED', srq: srq.handle });
  }

  /** Whether so many bytes more fit into the entry in use. */
  fits(length: number): boolean {
    return this.#filled + length - this.#skip <= this.#room;
  }

  /**
   * Puts `length` bytes of the slab, or of `own`, behind those that the entry in use has. False where a region of
   * its list is gone.
   */
  fill(source: number, length: number, own?: Uint8Array): boolean {
    if (this.#srq) this.#take(this.#srq);
    const w = this.#ring.wordOf(this.#head);
    const { words } = this.#ring;
    const count = Math.min(words[w + RecvWqe.SGE_COUNT], this.maxSge);
    const at = this.#filled;
    const list = w + RecvWqe.SGE;
    const skip = this.#skip;
    this.#skip = 0;
    this.#filled = at + length - skip;
    if (this.tagged?.asks) {
      this.tagged.read(words, w, count, this.#filled);
      return true;
    }
    const context = this.#context;
    const { OK } = Scattered;
    return scatter(context, this.#pd, words, list, count, at, source + skip, length - skip, own) === OK;
  }

  /**
   * Does `begin`, `fits`, `fill` and `deliver` for a SEND of one packet, in one step. False, without any effect, where they have more
   * to do or an error to find: receives of an SRQ, of another number of elements than one, too short, or in memory that they may not use.
   */
  takeWhole(packet: InboundPacket): boolean {
    const ring = this.#ring;
    if (this.#srq !== undefined || !ring.has(this.#head)) return false;
    const { words } = ring;
    const w = ring.wordOf(this.#head);
    const element = w + RecvWqe.SGE;
    if (words[w + RecvWqe.SGE_COUNT] !== 1 || this.#maxSge === 0) return false;
    const size = words[element + Sge.LENGTH];
    const { payload } = packet;
    if (payload > size) return false;
    const context = this.#context;
    const mr = context.memory.byLkey(words[element + Sge.LKEY] | 0);
    if (mr === undefined || mr.pd !== this.#pd || (mr.access & Access.LOCAL_WRITE) === 0) return false;
    const offset = mr.locate(words[element + Sge.ADDRESS_HIGH], words[element + Sge.ADDRESS_LOW], size);
    if (offset < 0) return false;
    if (!mr.isNull && !context.place(packet.at + packet.info.headerLength, mr, offset, payload)) return false;
    this.deliverBytes(WcOpcode.RECV, payload, bthSolicited(packet.slab, packet.at) === 1);
    return true;
  }

  /**
   * Does `takeWhole` for up to `most` packets of a run, `step` bytes apart in the slab: a flat loop, which looks once at each word of an
   * entry. @returns how many; the first receive that `takeWhole` excludes ends the run
   */
  takeWholes(packet: InboundPacket, most: number, step: number): number {
    const ring = this.#ring;
    const head = this.#head;
    if (this.#srq !== undefined || this.#maxSge === 0) return 0;
    const count = Math.min(most, RUN_MAX, (ring.end(head) - head) | 0);
    const cq = this.#cq;
    if (count === 0 || !cq.hasRoom(count)) return 0;
    const context = this.#context;
    const { memory } = context;
    const pd = this.#pd;
    const { words, stride } = ring;
    const entries = ring.wordOf(0);
    const mask = ring.capacity - 1;
    const out = cq.ring;
    const cqes = out.words;
    const cqEntries = out.wordOf(0);
    const cqMask = out.capacity - 1;
    const cqStride = out.stride;
    const { next } = cq;
    const { payload } = packet;
    const { qpn } = this.#owner;
    const { destQpn } = this.#owner.attributes;
    const copies = context.copiesFor(count);
    let source = packet.at + packet.info.headerLength;
    // The region of the key that was looked up last.
    let key = 0;
    let found: MemoryRegion | undefined;
    let region = 0;
    let startHigh = 0;
    let startLow = 0;
    let start = 0;
    let length = -1;
    let n = 0;
    for (; n < count; n++) {
      const w = entries + ((head + n) & mask) * stride;
      const element = w + RecvWqe.SGE;
      // One of 2^31 bytes or more has no sign here, and is left to `takeWhole`.
      const size = words[element + Sge.LENGTH] | 0;
      if (words[w + RecvWqe.SGE_COUNT] !== 1 || payload > size) break;
      const lkey = words[element + Sge.LKEY] | 0;
      if (lkey !== key || found === undefined) {
        found = memory.byLkey(lkey);
        if (!found?.takesRuns || found.pd !== pd || (found.access & Access.LOCAL_WRITE) === 0) break;
        if (found.view.length < found.offset + found.length) break;
        key = lkey;
        region = found.region;
        startHigh = found.startHigh | 0;
        startLow = found.startLow | 0;
        start = found.offset | 0;
        length = found.isNear ? found.length | 0 : -1;
      }
      const high = words[element + Sge.ADDRESS_HIGH] | 0;
      const low = words[element + Sge.ADDRESS_LOW] | 0;
      const delta = (low - startLow) | 0;
      let place: number;
      if (high === startHigh && delta >= 0 && size <= length && delta <= length - size)
        place = (start + delta) | 0;
      else place = found.locate(high, low, size);
      if (place < 0) break;
      if (payload > 0) copies.add(source, region, place, payload);
      source += step;
      const q = cqEntries + ((next + n) & cqMask) * cqStride;
      cqes[q + Cqe.WR_ID_LOW] = words[w + RecvWqe.WR_ID_LOW];
      cqes[q + Cqe.WR_ID_HIGH] = words[w + RecvWqe.WR_ID_HIGH];
      cqes[q + Cqe.STATUS] = WcStatus.SUCCESS;
      cqes[q + Cqe.OPCODE] = WcOpcode.RECV;
      cqes[q + Cqe.BYTE_LEN] = payload;
      cqes[q + Cqe.IMMEDIATE] = 0;
      cqes[q + Cqe.QP_NUM] = qpn;
      cqes[q + Cqe.SRC_QP] = destQpn;
      cqes[q + Cqe.FLAGS] = 0;
      cqes[q + Cqe.VENDOR_ERR] = 0;
      cqes[q + Cqe.PKEY_INDEX] = 0;
      cqes[q + Cqe.SL] = 0;
    }
    if (n === 0) return 0;
    context.touch(cq);
    cq.commitRun(n, bthSolicited(packet.slab, packet.at) === 1);
    this.#head = (head + n) | 0;
    ring.release(this.#head);
    this.#owner.counters.completedReceives += n;
    return n;
  }

  /**
   * The message was dropped: its entry is for the next one. One that was taken from an SRQ can't go back among the others,
   * and completes in error (IBTA vol 1 §9.9.3, classes D1 and E).
   */
  giveBack(): void {
    if (this.#srq && this.posted > 0) this.fail(WcStatus.REM_INV_REQ_ERR);
    else this.#inUse = false;
  }

  /** Completes the oldest entry for the message of `length` bytes that this packet ends. */
  deliver(opcode: number, length: number, packet: InboundPacket, sl = 0): void {
    const { info, slab, at } = packet;
    const { offsets } = info;
    this.#owner.counters.completedReceives++;
    const w = this.#complete(WcStatus.SUCCESS, opcode);
    if (w < 0) return;
    const { words } = this.#cq;
    words[w + Cqe.BYTE_LEN] = length;
    let flags = 0;
    if (this.tagged !== undefined && opcode === WcOpcode.RECV) flags = this.tagged.describe(this.#cq, w);
    if (offsets.deth >= 0) {
      flags |= WcFlags.GRH;
      words[w + Cqe.SRC_QP] = dethSrcQp(slab, at + offsets.deth);
      words[w + Cqe.SL] = sl;
    }
    if (info.hasImmediate) {
      flags |= WcFlags.WITH_IMM;
      words[w + Cqe.IMMEDIATE] = immDt(slab, at + offsets.immDt);
    } else if (info.hasInvalidate) {
      flags |= WcFlags.WITH_INV;
      words[w + Cqe.IMMEDIATE] = iethRkey(slab, at + offsets.ieth);
    }
    words[w + Cqe.FLAGS] = flags;
    this.#cq.commit(bthSolicited(slab, at) === 1);
  }

  /** Completes the oldest entry for a message or a frame of so many bytes, with nothing of its headers. */
  deliverBytes(opcode: number, length: number, solicited: boolean): void {
    this.#owner.counters.completedReceives++;
    const w = this.#complete(WcStatus.SUCCESS, opcode);
    if (w < 0) return;
    this.#cq.words[w + Cqe.BYTE_LEN] = length;
    this.#cq.commit(solicited);
  }

  /** Completes the oldest entry with an error of its own. */
  fail(status: number): void {
    const { counters } = this.#owner;
    counters.failedReceives++;
    if (status === WcStatus.LOC_LEN_ERR) counters.shortReceives++;
    if (this.#complete(status, WcOpcode.RECV) >= 0) this.#cq.commit(true);
  }

  /**
   * Completes the posted receives with WR_FLUSH_ERR, and asks for doorbells for later ones.
   * @returns whether receives were posted meanwhile that no doorbell will report
   */
  flush(): boolean {
    const posted = this.#ring.end(this.#head);
    while (indexLess(this.#head, posted)) {
      this.#owner.counters.flushedReceives++;
      if (this.#complete(WcStatus.WR_FLUSH_ERR, WcOpcode.RECV) >= 0) this.#cq.commit(true);
    }
    return this.#ring.sleep(this.#head);
  }

  /** RESET: what is posted is forgotten (IBTA vol 1 §10.3.1.2). */
  reset(): void {
    this.#head = this.#ring.releaseAll();
    this.#inUse = false;
    this.#room = this.#filled = this.#skip = 0;
    this.tagged?.end(false);
  }

  /** The broken invariant, if there is one. */
  check(): string | undefined {
    const { posted } = this;
    if (posted < 0 || posted > this.#ring.capacity) {
      return `${posted} receives are posted, room for ${this.#ring.capacity}`;
    }
    if (this.#ring.consumer !== this.#head) {
      return `receive ${this.#head} is next, ${this.#ring.consumer} were given back`;
    }
    if (this.#inUse && posted === 0) return 'a receive is in use and none is posted';
    if (this.#inUse && this.#filled > this.#room)
      return `${this.#filled} bytes in a receive of ${this.#room}`;
    return undefined;
  }

  /** Gives the oldest entry back and begins its completion: its first word, or −1 if the queue overran. */
  #complete(status: number, opcode: number): number {
    if (this.#srq) this.#take(this.#srq);
    const from = this.#ring.wordOf(this.#head);
    const wrIdLow = this.#ring.words[from + RecvWqe.WR_ID_LOW];
    const wrIdHigh = this.#ring.words[from + RecvWqe.WR_ID_HIGH];
    this.#head = (this.#head + 1) | 0;
    this.#ring.release(this.#head);
    this.#inUse = false;
    this.tagged?.end(status === WcStatus.SUCCESS);
    const w = this.#context.claimCompletion(this.#owner, this.#cq);
    if (w < 0) return w;
    const { words } = this.#cq;
    words[w + Cqe.WR_ID_LOW] = wrIdLow;
    words[w + Cqe.WR_ID_HIGH] = wrIdHigh;
    words[w + Cqe.STATUS] = status;
    words[w + Cqe.OPCODE] = opcode;
    words[w + Cqe.SRC_QP] = this.#owner.attributes.destQpn;
    return w;
  }
}
