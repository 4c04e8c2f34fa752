/**
 * V8 allocates a number with a fraction that passes from function to function, wherever it does not inline the call; which it inlines
 * changes with the size of functions elsewhere. Parts that work for each packet must not depend on it, so they run here with nothing inlined.
 */
import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';

const DIST = new URL('../../dist/', import.meta.url).href;
/** Compiles in the thread itself, so that each run is the same; a young generation that holds all. */
const FLAGS = [
  '--expose-gc',
  '--no-concurrent-recompilation',
  '--no-turbo-inlining',
  '--min-semi-space-size=64',
  '--max-semi-space-size=64',
];
const CALLS = 100_000;

/** Bytes that each call of the optimized function `body` allocates; `setUp` is code that defines it, of modules of `dist`. */
function allocatedByCall(setUp: string): number {
  const code = `
    const load = (name) => import(${JSON.stringify(DIST)} + name + '.js');
    ${setUp}
    const run = (n) => { for (let i = 0; i < n; i++) body(i); };
    for (let i = 0; i < 50; i++) run(2000);
    // The least of some: what V8 itself allocates at times is not by the call.
    const growth = () => {
      gc();
      const before = process.memoryUsage().heapUsed;
      run(${CALLS});
      return process.memoryUsage().heapUsed - before;
    };
    console.log(Math.min(...Array.from({ length: 5 }, growth)) / ${CALLS});
  `;
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [...FLAGS, '--input-type=module', '-e', code],
    {
      encoding: 'utf8',
    },
  );
  if (status !== 0) throw new Error(stderr);
  return Number(stdout);
}

test('a number with a fraction that passes between functions is seen', () => {
  const half = 'let sum = 0; const half = (i) => i + 0.5; globalThis.body = (i) => { sum += half(i); };';
  expect(allocatedByCall(half)).toBeGreaterThan(15);
});

test('the ACK timer is started anew without allocation', () => {
  const bytes = allocatedByCall(`
    const { AckTimer } = await load('requester/ack-timer');
    const { Deadlines } = await load('deadlines');
    const { LossBursts } = await load('requester/recovery/loss-bursts');
    const { RoundTrip } = await load('requester/round-trip');
    const { TIMERS, Timers } = await load('requester/timers');
    const clock = new Float64Array([1000.5]);
    const place = { array: new Float64Array(TIMERS), at: 0 };
    const timers = new Timers(clock, new Deadlines(clock), { timersDue() {} }, place);
    const roundTrip = new RoundTrip(clock, new LossBursts());
    roundTrip.begin(0);
    clock[0] += 12.25;
    roundTrip.acknowledged(1);
    const recovery = { idle: true, probes: true, probeDelay: 0 };
    const timer = new AckTimer({ attributes: { timeout: 14 } }, timers, roundTrip, recovery);
    const body = () => { clock[0] += 0.5; timer.restart(true); };
  `);
  expect(bytes).toBeLessThan(1);
});
