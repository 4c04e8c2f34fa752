/**
 * The request packets of one queue pair, by PSN: those that wait for an answer, and for a while those
 * before them. Flat arrays, an entry a packet; a ring that grows with what is out, to a bound.
 *
 * PSNs are unwrapped: they go on past 2^24, so that plain comparison orders them. A READ request takes the
 * PSNs of its responses (IBTA vol 1 §9.7.2); its entry spans them.
 */
import { PSN_MASK, psnDiff } from '@node-roce/wire';

export const EntryFlags = {
  /** The capture shows the packet. Not set: its PSN was skipped, or only its answer was seen. */
  SEEN: 1,
  /** Answered, though never seen: counted as missed by the capture. */
  MISSED: 2,
  ACK_REQ: 4,
  /** Came late, when a NAK had asked for it: it will come once more. */
  AWAITED: 16,
  /** No packet of its own: a READ before it, seen late, takes its PSN. */
  COVERED: 8,
  /** A READ or atomic whose last response came while an earlier one was missing. */
  ANSWERED: 32,
  /** `ACK_REQ` is that of the first transmission, this of the last. */
  ACK_REQ_LAST: 64,
  /** An ACK named just its PSN, and not one behind it. */
  ACK_NAMED: 128,
} as const;

/** Entries to begin with: a capture may hold very many queue pairs with a packet or two each. */
const INITIAL_ENTRIES = 4;
/** From this size on answered entries are dropped before the ring grows. */
const MIN_HISTORY = 16;
/** Entries at most; older ones are given up. 2^15 packets of 4096 bytes are 128 MiB in flight. */
const MAX_ENTRIES = 1 << 15;
/** Numbers of entries start here, so that those put before the first one are not negative: that is no entry. */
const FIRST_ENTRY = 1 << 20;

/**
 * A ring of request packets, as columns of typed arrays: the outstanding ones, and before them some answered ones.
 */
export class Outstanding {
  /** Absolute numbers of the oldest entry, of the oldest one that is not answered, and past the newest. */
  head = FIRST_ENTRY;
  walk = FIRST_ENTRY;
  tail = FIRST_ENTRY;
  psns: Float64Array = new Float64Array(INITIAL_ENTRIES);
  /** First and last time the packet was seen; of one that was not, when that was noticed. */
  firstTimes: Float64Array = new Float64Array(INITIAL_ENTRIES);
  lastTimes: Float64Array = new Float64Array(INITIAL_ENTRIES);
  /** When it was answered, if `ANSWERED`. */
  answerTimes: Float64Array = new Float64Array(INITIAL_ENTRIES);
  /** Of one that was not seen, the packet behind it; 0: none. */
  firstFrames: Uint32Array = new Uint32Array(INITIAL_ENTRIES);
  lastFrames: Uint32Array = new Uint32Array(INITIAL_ENTRIES);
  /** PSNs that the packet takes: 1, of a READ the number of its responses; 0: not known yet. */
  spans: Uint32Array = new Uint32Array(INITIAL_ENTRIES);
  /** Bytes of payload. */
  sizes: Uint32Array = new Uint32Array(INITIAL_ENTRIES);
  /** The RETH's length; 0 without one. */
  lengths: Uint32Array = new Uint32Array(INITIAL_ENTRIES);
  /** Times that the packet was seen, mirrors' repetitions left out. */
  sends: Uint16Array = new Uint16Array(INITIAL_ENTRIES);
  opcodes: Uint8Array = new Uint8Array(INITIAL_ENTRIES);
  flags: Uint8Array = new Uint8Array(INITIAL_ENTRIES);
  #mask = INITIAL_ENTRIES - 1;

  get count(): number {
    return this.tail - this.head;
  }

  get unanswered(): number {
    return this.tail - this.walk;
  }

  /** Where an entry stands in the arrays. */
  slot(entry: number): number {
    return entry & this.#mask;
  }

  /** No entry may be added before the oldest unanswered one is given up. */
  get full(): boolean {
    return this.unanswered >= MAX_ENTRIES;
  }

  /** A new newest entry; its slot. The caller sees to `full`. */
  append(psn: number, time: number): number {
    if (this.tail - this.head > this.#mask) this.#makeRoom();
    const slot = this.tail++ & this.#mask;
    this.#clear(slot, psn, time);
    return slot;
  }

  /** A new oldest entry, before anything was answered; its slot, −1 if there is no room. */
  prepend(psn: number, time: number): number {
    if (this.walk !== this.head || this.unanswered >= MAX_ENTRIES) return -1;
    if (this.tail - this.head > this.#mask) this.#resize(2 * (this.#mask + 1));
    const slot = --this.head & this.#mask;
    this.walk = this.head;
    this.#clear(slot, psn, time);
    return slot;
  }

  /** Keeps the newest `size` entries, a power of two, in a ring of that size; the unanswered ones must be no more. */
  shrink(size: number): void {
    if (this.#mask < size) return;
    this.head = Math.max(this.head, this.tail - size);
    this.#resize(size);
  }

  /** Whether this PSN is the first one of an entry. */
  begins(psn: number): boolean {
    const entry = this.find(psn);
    return entry >= 0 && this.psns[this.slot(entry)] === psn;
  }

  /** The entry whose PSNs hold this one; −1 if it is older than all or newer. */
  find(psn: number): number {
    if (this.head === this.tail) return -1;
    const { psns } = this;
    const mask = this.#mask;
    const newest = psns[(this.tail - 1) & mask];
    // Without READs between, entries are as far apart as their PSNs.
    const guess = this.tail - 1 - (newest - psn);
    if (guess >= this.head && guess < this.tail && psns[guess & mask] === psn) return guess;
    if (psn < psns[this.head & mask]) return -1;
    let low = this.head;
    let high = this.tail - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (psns[middle & mask] <= psn) low = middle;
      else high = middle - 1;
    }
    const slot = low & mask;
    return psn < psns[slot] + Math.max(1, this.spans[slot]) ? low : -1;
  }

  #clear(slot: number, psn: number, time: number): void {
    this.psns[slot] = psn;
    this.firstTimes[slot] = time;
    this.lastTimes[slot] = time;
    this.answerTimes[slot] = 0;
    this.firstFrames[slot] = 0;
    this.lastFrames[slot] = 0;
    this.spans[slot] = 1;
    this.sizes[slot] = 0;
    this.lengths[slot] = 0;
    this.sends[slot] = 0;
    this.opcodes[slot] = 0;
    this.flags[slot] = 0;
  }

  /** Half of the ring is kept for answered requests, so that their retransmissions are recognized. */
  #makeRoom(): void {
    const size = this.#mask + 1;
    if ((size >= MIN_HISTORY && this.unanswered * 2 <= size) || size >= 2 * MAX_ENTRIES) {
      if (this.head < this.walk) {
        this.head++;
        return;
      }
    }
    this.#resize(2 * (this.#mask + 1));
  }

  #resize(size: number): void {
    this.psns = this.#copied(this.psns, new Float64Array(size));
    this.firstTimes = this.#copied(this.firstTimes, new Float64Array(size));
    this.lastTimes = this.#copied(this.lastTimes, new Float64Array(size));
    this.answerTimes = this.#copied(this.answerTimes, new Float64Array(size));
    this.firstFrames = this.#copied(this.firstFrames, new Uint32Array(size));
    this.lastFrames = this.#copied(this.lastFrames, new Uint32Array(size));
    this.spans = this.#copied(this.spans, new Uint32Array(size));
    this.sizes = this.#copied(this.sizes, new Uint32Array(size));
    this.lengths = this.#copied(this.lengths, new Uint32Array(size));
    this.sends = this.#copied(this.sends, new Uint16Array(size));
    this.opcodes = this.#copied(this.opcodes, new Uint8Array(size));
    this.flags = this.#copied(this.flags, new Uint8Array(size));
    this.#mask = size - 1;
  }

  #copied<T extends { [index: number]: number; length: number }>(from: T, to: T): T {
    const mask = to.length - 1;
    for (let entry = this.head; entry < this.tail; entry++) to[entry & mask] = from[entry & this.#mask];
    return to;
  }
}

/** The unwrapped PSN that is nearest to `near`. */
export function unwrap(psn: number, near: number): number {
  return near + psnDiff(psn, near & PSN_MASK);
}

/** Where unwrapped PSNs start: one turn up, so that what lies before the first one seen is not negative. */
export const unwrapFirst = (psn: number): number => psn + PSN_MASK + 1;
