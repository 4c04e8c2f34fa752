import { describe, expect, test } from 'vitest';
import { type PerfOptions, planAt, planOf, sizesOf } from './plan.ts';

// The values that perftest 4.5 printed or derives (perftest_parameters.c).
test.each<[PerfOptions, object]>([
  [
    { verb: 'write', measure: 'bw' },
    { size: 65_536, iters: 5000, txDepth: 128, cqMod: 1 },
  ],
  [
    { verb: 'send', measure: 'bw' },
    { size: 65_536, iters: 1000, rxDepth: 512 },
  ],
  [{ verb: 'send', measure: 'bw', size: 64 }, { cqMod: 100 }],
  [
    { verb: 'send', measure: 'bw', iters: 5, size: 64 },
    { txDepth: 5, rxDepth: 5, cqMod: 5 },
  ],
  [
    { verb: 'send', measure: 'lat' },
    { size: 2, txDepth: 1, cqMod: 1, iters: 1000 },
  ],
  [
    { verb: 'atomic', measure: 'bw' },
    { size: 8, outReads: 16 },
  ],
  [
    { verb: 'send', measure: 'bw', service: 'UD' },
    { rxDepth: 1000, cqMod: 100 },
  ],
  [
    { verb: 'send', measure: 'bw', duration: 5 },
    { iters: 0, margin: 1, peak: false },
  ],
  [{ verb: 'write', measure: 'bw', iters: 20_001 }, { peak: false }],
  [{ verb: 'read', measure: 'bw', inline: 64 }, { inline: 0 }],
])('%o', (options, expected) => {
  expect(planOf(options)).toMatchObject(expected);
});

describe('combinations that perftest does not have are refused', () => {
  test.each<[string, Partial<PerfOptions>]>([
    ['connection', { verb: 'read', service: 'UC' }],
    ['connection', { verb: 'write', service: 'UD' }],
    ['size', { verb: 'atomic', size: 16 }],
    ['size', { verb: 'atomic', all: true }],
    ['duration', { duration: 5, iters: 5 }],
    ['duration', { duration: 5, all: true }],
    ['duration', { duration: 5, events: true }],
    ['duration', { duration: 4, margin: 2 }],
    ['margin', { margin: 1 }],
    ['bidirectional', { measure: 'lat', bidirectional: true }],
    ['qps', { measure: 'lat', qps: 2 }],
    ['events', { measure: 'lat', events: true }],
    ['iters', { iters: 4 }],
    ['writeWithImm', { verb: 'send', writeWithImm: true }],
  ])('%s: %o', (attribute, options) => {
    const all: PerfOptions = { verb: 'write', measure: 'bw', ...options };
    expect(() => planOf(all)).toThrow(expect.objectContaining({ errno: 'EINVAL', attribute }));
  });
});

test('a datagram ends at the path MTU, unless its size was chosen', () => {
  const datagrams = planOf({ verb: 'send', measure: 'bw', service: 'UD' });
  expect(planAt(datagrams, 1024).size).toBe(1024);
  const chosen = planOf({ verb: 'send', measure: 'bw', service: 'UD', size: 2048 });
  expect(() => planAt(chosen, 1024)).toThrow(expect.objectContaining({ attribute: 'size' }));
  const all = planAt(planOf({ verb: 'send', measure: 'lat', service: 'UD', all: true }), 1024);
  expect(sizesOf(all)).toEqual([2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
});
