/** The verdict on the rounds of one row. Pure: numbers in, words out. */
import { median } from '../statistics.mjs';

/** Chance that a row that did not change is outside of its spread on one side, at most: 1/16 a side. */
const MAX_TAIL = 1 / 16;

/**
 * How much quicker the working tree (`head`) is than the other commit (`base`): above 1 is quicker, whether the
 * figure is a rate or a time.
 */
export function speedRatio(base, head, lessIsBetter) {
  return lessIsBetter ? base / head : head / base;
}

/**
 * The spread of the median: the order statistics between which the true median lies, whatever the distribution,
 * but for `MAX_TAIL` a side (sign test). With 5 rounds these are the least and the most.
 */
export function spread(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const n = sorted.length;
  // P(at most k of n values are below the median) = Σ C(n, i) / 2^n.
  let below = 0;
  let tail = 2 ** -n;
  let choose = 1;
  for (let k = 0; k < n >> 1 && tail <= MAX_TAIL; k++) {
    below = k;
    choose = (choose * (n - k)) / (k + 1);
    tail += choose * 2 ** -n;
  }
  return { median: median(sorted), low: sorted[below], high: sorted[n - 1 - below] };
}

/** `slower` or `faster` if 1 lies outside of the spread, else `same`. */
export function judge(ratios) {
  const { median: middle, low, high } = spread(ratios);
  const verdict = high < 1 ? 'slower' : low > 1 ? 'faster' : 'same';
  return { ratio: middle, low, high, verdict };
}

/**
 * Judges a row that was measured twice because it looked changed the first time. It changed only if the second
 * measurement alone has the same verdict; the ratio and its spread are those of all rounds.
 */
export function confirm(first, second) {
  const all = judge([...first, ...second]);
  const verdict = judge(first).verdict === judge(second).verdict ? judge(second).verdict : 'same';
  return { ...all, verdict };
}
