import { describe, expect, test } from 'vitest';
import { checkMtu, type PerfOptions, type PlayOptions, planAt, planOf, sizesOf } from './plan.ts';

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
  // Options that perftest takes and ignores.
  [{ verb: 'send', measure: 'lat', cqMod: 10 }, { cqMod: 1 }],
  [{ verb: 'send', measure: 'lat', txDepth: 500 }, { txDepth: 1 }],
  [{ verb: 'write', measure: 'bw', rxDepth: 100 }, { consumesReceives: false }],
  [{ verb: 'read', measure: 'bw', rxDepth: 1 }, { consumesReceives: false }],
  [{ verb: 'send', measure: 'bw', warmUp: true }, { warmUp: false }],
  [{ verb: 'atomic', measure: 'lat', warmUp: true }, { warmUp: false }],
])('%o', (options, expected) => {
  expect(planOf(options)).toMatchObject(expected);
});

describe('combinations that perftest does not have are refused', () => {
  test.each<[string, Partial<PerfOptions>]>([
    ['service', { verb: 'read', service: 'UC' }],
    ['service', { verb: 'write', service: 'UD' }],
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
    ['qps', { verb: 'send', service: 'UC', qps: 128, duration: 10 }],
    ['size', { qps: 4000, size: 2 ** 30 }],
    ['writeWithImm', { verb: 'send', writeWithImm: true }],
    ['inline', { verb: 'read', inline: 64 }],
    ['inline', { verb: 'atomic', inline: 0 }],
    ['rxDepth', { verb: 'read', rxDepth: 2 }],
    ['outReads', { verb: 'send', outReads: 4 }],
    ['outReads', { verb: 'write', outReads: 1 }],
    ['atomic', { verb: 'write', atomic: 'FETCH_AND_ADD' }],
    ['noPeak', { measure: 'lat', noPeak: true }],
    ['verb', { verb: 'x' as 'send' }],
    ['measure', { measure: 'x' as 'bw' }],
    ['service', { service: 'XRC' as 'RC' }],
    ['mtu', { mtu: 1500 }],
    ['size', { size: 1.5 }],
    ['size', { size: 0 }],
    ['iters', { iters: Number.NaN }],
    ['qps', { qps: 0 }],
    ['txDepth', { txDepth: 0 }],
    ['cqMod', { cqMod: 0 }],
    ['rxDepth', { rxDepth: -1 }],
    ['trafficClass', { trafficClass: 256 }],
    ['sl', { sl: 16 }],
    ['ackTimeout', { ackTimeout: 32 }],
    ['duration', { duration: Number.NaN }],
    ['margin', { duration: 5, margin: -1 }],
  ])('%s: %o', (attribute, options) => {
    const all: PerfOptions = { verb: 'write', measure: 'bw', ...options };
    expect(() => planOf(all)).toThrow(expect.objectContaining({ errno: 'EINVAL', attribute }));
  });
});

test.each<[string, Partial<PerfOptions>, PlayOptions]>([
  ['service', { service: 'UC' }, { rdmaCm: true }],
  ['histogram', { measure: 'bw' }, { histogram: true }],
  ['histogram', { measure: 'lat', duration: 5 }, { histogram: true }],
])('%s: %o with %o is refused', (attribute, options, side) => {
  const all: PerfOptions = { verb: 'write', measure: 'bw', ...options };
  expect(() => planOf(all, side)).toThrow(expect.objectContaining({ errno: 'EINVAL', attribute }));
});

test('the connection manager connects at the MTU of the port', () => {
  const planAt1024 = (service: 'RC' | 'UD') => planOf({ verb: 'send', measure: 'bw', service, mtu: 1024 });
  expect(() => checkMtu(planAt1024('RC'), 4096)).toThrow(expect.objectContaining({ attribute: 'mtu' }));
  checkMtu(planAt1024('RC'), 1024);
  // It bounds the size of a datagram.
  checkMtu(planAt1024('UD'), 4096);
});

test('a datagram ends at the path MTU, unless its size was chosen', () => {
  // 2 · 600 · 8 MiB before it shrinks.
  planOf({ verb: 'send', measure: 'bw', service: 'UD', all: true, qps: 600 });
  const datagrams = planOf({ verb: 'send', measure: 'bw', service: 'UD' });
  expect(planAt(datagrams, 1024, 1024).size).toBe(1024);
  const chosen = planOf({ verb: 'send', measure: 'bw', service: 'UD', size: 2048 });
  expect(() => planAt(chosen, 1024, 1024)).toThrow(expect.objectContaining({ attribute: 'size' }));
  expect(() => planAt(chosen, 1024, 4096)).toThrow(expect.objectContaining({ code: 'ERR_ROCE_EXCHANGE' }));
  const all = planAt(planOf({ verb: 'send', measure: 'lat', service: 'UD', all: true }), 1024, 1024);
  expect(sizesOf(all)).toEqual([2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
});
