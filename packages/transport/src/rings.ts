/**
 * The queues a program and the engine share: fixed-size entries behind one control page. A queue has one producer and
 * one consumer. In a SharedArrayBuffer they may be on two threads. In an ArrayBuffer they are on one, where plain accesses are
 * atomic by themselves: V8 of Node 20 calls a function for each `Atomics.load`, which costs small messages speed.
 *
 * The producer writes the entry, then publishes it with an atomic store of `PRODUCER`; the consumer
 * gives the entry back with an atomic store of `CONSUMER`. Both are free-running 32-bit counts, so
 * `producer - consumer` is the number of entries in use and nothing is ever ambiguous.
 *
 * `SLEEPING` is the doorbell's switch: the consumer sets it when it finds the queue empty, looks at
 * `PRODUCER` once more, and only then forgets the queue. A producer that publishes an entry and finds the flag
 * set clears it and rings. So a busy queue costs no doorbells, and no entry is ever left unseen.
 */
import { RecvWqe, SendWqe, SGE_WORDS } from './entry-words.ts';

/** Words of the control page. Producer and consumer have a cache line each. */
export const Control = {
  /**
   * Send and receive queues: a `QpStateCode`. Completion queue: 1 once it overran. Shared receive queue: 1
   * once the program posts to its successor and no more here.
   */
  STATE: 0,
  PRODUCER: 16,
  CONSUMER: 32,
  SLEEPING: 48,
  /** Send and receive queues: 1 once the program posts to the successor, after a resize, and no more here. */
  MOVED: 50,
  /** Completion queue: 0 not armed, 1 armed for the next completion, 2 for the next solicited one. */
  ARMED: 49,
} as const;
/**
 * Further words of the control page of doorbells of a program in another process: a count that changes after something has completed; not 0
 * while threads of the program sleep until it changes (futex(2)); and one more than the number of the processor that the consumer had then.
 */
export const BellControl = { TURNS: 51, WAITING: 52, PROCESSOR: 53 } as const;
/** The values of `BellControl.WAITING`: the last thread that began to wait has a processor of its own, or the consumer's. */
export const WaitingThreads = { NONE: 0, APART: 1, SHARING: 2 } as const;
/** The values of `Control.STATE` of a shared receive queue. */
export const RingState = { IN_USE: 0, LEFT: 1 } as const;
/** Words of the control page (256 bytes). */
export const CONTROL_WORDS = 64;

/** Shape of a ring; plain data, so that it can cross to another thread. */
export interface RingShape {
  readonly buffer: ArrayBufferLike;
  /** Entries; a power of two. */
  readonly capacity: number;
  /** Words of an entry. */
  readonly stride: number;
  /** Where the ring begins in the buffer, a multiple of 4; 0 unless given. */
  readonly byteOffset?: number;
  /**
   * The control page of a copy of the ring in memory that another process writes: state and consumer's count are stored
   * there, too, and nothing is read from it.
   */
  readonly mirror?: Uint32Array;
  /** A ring in a slab (`ring-slabs.ts`): all words of the slab, and where in it its control words and its entries begin. */
  readonly slab?: RingPlace | undefined;
}

/** A ring's place among others in one buffer. */
export interface RingPlace {
  readonly words: Uint32Array;
  /** First word of its control page, of which the words between those of `Control` belong to other rings. */
  readonly control: number;
  /** First word of its entries. */
  readonly entries: number;
}

/** The smallest power of two that is not less than `n`. */
export function powerOfTwo(n: number): number {
  return n <= 1 ? 1 : 2 ** (32 - Math.clz32(n - 1));
}

/**
 * Makes the memory of a ring with room for at least `entries`.
 *
 * @param shared whether producer and consumer may be on two threads
 */
export function createRing(entries: number, stride: number, shared = true): RingShape {
  const capacity = powerOfTwo(entries);
  const bytes = (CONTROL_WORDS + capacity * stride) * 4;
  return { buffer: shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes), capacity, stride };
}

// Producer's and consumer's counts wrap, so indices are compared by their distance: a number of 32 bits with a sign (`| 0`), as others are. V8
// compares one without a sign (`>>> 0`) with those as fractions.

/** The index after this one. */
export function indexAfter(index: number): number {
  return (index + 1) | 0;
}

/** The index before this one. */
export function indexBefore(index: number): number {
  return (index - 1) | 0;
}

/** How far `a` is past `b`; negative where it is before it. */
export function indexDiff(a: number, b: number): number {
  return (a - b) | 0;
}

/** Whether `a` is before `b`. */
export function indexLess(a: number, b: number): boolean {
  return ((a - b) | 0) < 0;
}

/** One side's view of a ring, or in one thread that of both. Each method names the side that calls it. */
export class Ring implements RingShape {
  readonly capacity: number;
  /** Words of an entry. */
  readonly stride: number;
  readonly #shared: boolean;
  readonly #mirror: Uint32Array | undefined;
  #slab: RingPlace | undefined;
  /** The control page and all entries. */
  #words: Uint32Array;
  /** First words of the control page and of the entries. */
  #control = 0;
  #entries = CONTROL_WORDS;
  #bytes: Uint8Array | undefined;
  /** The other side's count as it was last looked at: most questions need no newer one. */
  #producerSeen = 0;
  #consumerSeen = 0;

  constructor({ buffer, byteOffset = 0, capacity, stride, mirror, slab }: RingShape) {
    this.capacity = capacity;
    this.stride = stride;
    this.#shared = buffer instanceof SharedArrayBuffer;
    this.#mirror = mirror;
    this.#slab = slab;
    if (slab === undefined) {
      this.#words = new Uint32Array(buffer, byteOffset, CONTROL_WORDS + capacity * stride);
    } else {
      this.#words = slab.words;
      this.#control = slab.control;
      this.#entries = slab.entries;
    }
  }

  /** The view of the ring with this shape; a ring in this thread is its own. */
  static of(shape: RingShape): Ring {
    return shape instanceof Ring ? shape : new Ring(shape);
  }

  /** Plain data where the other side may be on another thread. */
  get shape(): RingShape {
    if (this.#slab !== undefined) return this;
    const { buffer, byteOffset, capacity, stride } = this;
    return { buffer, byteOffset, capacity, stride };
  }

  get buffer(): ArrayBufferLike {
    return this.#words.buffer;
  }

  get byteOffset(): number {
    return this.#words.byteOffset;
  }

  get slab(): RingPlace | undefined {
    return this.#slab;
  }

  /** Its place in the slab is another ring's from now on; it has a control page of its own: in RESET, nothing posted. */
  leaveSlab(): void {
    this.#slab = undefined;
    this.#bytes = undefined;
    this.#words = new Uint32Array(CONTROL_WORDS);
    this.#control = 0;
    this.#entries = CONTROL_WORDS;
  }

  /** The control page and all entries, as words; in a slab those of the other rings as well. Entry `i` starts at word `wordOf(i)`. */
  get words(): Uint32Array {
    return this.#words;
  }

  /** The same memory as bytes, for inline data. */
  get bytes(): Uint8Array {
    this.#bytes ??= new Uint8Array(this.#words.buffer, this.#words.byteOffset, this.#words.byteLength);
    return this.#bytes;
  }

  #load(word: number): number {
    const at = this.#control + word;
    return (this.#shared ? Atomics.load(this.#words, at) : this.#words[at]) | 0;
  }
  #store(word: number, value: number): void {
    const at = this.#control + word;
    if (this.#shared) Atomics.store(this.#words, at, value);
    else this.#words[at] = value;
  }
  /** The word's value, which becomes 0: one of both sides gets it. */
  #take(word: number): number {
    const at = this.#control + word;
    if (this.#shared) return Atomics.exchange(this.#words, at, 0);
    const value = this.#words[at];
    this.#words[at] = 0;
    return value;
  }

  /** First word of the entry that the free-running `index` stands for. */
  wordOf(index: number): number {
    return this.#entries + (index & (this.capacity - 1)) * this.stride;
  }

  get state(): number {
    return this.#load(Control.STATE);
  }
  set state(value: number) {
    this.#store(Control.STATE, value);
    if (this.#mirror !== undefined) Atomics.store(this.#mirror, Control.STATE, value);
  }

  /** Free-running count of published entries. */
  get producer(): number {
    // Written out, as other methods that messages need: V8 inlines no more than so many calls.
    const at = this.#control + Control.PRODUCER;
    return (this.#shared ? Atomics.load(this.#words, at) : this.#words[at]) | 0;
  }
  /** Free-running count of entries given back. */
  get consumer(): number {
    return this.#load(Control.CONSUMER);
  }
  /**
   * Consumer: one past the last published entry, if `seen` is one past the last that it knows of; `seen` where the producer's
   * count can't be: a program's thread may write anything into the control page.
   */
  end(seen: number): number {
    const { producer } = this;
    const ahead = (producer - seen) | 0;
    return ahead < 0 || ahead > this.capacity ? seen : producer;
  }
  /** Consumer: whether entry `index` is published; it is not given back yet. */
  has(index: number): boolean {
    // Of 1 to `capacity` entries published and not given back; anything else is not known yet.
    const ahead = (this.#producerSeen - index) | 0;
    if (ahead > 0 && ahead <= this.capacity) return true;
    this.#producerSeen = this.end(index);
    return this.#producerSeen !== index;
  }
  /** Consumer: gives back all that is published. @returns the index of the entry after it */
  releaseAll(): number {
    const { producer } = this;
    this.#producerSeen = producer;
    this.release(producer);
    return producer;
  }
  /** Producer: whether entry `index` has room in a queue that holds `entries`. */
  hasRoom(index: number, entries: number): boolean {
    const used = (index - this.#consumerSeen) | 0;
    if (used >= 0 && used < entries) return true;
    this.#consumerSeen = this.consumer;
    return ((index - this.#consumerSeen) | 0) < entries;
  }
  /** Producer: first word of the entry that it writes next, in a queue that holds `entries`; −1 where that is full. */
  claim(entries: number): number {
    const { producer } = this;
    const used = (producer - this.#consumerSeen) | 0;
    if ((used < 0 || used >= entries) && !this.hasRoom(producer, entries)) return -1;
    return this.#entries + (producer & (this.capacity - 1)) * this.stride;
  }
  /** Producer: publishes the entry that was claimed. @returns as `wake` */
  post(): boolean {
    const words = this.#words;
    const at = this.#control;
    if (this.#shared) {
      Atomics.store(words, at + Control.PRODUCER, Atomics.load(words, at + Control.PRODUCER) + 1);
      return this.wake();
    }
    words[at + Control.PRODUCER]++;
    if (words[at + Control.SLEEPING] === 0) return false;
    words[at + Control.SLEEPING] = 0;
    return true;
  }
  // ------------------------------------------------------------------- resize

  /** Producer: posts to `next` from now on, behind the entries that are here. */
  moveTo(next: Ring): void {
    const { producer, consumer } = this;
    next.#begin(consumer, producer);
    next.release(consumer);
    next.publish(producer);
    this.#store(Control.MOVED, 1);
  }
  /** Consumer: whether the producer posts to the successor. */
  get moved(): boolean {
    return this.#load(Control.MOVED) === 1;
  }
  /** Consumer: takes over the entries from `head` on, which keep their indices, of a ring whose producer has moved here. */
  takeOver(from: Ring, head: number): void {
    const end = from.end(head);
    const words = Math.min(this.stride, from.stride);
    for (let i = head; i !== end; i = (i + 1) | 0) {
      const source = from.wordOf(i);
      const target = this.wordOf(i);
      for (let w = 0; w < words; w++) this.#words[target + w] = from.words[source + w];
    }
    this.#begin(head, head);
    this.release(head);
  }
  #begin(consumer: number, producer: number): void {
    this.#consumerSeen = consumer;
    this.#producerSeen = producer;
  }

  /** Entries published and not given back. */
  get used(): number {
    if (this.#shared) return (this.producer - this.consumer) | 0;
    // Looked at several times in each turn, where V8 inlines no more calls.
    const words = this.#words;
    const at = this.#control;
    return (words[at + Control.PRODUCER] - words[at + Control.CONSUMER]) | 0;
  }

  /** Producer: publishes all entries before the free-running `index`. */
  publish(index: number): void {
    this.#store(Control.PRODUCER, index);
  }
  /** Consumer: gives back all entries before the free-running `index`. */
  release(index: number): void {
    this.#store(Control.CONSUMER, index);
    if (this.#mirror !== undefined) Atomics.store(this.#mirror, Control.CONSUMER, index);
  }

  /** Consumer: asks for a doorbell at the next entry. True if an entry came meanwhile: do not sleep. */
  sleep(seen: number): boolean {
    this.#store(Control.SLEEPING, 1);
    if (this.end(seen) === seen) return false;
    return this.#take(Control.SLEEPING) === 1;
  }
  /** Producer, after `publish`: wakes a consumer that sleeps. @returns whether, and its doorbell has to be rung */
  wake(): boolean {
    return this.#load(Control.SLEEPING) === 1 && this.#take(Control.SLEEPING) === 1;
  }

  /** Completion queue, program's side: asks for one event. 1: any completion; 2: solicited or failed ones. */
  arm(kind: 1 | 2): void {
    // An earlier request for any completion is not narrowed by a later one (ibv_req_notify_cq(3)).
    if (kind === 1 || this.#load(Control.ARMED) !== 1) {
      this.#store(Control.ARMED, kind);
    }
  }
  /** Completion queue, engine's side: true if a completion of this kind is to raise the event. */
  disarm(solicited: boolean): boolean {
    const armed = this.#load(Control.ARMED);
    if (armed === 0 || (armed === 2 && !solicited)) return false;
    return this.#take(Control.ARMED) !== 0;
  }
}

/** Makes the engine's side of a ring with room for at least `entries` of `stride` words. */
export type NewRing = (entries: number, stride: number) => Ring;

/** Makes the rings of a program in another process. */
export interface RingFactory {
  /** Of send queues, receive queues and shared receive queues. */
  readonly work: NewRing;
  /** Of completion queues. */
  readonly completions: NewRing;
}

/** The kinds of work that a program in another process has posted, by urgency. */
export const Posted = { NOTHING: 0, RECEIVES: 1, SENDS: 2 } as const;
export type PostedCode = (typeof Posted)[keyof typeof Posted];
/** Threads of other processes that wait for completions: none known; they sleep, and leave this processor free; they were woken just now. */
export const Waiting = { NOBODY: 0, SLEEPING: 1, WOKEN: 2 } as const;
export type WaitingCode = (typeof Waiting)[keyof typeof Waiting];

/** Words of a send queue entry that can hold this many SGEs or this much inline data. */
export function sendStride(maxSge: number, maxInline: number): number {
  return SendWqe.SGE + Math.max(maxSge * SGE_WORDS, Math.ceil(maxInline / 16) * 4);
}

/** Words of a receive queue entry that can hold this many SGEs. */
export function recvStride(maxSge: number): number {
  return RecvWqe.SGE + maxSge * SGE_WORDS;
}

/** A doorbell's value: the QPN, with this bit set when the receive queue rings. */
export const DOORBELL_RECV = 0x8000_0000;
