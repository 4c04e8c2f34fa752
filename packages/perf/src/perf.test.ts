/** Both ends ours: every test that there is, over TCP and over the connection manager. */
import { describe, expect, test } from 'vitest';
import { playBoth } from '../testing/pair.ts';
import type { PerfOptions, PerfResult } from './index.ts';

const averages = ({ runs }: PerfResult) => runs.map(({ average }) => average);
const few = { iters: 20, size: 2048 } as const;
const atomic = { verb: 'atomic', iters: 20 } as const;

/** Every test of all sizes, not only those that `npm test` has time for. */
const WHOLE = process.env.ROCE_PERF_WHOLE !== undefined;

const BANDWIDTH: PerfOptions[] = [
  { verb: 'send', measure: 'bw', ...few },
  { verb: 'send', measure: 'bw', service: 'UC', ...few },
  { verb: 'send', measure: 'bw', service: 'UD', ...few },
  { verb: 'send', measure: 'bw', ...few, bidirectional: true, qps: 4 },
  { verb: 'send', measure: 'bw', ...few, events: true },
  { verb: 'send', measure: 'bw', ...few, iters: 100, rxDepth: 6, txDepth: 4 },
  { verb: 'write', measure: 'bw', ...few, inline: 64, size: 33 },
  { verb: 'write', measure: 'bw', ...few, service: 'UC', size: 65_537 },
  { verb: 'write', measure: 'bw', ...few, warmUp: true, bidirectional: true },
  { verb: 'write', measure: 'bw', ...few, writeWithImm: true, qps: 2 },
  { verb: 'read', measure: 'bw', ...few, qps: 4, events: true },
  { ...atomic, measure: 'bw', atomic: 'CMP_AND_SWAP' },
  { ...atomic, measure: 'bw', qps: 4, bidirectional: true },
];
const LATENCY: PerfOptions[] = [
  { verb: 'send', measure: 'lat', ...few },
  { verb: 'send', measure: 'lat', service: 'UD', iters: 20, events: true },
  { verb: 'send', measure: 'lat', service: 'UC', iters: 20, inline: 16 },
  { verb: 'write', measure: 'lat', ...few },
  { verb: 'write', measure: 'lat', service: 'UC', iters: 20 },
  { verb: 'write', measure: 'lat', iters: 20, writeWithImm: true },
  { verb: 'read', measure: 'lat', ...few },
  { ...atomic, measure: 'lat', events: true },
];

const ways = [
  ['TCP', { rdmaCm: false }],
  ['the connection manager', { rdmaCm: true }],
] as const;
describe.each(ways)('over %s', (_way, side) => {
  const possible = ({ service }: PerfOptions) => !side.rdmaCm || service !== 'UC';

  test.each(BANDWIDTH.filter(possible))('%o', async (options) => {
    const { server, client } = await playBoth(options, side);
    const { iters = 0, qps = 1, bidirectional = false } = options;
    expect(client.runs).toMatchObject([{ iterations: iters * qps }]);
    expect(averages(client)[0]).toBeGreaterThan(0);
    const passedOn = options.verb !== 'send' && !options.writeWithImm;
    if (passedOn || bidirectional) expect(averages(server)).toEqual(averages(client));
    expect(server.measuredBy).toBe(bidirectional ? 'both sides' : passedOn ? 'the peer' : 'this side');
  });

  test.each(LATENCY.filter(possible))('%o', async (options) => {
    const { server, client } = await playBoth(options, side);
    expect(client.runs).toMatchObject([{ iterations: options.iters }]);
    expect(averages(client)[0]).toBeGreaterThan(0);
    const answers = options.verb === 'send' || options.verb === 'write';
    expect(server.runs).toHaveLength(answers ? 1 : 0);
  });
});

test('write lat: the last byte counts beyond 255', async () => {
  const { client } = await playBoth({ verb: 'write', measure: 'lat', iters: 258, size: 1 });
  expect(client.runs).toMatchObject([{ iterations: 258 }]);
}, 120_000);

const ALL_SIZES: PerfOptions[] = [
  { verb: 'send', measure: 'bw', all: true, iters: 5, service: 'UD' },
  { verb: 'read', measure: 'bw', all: true, iters: 5 },
];
/** Of many MiB. */
const LARGE: PerfOptions[] = [
  { verb: 'send', measure: 'lat', all: true, iters: 5 },
  { verb: 'write', measure: 'bw', all: true, iters: 5, bidirectional: true },
  { verb: 'write', measure: 'lat', all: true, iters: 5 },
];
test.each(WHOLE ? [...ALL_SIZES, ...LARGE] : ALL_SIZES)('all sizes: %o', async (options) => {
  const { server, client } = await playBoth(options, { timeout: 20 });
  const sizes = client.runs.map(({ size }) => size);
  const last = options.service === 'UD' ? 12 : 23;
  expect(sizes).toEqual(Array.from({ length: last }, (_, i) => 2 ** (i + 1)));
  expect(server.runs.length).toBe(options.verb === 'read' ? 1 : last);
});

test.each<PerfOptions>([
  { verb: 'send', measure: 'bw', duration: 0.3, margin: 0, size: 1024 },
  { verb: 'send', measure: 'bw', duration: 0.3, margin: 0, size: 1024, bidirectional: true },
  { verb: 'write', measure: 'bw', duration: 0.3, margin: 0, size: 1024, bidirectional: true },
  { verb: 'write', measure: 'lat', duration: 0.3, margin: 0 },
  { verb: 'send', measure: 'lat', duration: 0.3, margin: 0 },
  { verb: 'read', measure: 'lat', duration: 0.3, margin: 0 },
])('for a time: %o', async (options) => {
  const { client } = await playBoth(options);
  expect(client.runs[0].iterations).toBeGreaterThan(1);
  expect(client.runs[0].average).toBeGreaterThan(0);
});

test.each(['6.06', '6.24', '6.29', '6.29-mlx5'] as const)('the client announces %s', async (version) => {
  for (const rdmaCm of [false, true]) {
    const { server } = await playBoth({ verb: 'read', measure: 'bw', ...few }, { version, rdmaCm });
    expect(server.peerVersion).toBe(version.slice(0, 4));
  }
});

test.each<[string, PerfOptions, PerfOptions, RegExp]>([
  [
    'another size',
    { verb: 'write', measure: 'bw', ...few },
    { verb: 'write', measure: 'bw', iters: 20, size: 4096 },
    /size/,
  ],
  ['another verb', { verb: 'write', measure: 'bw', ...few }, { verb: 'read', measure: 'bw', ...few }, /verb/],
  [
    'another count',
    { verb: 'send', measure: 'lat', ...few },
    { verb: 'send', measure: 'lat', iters: 30, size: 2048 },
    /iters/,
  ],
])('%s is found by the versions that negotiate', async (_what, client, server, expected) => {
  const played = playBoth(client, { version: '6.29' }, server);
  await expect(played).rejects.toMatchObject({
    code: 'ERR_ROCE_EXCHANGE',
    message: expect.stringMatching(expected),
  });
});

test('another test, by versions that do not negotiate, ends in an error of one kind or another', async () => {
  const played = playBoth(
    { verb: 'send', measure: 'bw', ...few },
    { timeout: 1 },
    { verb: 'send', measure: 'bw', iters: 20, size: 1024 },
  );
  await expect(played).rejects.toMatchObject({ name: 'RoceError' });
});
