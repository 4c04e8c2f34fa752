/** Both ends ours: every test that there is, over TCP and over the connection manager. */
import { MemoryNetwork } from '@node-roce/link';
import { Device, openDevice, QueuePair } from '@node-roce/verbs-api';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { host } from '../../link/testing/loopback.ts';
import { clockOfTurns } from '../../verbs-api/testing/clock.ts';
import { readAtOnce, refuseSends, slowed } from '../testing/by-hand.ts';
import { playBoth } from '../testing/pair.ts';
import { callPerf, type PerfOptions, type PerfProgress, type PerfResult, servePerf } from './index.ts';

// Time goes by turns of the event loop and by looks at the clock: what a run measures is not how busy the machine is.
beforeEach(() => clockOfTurns(0.5, 0.05));

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
});

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
  const { server, client } = await playBoth(options);
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

test.each<PerfOptions>([
  { verb: 'send', measure: 'lat', service: 'UD', duration: 0.3, margin: 0 },
  { verb: 'send', measure: 'lat', service: 'UC', duration: 0.3, margin: 0 },
  { verb: 'write', measure: 'lat', service: 'UC', duration: 0.3, margin: 0 },
])('for a time, a message that is lost fails the test: %o', async (options) => {
  const { deliver } = MemoryNetwork.prototype;
  let left = 0;
  const spy = vi.spyOn(MemoryNetwork.prototype, 'deliver').mockImplementation(function (
    this: MemoryNetwork,
    ...packet
  ) {
    if (left-- !== 0) deliver.apply(this, packet);
  });
  onTestFinished(() => spy.mockRestore());
  for (left of [0, 5])
    await expect(playBoth(options)).rejects.toMatchObject({
      code: 'ERR_ROCE_TIMEOUT',
      message: expect.stringContaining('does not retransmit'),
    });
});

test('a peer whose time ends earlier takes no more in, and the other ends as well', async () => {
  const options = { verb: 'send', measure: 'bw', margin: 0, size: 1024, bidirectional: true } as const;
  const { server } = await playBoth({ ...options, duration: 0.1 }, {}, { ...options, duration: 0.3 });
  expect(server.runs[0].iterations).toBeGreaterThan(1);
});

test('messages under way at the end of a time do not outlast the patience of the peer', async () => {
  const options = { verb: 'send', measure: 'bw', margin: 0, rxDepth: 4, size: 8192 } as const;
  const { client } = await playBoth(
    { ...options, duration: 0.8 },
    { timeout: 0.8 },
    { ...options, duration: 0.3 },
  );
  expect(client.runs[0].iterations).toBeGreaterThan(1);
});

test.each(['bw', 'lat'] as const)(
  'progress of %s: when a run begins, then once a second',
  async (measure) => {
    const [told, toldServer]: PerfProgress[][] = [[], []];
    await playBoth(
      { verb: 'read', measure, duration: 2.5, margin: 0, size: 64 },
      { onProgress: (progress) => told.push(progress) },
      undefined,
      { onProgress: (progress) => toldServer.push(progress) },
    );
    expect(told[0]).toEqual({ size: 64, run: 0, runs: 1, part: 0, messages: 0, ms: 0 });
    expect(told.length).toBeGreaterThan(1);
    const parts = told.map(({ part = -1 }) => part).filter((part) => part < 1);
    for (const [i, part] of parts.slice(1).entries()) expect(part - parts[i]).toBeGreaterThan(0.3);
    expect(toldServer).toEqual([{ size: 64, run: 0, runs: 1 }]);
  },
);

test('progress at another interval: messages and time since the run began', async () => {
  const told: PerfProgress[] = [];
  const { client } = await playBoth(
    { verb: 'write', measure: 'bw', duration: 1, margin: 0, size: 64 },
    { onProgress: (progress) => told.push(progress), progressEvery: 200 },
    undefined,
    { onProgress: () => {} },
  );
  const times = told.map(({ ms = 0 }) => Math.floor(ms / 200));
  // A busy machine leaves some out.
  expect(times).toEqual([...new Set(times)].sort((a, b) => a - b));
  expect(times.length).toBeGreaterThan(1);
  // The run of 1 s leaves out what was under way at its end.
  const messages = told.filter(({ ms = 0 }) => ms <= 1000).map((progress) => progress.messages ?? 0);
  expect(messages).toEqual(messages.toSorted((a, b) => a - b));
  expect(messages.at(-1)).toBeGreaterThan(0);
  expect(messages.at(-1)).toBeLessThanOrEqual(client.runs[0]?.iterations ?? 0);
});

test('progress of a number of messages is their share', async () => {
  const parts: number[] = [];
  // They take 2.1 s.
  await playBoth(
    { verb: 'write', measure: 'bw', iters: 500, size: 2 ** 14, txDepth: 4 },
    { rate: 31e6, onProgress: ({ part = -1 }) => parts.push(part) },
    undefined,
    { onProgress: () => {} },
  );
  expect(parts.length).toBeGreaterThan(1);
  expect(parts).toEqual(parts.toSorted((a, b) => a - b));
  const messages = parts.map((part) => part * 500);
  expect(messages[0]).toBe(0);
  expect(messages[1]).toBeGreaterThan(0);
  for (const count of messages) expect(count).toBeCloseTo(Math.round(count), 6);
});

// The only completion comes after more than a second.
test.each<Partial<PerfOptions> & Pick<PerfOptions, 'verb'>>([
  { verb: 'write' },
  { verb: 'read', outReads: 1 },
  { verb: 'send' },
])('%o: a peer whose packets come slowly is not silent', { tags: ['slow'] }, async (test) => {
  const options: PerfOptions = { measure: 'bw', size: 8192, iters: 100, cqMod: 100, ackTimeout: 18, ...test };
  const { client } = await playBoth(options, { rate: 5e6, timeout: 0.6 });
  expect(client.runs[0].iterations).toBe(100);
});

test('a client whose only READ is answered slowly is not silent', { tags: ['slow'] }, async () => {
  const network = new MemoryNetwork();
  await using device = await openDevice({ link: slowed(network.link('10.0.0.1', 1024)) });
  const options: PerfOptions = { verb: 'read', measure: 'bw', size: 2 ** 22, iters: 5 };
  let served: Promise<PerfResult> | undefined;
  const port = await new Promise<number>((onListening) => {
    served = servePerf(options, { port: 0, device, host: '127.0.0.1', timeout: 0.5, onListening });
  });
  await readAtOnce(network, '10.0.0.2', port, 2 ** 22);
  await expect(served).resolves.toMatchObject({ runs: [{ iterations: 1 }] });
});

test('a peer that refuses each SEND by two NAKs brings the test on by neither', async () => {
  const network = new MemoryNetwork();
  await using device = await openDevice({ link: network.link('10.0.0.2', 1024) });
  let refusing: Promise<void> | undefined;
  const port = await new Promise<number>((onListening) => {
    refusing = refuseSends(network, '10.0.0.1', onListening);
  });
  const side = { host: '127.0.0.1', port, device, timeout: 0.3 };
  const called = callPerf({ verb: 'send', measure: 'bw', size: 64, iters: 20 }, side);
  await expect(called).rejects.toMatchObject({ code: 'ERR_ROCE_TIMEOUT' });
  await refusing;
});

test.each(['6.06', '6.24', '6.29', '6.29-mlx5'] as const)('the client announces %s', async (version) => {
  for (const rdmaCm of [false, true]) {
    const { server } = await playBoth({ verb: 'read', measure: 'bw', ...few }, { version, rdmaCm });
    expect(server.peerVersion).toBe(version.slice(0, 4));
  }
});

test.each([Number.NaN, 0, -1])('a time limit of %f s is refused', async (timeout) => {
  const called = callPerf(
    { verb: 'send', measure: 'bw' },
    { host: '127.0.0.1', address: '127.0.0.1', timeout },
  );
  await expect(called).rejects.toMatchObject({ errno: 'EINVAL', attribute: 'timeout' });
});

test.each([3_000_000, 5_000_000])(
  'a time limit of %i s, longer than a timer, does not end at once',
  async (timeout) => {
    for (const rdmaCm of [false, true]) {
      const { client } = await playBoth({ verb: 'read', measure: 'bw', ...few }, { timeout, rdmaCm });
      expect(client.runs).toHaveLength(1);
    }
  },
);

describe('options of queue pairs, over the connection manager', () => {
  const wanted = { verb: 'read', measure: 'bw', ...few } as const;

  test('each side has its own ACK timeout, which is not that of the dialogue', async () => {
    const modify = vi.spyOn(QueuePair.prototype, 'modify');
    await playBoth({ ...wanted, ackTimeout: 12 }, { rdmaCm: true }, { ...wanted, ackTimeout: 13 });
    const timeouts = modify.mock.calls.map(([{ timeout }]) => timeout).filter((code) => code !== undefined);
    modify.mockRestore();
    // Those of the dialogue are left to the connection manager.
    expect(timeouts).toHaveLength(4);
    expect(timeouts.filter((code) => code === 12 || code === 13).sort()).toEqual([12, 13]);
  });

  test('an MTU below that of the port is refused', async () => {
    const played = playBoth({ ...wanted, mtu: 1024 }, { rdmaCm: true });
    await expect(played).rejects.toMatchObject({ errno: 'EINVAL', attribute: 'mtu' });
  });
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

/** How both sides ended that have other options, by versions that do not compare them. */
const DIFFERENT: [string, PerfOptions, PerfOptions, { rdmaCm?: boolean }, RegExp][] = [
  [
    'a SEND of larger messages',
    { verb: 'send', measure: 'bw', ...few },
    { verb: 'send', measure: 'bw', iters: 20, size: 1024 },
    {},
    /same size/,
  ],
  [
    'a SEND of smaller messages',
    { verb: 'send', measure: 'bw', ...few },
    { verb: 'send', measure: 'bw', iters: 20, size: 4096 },
    {},
    /sent 2048 bytes in place of 4096/,
  ],
  [
    'datagrams of another size',
    { verb: 'send', measure: 'lat', service: 'UD', ...few },
    { verb: 'send', measure: 'lat', service: 'UD', iters: 20, size: 4096 },
    {},
    /sent 2088 bytes in place of 4136/,
  ],
  [
    'WRITEs of smaller messages',
    { verb: 'write', measure: 'bw', ...few },
    { verb: 'write', measure: 'bw', iters: 20, size: 4096 },
    {},
    /measured messages of 2048 bytes, not 4096/,
  ],
  [
    'more queue pairs',
    { verb: 'write', measure: 'bw', ...few, qps: 4 },
    { verb: 'write', measure: 'bw', ...few, qps: 2 },
    {},
    /another step of the dialogue/,
  ],
  [
    'another service',
    { verb: 'send', measure: 'bw', ...few, service: 'UD' },
    { verb: 'send', measure: 'bw', ...few },
    { rdmaCm: true },
    /the client did not make connection 1 of 1/,
  ],
];
test.each(DIFFERENT)('%s is an error of the server', async (_what, client, server, side, expected) => {
  const played = playBoth(client, { timeout: 2, ...side }, server);
  await expect(played).rejects.toMatchObject({
    name: 'RoceError',
    message: expect.stringMatching(expected),
  });
});

test.each([false, true])(
  'a report in the other unit is converted, bidirectional: %s',
  async (bidirectional) => {
    const options: PerfOptions = { verb: 'write', measure: 'bw', ...few, bidirectional };
    const { server, client } = await playBoth(options, { gigabits: true }, options, { gigabits: false });
    if (server.measure !== 'bw' || client.measure !== 'bw') throw new Error('not a bandwidth');
    const [a] = server.runs;
    const [b] = client.runs;
    expect(a.average / ((b.average * 1e9) / 8 / 2 ** 20)).toBeCloseTo(1, 6);
    expect(a.messageRate).toBe(b.messageRate);
  },
);

test('large messages under way at the end of a duration do not fail it', { tags: ['slow'] }, async () => {
  const options: PerfOptions = { verb: 'send', measure: 'bw', duration: 1, margin: 0, size: 2 ** 22 };
  // 128 of them take 50 s.
  const { server, client } = await playBoth(options, { rate: 100e6, timeout: 1.5 });
  for (const { runs } of [server, client]) expect(runs[0].iterations).toBeGreaterThan(0);
});

test('right packets out of the window of Identifications are counted apart from wrong ones', async () => {
  const { counters } = Device.prototype;
  let dropped = 0;
  const ofDevice = vi.spyOn(Device.prototype, 'counters').mockImplementation(async function (this: Device) {
    const counts = await counters.call(this);
    dropped += 3;
    return {
      ...counts,
      icrcErrors: counts.icrcErrors + 10,
      icrcOutOfWindow: counts.icrcOutOfWindow + dropped,
    };
  });
  const { client } = await playBoth({ verb: 'read', measure: 'bw', ...few });
  expect(client.icrcErrors).toBe(0);
  expect(client.icrcOutOfWindow).toBeGreaterThan(0);
  ofDevice.mockRestore();
});

test('packets that other queue pairs of the device retransmit are left out', async () => {
  const { counters } = Device.prototype;
  let others = 0;
  const ofDevice = vi.spyOn(Device.prototype, 'counters').mockImplementation(async function (this: Device) {
    const counts = await counters.call(this);
    others += 1000;
    return {
      ...counts,
      retransmittedPackets: counts.retransmittedPackets + others,
      icrcErrors: counts.icrcErrors + 1000,
    };
  });
  const { counters: own } = QueuePair.prototype;
  const ofQp = vi.spyOn(QueuePair.prototype, 'counters').mockImplementation(async function (this: QueuePair) {
    return { ...(await own.call(this)), retransmittedPackets: 7 };
  });
  for (const rdmaCm of [false, true]) {
    const { client, server } = await playBoth({ verb: 'read', measure: 'bw', ...few, qps: 2 }, { rdmaCm });
    for (const side of [client, server])
      expect(side).toMatchObject({ retransmittedPackets: 14, icrcErrors: 0 });
  }
  ofDevice.mockRestore();
  ofQp.mockRestore();
});

test("the engine of the caller's device may be in a worker", { tags: ['slow'] }, async () => {
  await using device = await openDevice({ address: host(1), engine: 'worker', link: 'udp' });
  const options: PerfOptions = { verb: 'write', measure: 'lat', iters: 20 };
  const server = { host: '127.0.0.1', port: 0, address: host(2), timeout: 120 };
  let served: Promise<PerfResult> | undefined;
  const port = await new Promise<number>((onListening) => {
    served = servePerf(options, { ...server, onListening });
  });
  const { runs } = await callPerf(options, { host: '127.0.0.1', port, device, timeout: 120 });
  await served;
  expect(runs).toMatchObject([{ iterations: 20 }]);
});
