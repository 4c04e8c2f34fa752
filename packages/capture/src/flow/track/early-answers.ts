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

/** The responses of one requester that came early. Its lists are in order: a long one costs each request that comes again no more than a copy. */
export class EarlyAnswers {
  readonly #psns: number[] = [];
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
    if (this.#psns.length >= MAX_EARLY) this.clear();
    const at = firstFrom(this.#psns, psn);
    if (this.#psns[at] !== psn) this.#psns.splice(at, 0, psn);
    if (psn > this.#highest) this.#highest = psn;
  }

  /** A READ asks again for the responses in [psn, next); it was part of one that asked for more behind them, if `isPart`. */
  askedAgain(psn: number, next: number, isPart: boolean): void {
    if (this.#psns.length === 0) return;
    this.passed(psn);
    const from = firstFrom(this.#psns, psn);
    const asked = firstFrom(this.#psns, next) - from;
    this.#psns.splice(from, asked);
    // Two that are missing may be asked for together, with those between.
    if (this.#psns[from] === next && (isPart || asked === 0)) this.#weigh(ENDS_BEFORE);
    else if (asked > 0) this.#weigh(ASKS_AGAIN);
    this.#held = this.#psns.slice(from);
  }

  /** A packet at this PSN follows one that was asked for again: what lies between was not. */
  passed(psn: number): void {
    const over = firstFrom(this.#held, psn);
    if (over === 0) return;
    this.#held.splice(0, over);
    this.#weigh(PASSES_OVER);
  }

  /** Whether there is one at this PSN or behind it. */
  isFrom(psn: number): boolean {
    return this.#psns.length > 0 && this.#highest >= psn;
  }

  /** Its turn has come. False if it was not there. */
  take(psn: number): boolean {
    const at = firstFrom(this.#psns, psn);
    if (this.#psns[at] !== psn) return false;
    this.#psns.splice(at, 1);
    return true;
  }

  clear(): void {
    this.#psns.length = 0;
    this.#held = [];
    this.#highest = -1;
  }

  #weigh(evidence: number): void {
    this.#evidence = Math.max(-MOST, Math.min(MOST, this.#evidence + evidence));
  }
}

/** The index of the first PSN in the list that is not before this one. */
function firstFrom(psns: readonly number[], psn: number): number {
  let low = 0;
  let high = psns.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (psns[middle] < psn) low = middle + 1;
    else high = middle;
  }
  return low;
}
