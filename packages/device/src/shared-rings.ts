/**
 * The rings that a program and the device share: the entries, control pages and doorbells of packages/transport's rings.ts, in
 * memory that the program writes as it likes.
 *
 * The engine has its own rings for work queues. Published entries are copied to them, and the engine checks the copy;
 * state and consumer's count are stored in both. The engine writes completions into the shared ring, and reads only
 * the program's count and its request for an event from it.
 */
import { processor, setSlice, wakeWaiting, yieldProcessor } from '@node-roce/dgram-native';
import {
  BellControl,
  CONTROL_WORDS,
  Control,
  createRing,
  Posted,
  type PostedCode,
  powerOfTwo,
  RecvWqe,
  Ring,
  type RingFactory,
  type RingShape,
  SendFlags,
  SendWqe,
  SGE_WORDS,
  Waiting,
  type WaitingCode,
  WaitingThreads,
} from '@node-roce/transport';
import { Arena } from './arena.ts';

/** Work queues of a program at most; each has one doorbell under way at most. */
const MAX_QUEUES = 65_536;

/** A thread that has waited in vain for so long, µs, may have other things to look at. */
const IN_VAIN_MICROSECONDS = 200;
/** A time, µs, that no thread has waited since. */
const NOBODY = -1;

/** The shortest slice that Linux gives. */
const SHORT_SLICE_MICROSECONDS = 100;

/** Place and size of a ring, as the program gets it. */
export interface SharedRing {
  /** Bytes from the start of the arena. */
  readonly offset: number;
  readonly capacity: number;
  readonly stride: number;
}

/** A ring that the engine has made for the program. */
interface MadeRing extends SharedRing {
  /** The engine's ring: of completion queues the shared ring, of work queues a ring of its own. */
  readonly engine: RingShape;
  readonly shared: RingShape;
}

/** Rings that one call of the engine made, in their order. */
export type MadeRings = readonly MadeRing[];

/** Words behind the first `header` ones that an entry uses. */
type WordsUsed = (words: Uint32Array, w: number) => number;

const sendWords: WordsUsed = (words, w) =>
  ((words[w + SendWqe.OPCODE_FLAGS] >>> 8) & SendFlags.INLINE) !== 0
    ? Math.ceil(words[w + SendWqe.LENGTH] / 4)
    : words[w + SendWqe.SGE_COUNT] * SGE_WORDS;
const recvWords: WordsUsed = (words, w) => words[w + RecvWqe.SGE_COUNT] * SGE_WORDS;

/** A send queue, receive queue or shared receive queue: takes what the program publishes to the engine. */
export class WorkQueue {
  /** The value of its doorbells. */
  readonly id: number;
  readonly kind: 'send' | 'receive';
  readonly #header: number;
  readonly #used: WordsUsed;
  readonly #ring: () => void;
  readonly #refuse: () => void;
  #made: MadeRing;
  #shared: Ring;
  #engine: Ring;
  /** Free-running count of entries that were copied. */
  #next = 0;

  /**
   * @param ring rings the engine's doorbell
   * @param refuse ends the program, which has published more than the queue has room for
   */
  constructor(id: number, kind: 'send' | 'receive', made: MadeRing, ring: () => void, refuse: () => void) {
    this.id = id;
    this.kind = kind;
    this.#header = kind === 'send' ? SendWqe.SGE : RecvWqe.SGE;
    this.#used = kind === 'send' ? sendWords : recvWords;
    this.#ring = ring;
    this.#refuse = refuse;
    this.#made = made;
    this.#shared = new Ring(made.shared);
    this.#engine = new Ring(made.engine);
    this.#shared.sleep(0);
  }

  get shape(): SharedRing {
    return this.#made;
  }

  /** The rings of a resize, which the engine has taken over already. */
  moveTo(made: MadeRing): void {
    this.#made = made;
    this.#shared = new Ring(made.shared);
    this.#engine = new Ring(made.engine);
    this.#next = this.#engine.producer;
    this.#shared.publish(this.#next);
    this.#shared.sleep(this.#next);
  }

  /** Copies the published entries, and asks for a doorbell at the next one. Whether there were any. */
  take(): boolean {
    const first = this.#next;
    do {
      const end = this.#shared.end(this.#next);
      while (this.#next !== end) {
        if (!this.#engine.hasRoom(this.#next, this.#engine.capacity)) {
          this.#refuse();
          return false;
        }
        this.#copy(this.#next);
        this.#next = (this.#next + 1) | 0;
      }
      this.#engine.publish(this.#next);
    } while (this.#shared.sleep(this.#next));
    if (this.#next === first) return false;
    if (this.#engine.wake()) this.#ring();
    return true;
  }

  #copy(index: number): void {
    const from = this.#shared.words;
    const to = this.#engine.words;
    const w = this.#shared.wordOf(index);
    const t = this.#engine.wordOf(index);
    for (let i = 0; i < this.#header; i++) to[t + i] = from[w + i];
    // By the copy: the program may be writing the other.
    const end = Math.min(this.#header + this.#used(to, t), this.#engine.stride);
    for (let i = this.#header; i < end; i++) to[t + i] = from[w + i];
  }
}

/** A ring of completions, which calls when there are some. */
class CompletionRing extends Ring {
  readonly #completed: () => void;

  constructor(shape: RingShape, completed: () => void) {
    super(shape);
    this.#completed = completed;
  }

  override publish(index: number): void {
    super.publish(index);
    this.#completed();
  }
}

/** The rings of one program, and its doorbells. */
export class SharedRings implements RingFactory {
  readonly arena = new Arena();
  readonly doorbells: SharedRing;
  readonly #bells: Ring;
  #heard = 0;
  /** Something has completed since the last turn. */
  #completed = false;
  /** When a turn first saw that a thread of the program waits, µs. */
  #waitingSince = NOBODY;
  readonly #onCompletion = (): void => {
    this.#completed = true;
  };
  readonly #queues: (WorkQueue | undefined)[] = [];
  readonly #freeIds: number[] = [];
  #made: MadeRing[] = [];

  constructor() {
    const made = this.#place(MAX_QUEUES, 1);
    this.doorbells = made;
    this.#bells = new Ring(made.shared);
  }

  /** RingFactory: a ring of the engine, and one of the program that it is filled from. */
  readonly work = (entries: number, stride: number): Ring => {
    const { shared, ...place } = this.#place(entries, stride);
    const mirror = new Uint32Array(shared.buffer, place.offset, CONTROL_WORDS);
    const engine = { ...createRing(entries, stride, false), mirror };
    this.#made.push({ ...place, shared, engine });
    return new Ring(engine);
  };

  /** RingFactory: one ring for both. */
  readonly completions = (entries: number, stride: number): Ring => {
    const made = this.#place(entries, stride);
    this.#made.push(made);
    return new CompletionRing(made.engine, this.#onCompletion);
  };

  #place(entries: number, stride: number): MadeRing {
    const capacity = powerOfTwo(entries);
    const offset = this.arena.allocate((CONTROL_WORDS + capacity * stride) * 4);
    const { buffer } = this.arena;
    new Uint32Array(buffer, offset, CONTROL_WORDS).fill(0);
    const shared = { buffer, byteOffset: offset, capacity, stride };
    return { offset, capacity, stride, shared, engine: shared };
  }

  /** Runs a call of the engine. Resolves with its result and the rings that it made; those of a call that fails are freed. */
  async during<T>(call: () => Promise<T>): Promise<[result: T, made: MadeRings]> {
    this.#made = [];
    try {
      return [await call(), this.#made];
    } catch (error) {
      this.free(this.#made.map(({ offset }) => offset));
      throw error;
    }
  }

  /** Begins to take the published entries of a ring. */
  open(kind: 'send' | 'receive', made: MadeRing, ring: () => void, refuse: () => void): WorkQueue {
    const id = this.#freeIds.pop() ?? this.#queues.length;
    const queue = new WorkQueue(id, kind, made, ring, refuse);
    this.#queues[id] = queue;
    return queue;
  }

  /** Ends it: the engine's ring is gone. */
  closeQueue({ id }: WorkQueue): void {
    this.#queues[id] = undefined;
    this.#freeIds.push(id);
  }

  /** The memory is for other rings from now on. */
  free(offsets: readonly number[]): void {
    for (const offset of offsets) this.arena.free(offset);
  }

  /** WorkSource: takes what the doorbells are about. */
  take(): PostedCode {
    const bells = this.#bells;
    const { producer } = bells;
    if (producer === this.#heard) return Posted.NOTHING;
    const end = bells.end(this.#heard);
    let posted: PostedCode = Posted.RECEIVES;
    for (let i = this.#heard; i !== end; i = (i + 1) | 0) {
      const queue = this.#queues[bells.words[bells.wordOf(i)]];
      if (queue?.take() && queue.kind === 'send') posted = Posted.SENDS;
    }
    // A count that can't be: which rang is not known, so all are looked at.
    if (end !== producer) for (const queue of this.#queues) queue?.take();
    this.#heard = producer;
    bells.release(producer);
    return posted;
  }

  /** WorkSource. */
  sleep(): boolean {
    const rang = this.#bells.sleep(this.#heard);
    // A thread that begins to wait from now on sees that the device sleeps.
    if (Atomics.load(this.#bells.words, BellControl.WAITING) !== WaitingThreads.NONE) this.#wakeWaiting();
    return rang;
  }

  /** WorkSource. */
  yield(): number {
    return yieldProcessor();
  }

  /** WorkSource: by a short slice. Where the kernel has none, a thread that slept comes first by its rules. */
  preempt(on: boolean): void {
    setSlice(on ? SHORT_SLICE_MICROSECONDS : 0);
  }

  /** WorkSource. */
  turned(now: number): WaitingCode {
    const { words } = this.#bells;
    // A packet or a timer woke the device: a post needs no doorbell until it sleeps again.
    Atomics.store(words, Control.SLEEPING, 0);
    if (this.#completed) {
      this.#completed = false;
      Atomics.store(words, BellControl.PROCESSOR, processor() + 1);
      this.#wakeWaiting();
      return Waiting.WOKEN;
    }
    const waits = Atomics.load(words, BellControl.WAITING);
    if (waits === WaitingThreads.NONE) {
      this.#waitingSince = NOBODY;
      return Waiting.NOBODY;
    }
    if (this.#waitingSince === NOBODY) this.#waitingSince = now;
    if (now - this.#waitingSince >= IN_VAIN_MICROSECONDS) {
      this.#wakeWaiting();
      return Waiting.WOKEN;
    }
    return waits === WaitingThreads.SHARING ? Waiting.SLEEPING : Waiting.NOBODY;
  }

  #wakeWaiting(): void {
    const { words } = this.#bells;
    this.#waitingSince = NOBODY;
    // A thread that begins to wait between the two has seen the new count, and waits for the next one.
    const waited = Atomics.exchange(words, BellControl.WAITING, WaitingThreads.NONE);
    Atomics.add(words, BellControl.TURNS, 1);
    if (waited !== WaitingThreads.NONE || Atomics.load(words, BellControl.WAITING) !== WaitingThreads.NONE)
      wakeWaiting(words, BellControl.TURNS);
  }

  close(): void {
    this.arena.close();
  }
}
