/** One row of the comparison: both builds in turn, in short slices, over several rounds. */
import { median } from '../statistics.mjs';
import { openSession } from './sessions.mjs';
import { confirm, judge, speedRatio } from './verdict.mjs';

/** Seconds: `slice` of each turn, `sampled` of the one that allocation is taken from. */
const FULL = { slices: 6, warmUp: 3, slice: 0.2, sampled: 0.5 };
const QUICK = { slices: 4, warmUp: 0.4, slice: 0.08, sampled: 0.15 };
/** Messages of the first run, and how long a run has to be for its rate to mean something. */
const FIRST_COUNT = 16;
const MIN_SECONDS = 0.02;

/** Messages a second, once the code is warm. */
async function warmUp(session, seconds) {
  let rate = 0;
  for (let count = FIRST_COUNT, spent = 0; spent < seconds; ) {
    const result = await session.run(count, false);
    spent += result.seconds;
    rate = result.messages / result.seconds;
    count = result.seconds < MIN_SECONDS ? count * 4 : Math.ceil(rate * (seconds / 2));
  }
  return rate;
}

/** Bytes that each message allocates in the thread that posts it. */
async function allocation(session, count) {
  const { allocated, messages } = await session.run(count, true);
  return allocated === undefined ? undefined : allocated / messages;
}

/** Errors of `body` name the build at fault. */
async function blaming(side, body) {
  try {
    return await body();
  } catch (error) {
    throw Object.assign(error, { side });
  }
}

/**
 * A round: new processes of each build, warmed up, then turn by turn; who begins changes with each pair of
 * slices. Its ratio is the median of the pairs' ratios.
 */
async function round(row, builds, times, index, open) {
  const sessions = [];
  const run = (i, body) => blaming(builds[i].side, () => body(sessions[i]));
  try {
    for (const { root, side } of builds) sessions.push(await blaming(side, () => open(row, root)));
    const order = sessions.map((_, i) => i);
    let rate = Number.POSITIVE_INFINITY;
    for (const i of order) rate = Math.min(rate, await run(i, (session) => warmUp(session, times.warmUp)));
    const slices = order.map(() => []);
    for (let slice = 0; slice < times.slices; slice++) {
      for (const i of (slice + index) % 2 === 0 ? order : order.toReversed()) {
        const result = await run(i, (session) => session.run(Math.ceil(rate * times.slice), false));
        slices[i].push(result[row.figure]);
      }
    }
    const bytes = [];
    for (const i of order) {
      bytes.push(await run(i, (session) => allocation(session, Math.ceil(rate * times.sampled))));
    }
    return { figures: slices.map(median), slices, bytes };
  } finally {
    await Promise.allSettled(sessions.map((session) => session.close()));
  }
}

function ratioOf({ slices: [base, head] }, lessIsBetter) {
  return median(base.map((figure, i) => speedRatio(figure, head[i], lessIsBetter)));
}

async function measured(row, builds, { rounds, quick }, open) {
  const results = [];
  for (let i = 0; i < rounds; i++) results.push(await round(row, builds, quick ? QUICK : FULL, i, open));
  return results;
}

/** Median figure and bytes a message of build `i` over the rounds. */
function summaryOf(results, i) {
  const bytes = results.map((result) => result.bytes[i]).filter((value) => value !== undefined);
  return {
    figure: median(results.map((result) => result.figures[i])),
    bytesPerMessage: bytes.length > 0 ? median(bytes) : undefined,
  };
}

/**
 * Measures a row with both builds. A row beyond its spread is measured once more (verdict.mjs `confirm`). If
 * one build cannot do it, the other is measured alone.
 *
 * @param builds `{ base, head }`, the directories of built checkouts
 * @param options `rounds` and `quick`
 * @param open opens a session; tests give their own
 */
export async function compareRow(row, builds, options, open = openSession) {
  const { name, unit, lessIsBetter = false } = row;
  const result = { name, unit, lessIsBetter, failed: {} };
  let present = ['base', 'head'].map((side) => ({ side, root: builds[side] }));
  while (present.length > 0) {
    try {
      const first = await measured(row, present, options, open);
      let all = first;
      if (present.length === 2) {
        const ratios = first.map((r) => ratioOf(r, lessIsBetter));
        result.ratios = ratios;
        Object.assign(result, judge(ratios));
        if (result.verdict !== 'same') {
          const second = await measured(row, present, options, open);
          const again = second.map((r) => ratioOf(r, lessIsBetter));
          all = [...first, ...second];
          result.ratios = [...ratios, ...again];
          Object.assign(result, confirm(ratios, again));
        }
      }
      present.forEach(({ side }, i) => {
        result[side] = summaryOf(all, i);
      });
      return result;
    } catch (error) {
      if (error.side === undefined) throw error;
      result.failed[error.side] = error.message.split('\n')[0];
      present = present.filter(({ side }) => side !== error.side);
    }
  }
  return result;
}
