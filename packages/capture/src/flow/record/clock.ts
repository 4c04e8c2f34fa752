/** The clock of a capture: whether the times of its frames go on. */

/** Frames of several queues or interfaces may be this much out of order. */
const TOLERANCE = 1e6;

/** Counts the times at which the clock goes back. */
export class Clock {
  stepsBack = 0;
  /** Nanoseconds. */
  longestStep = 0;
  #latest = Number.NEGATIVE_INFINITY;

  /** @param time of the next frame, nanoseconds */
  note(time: number): void {
    const back = this.#latest - time;
    this.#latest = time;
    if (back <= TOLERANCE) return;
    this.stepsBack++;
    if (back > this.longestStep) this.longestStep = back;
  }
}
