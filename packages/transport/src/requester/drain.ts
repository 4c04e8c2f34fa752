/** SQD: nothing more is started, and what was started ends (IBTA vol 1 §10.3.1.5). */
import { QpStateCode } from '../constants.ts';
import type { Own } from '../own.ts';
import type { SenderParts } from './parts.ts';

/** Promise: once for each SQD, the owner hears that everything that was started is done. */
export class Drain {
  /** Everything that was started is done, and the owner knows. */
  readonly done: boolean = false;
  readonly #parts: SenderParts;

  constructor(parts: SenderParts) {
    this.#parts = parts;
  }

  /** SQD is entered, and what was not sent is taken back: an entry does not fail that is not started. */
  begin(): void {
    const { failed, flight } = this.#parts;
    if (failed.isAt(flight.queue.started)) failed.forget();
    this.check();
  }

  /** An entry may have ended: reports it once if that was the last. */
  check(): void {
    const { owner, flight } = this.#parts;
    const { queue } = flight;
    if (owner.state !== QpStateCode.SQD || this.done || queue.head !== queue.started) return;
    (this as Own<Drain>).done = true;
    owner.sendQueueDrained();
  }

  /** RTS or RESET: the next SQD is another one. */
  end(): void {
    (this as Own<Drain>).done = false;
  }
}
