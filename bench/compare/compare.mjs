/**
 * `npm run bench -- --compare REV`: the working tree compared with another commit, row by row. The driver
 * (bench/sides) is the working tree's for both, so that only what it measures differs. docs/performance.md
 * documents the columns.
 */
import { otherBuild, rowsOf, workingTree } from './builds.mjs';
import { compareRow } from './interleave.mjs';
import { ROWS } from './rows.mjs';
import { conclusion, HEADER, rowLine } from './table.mjs';

/** A summary of all rows; names of rows. */
export function concluded(rows, baseNames = []) {
  const named = (test) => rows.filter(test).map(({ name }) => name);
  return {
    slower: named(({ verdict }) => verdict === 'slower'),
    faster: named(({ verdict }) => verdict === 'faster'),
    broken: named(({ failed }) => failed.head !== undefined && failed.base === undefined),
    onlyInBase: baseNames.filter((name) => !ROWS.some((row) => row.name === name)),
  };
}

/** Measures all rows that `only` matches; resolves with the report. */
export async function compare({ compare: revision, only = '', rounds, quick }, say) {
  const chosen = ROWS.filter(({ name }) => new RegExp(only, 'i').test(name));
  if (chosen.length === 0) throw new Error(`--only ${only} matches no row`);
  const head = workingTree();
  const base = otherBuild(revision, say);
  try {
    say(`base: ${base.name}; head: ${head.name}; ${rounds} rounds${quick ? ', quick' : ''}`);
    say(HEADER);
    const rows = [];
    for (const row of chosen) {
      const result = await compareRow(row, { base: base.root, head: head.root }, { rounds, quick });
      rows.push(result);
      say(rowLine(result));
    }
    const summary = concluded(rows, await rowsOf(base.root));
    for (const text of conclusion(summary)) say(text);
    return { base: base.name, head: head.name, rounds, quick, rows, ...summary };
  } finally {
    base.remove();
  }
}
