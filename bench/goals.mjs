/**
 * `npm run bench -- --goals`: the rows that have goals, by processor time in one thread and as rates of two processes, and whether each goal is
 * met. docs/performance.md has the last results.
 */
const FROZEN_C = 'C of 17a937cf';
const NODE = 'node-roce';
const BASE = 'the commit of --compare';
const POLLED = 'round trip of 64 B, polled';
const UCX = 'UCX over TCP';

const find = (rows, name) => rows.find((row) => row.name === name);
const contender = (row, name) => row?.results.find((result) => result.contender === name);

/** Speed by processor time, divided by that of another contender: 1 where both take the same, less where node-roce takes more. */
const byProcessor = (name, atLeast, other = FROZEN_C) => ({
  name: `${name}, by processor time`,
  cpu: name,
  other,
  atLeast,
  figure({ cpu, base }) {
    const row = find(cpu, name);
    return contender(row, other === BASE ? base : other)?.ns / contender(row, NODE)?.ns;
  },
});

/** Rate of two processes, divided by that of another contender. */
const byRate = (name, other, atLeast) => ({
  name: `${name}, two processes`,
  row: name,
  other,
  atLeast,
  figure: ({ rates }) => contender(find(rates, name), other)?.ratio.median,
});

/** Time of a round trip, divided by that of another contender. */
const byTime = (name, other, atMost) => ({
  name,
  row: name,
  other,
  atMost,
  figure: ({ rates }) => contender(find(rates, name), other)?.ratio.median,
});

export const GOALS = [
  byProcessor('SEND 64 B, by numbers', 0.7),
  byProcessor('SEND 64 B', 0.55),
  byProcessor('SEND 4 KiB', 1),
  byProcessor('WRITE 1 MiB', 0.85),
  {
    name: 'READ 1 MiB, by processor time',
    cpu: 'READ 1 MiB',
    other: 'WRITE 1 MiB',
    atMost: 1.07,
    figure({ cpu }) {
      const row = find(cpu, 'READ 1 MiB');
      return contender(row, NODE)?.ns / contender(row, `${NODE}, WRITE 1 MiB`)?.ns;
    },
  },
  byProcessor('1,000 queue pairs, a WRITE of 4 KiB on each', 1 / 0.6, BASE),
  byRate('messages of 64 B, by numbers', 'C limit', 0.6),
  byRate('messages of 64 B', 'C limit', 0.5),
  byTime(POLLED, 'C limit', 1.9),
  byTime(POLLED, 'Node TCP', 1),
  byTime(POLLED, 'fi_pingpong udp;ofi_rxd', 1),
  byTime(POLLED, 'fi_pingpong tcp;ofi_rxm', 1),
  byRate('SEND 64 B, 16 a call', UCX, 1),
  byRate('SEND 4 KiB, path MTU 4096', UCX, 1),
  byRate('WRITE 1 MiB, path MTU 4096', UCX, 1),
  byRate('READ 1 MiB, path MTU 4096', UCX, 1),
];

/** Figures of the same table without a goal: how far UCX is ahead in the round trip, and Node TCP in the stream. */
export const BESIDE = [
  { ...byTime(POLLED, UCX), atMost: undefined },
  { ...byRate('WRITE 1 MiB, path MTU 4096', 'Node TCP'), atLeast: undefined },
  { ...byRate('WRITE 1 MiB, path MTU 4096', 'C limit'), atLeast: undefined },
  { ...byRate('READ 1 MiB, path MTU 4096', 'C limit'), atLeast: undefined },
  { ...byRate('SEND 4 KiB, path MTU 4096', 'C limit'), atLeast: undefined },
  byTime('round trip of 64 B, by events', 'C limit'),
];

/** Of what the figure is a ratio: of times, less is better. */
export const ratioOf = ({ name, atMost }) =>
  atMost !== undefined || name.startsWith('round trip') ? 'times' : 'speeds';

/** The regular expression of the rows of two processes. */
export function goalRows() {
  const names = new Set([...GOALS, ...BESIDE].flatMap(({ row }) => row ?? []));
  return `^(${[...names].join('|')})$`;
}

/**
 * Compares the results with the goals.
 *
 * @param results `cpu`: rows of `--cpu`; `base`: how they name the other commit, if there is one; `rates`: rows of two processes
 * @returns name, other, figure, goal, and whether it is met; `figure` and `met` are undefined where a contender was not measured
 */
export function judge(results) {
  return [...GOALS, ...BESIDE].map(({ name, other, figure, atLeast, atMost }) => {
    const found = figure(results);
    const value = Number.isFinite(found) ? found : undefined;
    const met = () => (atLeast === undefined ? value <= atMost : value >= atLeast);
    const hasGoal = atLeast !== undefined || atMost !== undefined;
    return {
      name,
      other,
      figure: value,
      atLeast,
      atMost,
      met: value !== undefined && hasGoal ? met() : undefined,
    };
  });
}

function verdict({ figure, atLeast, atMost, met }) {
  if (figure === undefined) return 'not measured';
  if (met === undefined) return 'no goal';
  const goal = atLeast === undefined ? `at most ${atMost.toFixed(2)}` : `at least ${atLeast.toFixed(2)}`;
  return `${met ? 'met' : 'missed'} (${goal})`;
}

/** The judged goals as lines of text. */
export const goalLines = (judged) => [
  '\ngoals: node-roce divided by the other; for times, less is better',
  ...judged.map((one) => {
    const figure = one.figure === undefined ? '' : `${one.figure.toFixed(2)} ×`;
    return `  ${one.name.padEnd(66)} ${one.other.padEnd(24)} ${figure.padStart(8)}  ${verdict(one)}`;
  }),
];
