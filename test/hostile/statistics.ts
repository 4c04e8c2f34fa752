/**
 * Whether numbers could be guessed from those before them. Each test states how often good randomness fails it; the bounds
 * are so far out that all of them together fail once in a billion runs, and what real adapters did wrong (counters, keys
 * that differ in one byte, a fixed first PSN) is still beyond them by orders of magnitude.
 *
 * A sum of `n` fair coins lies `DEVIATIONS` standard deviations (√n / 2) from its mean with probability at most
 * 2 · exp(−DEVIATIONS² / 2), by Hoeffding: 2.6e-14. A bias of one bit shows from 1/2 ± 8 / (2 √n) on: with 8192 numbers, 4.4 %.
 */
export const DEVIATIONS = 8;

/**
 * Pairs of equal numbers, where few are expected: a Poisson variable of mean λ ≤ 2 reaches 25 with probability below
 * λ²⁵ / 25! < 2.2e-18.
 */
const EQUAL_PAIRS = 25;

/** A series of numbers of so many bits, 24 … 32, in the order in which they were given out. */
export interface Series {
  name: string;
  bits: number;
  values: readonly number[];
}

const bit = (value: number, at: number) => (value >>> at) & 1;

/** Standard deviations by which the number of ones among `n` coins is off. */
const deviation = (ones: number, n: number) => (2 * ones - n) / Math.sqrt(n);

/** Monobit: each bit is one half of the time. `bits` coins' sums. */
function monobit({ bits, values }: Series): number {
  let worst = 0;
  for (let i = 0; i < bits; i++) {
    let ones = 0;
    for (const value of values) ones += bit(value, i);
    worst = Math.max(worst, Math.abs(deviation(ones, values.length)));
  }
  return worst;
}

/**
 * Serial and cross correlation: each bit of a number is independent of every bit of the `lag`th after it, in the same series or
 * in another. The exclusive or of two fair independent bits is a fair coin, and those of different pairs are
 * independent. `a.bits` · `b.bits` sums.
 */
export function correlation(a: Series, b: Series, lag: number): number {
  const n = Math.min(a.values.length, b.values.length) - lag;
  const columns = (series: Series, from: number) =>
    Array.from({ length: series.bits }, (_, i) => {
      const words = new Uint32Array(Math.ceil(n / 32));
      for (let t = 0; t < n; t++) words[t >> 5] |= bit(series.values[t + from], i) << (t & 31);
      return words;
    });
  const [left, right] = [columns(a, 0), columns(b, lag)];
  let worst = 0;
  for (const x of left) {
    for (const y of right) {
      let ones = 0;
      for (let w = 0; w < x.length; w++) ones += population(x[w] ^ y[w]);
      worst = Math.max(worst, Math.abs(deviation(ones, n)));
    }
  }
  return worst;
}

function population(word: number): number {
  let v = word - ((word >>> 1) & 0x5555_5555);
  v = (v & 0x3333_3333) + ((v >>> 2) & 0x3333_3333);
  return Math.imul((v + (v >>> 4)) & 0x0f0f_0f0f, 0x0101_0101) >>> 24;
}

/** Pairs of equal numbers. Expected of good ones: n² / 2 / 2^bits. */
function equalPairs(values: readonly number[]): number {
  const seen = new Map<number, number>();
  let pairs = 0;
  for (const value of values) {
    const before = seen.get(value) ?? 0;
    pairs += before;
    seen.set(value, before + 1);
  }
  return pairs;
}

/** From each number to the next, modulo 2^bits: all alike where they are counted up, in whatever steps. */
function steps({ bits, values }: Series): number[] {
  const mask = 2 ** bits - 1;
  return values.slice(1).map((value, i) => ((value - values[i]) & mask) >>> 0);
}

/** Deviations of a series from randomness; nothing where it looks random. */
export function weaknesses(series: Series): string[] {
  const { name, values } = series;
  const found = [
    ['a bit is not as often 0 as 1', monobit(series), DEVIATIONS],
    ['a bit predicts the next number', correlation(series, series, 1), DEVIATIONS],
    ['a bit predicts the next but one', correlation(series, series, 2), DEVIATIONS],
    ['numbers come again', equalPairs(values), EQUAL_PAIRS],
    ['steps come again', equalPairs(steps(series)), EQUAL_PAIRS],
  ] as const;
  return found.filter(([, size, bound]) => size >= bound).map(([what, size]) => `${name}: ${what} (${size})`);
}
