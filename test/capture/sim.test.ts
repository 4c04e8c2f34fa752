/**
 * Retransmissions and causes in the analysis, compared with the senders' own record: every kind of bad network, captured
 * at two hosts and in the middle.
 *
 * At the host that sends, every retransmission is found, and no other. Elsewhere the same of the packets
 * that the tap saw, wherever a capture can show it: see `judge`. A cause may be `unknown`, and is never wrong.
 *
 *     ROCE_CAPTURE_SEEDS=1000 npx vitest run test/capture/sim.test.ts    # seeds 1 to 1000
 *     ROCE_CAPTURE_FIRST=701 ROCE_CAPTURE_SEEDS=100 npx vitest run test/capture/sim.test.ts    # seeds 701 to 800
 *     ROCE_CAPTURE_KEEP=quiet npx vitest run test/capture/sim.test.ts    # with responders that keep early packets
 *     ROCE_CAPTURE=17 npx vitest run test/capture/sim.test.ts            # one seed again; leaves its captures
 */
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { createRandom, type TapPlace, type TracedPacket, tap, tapCapture } from '@node-roce/sim';
import type { KeepEarly } from '@node-roce/transport';
import { expect, test } from 'vitest';
import { NETWORKS } from '../sim/run.ts';
import { analyze } from './sim/analyze.ts';
import { judge, type Tally } from './sim/judge.ts';
import { type CaptureRun, runConnections } from './sim/run.ts';
import { trueFrames } from './sim/truth.ts';

const SEEDS = Number(process.env.ROCE_CAPTURE_SEEDS ?? 20);
const FIRST = Number(process.env.ROCE_CAPTURE_FIRST ?? 1);
const MAX_FAULTS = Number(process.env.ROCE_CAPTURE_FAULTS ?? 20);
const replay = process.env.ROCE_CAPTURE;
const keepEarly = process.env.ROCE_CAPTURE_KEEP;

/** Everything about a run follows from its seed. */
function drawRun(seed: number): CaptureRun {
  const random = createRandom(seed * 31 + 7);
  return {
    seed,
    network: NETWORKS[seed % NETWORKS.length],
    loss: random.pick([0.005, 0.02, 0.05, 0.1]),
    ends: random.pick([
      ['engine', 'engine'],
      ['engine', 'engine'],
      ['engine', 'model'],
      ['model', 'model'],
    ] as const),
    hosts: random.between(2, 3),
    connections: random.between(1, 6),
    count: 30,
    ...(keepEarly === undefined ? {} : { keepEarly: keepEarly as KeepEarly }),
  };
}

const PLACES = ['host 1', 'host 2', 'middle'] as const;
/** By where the tap is: at the packet's sender, between, or where it arrives. */
const tallies: Record<TracedPacket['event'], Tally> = { sent: {}, passed: {}, arrived: {} };
let mistaken = 0;

/** Errors of the analysis of any of the seed's captures. */
async function checkSeed(seed: number, keep: boolean, more: Partial<CaptureRun> = {}): Promise<string[]> {
  const run = runConnections({ ...drawRun(seed), ...more });
  const taps: TapPlace[] = [run.hosts[0], run.hosts[1], 'middle'];
  const faults: string[] = [];
  for (const [i, place] of PLACES.entries()) {
    const packets = tap(run.network, taps[i]);
    if (packets.length === 0) continue;
    const judgement = judge(run, trueFrames(packets, run.pathMtu), analyze(packets), tallies);
    mistaken += judgement.mistaken;
    faults.push(...judgement.faults.map((fault) => `seed ${seed}, ${place}, ${fault}`));
    if (!keep) continue;
    const path = join(tmpdir(), `node-roce-capture-${seed}-${place.replace(' ', '-')}.pcapng`);
    writeFileSync(path, tapCapture(packets, { comment: `ROCE_CAPTURE=${seed}` }));
    console.log(`${place}: ${path}`);
  }
  if (keep) console.log(run.options, run.settings);
  return faults;
}

const sumOf = (tally: Tally, key: keyof Tally[string]) =>
  Object.values(tally).reduce((total, counts) => total + counts[key], 0);

/** For test/evidence/test-long.md. */
function summary(): string {
  const shares = Object.entries(tallies).map(([event, tally]) => {
    const percent = (count: number, of: number) => `${((100 * count) / Math.max(1, of)).toFixed(1)} %`;
    const [packets, certain] = [sumOf(tally, 'packets'), sumOf(tally, 'certain')];
    const [right, wrong] = [sumOf(tally, 'likely'), sumOf(tally, 'unlikely')];
    const shown = certain + right + wrong;
    return `${event} ${packets}: ${percent(certain, packets)} certain, ${percent(right + wrong, packets)} likely (${percent(right, right + wrong)} right), ${percent(packets - shown, packets)} not shown`;
  });
  return `${FIRST === 1 ? `${SEEDS} seeds` : `seeds ${FIRST} to ${FIRST + SEEDS - 1}`}, retransmitted packets ${shares.join('; ')}`;
}

function report(tally: Tally): string {
  const share = ({ packets, certain, likely, unlikely }: Tally[string]) => {
    const percent = (count: number, of = packets) => `${((100 * count) / Math.max(1, of)).toFixed(1)} %`;
    const shown = certain + likely + unlikely;
    return `${packets}: ${percent(certain)} certain, ${percent(likely + unlikely)} likely (${percent(likely, likely + unlikely)} of them right), ${percent(packets - shown)} not shown`;
  };
  const all = {
    packets: sumOf(tally, 'packets'),
    certain: sumOf(tally, 'certain'),
    likely: sumOf(tally, 'likely'),
    unlikely: sumOf(tally, 'unlikely'),
  };
  const causes = Object.entries(tally).map(([cause, counts]) => `\n  ${cause} ${share(counts)}`);
  return `${share(all)}${causes.join('')}`;
}

if (replay !== undefined) {
  test(`seed ${replay} again`, async () => {
    expect(await checkSeed(Number(replay), true)).toEqual([]);
  });
} else {
  test(`${SEEDS} seeds`, { timeout: 300_000 + SEEDS * 2000 }, async () => {
    const faults: string[] = [];
    for (let seed = FIRST; seed < FIRST + SEEDS && faults.length < MAX_FAULTS; seed++) {
      faults.push(...(await checkSeed(seed, false)));
      // In a long run the runner wants to hear from this thread.
      await setImmediate();
    }
    for (const [event, tally] of Object.entries(tallies)) console.log(`${event}: again ${report(tally)}`);
    console.log(`taken for what they are not where nobody can know: ${mistaken}`);
    console.log(`result: ${summary()}`);
    expect(faults).toEqual([]);
    // It was worth the while: every cause occurred, and most of them were named.
    for (const tally of Object.values(tallies)) {
      const counts = Object.values(tally);
      expect(counts.length).toBe(5);
      expect(counts.every(({ certain, likely }) => certain + likely > 0)).toBe(true);
    }
  });
}

test.each([45])('seed %i, with responders that keep early packets', async (seed) => {
  expect(await checkSeed(seed, false, { keepEarly: 'quiet' })).toEqual([]);
});

test.each([
  [317, 'the first packet of a sender is damaged, and sent again'],
  [533, 'damaged packets of a sender whose ICRC was not right yet are counted as retransmitted'],
  [347, 'a late packet of an RNR go-back-N comes behind its copy, which a NAK asked for'],
  [551, 'a probe asks for a part of a READ; and a NAK answers two probes'],
  [685, 'an ATOMIC WRITE is asked for alone, and the answer behind it is kept'],
  [929, 'a probe comes soon after a packet that was asked for again'],
  [1035, 'a NAK answers two probes after an RNR wait'],
  [1125, 'a READ comes late, and its path MTU is known later'],
  [1247, 'another READ that comes late'],
  [1170, 'a probe after twice the time of the first, when a timer would end'],
  [1187, 'a NAK answers a probe that goes on with a go-back-N'],
  [1278, 'the timer ends long after the answer to a probe'],
  [1367, 'a probe comes soon after a late answer'],
])('seed %i: %s', async (seed) => {
  expect(await checkSeed(seed, false)).toEqual([]);
});

test('a late packet whose PSN was taken for that of a response', async () => {
  expect(await checkSeed(1003, false)).toEqual([]);
});
