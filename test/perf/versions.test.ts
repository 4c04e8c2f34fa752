/**
 * @node-roce/perf and perftest of every version, as another hand wrote it (test/perf/perftest-peer): the structure of 6.28 and
 * later in both its sizes, and those before it that exchange none.
 *
 *   ROCE_PERF_WHOLE=1 npx vitest run test/perf/versions
 */
import { callPerf, type PerfOptions, type PerfResult, servePerf } from '@node-roce/perf';
import { describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { playTest } from './perftest-peer/main.mjs';

let count = 0;
const ITERS = 20;
/** Path MTU of loopback. */
const LOOPBACK_MTU = 4096;

/** Result of the peer. */
interface PeerResult {
  agreed: { version: string; mtu: number; outReads: number; structure?: Buffer };
  theirs: { outReads: number }[];
  runs: { size: number; messages: number; received?: number[] }[];
  reports: { mine: Figures; theirs: Figures }[];
}
interface Figures {
  size: number;
  iters: number;
  average: number;
  rate: number;
}

/** A version of the peer, and the one that a client of ours announces to it. */
interface Version {
  name: string;
  peer: { version: string; mlx5?: boolean };
  announce: '6.06' | '6.24' | '6.29' | '6.29-mlx5';
  /** Bytes of the structure, as our client sends it. */
  structure: number | undefined;
}

const VERSIONS: Version[] = [
  { name: '6.06', peer: { version: '6.06' }, announce: '6.24', structure: undefined },
  { name: '6.24', peer: { version: '6.24' }, announce: '6.06', structure: undefined },
  { name: '6.28', peer: { version: '6.28' }, announce: '6.29', structure: 312 },
  { name: '6.29', peer: { version: '6.29' }, announce: '6.29', structure: 312 },
  { name: '6.29 with mlx5dv', peer: { version: '6.29', mlx5: true }, announce: '6.29-mlx5', structure: 320 },
  { name: '6.29, told 6.24', peer: { version: '6.29' }, announce: '6.24', structure: undefined },
  { name: 'a later one', peer: { version: '6.31' }, announce: '6.29', structure: 312 },
];

/** A test as perf's options, and in the peer's words. */
interface Case {
  name: string;
  ours: PerfOptions;
  peer: Record<string, unknown>;
  rdmaCm?: boolean;
}

const SIZES = { send: 100, write: 100, read: 5000, atomic: 8 };
const plain = (['send', 'write', 'read', 'atomic'] as const).flatMap((verb) =>
  (['bw', 'lat'] as const).map((measure): Case => {
    const size = SIZES[verb];
    return {
      name: `${verb} ${measure}`,
      ours: { verb, measure, size, iters: ITERS },
      peer: { verb, kind: measure, size, iters: ITERS },
    };
  }),
);

/** A plain test with more options. */
function changed(name: string, more: string, ours: Partial<PerfOptions>, peer: object): Case {
  const base = plain.find((one) => one.name === name)!;
  return { name: `${name} ${more}`, ours: { ...base.ours, ...ours }, peer: { ...base.peer, ...peer } };
}

/** With `-R`. */
function overCm(name: string, qps = 1): Case {
  return { ...changed(name, '-R', { qps }, { cm: true, qps }), rdmaCm: true };
}

const more: Case[] = [
  changed('send bw', '-q 4', { qps: 4 }, { qps: 4 }),
  changed('send bw', '-b', { bidirectional: true }, { duplex: true }),
  changed('send bw', '-c UC', { service: 'UC' }, { connection: 'UC' }),
  changed('send bw', '-c UD', { service: 'UD' }, { connection: 'UD' }),
  changed('send lat', '-c UD', { service: 'UD' }, { connection: 'UD' }),
  changed('write lat', '-c UC', { service: 'UC' }, { connection: 'UC' }),
  changed('write bw', '-b -q 4', { bidirectional: true, qps: 4 }, { duplex: true, qps: 4 }),
  changed('write bw', '--write_with_imm', { writeWithImm: true }, { immediate: true }),
  changed('write lat', '--write_with_imm', { writeWithImm: true }, { immediate: true }),
  changed('read bw', '-b -q 2', { bidirectional: true, qps: 2 }, { duplex: true, qps: 2 }),
  changed(
    'atomic bw',
    '-A CMP_AND_SWAP',
    { atomic: 'CMP_AND_SWAP', qps: 2 },
    { atomic: 'CMP_AND_SWAP', qps: 2 },
  ),
  overCm('write bw'),
  overCm('read lat'),
  overCm('send bw', 2),
  changed('write bw', '-D 1', { duration: 1, margin: 0, iters: undefined }, { seconds: 1, margin: 0 }),
];
const ALL = [
  changed(
    'send bw',
    '-a',
    { all: true, size: undefined, iters: 5 },
    { all: true, size: undefined, iters: 5 },
  ),
  changed(
    'write lat',
    '-a',
    { all: true, size: undefined, iters: 5 },
    { all: true, size: undefined, iters: 5 },
  ),
  changed(
    'read bw',
    '-a',
    { all: true, size: undefined, iters: 5 },
    { all: true, size: undefined, iters: 5 },
  ),
  changed(
    'write bw',
    '-a -b',
    { all: true, bidirectional: true, size: undefined, iters: 5 },
    { all: true, duplex: true, size: undefined, iters: 5 },
  ),
  changed(
    'send bw',
    '-a -b',
    { all: true, bidirectional: true, size: undefined, iters: 5 },
    { all: true, duplex: true, size: undefined, iters: 5 },
  ),
];

/** Perf serves, the peer calls; or the other way around. */
async function meet(
  role: 'server' | 'client',
  { ours, peer, rdmaCm }: Case,
  { peer: version, announce }: Version,
) {
  // Other addresses each time: a test that failed may still have the last ones.
  count += 2;
  const [ROCE, PEER] = [0, 1].map((i) => `127.3.${(count + i) >> 8}.${(count + i) & 0xff}`);
  let listening: (port: number) => void = () => {};
  const port = new Promise<number>((resolve) => {
    listening = resolve;
  });
  const common = { timeout: 120, rdmaCm };
  // As an integer or as a double, eight of these bytes are no figure.
  const given = { ...peer, ...version, address: PEER, stack: 0xff };
  if (role === 'server') {
    const address = rdmaCm ? ROCE : () => ROCE;
    const side = { ...common, port: 0, host: ROCE, address, onListening: listening };
    const served = servePerf(ours, side);
    const played = port.then((at) => playTest({ ...given, role: 'client', host: ROCE, port: at }));
    return Promise.all([served, played as Promise<PeerResult>]);
  }
  const played = playTest({ ...given, role: 'server', port: 0, onListening: listening });
  const side = { ...common, host: PEER, address: ROCE, version: announce };
  const called = port.then((at) => callPerf(ours, { ...side, port: at }));
  return Promise.all([called, played as Promise<PeerResult>]);
}

/** Both sides' numbers of the last size are the same, as far as one measures and the other passes them on. */
function expectSameReport(role: 'server' | 'client', ours: PerfResult, peer: PeerResult) {
  if (ours.measure !== 'bw' || peer.reports.length === 0) return;
  const [report, run] = [peer.reports.at(-1)!, ours.runs.at(-1)!];
  if (ours.measuredBy === 'both sides') {
    const [sent, received] = [report.mine.average, report.theirs.average];
    expect(run.average).toBeCloseTo(sent + received, 6);
    return;
  }
  const passed = role === 'server' ? report.mine : report.theirs;
  expect(run).toMatchObject({ size: passed.size, average: passed.average, messageRate: passed.rate });
}

/** Every case with every version, and every test of all sizes. Else every case with 6.29, and a few with the others. */
const WHOLE = process.env.ROCE_PERF_WHOLE !== undefined;
const FEW = ['send bw', 'write lat', 'read bw', 'write bw --write_with_imm', 'write bw -R'];

describe.each(VERSIONS)('the peer is $name', (version) => {
  const cases = [...plain, ...more].filter(
    ({ name }) => WHOLE || version.name === '6.29' || FEW.includes(name),
  );
  describe.each(['server', 'client'] as const)('perf is the %s', (role) => {
    test.each(cases)('$name', async (wanted) => {
      const [ours, peer] = await meet(role, wanted, version);
      // A connection of the connection manager has the path MTU of the port, whichever the dialogue agrees on.
      expect(ours).toMatchObject({ role, mtu: wanted.rdmaCm ? LOOPBACK_MTU : peer.agreed.mtu });
      expect(ours.peerVersion).toBe(version.peer.version);
      // A server answers what its client is; a client chooses.
      const negotiates =
        role === 'server' ? Number(version.peer.version) >= 6.28 : version.structure !== undefined;
      const length = version.peer.mlx5 ? 320 : 312;
      expect(peer.agreed.structure?.length).toBe(negotiates ? length : undefined);
      expectSameReport(role, ours, peer);
      for (const { messages } of peer.runs) expect(messages).toBeGreaterThan(0);
    });
  });
});

describe('sizes 2 … 8 MiB, 6.29', { tags: ['slow'] }, () => {
  const version = VERSIONS.find(({ name }) => name === '6.29')!;
  describe.each(['server', 'client'] as const)('perf is the %s', (role) => {
    const cases = ALL.filter(
      ({ name }) => WHOLE || name === (role === 'server' ? 'send bw -a' : 'read bw -a'),
    );
    test.each(cases)('$name', async (wanted) => {
      const [ours, peer] = await meet(role, wanted, version);
      expectSameReport(role, ours, peer);
      const idle = role === 'client' && wanted.ours.verb === 'read';
      expect(peer.runs.length).toBe(idle ? 0 : 23);
    });
  });
});

describe('READs and atomics at once', () => {
  test.each(['server', 'client'] as const)('perf is the %s: no more than the peer takes', async (role) => {
    const wanted = changed('read bw', '-o', { outReads: 16 }, { maxRdAtomic: 3 });
    const version = VERSIONS.find(({ name }) => name === '6.29')!;
    const [, peer] = await meet(role, wanted, version);
    expect(peer.theirs.map(({ outReads }) => outReads)).toEqual([3]);
  });
});
