/** READs and atomics that a responder has executed, to answer duplicates of them. */
import {
  atomicEthRkey,
  PSN_MASK,
  psnAdd,
  psnDiff,
  rethLength,
  rethRkey,
  rethVaHigh,
  rethVaLow,
  TWO_32,
} from '@node-roce/wire';
import type { InboundPacket } from '../inbound.ts';
import type { Own } from '../own.ts';
import { powerOfTwo } from '../rings.ts';

/** Words of a remembered request. */
const Word = {
  /** BTH opcode. */
  OPCODE: 0,
  PSN: 1,
  /** PSNs that it takes: responses of a READ, 1 for an atomic. */
  PACKETS: 2,
  KEY: 3,
  ADDRESS_HIGH: 4,
  ADDRESS_LOW: 5,
  LENGTH: 6,
  /** Atomics: the value that was there before. */
  VALUE_HIGH: 7,
  VALUE_LOW: 8,
  /** READs: repetitions that found the memory closed; in the place of the value. */
  REFUSALS: 7,
} as const;
const WORDS = 9;
const NO_WORDS = new Uint32Array(0);

/** PSNs before the expected one that are duplicates (IBTA vol 1 §9.7.4.1.1). */
const DUPLICATE_REGION = 1 << 23;
/** Every so many PSNs the requests beyond the duplicate region are forgotten; a fraction of the rest of the circle. */
const EXPIRY_SHIFT = 22;

/**
 * Resources for a depth (`max_dest_rd_atomic`): the next power of two. rxe, mlx4, mlx5, mthca and hns round their own depth up so
 * (`max_rd_atomic`), so that a peer with which 5 were agreed on may have 8 out.
 */
export function resourcesFor(depth: number): number {
  return depth === 0 ? 0 : powerOfTwo(depth);
}

/**
 * Owns a ring of the last executed READs and atomics, each by its PSN.
 *
 * Invariants: never more than the capacity; requests are in PSN order, none overlaps the next; the last PSN of
 * each was expected no more than 2^23 + 2^22 PSNs ago, so that a PSN means one of them only, across the wrap too.
 */
export class ResponderResources {
  /** Those that are remembered. */
  readonly count: number = 0;
  /** Made with the first one: many connections never read. */
  #words = NO_WORDS;
  #capacity = 0;
  /** Where the next one goes. */
  #next = 0;

  /** READs and atomics that can be remembered. */
  get capacity(): number {
    return this.#capacity;
  }

  /** Makes room for so many; the newest that fit stay: with 0, nothing is remembered any more. */
  resize(capacity: number): void {
    if (capacity === this.#capacity) return;
    if (this.count === 0) {
      this.#words = NO_WORDS;
      this.#capacity = capacity;
      this.#next = 0;
      return;
    }
    const words = new Uint32Array(capacity * WORDS);
    const count = Math.min(this.count, capacity);
    for (let age = count; age >= 1; age--) {
      const from = this.#slot(age) * WORDS;
      words.set(this.#words.subarray(from, from + WORDS), (count - age) * WORDS);
    }
    this.#words = words;
    this.#capacity = capacity;
    (this as Own<ResponderResources>).count = count;
    this.#next = count === capacity ? 0 : count;
  }

  /** Remembers the READ in the packet, which is answered with so many packets. */
  rememberRead({ info, slab, at, psn }: InboundPacket, packets: number): void {
    const w = this.#take(info.opcode, psn, packets);
    const words = this.#words;
    const reth = at + info.offsets.reth;
    words[w + Word.KEY] = rethRkey(slab, reth);
    words[w + Word.ADDRESS_HIGH] = rethVaHigh(slab, reth);
    words[w + Word.ADDRESS_LOW] = rethVaLow(slab, reth);
    words[w + Word.LENGTH] = rethLength(slab, reth);
    words[w + Word.REFUSALS] = 0;
  }

  /** Remembers the atomic in the packet, and the value that it is answered with. */
  rememberAtomic({ info, slab, at, psn }: InboundPacket, valueHigh: number, valueLow: number): void {
    const w = this.#take(info.opcode, psn, 1);
    this.#words[w + Word.KEY] = atomicEthRkey(slab, at + info.offsets.atomicEth);
    this.#words[w + Word.VALUE_HIGH] = valueHigh;
    this.#words[w + Word.VALUE_LOW] = valueLow;
  }

  /** Remembers the FLUSH or ATOMIC_WRITE in the packet; its answer carries no result. */
  rememberPlacement({ info, psn }: InboundPacket): void {
    this.#take(info.opcode, psn, 1);
  }

  /**
   * Finds the remembered request whose PSNs include this one, the newest first; −1 if there is none in the
   * duplicate region of the expected PSN.
   */
  find(psn: number, expectedPsn: number): number {
    for (let age = 1; age <= this.count && this.#age(age, expectedPsn) <= DUPLICATE_REGION; age++) {
      const w = this.#slot(age) * WORDS;
      if (((psn - this.#words[w + Word.PSN]) & PSN_MASK) < this.#words[w + Word.PACKETS]) return w;
    }
    return -1;
  }

  /** Whether the request that `find` found had this opcode. */
  had(found: number, opcode: number): boolean {
    return this.#words[found + Word.OPCODE] === opcode;
  }

  /** The value that the atomic which `find` found was answered with. */
  valueHigh(found: number): number {
    return this.#words[found + Word.VALUE_HIGH];
  }
  valueLow(found: number): number {
    return this.#words[found + Word.VALUE_LOW];
  }

  /** Whether a READ asks for the READ that `find` found, or for its rest from some response on (§9.7.5.1.5). */
  covers(found: number, { info, slab, at, psn }: InboundPacket, mtu: number): boolean {
    const words = this.#words;
    const reth = at + info.offsets.reth;
    const skipped = ((psn - words[found + Word.PSN]) & PSN_MASK) * mtu;
    const offset =
      (rethVaHigh(slab, reth) - words[found + Word.ADDRESS_HIGH]) * TWO_32 +
      (rethVaLow(slab, reth) - words[found + Word.ADDRESS_LOW]);
    return (
      rethRkey(slab, reth) === words[found + Word.KEY] &&
      offset === skipped &&
      skipped + rethLength(slab, reth) <= words[found + Word.LENGTH]
    );
  }

  /** A repetition of the READ that `find` found can't be answered. @returns how many those are */
  refuse(found: number): number {
    return ++this.#words[found + Word.REFUSALS];
  }

  /**
   * The last PSN that an ACK for a duplicate at `psn` may carry: up to `latest`, yet before the first READ or
   * atomic after it, whose response may be missing: an ACK past it would mean that it was answered.
   */
  acknowledgeable(psn: number, latest: number): number {
    let limit = latest;
    for (let age = 1; age <= this.count; age++) {
      const first = this.#words[this.#slot(age) * WORDS + Word.PSN];
      if (psnDiff(first, psn) <= 0) break;
      if (psnDiff(first, limit) <= 0) limit = psnAdd(first, -1);
    }
    return limit;
  }

  /** The expected PSN moves on by one: forgets what fell out of the duplicate region, now and then. */
  moves(from: number, to: number): void {
    if (from >> EXPIRY_SHIFT !== to >> EXPIRY_SHIFT) this.expire(to, 0);
  }

  /** Forgets the requests that are behind the duplicate region once the expected PSN is `ahead` further. */
  expire(expectedPsn: number, ahead: number): void {
    while (this.count > 0 && this.#age(this.count, expectedPsn) + ahead > DUPLICATE_REGION)
      (this as Own<ResponderResources>).count--;
  }

  /** The violated invariants of this object's state, if any. */
  fault(expectedPsn: number): string | undefined {
    if (this.count > this.#capacity) return `${this.count} READs and atomics in room for ${this.#capacity}`;
    let newer = 0;
    for (let age = 1; age <= this.count; age++) {
      const behind = this.#age(age, expectedPsn);
      const packets = this.#words[this.#slot(age) * WORDS + Word.PACKETS];
      if (behind <= newer) return `the READs and atomics remembered at ${behind} PSNs back are out of order`;
      newer = behind + packets - 1;
    }
    return undefined;
  }

  /** PSNs from the last one of the request that is `age`-newest to the expected one. */
  #age(age: number, expectedPsn: number): number {
    const w = this.#slot(age) * WORDS;
    const last = this.#words[w + Word.PSN] + this.#words[w + Word.PACKETS] - 1;
    return (expectedPsn - last) & PSN_MASK;
  }

  #slot(age: number): number {
    const slot = this.#next - age;
    return slot < 0 ? slot + this.#capacity : slot;
  }

  /** The place of the oldest, or a free one. */
  #take(opcode: number, psn: number, packets: number): number {
    if (this.#words === NO_WORDS) this.#words = new Uint32Array(this.#capacity * WORDS);
    const w = this.#next * WORDS;
    this.#next = this.#next + 1 === this.#capacity ? 0 : this.#next + 1;
    if (this.count < this.#capacity) (this as Own<ResponderResources>).count++;
    this.#words[w + Word.OPCODE] = opcode;
    this.#words[w + Word.PSN] = psn;
    this.#words[w + Word.PACKETS] = packets;
    return w;
  }
}
