/**
 * `npm run bench -- --many`: of what the time of a WRITE of 4 KiB consists where queue pairs are many. Variants of one build are processes on the same
 * processor, which run slices in turn, as the contenders of a row of `--cpu`. docs/performance.md documents the parts.
 */
import { otherBuild, workingTree } from '../compare/builds.mjs';
import { nodeRoce } from './contenders.mjs';
import { measureRow, rowLines, timesOf } from './cpu.mjs';

/** WRITEs that one queue pair has outstanding, where there is but one. */
const OUTSTANDING = 1000;
/** Queue pairs whose state and payload a processor's second cache (1 MiB) holds. */
const WARM = 64;

/** @param places of the peer's memory, which the WRITEs go to in turn: to one, the payload stays in the caches */
const variant = (queuePairs, places) => ({
  name: `${queuePairs.toLocaleString('en')} × ${places.toLocaleString('en')}`,
  plan: { queuePairs, places, size: 4096, depth: queuePairs === 1 ? OUTSTANDING : 1, each: true },
});

const ONE = variant(1, 1);
const FEW = variant(WARM, 1);
/** Of queue pairs that are more than the caches hold. */
export const COUNTS = [1000, 10_000];

/** `queue pairs × places`. */
const VARIANTS = [
  ONE,
  variant(1, OUTSTANDING),
  FEW,
  ...COUNTS.flatMap((count) => [variant(count, 1), variant(count, count)]),
];

/** The parts of a message's time with `count` queue pairs, ns; undefined where a variant was not measured. */
export function partsOf(results, count) {
  const of = ({ name }) => results.find(({ contender }) => contender === name)?.ns;
  const [one, few, many, all] = [ONE, FEW, variant(count, 1), variant(count, count)].map(of);
  if ([one, few, many, all].includes(undefined)) return undefined;
  return { count, one, turns: few - one, state: many - few, payload: all - many, all };
}

function partLines(results) {
  return COUNTS.flatMap((count) => {
    const parts = partsOf(results, count);
    if (parts === undefined) return [];
    const [one, turns, state, payload, all] = Object.values(parts)
      .slice(1)
      .map((ns) => ns.toFixed(0));
    return `  ${count.toLocaleString('en')}: ${one} + ${turns} (turns, ACKs, timers) + ${state} (cold state) + ${payload} (cold payload) = ${all} ns`;
  });
}

/** Measures the variants that `only` matches; resolves with the report. */
export async function measureMany({ compare: revision, only = '', quick }, say) {
  const variants = VARIANTS.filter(({ name }) => new RegExp(only, 'i').test(name));
  if (variants.length === 0) throw new Error(`--only ${only} matches no variant`);
  const head = workingTree();
  const base = revision === undefined ? undefined : otherBuild(revision, say);
  try {
    const builds = base === undefined ? [head] : [base, head];
    const contenders = builds.flatMap(({ name, root }) =>
      variants.map(({ name: variantName, plan }) => {
        const build = nodeRoce(name, root);
        const open = () => build.open({ kind: 'many', plan });
        return { ...build, name: `${name}: ${variantName}`, open };
      }),
    );
    const { results, missing } = await measureRow({ name: 'WRITE 4 KiB' }, contenders, timesOf(quick));
    const rows = builds.map(({ name }) => {
      const isOf = ({ contender }) => contender.startsWith(`${name}: `);
      const plain = ({ ratio: _, ...one }) => ({ ...one, contender: one.contender.slice(name.length + 2) });
      const row = {
        name,
        results: results.filter(isOf).map(plain),
        missing: missing.filter(isOf).map(plain),
      };
      for (const line of [...rowLines(row), ...partLines(row.results)]) say(line);
      return row;
    });
    return { head: head.name, base: base?.name, quick, many: rows };
  } finally {
    base?.remove();
  }
}
