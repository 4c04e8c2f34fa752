/**
 * READ responses that came while an earlier one was missing, and whether their requester keeps them. A requester that goes back
 * discards them and asks for all again; one that keeps them asks for what is missing alone (node-roce's `recovery.selective`).
 * PSNs are unwrapped.
 */

/** PSNs at most; more outstanding ones of a requester are forgotten. */
const MAX_EARLY = 1 << 14;

/** Evidence that it keeps, from which on that is relied on; and the most either way. */
const ENOUGH = 2;
const MOST = 8;
/**
 * A READ that ends where the next response is here shows it: who goes back asks to the end of a request. A packet behind responses that
 * were not asked for again shows it less: the capture may have missed one. Asking again for what came speaks against it.
 */
const ENDS_BEFORE = 2;
const PASSES_OVER = 1;
const ASKS_AGAIN = -2;

/** The responses of one requester that came early. */
export class EarlyAnswers {
  readonly #psns = new Set<number>();
  /** Those that were here when it last asked for a missing one. */
  #held: number[] = [];
  #highest = -1;
  #evidence = 0;

  /** It has shown that it keeps them. */
  get keeps(): boolean {
    return this.#evidence >= ENOUGH;
  }

  /** A response that came before its turn. */
  add(psn: number): void {
    if (this.#psns.size >= MAX_EARLY) this.clear();
    this.#psns.add(psn);
    if (psn > this.#highest) this.#highest = psn;
  }

  /** A READ asks again for the responses in [psn, next); it was part of one that asked for more behind them, if `isPart`. */
  askedAgain(psn: number, next: number, isPart: boolean): void {
    if (this.#psns.size === 0) return;
    this.passed(psn);
    let asked = 0;
    for (let at = psn; at < next; at++) if (this.#psns.delete(at)) asked++;
    // Two that are missing may be asked for together, with those between.
    if (this.#psns.has(next) && (isPart || asked === 0)) this.#weigh(ENDS_BEFORE);
    else if (asked > 0) this.#weigh(ASKS_AGAIN);
    this.#held = [...this.#psns].filter((at) => at >= next);
  }

  /** A packet at this PSN follows one that was asked for again: what lies between was not. */
  passed(psn: number): void {
    if (this.#held.length === 0) return;
    const left = this.#held.filter((at) => at >= psn);
    const over = this.#held.length - left.length;
    this.#held = left;
    if (over > 0) this.#weigh(PASSES_OVER);
  }

  /** Whether there is one at this PSN or behind it. */
  isFrom(psn: number): boolean {
    return this.#psns.size > 0 && this.#highest >= psn;
  }

  /** Its turn has come. False if it was not there. */
  take(psn: number): boolean {
    return this.#psns.size > 0 && this.#psns.delete(psn);
  }

  clear(): void {
    this.#psns.clear();
    this.#held = [];
    this.#highest = -1;
  }

  #weigh(evidence: number): void {
    this.#evidence = Math.max(-MOST, Math.min(MOST, this.#evidence + evidence));
  }
}
