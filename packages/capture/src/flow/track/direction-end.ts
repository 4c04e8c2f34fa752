/** How a direction came to its end. */
import type { LastFailure } from './last-failure.ts';

/** The end of a direction. One that another one follows is over, or the capture is. */
export class DirectionEnd {
  #isOver = false;
  #isFollowed = false;
  /** Of the requests that are outstanding at the capture's end; given then. */
  failure: LastFailure | undefined;

  /** Its queue pairs were used again: what comes with these numbers is of another connection. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** The other connection has begun. */
  get isFollowed(): boolean {
    return this.#isFollowed;
  }

  over(): void {
    this.#isOver = true;
  }

  followed(): void {
    this.#isFollowed = true;
  }
}
