/** Minimum, mean and percentiles of any number of durations in bounded memory. */
import type { Distribution } from '../facts.ts';

/** So many values are kept as they are: small captures get exact percentiles. */
const EXACT = 256;
/** Buckets in each doubling: a percentile is then right within 1/16. */
const STEPS = 16;

/** Collects nanoseconds, 0 … 2^53. Negative ones (captures whose clock jumps) count as 0. */
export class DistributionBuilder {
  #values: number[] | undefined = [];
  #buckets: number[] = [];
  #count = 0;
  #min = Number.POSITIVE_INFINITY;
  #max = 0;
  #sum = 0;

  static merged(one: DistributionBuilder, two: DistributionBuilder): DistributionBuilder {
    const both = new DistributionBuilder();
    for (const part of [one, two]) {
      if (part.#values !== undefined) {
        for (const value of part.#values) both.add(value);
        continue;
      }
      both.#spill();
      part.#buckets.forEach((count, index) => {
        both.#buckets[index] = (both.#buckets[index] ?? 0) + count;
      });
      both.#count += part.#count;
      both.#sum += part.#sum;
      both.#min = Math.min(both.#min, part.#min);
      both.#max = Math.max(both.#max, part.#max);
    }
    return both;
  }

  get count(): number {
    return this.#count;
  }

  add(nanoseconds: number): void {
    const value = Math.max(nanoseconds, 0);
    this.#count++;
    this.#sum += value;
    if (value < this.#min) this.#min = value;
    if (value > this.#max) this.#max = value;
    if (this.#values === undefined) {
      this.#toBucket(value);
    } else if (this.#values.push(value) > EXACT) {
      this.#spill();
    }
  }

  /** Undefined while nothing was added. */
  result(): Distribution | undefined {
    if (this.#count === 0) return undefined;
    return {
      count: this.#count,
      min: this.#min,
      max: this.#max,
      mean: this.#sum / this.#count,
      p50: this.#percentile(0.5),
      p90: this.#percentile(0.9),
      p99: this.#percentile(0.99),
      p999: this.#percentile(0.999),
    };
  }

  /** From here on buckets only. */
  #spill(): void {
    for (const kept of this.#values ?? []) this.#toBucket(kept);
    this.#values = undefined;
  }

  #toBucket(value: number): void {
    const index = bucketOf(value);
    this.#buckets[index] = (this.#buckets[index] ?? 0) + 1;
  }

  /** The smallest value that so large a share of all does not exceed. */
  #percentile(share: number): number {
    const rank = Math.ceil(share * this.#count);
    if (this.#values !== undefined) return this.#values.toSorted((a, b) => a - b)[rank - 1];
    let seen = 0;
    for (let index = 0; index < this.#buckets.length; index++) {
      seen += this.#buckets[index] ?? 0;
      if (seen >= rank) return Math.min(this.#max, Math.max(this.#min, middleOf(index)));
    }
    return this.#max;
  }
}

function bucketOf(value: number): number {
  if (value < STEPS) return Math.floor(value);
  const doublings = Math.floor(Math.log2(value / STEPS));
  return STEPS * (doublings + 1) + Math.floor(value / 2 ** doublings) - STEPS;
}

/** The middle of a bucket. */
function middleOf(index: number): number {
  if (index < STEPS) return index;
  const doublings = Math.floor(index / STEPS) - 1;
  return ((index % STEPS) + STEPS + 0.5) * 2 ** doublings;
}
