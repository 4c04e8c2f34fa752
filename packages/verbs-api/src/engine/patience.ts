/**
 * When replies that are owed to peers may wait for the program: one that answers at once has its answer take them along, and the peer
 * gets one batch in place of two.
 */
import type { Own } from '@node-roce/transport';

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
  /** The last turn of the loop woke the program, which has not answered yet. */
  readonly awaitsProgram: boolean = false;
  /** Packets came for the sources, which were not looked at since. */
  readonly awaitsSources: boolean = false;
  readonly #time: Float64Array;
  /** When the program was woken, and when packets came, µs. */
  #wokeAt = 0;
  #cameAt = 0;
  /** The program answered soon, the last time that it was woken. */
  #isPrompt = false;
  /** How often requests of sources came soon after packets, since a reply was owed and none came. */
  #answers = 0;

  /** @param time the time of the pump's turn, µs, first */
  constructor(time: Float64Array) {
    this.#time = time;
  }

  /** The program polls now, and has posted. */
  answered(): void {
    this.#isPrompt = this.#time[0] - this.#wokeAt <= PROMPT_MICROSECONDS;
    (this as Own<Patience>).awaitsProgram = false;
  }

  /** The sources were looked at now. */
  looked(): void {
    if (this.posted) {
      if (this.#time[0] - this.#cameAt <= PROMPT_MICROSECONDS) this.#answers++;
      else if (this.owing) this.#answers = 0;
    }
    (this as Own<Patience>).awaitsSources = false;
  }

  /** The owed replies have left in a batch without an answer. */
  paidAlone(): void {
    this.#answers = 0;
  }

  /** Packets came in while a source was there. */
  came(): void {
    (this as Own<Patience>).awaitsSources = true;
    this.#cameAt = this.#time[0];
  }

  /**
   * Whether the turn at hand ends before replies are sent: an answer comes soon. `woke`: the turn woke the program. `emptied`: nothing is left in
   * the socket.
   */
  waits(woke: boolean, emptied: boolean): boolean {
    return (woke && this.#isPrompt) || (this.#answers > 0 && emptied && !this.posted);
  }

  /** A turn of the loop begins, not one of a program that polls. */
  loops(): void {
    if (this.awaitsProgram) this.#isPrompt = false;
  }

  /** It ended, and the program runs, if the turn woke it. */
  looped(woke: boolean): void {
    (this as Own<Patience>).awaitsProgram = woke;
    this.#wokeAt = this.#time[0];
  }

  /** How long the pump may sleep, µs, of what its deadlines allow: owed replies wait, but not for long. */
  limit(microseconds: number): number {
    if (!this.owing) return microseconds;
    return Math.min(microseconds, this.#answers >= SURE_ANSWERS ? SURE_MICROSECONDS : PROMPT_MICROSECONDS);
  }
}
