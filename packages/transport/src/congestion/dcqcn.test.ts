/** DCQCN's reaction point by itself: cuts and growth in plain numbers, its bounds, and what it leaves to the window. */
import { describe, expect, test } from 'vitest';
import { WINDOW_START } from './aimd.ts';
import { Loss } from './controller.ts';
import { Dcqcn } from './dcqcn.ts';
import { CONGESTION_DEFAULTS, type Congestion } from './options.ts';

const T = 55;
const G = 1 / 256;

function setUp(options: Partial<Congestion> = {}) {
  const path = { clock: new Float64Array(1), least: 0 };
  const dcqcn = new Dcqcn(path, { ...CONGESTION_DEFAULTS, rpgMaxRate: 8000, ...options });
  return { path, dcqcn };
}

test('nothing is held back before the first CNP, however long that takes', () => {
  const { path, dcqcn } = setUp();
  path.clock[0] = 1e9;
  dcqcn.onSent(1e9);
  expect([dcqcn.rate, dcqcn.currentRate, dcqcn.targetRate, dcqcn.alpha]).toEqual([0, 8000, 8000, 1]);
});

test('a CNP cuts the rate by α/2: the first one by half', () => {
  const { path, dcqcn } = setUp();
  dcqcn.onCnp();
  expect([dcqcn.rate, dcqcn.targetRate, dcqcn.alpha]).toEqual([4_000_000, 8000, 1]);
  path.clock[0] = 50;
  dcqcn.onCnp();
  expect([dcqcn.rate, dcqcn.targetRate, dcqcn.alpha]).toEqual([2_000_000, 4000, 1]);
  // 110 µs are two periods of α, and two steps of recovery: half of what is missing, each.
  path.clock[0] = 50 + 110;
  expect(dcqcn.currentRate).toBe(3500);
  expect(dcqcn.alpha).toBe((1 - G) ** 2);
  dcqcn.onCnp();
  expect(dcqcn.currentRate).toBe(3500 * (1 - (1 - G) ** 2 / 2));
  expect(dcqcn.targetRate).toBe(3500);
  expect(dcqcn.alpha).toBe((1 - G) * (1 - G) ** 2 + G);
});

test('four steps go half of the way to the target, the fifth moves the target', () => {
  const { path, dcqcn } = setUp();
  dcqcn.onCnp();
  path.clock[0] = 10;
  dcqcn.onCnp(); // 2000 of 4000
  const seen: [number, number][] = [];
  for (let i = 1; i <= 6; i++) {
    path.clock[0] = 10 + i * T - 1;
    const before = dcqcn.currentRate;
    path.clock[0]++;
    expect(dcqcn.currentRate).toBeGreaterThan(before);
    seen.push([dcqcn.currentRate, dcqcn.targetRate]);
  }
  expect(seen).toEqual([
    [3000, 4000],
    [3500, 4000],
    [3750, 4000],
    [3875, 4000],
    [3957.5, 4040],
    [4018.75, 4080],
  ]);
});

test('bytes count as time does, and both together hasten it', () => {
  const { dcqcn, path } = setUp({ rpgByteReset: 100_000 });
  dcqcn.onCnp();
  path.clock[0] = 10;
  dcqcn.onCnp(); // 2000 of 4000
  dcqcn.onSent(99_999);
  expect(dcqcn.currentRate).toBe(2000);
  dcqcn.onSent(1);
  expect(dcqcn.currentRate).toBe(3000);
  // Six of bytes, and then of time: the hyper increase comes when both are past five.
  dcqcn.onSent(500_000);
  expect(dcqcn.targetRate).toBe(4000 + 2 * 40);
  path.clock[0] = 10 + 5 * T;
  expect(dcqcn.targetRate).toBe(4080 + 5 * 40);
  path.clock[0] += T;
  expect(dcqcn.targetRate).toBe(4280 + 100);
});

test('a CNP within the least time between cuts changes nothing', () => {
  const { path, dcqcn } = setUp({ rateReduceMonitorPeriod: 4 });
  dcqcn.onCnp();
  path.clock[0] = 3.9;
  dcqcn.onCnp();
  expect(dcqcn.currentRate).toBe(4000);
  path.clock[0] = 4;
  dcqcn.onCnp();
  expect(dcqcn.currentRate).toBe(2000);
});

test('no cut goes below the floor, and from there the rate grows again', () => {
  const { path, dcqcn } = setUp({ rpgMinRate: 10 });
  for (let i = 0; i < 1000; i++) {
    path.clock[0] += 50;
    dcqcn.onCnp();
    expect(dcqcn.check()).toBeUndefined();
  }
  expect([dcqcn.rate, dcqcn.targetRate]).toEqual([10_000, 10]);
  path.clock[0] += 5 * T;
  expect(dcqcn.currentRate).toBe(30);
});

test('at line rate nothing is held back any more, after any silence', () => {
  const { path, dcqcn } = setUp();
  dcqcn.onCnp();
  path.clock[0] = 24 * 3600e6;
  expect([dcqcn.rate, dcqcn.currentRate]).toEqual([0, 8000]);
  expect(dcqcn.alpha).toBeLessThan(1e-300);
  // α keeps its small value: the next cut changes nothing, and the CNPs after it count by their number.
  dcqcn.onCnp();
  expect([dcqcn.rate, dcqcn.currentRate]).toEqual([0, 8000]);
  path.clock[0] += 50;
  dcqcn.onCnp();
  expect(dcqcn.currentRate).toBe(8000 * (1 - G / 2));
});

test('RESET: as at the start', () => {
  const { dcqcn } = setUp({ initialAlpha: 0.5 });
  dcqcn.onCnp();
  expect(dcqcn.currentRate).toBe(6000);
  dcqcn.reset();
  expect([dcqcn.rate, dcqcn.currentRate, dcqcn.alpha]).toEqual([0, 8000, 0.5]);
});

describe('losses', () => {
  test('make the window smaller, not the rate; CNPs the rate, not the window', () => {
    const { dcqcn } = setUp();
    dcqcn.onCnp();
    expect(dcqcn.window).toBe(WINDOW_START);
    dcqcn.onAck(32, 5, 5);
    expect(dcqcn.window).toBe(2 * WINDOW_START);
    dcqcn.onLoss(Loss.TIMEOUT, 0, 64);
    expect(dcqcn.window).toBe(2);
    expect(dcqcn.currentRate).toBe(4000);
    expect(dcqcn.check()).toBeUndefined();
  });
});
