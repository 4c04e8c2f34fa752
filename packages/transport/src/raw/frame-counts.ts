/** Frames by the rules of a filter that let them pass. */
import { type FrameCount, type FrameRule, passesRule } from './frames.ts';

/** Owns a count for each rule, in their order: a frame counts with every rule that holds for it. */
export class FrameCounts {
  readonly #rules: readonly FrameRule[];
  readonly #frames: Float64Array;
  readonly #bytes: Float64Array;

  constructor(rules: readonly FrameRule[]) {
    this.#rules = rules;
    this.#frames = new Float64Array(rules.length);
    this.#bytes = new Float64Array(rules.length);
  }

  /** A frame was taken in: `length` bytes at `start` of a slab. */
  add(slab: Uint8Array, start: number, length: number): void {
    for (const [i, rule] of this.#rules.entries()) {
      if (!passesRule(rule, slab, start, length)) continue;
      this.#frames[i]++;
      this.#bytes[i] += length;
    }
  }

  list(): FrameCount[] {
    return this.#rules.map((_, i) => ({ frames: this.#frames[i], bytes: this.#bytes[i] }));
  }
}
