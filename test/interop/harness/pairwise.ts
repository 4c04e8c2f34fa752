/** Samples of a matrix of cases that cover all pairs of values. */
import { createRandom } from '@node-roce/wire';
import { SAMPLE } from './sample.ts';

/** Numbers in [0, 1) that a text decides. */
function random(seed: string): () => number {
  let hash = 0;
  for (const char of seed) hash = (Math.imul(hash, 31) + char.charCodeAt(0)) | 0;
  return createRandom(hash >>> 0).unit;
}

function shuffled<T>(list: readonly T[], next: () => number): T[] {
  const order = [...list];
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(next() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/** "key=value" of each dimension. */
const valuesOf = (case_: object): string[] =>
  Object.entries(case_).map(([key, value]) => `${key}=${JSON.stringify(value)}`);

/** The values, and each two of them. */
function pairsOf(case_: object): string[] {
  const values = valuesOf(case_);
  return [...values, ...values.flatMap((a, i) => values.slice(i + 1).map((b) => `${a} ${b}`))];
}

/**
 * Some of the cases, in their order: together they have every value of every property, and every two values of two
 * properties, that the cases have. Greedy: each time the case that adds most; `seed` decides between equals.
 */
export const pairwise = <T extends object>(cases: readonly T[], seed: string): T[] =>
  covering(cases, seed, pairsOf);

/** Fewer cases: together they have every value of every dimension. */
export const eachValue = <T extends object>(
  cases: readonly T[],
  seed: string,
  of: (case_: T) => object,
): T[] => covering(cases, seed, (case_) => valuesOf(of(case_)));

function covering<T extends object>(cases: readonly T[], seed: string, itemsOf: (case_: T) => string[]): T[] {
  const rest = shuffled(
    cases.map((case_) => ({ case_, pairs: itemsOf(case_) })),
    random(seed),
  );
  const missing = new Set(rest.flatMap(({ pairs }) => pairs));
  const chosen = new Set<T>();
  while (missing.size > 0) {
    const gain = ({ pairs }: { pairs: string[] }) => pairs.filter((pair) => missing.has(pair)).length;
    const best = rest.reduce((a, b) => (gain(b) > gain(a) ? b : a));
    chosen.add(best.case_);
    for (const pair of best.pairs) missing.delete(pair);
  }
  return cases.filter((case_) => chosen.has(case_));
}

/** The cases of a large matrix that this run plays: a sample by `ROCE_SAMPLE` where it is set, else all. Of `control`, run.mjs chooses by name. */
export function sampled<T extends object>(cases: readonly T[]): readonly T[] {
  return SAMPLE && SAMPLE !== 'control' ? pairwise(cases, SAMPLE) : cases;
}
