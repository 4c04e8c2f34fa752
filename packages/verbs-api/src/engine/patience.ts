/**
 * When replies that are owed to peers may wait for the program: one that answers at once has its answer take them along, and the peer
 * gets one batch in place of two.
 */

/** A time that is not known, or has not been. */
export const UNKNOWN = 0;

/** A program that was woken has its answer ready after no more than this, µs, or what is owed to peers leaves before it is woken. */
const PROMPT_MICROSECONDS = 100;
/**
 * After so many prompt answers in a row, what is owed waits for so long, µs, where the pump sleeps. On a virtual machine a timer that is
 * due before the kernel's next tick (1 to 4 ms) costs as much as sending a packet. The time is far below the ACK delay that adapters
 * report (`localCaAckDelay`).
 */
const SURE_ANSWERS = 64;
const SURE_MICROSECONDS = 3_000;

/** Judges by how soon the last answers came, of the program in this thread and of those in other processes. */
export class Patience {
  /** The last turn ended early: what it has to send is still to be looked at. */
  owing = false;
  /** A source had requests to send in the turn at hand. */
  posted = false;
  readonly #time: Float64Array;
  /** The turn at hand woke the program, which runs when it ends. */
  #woke = false;
  /** When the last turn of the loop woke the program, if it has not answered since; and whether it did the time before, µs. */
  #wokeAt = UNKNOWN;
  #isPrompt = false;
  /** When the last turn took packets in while a source was there, µs. */
  #cameAt = UNKNOWN;
  /** How often requests of sources came soon after packets, since a reply was owed and none came. */
  #answers = 0;

  /** @param time the time of the pump's turn, µs, first */
  constructor(time: Float64Array) {
    this.#time = time;
  }

  /** A completion woke the program in this thread. */
  woke(): void {
    this.#woke = true;
  }

  /** The program was woken, and has not answered yet. */
  get awaitsProgram(): boolean {
    return this.#wokeAt !== UNKNOWN;
  }

  /** It polls now, and has posted. */
  answered(): void {
    this.#isPrompt = this.#time[0] - this.#wokeAt <= PROMPT_MICROSECONDS;
    this.#wokeAt = UNKNOWN;
  }

  /** Packets came for the sources, which were not looked at since. */
  get awaitsSources(): boolean {
    return this.#cameAt !== UNKNOWN;
  }

  /** They were looked at now. */
  looked(): void {
    if (this.posted) {
      if (this.#time[0] - this.#cameAt <= PROMPT_MICROSECONDS) this.#answers++;
      else if (this.owing) this.#answers = 0;
    }
    this.#cameAt = UNKNOWN;
  }

  /** Called when the owed replies have left; `alone` where that was a batch without an answer. */
  paid(alone: boolean): void {
    if (alone) this.#answers = 0;
  }

  /** Packets are taken in from now on. */
  receives(): void {
    this.#woke = false;
  }

  /** Packets came in while a source was there. */
  came(): void {
    this.#cameAt = this.#time[0];
  }

  /** Whether the turn at hand ends before replies are sent: an answer comes soon. `emptied`: nothing is left in the socket. */
  waits(emptied: boolean): boolean {
    return (this.#woke && this.#isPrompt) || (this.#answers > 0 && emptied && !this.posted);
  }

  /** A turn of the loop begins, not one of a program that polls. */
  loops(): void {
    if (this.#wokeAt !== UNKNOWN) this.#isPrompt = false;
  }

  /** It ended: the program runs, if it was woken. */
  looped(): void {
    this.#wokeAt = this.#woke ? this.#time[0] : UNKNOWN;
  }

  /** How long the pump may sleep, µs, of what its deadlines allow: owed replies wait, but not for long. */
  limit(microseconds: number): number {
    if (!this.owing) return microseconds;
    return Math.min(microseconds, this.#answers >= SURE_ANSWERS ? SURE_MICROSECONDS : PROMPT_MICROSECONDS);
  }
}
