/** Programs in other processes: they post through shared memory, and may want the processor that this thread runs on. */
import { Posted, type PostedCode, Waiting, type WaitingCode } from '@node-roce/transport';
import { UNKNOWN } from './clock.ts';

/**
 * A yield that took longer, µs, went to a thread that computes and does not yield. Where such yields take so much, µs, of so long, that is a
 * program that watches its memory. Then the pump sleeps as soon as nothing is there: a wake takes the processor from that thread at
 * once. After so long, µs, one yield shows whether the program still does.
 */
const LONG_YIELD_MICROSECONDS = 500;
const LONG_YIELDS_MICROSECONDS = 20_000;
const LONG_YIELDS_WINDOW = 50_000;
const YIELDING_TO_NOBODY_MICROSECONDS = 1_000_000;

/** A source of work: other processes post through memory that they share with this one. */
export interface WorkSource {
  /** Takes over posted requests: called in each turn, and before packets are taken in that came after it. */
  take(): PostedCode;
  /** Asks for a wake (`Attached.wake`) at the next post, and lets nobody wait for a turn. True if something was posted meanwhile: do not sleep. */
  sleep(): boolean;
  /** Lets the processes run that wait for this processor. Returns how long they did, µs. */
  yield(): number;
  /** Whether a wake of this thread comes before a process that computes. */
  preempt(on: boolean): void;
  /**
   * After each turn of the loop, at `now`, µs: wakes threads of the processes that sleep until something has completed, or have slept in
   * vain for some time.
   */
  turned(now: number): WaitingCode;
}

/** A source that is looked at. */
export interface Attached {
  /** Something was posted, and the pump may sleep: a turn now. */
  wake(): void;
  /** Posted requests leave now: a command that ends a connection may follow. */
  settle(): void;
  /** The source is not looked at any more. */
  detach(): void;
}

/** Steps of the pump after a turn for the sources: another turn, sleep, or let the rest of this thread run. */
export const Next = { TURN: 0, SLEEP: 1, REST: 2 } as const;
export type NextCode = (typeof Next)[keyof typeof Next];

/** The sources of a pump, and whether it yields to their processes or sleeps. */
export class Serving {
  readonly #time: Float64Array;
  #sources: readonly WorkSource[] = [];
  /** Until then, µs, nothing is yielded; 0: yields. */
  #sleepsAtOnce = UNKNOWN;
  /** Time that long yields took since then, µs. */
  #longYields = 0;
  #longSince = 0;

  /** @param time the time of the pump's turn, µs, first */
  constructor(time: Float64Array) {
    this.#time = time;
  }

  get active(): boolean {
    return this.#sources.length > 0;
  }

  add(source: WorkSource): void {
    this.#sources = [...this.#sources, source];
  }

  remove(source: WorkSource): void {
    this.#sources = this.#sources.filter((one) => one !== source);
    if (this.#sources.length > 0 || this.#sleepsAtOnce === UNKNOWN) return;
    this.#sleepsAtOnce = UNKNOWN;
    source.preempt(false);
  }

  /** Takes over what they posted. Returns whether there is something to send. */
  take(): boolean {
    const sources = this.#sources;
    let posted = false;
    for (let i = 0; i < sources.length; i++) if (sources[i].take() === Posted.SENDS) posted = true;
    return posted;
  }

  /** The pump is about to sleep. True if something was posted meanwhile. */
  sleep(): boolean {
    let awake = false;
    for (const source of this.#sources) awake = source.sleep() || awake;
    return awake;
  }

  /**
   * After a turn of the loop. A program may wait for this processor: each turn yields to it. One that yields as well comes back at once. One
   * that does not keeps the processor, and this thread comes before it only by a wake: then turns go on as long as there is something, or a
   * program sleeps and none was woken, and the pump sleeps.
   *
   * @param more whether there is something to do for another turn
   * @param isQuiet whether nothing came or went for some time
   */
  turned(more: boolean, isQuiet: boolean): NextCode {
    const now = this.#time[0];
    let waiting: WaitingCode = Waiting.NOBODY;
    for (const source of this.#sources) {
      const of = source.turned(now);
      if (of > waiting) waiting = of;
    }
    // A source that waits in vain is woken: this does not last.
    if (now < this.#sleepsAtOnce) return waiting === Waiting.SLEEPING || more ? Next.TURN : Next.SLEEP;
    const [source] = this.#sources as [WorkSource?];
    if (source === undefined) return Next.REST; // The last one was removed in the turn.
    if (this.#sleepsAtOnce > UNKNOWN) {
      this.#sleepsAtOnce = UNKNOWN;
      this.#longYields = LONG_YIELDS_MICROSECONDS - LONG_YIELD_MICROSECONDS;
      this.#longSince = now;
      source.preempt(false);
    }
    if (isQuiet) return Next.SLEEP;
    const microseconds = source.yield();
    if (microseconds < LONG_YIELD_MICROSECONDS) return Next.TURN;
    if (now - this.#longSince > LONG_YIELDS_WINDOW) {
      this.#longYields = 0;
      this.#longSince = now;
    }
    this.#longYields += microseconds;
    // The rest of this thread has waited as well.
    if (this.#longYields < LONG_YIELDS_MICROSECONDS) return Next.REST;
    this.#sleepsAtOnce = now + microseconds + YIELDING_TO_NOBODY_MICROSECONDS;
    source.preempt(true);
    return Next.TURN;
  }
}
