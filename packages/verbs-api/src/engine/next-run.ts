/** What runs the pump next: an immediate while there is traffic; while it sleeps, the link's descriptor or a deadline. */
import type { Link } from '@node-roce/link';

/** Owns the immediate and the watch. Promise: the link is watched only while no immediate is due. */
export class NextRun {
  /** It runs in the next iteration of the event loop. */
  isSoon = false;
  readonly #link: Link;
  readonly #run: () => void;
  #immediate: NodeJS.Immediate | undefined;
  #watched = false;
  #refed = true;
  readonly #onImmediate = (): void => {
    this.isSoon = false;
    this.#run();
  };

  constructor(link: Link, run: () => void) {
    this.#link = link;
    this.#run = run;
  }

  /** In the next iteration of the event loop. */
  soon(): void {
    if (this.#watched) {
      this.#watched = false;
      this.#link.unwatch();
    }
    if (this.isSoon) return;
    this.isSoon = true;
    this.#immediate = setImmediate(this.#onImmediate);
    if (!this.#refed) this.#immediate.unref();
  }

  /** When something came to the link, or after so many µs. */
  later(microseconds: number): void {
    this.#link.setDeadline(microseconds);
    if (this.#watched) return;
    this.#watched = true;
    this.#link.watch(this.#run);
  }

  never(): void {
    if (this.isSoon) clearImmediate(this.#immediate);
    this.#link.unwatch();
  }

  ref(): void {
    this.#refed = true;
    this.#link.ref();
    if (this.isSoon) this.#immediate?.ref();
  }

  unref(): void {
    this.#refed = false;
    this.#link.unref();
    if (this.isSoon) this.#immediate?.unref();
  }
}
