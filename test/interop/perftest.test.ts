/** `roce perf` and the unmodified programs of perftest on a real rxe, both ways round. */
import { spawn } from 'node:child_process';
import { afterEach, describe, expect, inject, test } from 'vitest';
import { PATIENCE } from '../tiers/patience.mjs';
import { difference, Guest } from './harness/guest.ts';
import { eachValue } from './harness/pairwise.ts';
import { type PerfCase, type PerfReport, playPerf } from './harness/perftest.ts';
import { perfCases } from './harness/perftest-cases.ts';
import { TROUBLE } from './harness/pingpong.ts';
import { isFixedSample, SAMPLE } from './harness/sample.ts';
import {
  allRepeats,
  anyHasStopped,
  progress,
  type WatchedRun,
  type WatchedVerb,
  wireLatency,
  wireRate,
} from './harness/stopwatch.ts';
import { WireCapture, type WirePacket } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;

/** `ROCE_PERF_MATRIX=all` (`test:long`): the whole; else a sample by `ROCE_SAMPLE`, or the same one always. */
const all = perfCases(process.env.ROCE_GUEST ?? 'debian12');
const sample = () =>
  eachValue(all, SAMPLE || 'perftest', ({ verb, measure, role, version, service, rdmaCm, topic }) => ({
    ...{ program: `${verb} ${measure}`, role, version },
    ...{ service, rdmaCm, topic },
  }));
const whole = process.env.ROCE_PERF_MATRIX === 'all';
const cases = whole || SAMPLE === 'control' ? all : sample();

/**
 * Runs that agree, of so many at most. A wrong figure agrees in none; a busy machine, which stops one side or the other, leaves
 * some that do.
 */
const [AGREEING, RUNS] = [2, 9];
/**
 * Bounds of the quotient of two averages, which find a wrong unit, count or direction. Within less they differ by right: each side's
 * clock starts and stops at its own call, and other work of the machine comes between. A fixed sample runs next to any amount of it.
 */
const [LEAST, MOST] = isFixedSample ? [0.05, 20] : [0.6, 1.4];
/** Runs in each of which our answer was late once the timer of rxe fires, and ms of that timer: 4.096 µs · 2^14, rounded down to jiffies. */
const [TRIES, ACK_TIMEOUT] = [4, 64];
/** What moves where the guest's program posts its receives later than we send: it may. */
const SLOW_RECEIVER = ['send_rnr_err', 'out_of_seq_request'];
/** Datagrams are sent at the sender's rate: fewer are too short a time to compare it with the receiver's. */
const FEWEST_DATAGRAMS = 200;

interface Played {
  /** The peer's program had no clock for its last row. */
  clockless: boolean;
  report: PerfReport;
  rows: string[][];
  packets: WirePacket[];
}

const optionOf = (options: string, letter: string) => {
  const found = new RegExp(`-${letter} (\\d+)`).exec(options);
  return found ? Number(found[1]) : undefined;
};

/** Both sides have figures of their own. */
const bothMeasure = ({ verb, measure, options = '' }: PerfCase) =>
  verb === 'send' || (verb === 'write' && measure === 'lat') || options.includes('--write_with_imm');

/** An emulated guest takes in at its own rate the unacknowledged packets that leave at ours. */
const guestReceives = ({ service, measure, role }: PerfCase) =>
  service !== 'RC' && measure === 'bw' && role === 'client';

const comparable = (c: PerfCase) =>
  !guestReceives(c) && (c.service !== 'UD' || (optionOf(c.options ?? '', 'n') ?? 0) >= FEWEST_DATAGRAMS);

/** A bandwidth below it has too few digits in perftest's table, where tiny messages may have 0.00. */
const FEW_DIGITS = 1;

/** Our figure over theirs of the last run: average bandwidth (of tiny messages the message rate), or average latency. */
function sidesRatio({ measure, options = '' }: PerfCase, { report, rows }: Played): number {
  const row = rows.at(-1)!;
  const ours = report.runs.at(-1)!;
  if (measure === 'bw' && Number(row[3]) < FEW_DIGITS) return ours.messageRate! / Number(row[4]);
  const column = measure === 'bw' ? 3 : options.includes('-D') ? 2 : 5;
  return ours.average / Number(row[column]);
}

/** The reported figure of the last run over that of the stop-watch at the wire; `theirs` where only they have it. */
function wireRatio({ verb, measure, role, version, options = '' }: PerfCase, played: Played): number {
  const { report, rows, packets } = played;
  const row = rows.at(-1) ?? [];
  const [us, them] = version === 4 ? [address.hostIp4, address.ip4] : [address.hostIp6, address.ip6];
  const [client, server] = role === 'client' ? [us, them] : [them, us];
  const duration = optionOf(options, 'D');
  const ours = report.runs.at(-1);
  const size = ours?.size ?? Number(row[0]);
  const messages = ours?.iterations ?? Number(row[1]);
  const timed = duration === undefined ? {} : { duration, margin: Math.floor(duration / 4) };
  const run: WatchedRun = { verb: verb as WatchedVerb, size, messages, ...timed };
  if (measure === 'lat')
    return (ours?.average ?? Number(row[duration ? 2 : 5])) / wireLatency(packets, run, client);
  const posters = options.includes('-b') ? [client, server] : [client];
  const rate = posters.reduce((sum, poster) => sum + wireRate(packets, run, poster), 0);
  return ours!.average / (rate * size * (options.includes('gbits') ? 8e-9 : 2 ** -20));
}

/** Figures as perftest prints them. */
function printed({ report }: Played): string[] {
  const { peak = 0, average, messageRate = 0 } = report.runs.at(-1)!;
  return [peak.toFixed(2), average.toFixed(2), messageRate.toFixed(6)];
}

let capture: WireCapture | undefined;
afterEach(({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(`${task.suite?.name} ${task.name}`);
  capture?.discard();
  capture = undefined;
});

/** Evidence of a run that failed: what each side has asked and was answered, by the wire. */
const whoWaits = (packets: readonly WirePacket[], c: PerfCase) =>
  [
    'rxe:',
    ...progress(packets, usOf(c)),
    'node-roce:',
    ...progress(packets, c.version === 4 ? address.ip4 : address.ip6),
  ].join('\n');

/** One run, with the checks of every run; or why it shows nothing and is to be repeated. The last may have no clock. */
async function playOnce(c: PerfCase, isLast: boolean): Promise<(Played & { retries: number }) | string> {
  const before = await guest.counters();
  capture?.discard();
  capture = await WireCapture.start(address, true);
  const [outcome] = await Promise.allSettled([playPerf(guest, c)]);
  const packets = await capture.stop();
  if (outcome.status === 'rejected') {
    console.log(whoWaits(packets, c));
    if (!anyHasStopped(packets, usOf(c))) throw outcome.reason;
    console.log(`${outcome.reason}`);
    return 'the requester of rxe stopped';
  }
  const played = outcome.value;
  if (played.clockless && !isFixedSample && !isLast) return 'perftest found no clock';
  const moved = difference(before, await guest.counters());
  expect(played.report.icrcErrors).toBe(0);
  const isSlow = c.verb === 'send' && (moved.send_rnr_err ?? 0) > 0;
  const trouble = Object.keys(moved).filter(
    (name) => TROUBLE.includes(name) && !(isSlow && SLOW_RECEIVER.includes(name)),
  );
  expect(trouble, JSON.stringify(moved)).toEqual([]);
  return { ...played, packets, retries: moved.completer_retry_err ?? 0 };
}

const usOf = ({ version }: PerfCase) => (version === 4 ? address.hostIp4 : address.hostIp6);

/** One run that shows something, in which rxe's timer did not fire, or fired though nothing was left without our answer for so long. */
async function play(c: PerfCase): Promise<Played> {
  const us = usOf(c);
  for (let i = 1; ; i++) {
    const played = await playOnce(c, i === TRIES);
    if (typeof played === 'string') {
      console.log(`${c.verb} ${c.measure} ${c.options}: ${played}, run ${i}`);
      expect(i).toBeLessThan(TRIES);
      continue;
    }
    const late =
      played.retries > 0 && !isFixedSample
        ? allRepeats(played.packets, us).filter(({ unanswered }) => unanswered >= ACK_TIMEOUT)
        : [];
    if (i === TRIES) expect(late).toEqual([]);
    if (late.length === 0) return played;
  }
}

/** Enough runs are within the bounds; `runs`: so many are enough. */
async function expectAgreement(
  c: PerfCase,
  first: Played,
  ratio: (c: PerfCase, played: Played) => number,
  runs: number,
) {
  const ratios = [ratio(c, first)];
  const agreeing = () => ratios.filter((value) => value > LEAST && value < MOST).length;
  for (let run = 1; run < RUNS && agreeing() < runs; run++) {
    const again = await play(c);
    if (!again.clockless) ratios.push(ratio(c, again));
  }
  expect(agreeing(), `ratios ${ratios}`).toBeGreaterThanOrEqual(runs);
}

describe.each(cases.map((c) => [c.title, c] as const))('%s', (_title, c) => {
  // Repeated where the machine kept our process off its processors for longer than rxe's timer, or dropped a datagram or a UC
  // message for want of a buffer, as shared ones do now and then.
  const options = { retry: 2, timeout: (c.topic === 'all sizes' ? 600_000 : 300_000) * PATIENCE };
  test('both end well, and their reports agree', options, async () => {
    const played = await play(c);
    if (played.clockless)
      return console.log(`${c.title}: perftest found no clock, and its figures are not compared`);
    if (bothMeasure(c)) {
      // All sizes are a thousand messages, and up to 45 s.
      const runs = c.topic === 'all sizes' || isFixedSample ? 1 : AGREEING;
      if (comparable(c)) await expectAgreement(c, played, sidesRatio, runs);
      return;
    }
    if (c.measure === 'bw') {
      // One side passes on the report of the other, and of both directions each prints the sum.
      const row = played.rows.at(-1)!;
      const digits =
        (c.options ?? '').includes('gbits') && Number(row[3]) < 0.1 ? row.slice(4) : row.slice(2);
      expect(digits).toEqual(printed(played).slice(-digits.length));
    }
    await expectAgreement(c, played, wireRatio, 1);
  });
});

/** `ROCE_PERF_BUSY` runs: 20 in the long tier, none otherwise. Not a skip: a suite that skips has failed. */
const BUSY_RUNS = [Number(process.env.ROCE_PERF_BUSY ?? 0)].filter((runs) => runs > 0);

// Once it hung: a probe that took a slow peer for a loss, or perftest's own miscount with `-n` no multiple of 100 (docs/quirks.md).
test.each(BUSY_RUNS)(
  'ib_write_bw -q 5 into ours ends, next to two programs that compute: %i runs',
  { timeout: 300_000 * 21 },
  async (runs) => {
    const busy = [0, 1].map(() => spawn('nice', ['-n', '12', process.execPath, '-e', 'for (;;);']));
    const ends = { well: 0, 'status 9 by rxe': 0 };
    let repeats = 0;
    try {
      const c: PerfCase = {
        verb: 'write',
        measure: 'bw',
        role: 'server',
        version: 4,
        options: '-q 5 -s 4093 -n 600',
      };
      for (let run = 0; run < runs; run++) {
        const before = await guest.counters();
        capture?.discard();
        capture = await WireCapture.start(address, true);
        const [outcome] = await Promise.allSettled([playPerf(guest, c)]);
        const packets = await capture.stop();
        if (outcome.status === 'fulfilled') ends.well++;
        else {
          console.log(whoWaits(packets, c));
          // An empty WRITE_ONLY of rxe: a receiver can't prevent it (docs/quirks.md).
          if (!`${outcome.reason}`.includes('Failed status 9')) throw outcome.reason;
          ends['status 9 by rxe']++;
        }
        repeats += difference(before, await guest.counters()).completer_retry_err ?? 0;
      }
    } finally {
      for (const child of busy) child.kill();
    }
    console.log(`${runs} runs: ${JSON.stringify(ends)}, timeouts of rxe: ${repeats}`);
    expect(ends.well).toBeGreaterThan(0);
  },
);
