/** The answers that a direction carries: their line of PSNs, and their copies. */
import { MirroredResponses } from './mirrored-responses.ts';
import { unwrap, unwrapFirst } from './outstanding.ts';

/** The line of PSNs of a direction's answers, and their copies in a mirror. */
export class SentAnswers {
  readonly mirrored = new MirroredResponses();
  #psn = -1;

  /** Unwrapped PSN of the last answer; −1: there was none. */
  get psn(): number {
    return this.#psn;
  }

  /** The next answer. @returns its PSN, unwrapped */
  next(psn: number): number {
    this.#psn = this.#psn < 0 ? unwrapFirst(psn) : unwrap(psn, this.#psn);
    return this.#psn;
  }
}
