/** Frames that are not RoCE, by their kind: for the case that nothing else is in a capture. */

/** Kinds that are counted on their own. */
const MAX_KINDS = 1000;
/** Kinds in the result; the rest is `other`. */
const SHOWN_KINDS = 8;

/** Counts frames by kind, in bounded memory. */
export class OtherFrames {
  readonly #counts = new Map<string, number>();
  #rest = 0;

  /** @param kind the decoder's detail, such as `UDP port 53` */
  add(kind: string): void {
    const count = this.#counts.get(kind);
    if (count === undefined && this.#counts.size >= MAX_KINDS) this.#rest++;
    else this.#counts.set(kind, (count ?? 0) + 1);
  }

  /** The kinds with most frames, the most first; `other` stands for the rest. */
  counts(): Record<string, number> {
    const all = [...this.#counts].sort(([, x], [, y]) => y - x);
    const rest = all.slice(SHOWN_KINDS).reduce((sum, [, count]) => sum + count, this.#rest);
    return Object.fromEntries([...all.slice(0, SHOWN_KINDS), ...(rest > 0 ? [['other', rest]] : [])]);
  }
}
