/** Data of the page, from the JSON of runs: pure, numbers in, numbers and labels out. */
import { describe } from '../conditions.mjs';

const range = ({ median, min, max }) => ({ median, min, max });

/**
 * Runs in the order of their dates, and every row that one of them has, with the points of all runs: figure and ratio of each contender.
 * The first contender of a row is ours.
 *
 * @param reports what `--json` wrote, without `--compare`
 * @throws Error if a report is something else
 */
export function pageData(reports) {
  for (const { date, rows } of reports)
    if (date === undefined || !rows?.every(({ results }) => Array.isArray(results)))
      throw new Error('expected the JSON of a run without --compare, with its date');
  const sorted = reports.toSorted((a, b) => Date.parse(a.date) - Date.parse(b.date));
  const rows = new Map();
  sorted.forEach((report, run) => {
    for (const { name, unit, lessIsBetter, results } of report.rows) {
      const row = rows.get(name) ?? { name, unit, lessIsBetter, points: [] };
      rows.set(name, row);
      for (const { contender, figure, ratio } of results)
        row.points.push({ run, contender, ...range(figure), ratio: ratio && range(ratio) });
    }
  });
  return {
    runs: sorted.map(({ rounds, quick, ...report }) => ({
      label: labelOf(report, sorted),
      conditions: `${describe(report)}; ${rounds} rounds${quick ? ', quick: not for figures' : ''}`,
    })),
    rows: [...rows.values()],
  };
}

/** Day and commit; with the time where another run has the same. */
function labelOf({ date, commit = '' }, reports) {
  const label = (length) => `${date.slice(0, length).replace('T', ' ')} ${commit}`.trim();
  const same = reports.filter(
    (other) => other.date.slice(0, 10) === date.slice(0, 10) && other.commit === commit,
  );
  return label(same.length > 1 ? 16 : 10);
}
