/**
 * `npm run bench -- --cpu`: processor time, user and system of both sides in one thread, which other work on the machine disturbs less than it
 * does a rate. All contenders of a row are processes on the same processor, and run slices of equal processor time in turn; a
 * figure is the lowest of a contender's slices. docs/performance.md documents the rows.
 */
import { otherBuild, workingTree } from '../compare/builds.mjs';
import { frozenC, nodeRoce, todaysC } from './contenders.mjs';
import { ROWS } from './rows.mjs';

/** Slices of each contender, and seconds of processor time: of a slice, and before the first one. */
const FULL = { slices: 24, slice: 0.08, warmUp: 1.5 };
const QUICK = { slices: 4, slice: 0.02, warmUp: 0.1 };
export const timesOf = (quick) => (quick ? QUICK : FULL);
const FIRST_COUNT = 64;

/** Messages of a slice, once the code is warm. */
async function warmUp(session, { slice, warmUp }) {
  let count = FIRST_COUNT;
  for (let spent = 0; ; ) {
    const ns = await session.run(count);
    spent += ns * count * 1e-9;
    count = Math.max(1, Math.ceil((slice * 1e9) / ns));
    if (spent >= warmUp) return count;
  }
}

/** Opens those that can do the row; resolves with them and with why the others can't. */
async function opened(row, contenders) {
  const present = [];
  const missing = [];
  for (const contender of contenders) {
    const { name } = contender;
    const reason = contender.missing();
    if (reason) missing.push({ contender: name, reason });
    else {
      try {
        present.push({ name, session: await contender.open(row), ns: [] });
      } catch (error) {
        missing.push({ contender: name, reason: error.message.split('\n')[0] });
      }
    }
  }
  return { present, missing };
}

/** One row: figures by contender, and the ratio of each to the last of them, which is the working tree. */
export async function measureRow(row, contenders, times) {
  const { present, missing } = await opened(row, contenders);
  try {
    for (const one of present) one.count = await warmUp(one.session, times);
    for (let i = 0; i < times.slices; i++) {
      // Each begins as often as the others: one that always ended a turn, and began the next, had its caches to itself.
      for (let turn = 0; turn < present.length; turn++) {
        const one = present[(i + turn) % present.length];
        one.ns.push(await one.session.run(one.count));
      }
    }
  } finally {
    await Promise.all(present.map(({ session }) => session.close()));
  }
  const results = present.map(({ name, ns }) => ({ contender: name, ns: Math.min(...ns), slices: ns }));
  // The working tree's compared with the other's: 1 where both take the same, less where the tree takes more.
  const own = results.find(({ contender }) => contender === contenders.at(-1).name);
  for (const result of results) if (own && result !== own) result.ratio = result.ns / own.ns;
  return { name: row.name, results, missing };
}

const shown = (ns) => (ns >= 100_000 ? `${(ns / 1000).toFixed(1)} µs` : `${ns.toFixed(0)} ns`);

/** A row as lines of text. */
export function rowLines({ name, results, missing }) {
  return [
    name,
    ...results.map(({ contender, ns, ratio }) => {
      const beside = ratio === undefined ? '' : `   ${ratio.toFixed(2)} ×`;
      return `  ${contender.padEnd(24)}${shown(ns).padStart(10)}${beside}`;
    }),
    ...missing.map(({ contender, reason }) => `  ${contender.padEnd(24)}${reason}`),
  ];
}

/** The contenders of a row, and where it has another one beside it, each build of node-roce with that, before the builds. */
export function withOther({ beside }, contenders) {
  if (beside === undefined) return contenders;
  const [inC, builds] = [contenders.slice(0, 2), contenders.slice(2)];
  const others = builds.map((build) => ({
    ...build,
    name: `${build.name}, ${beside.name}`,
    open: () => build.open(beside),
  }));
  return [...inC, ...others, ...builds];
}

/** Measures the rows that `only` matches; resolves with the report. */
export async function measureCpu({ compare: revision, only = '', quick }, say) {
  const rows = ROWS.filter(({ name }) => new RegExp(only, 'i').test(name));
  if (rows.length === 0) throw new Error(`--only ${only} matches no row`);
  const head = workingTree();
  const base = revision === undefined ? undefined : otherBuild(revision, say);
  try {
    const contenders = [frozenC, todaysC, nodeRoce('node-roce', head.root)];
    if (base !== undefined) contenders.splice(2, 0, nodeRoce(base.name, base.root));
    const results = [];
    for (const row of rows) {
      const result = await measureRow(row, withOther(row, contenders), timesOf(quick));
      results.push(result);
      for (const line of rowLines(result)) say(line);
    }
    return { head: head.name, base: base?.name, quick, rows: results };
  } finally {
    base?.remove();
  }
}
