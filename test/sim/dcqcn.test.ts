/**
 * DCQCN between engines on simulated networks: flows that share a port which marks packets (RED), and what must not harm them.
 *
 * ROCE_SIM_SEEDS=10: seeds of each row, 1 by default, and of each kind of network, 6 by default; ROCE_SIM_FIRST: the first of these.
 */
import { setImmediate } from 'node:timers/promises';
import {
  ARENA_BYTES,
  createRandom,
  type Endpoint,
  type EndpointOptions,
  EngineEndpoint,
  MixedWorkload,
  NotificationPoint,
  Pair,
  type PairOptions,
  type SimHost,
  type SimPacket,
} from '@node-roce/sim';
import type { Congestion } from '@node-roce/transport';
import { gidFromText, Opcode, writeBth } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { holdLaw } from './laws.ts';
import { NETWORKS, wireOf } from './run.ts';
import { SharedPort, type SharedPortOptions } from './shared-port.ts';

const looks = holdLaw();

const SEEDS = Array.from({ length: Number(process.env.ROCE_SIM_SEEDS ?? 1) }, (_, i) => i + 1);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);
const MIXED_SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 3);
const MIXED_COUNT = 100;
const ON: Partial<Congestion> = { controller: 'dcqcn' };
/** A queue that holds more than it should come to. */
const PORT = { queue: 8_000_000 };
const LINE = 10e9;
/**
 * Profiles of marking: from so many bytes on; all packets from so many on, which is the profile's ceiling; and the chance just below it.
 *
 * The paper's is for ports of 40 Gb/s. At 10 Gb/s it does not hold three flows below its ceiling: each adds 40 Mb/s in 55 µs, while the port
 * marks a quarter of the packets, and the queue comes to 270 kB. The two for 10 Gb/s were chosen after others were tried: with STEEP shares are
 * within 10 % of a third; with FLAT the port is used better, but few packets are marked, and chance makes the flows less alike.
 */
const PAPER_PORT = [5_000, 200_000, 0.01] as const;
const STEEP = [100_000, 200_000, 1] as const;
const FLAT = [5_000, 200_000, 0.1] as const;
const SETTLED = 5_000;
const MEASURED = 50_000;

describe('three flows through one port', () => {
  type Row = Pick<SharedPortOptions, 'opcode' | 'starts'> & {
    markAt: readonly [number, number, number];
    line?: number;
    /** Of a third, by which a share may differ. */
    spread?: number;
  };
  const quick: [string, Row][] = [['10 Gb/s, steep marks, WRITE', { opcode: 'RDMA_WRITE', markAt: STEEP }]];
  const slow: [string, Row][] = [
    ['40 Gb/s, the paper’s marks, WRITE', { opcode: 'RDMA_WRITE', line: 40e9, markAt: PAPER_PORT }],
    [
      '10 Gb/s, steep marks, WRITE, one after another',
      { opcode: 'RDMA_WRITE', starts: [0, 700, 1900], markAt: STEEP },
    ],
    ['10 Gb/s, steep marks, READ', { opcode: 'RDMA_READ', markAt: STEEP }],
    ['10 Gb/s, few marks, WRITE: within 25 %', { opcode: 'RDMA_WRITE', markAt: FLAT, spread: 0.25 }],
  ];
  const title = '%s: a third each, and a queue below the profile’s ceiling, seed %i';
  const withSeeds = (rows: [string, Row][]) =>
    rows.flatMap(([what, row]) => SEEDS.map((seed) => [what, seed, row] as const));
  test.each(withSeeds(quick))(title, { tags: ['slow', 'gate'] }, testShares);
  test.each(withSeeds(slow))(title, { tags: ['slow'] }, testShares);

  function testShares(
    what: string,
    seed: number,
    { markAt, line = LINE, spread = 0.1, starts = [0, 0, 0], ...row }: Row,
  ): void {
    const random = createRandom(seed);
    const near = starts.map((at) => at + random.between(0, 50));
    const set = new SharedPort({
      senders: 3,
      seed,
      congestion: { ...ON, rpgMaxRate: line / 1e6 },
      line,
      port: { ...PORT, markAt },
      starts: near,
      ...row,
    });
    let before = 0;
    let highest = 0;
    set.run(SETTLED, (now) => (before = Math.max(before, set.port.queued(now))));
    const from = set.delivered;
    set.run(SETTLED + MEASURED, (now) => (highest = Math.max(highest, set.port.queued(now))));
    const bytes = set.delivered.map((sum, i) => sum - from[i]);
    const total = bytes.reduce((a, b) => a + b);
    const shares = bytes.map((each) => each / total);
    const { cnpSent, ecnMarked } = set.receiver.adapter.counters();
    const handled = set.senders.map(({ adapter }) => adapter.counters().cnpHandled);
    console.log(
      `${what}, seed ${seed}: shares ${shares.map((s) => s.toFixed(3))}, ${((total * 8) / MEASURED / 1000).toFixed(2)} Gb/s, queue ${(highest / 1000).toFixed(0)} kB (${(before / 1000).toFixed(0)} kB before), ${ecnMarked} marks, ${cnpSent} CNPs`,
    );
    for (const share of shares) expect(Math.abs(share - 1 / 3)).toBeLessThan(spread / 3);
    expect(highest).toBeLessThan(markAt[1]);
    expect(set.port.counts.lost).toBe(0);
    // The port was the bottleneck, and was used.
    expect((total * 8e6) / MEASURED).toBeGreaterThan(0.7 * line);
    expect(Math.min(...handled)).toBeGreaterThan(20);
    expect(handled.reduce((a, b) => a + b)).toBeLessThanOrEqual(cnpSent);
  }

  test('without it, the same port overflows its ceiling', () => {
    const port = { ...PORT, markAt: FLAT };
    const set = new SharedPort({
      senders: 3,
      seed: 1,
      congestion: {},
      line: LINE,
      port,
      opcode: 'RDMA_WRITE',
    });
    let highest = 0;
    set.run(400, (now) => (highest = Math.max(highest, set.port.queued(now))));
    expect(highest).toBeGreaterThan(FLAT[1]);
    expect(set.port.counts.marked).toBe(0);
  });
});

describe('mixed operations both ways, each message once and every byte compared', () => {
  test.each(NETWORKS)('%s', { timeout: 300_000 + MIXED_SEEDS * 5_000, tags: ['slow'] }, async (network) => {
    let handled = 0;
    for (let seed = FIRST; seed < FIRST + MIXED_SEEDS; seed++) {
      const random = createRandom(seed);
      // A rate, so that packets wait and are marked, whatever else becomes of them.
      const slow = { rate: random.pick([2e8, 1e9]), markAt: random.pick([500, 3_000]) };
      const wires = [0.01, 0.05].map((loss) => ({
        ...wireOf(network, loss, random.pick([1, 10, 50])),
        ...slow,
      }));
      const congestion = {
        ...ON,
        rpgMinRate: random.pick([1, 50]),
        rpgMaxRate: random.pick([500, 10_000]),
        minTimeBetweenCnps: random.pick([4, 50]),
      };
      const both = random.chance(0.5);
      const recovery = { keepEarly: random.pick(['off', 'quiet'] as const), selective: false };
      const engine = (made: EndpointOptions) => new EngineEndpoint({ ...made, congestion, recovery });
      const pair = new Pair({
        a: engine,
        b: both ? engine : 'model',
        seed,
        arenaBytes: ARENA_BYTES,
        aToB: wires[0],
        bToA: wires[1],
        timeout: 12,
        pathMtu: random.pick([256, 1024, 4096]),
      });
      const sides = [pair.a, pair.b];
      const workload = new MixedWorkload(pair.a, pair.b, MIXED_COUNT, random);
      const finished = pair.run(() => workload.step(), 600e6);
      expect([seed, finished, workload.failure]).toEqual([seed, true, undefined]);
      for (const side of sides) {
        if (side instanceof EngineEndpoint) handled += side.adapter.counters().cnpHandled;
      }
      await setImmediate();
    }
    expect(handled).toBeGreaterThan(MIXED_SEEDS * 2);
  });
});

/** Sends CNPs for the marks that a host receives, to this queue pair of its peer. */
function answerFor(host: Endpoint, qpn: number): void {
  const point = new NotificationPoint(idleAt(host.gid), () => qpn);
  const receive = host.receive.bind(host);
  const transmit = host.transmit.bind(host);
  host.receive = (packets, now) => {
    point.receive(packets, now);
    receive(packets, now);
  };
  host.transmit = (now) => [...point.transmit(now), ...transmit(now)];
}

/** A host that does nothing. */
const idleAt = (gid: Uint8Array): SimHost => ({
  gid,
  receive: () => {},
  advance: () => {},
  transmit: () => [],
  nextDeadline: () => Number.POSITIVE_INFINITY,
});

/** A CNP for a queue pair, from anybody. */
const cnp = (qpn: number, source: string, destination: Uint8Array): SimPacket => {
  const bytes = new Uint8Array(28);
  writeBth(bytes, 0, Opcode.CNP, 0, 0xffff, qpn, 0);
  bytes[4] = 0x40;
  return {
    bytes,
    source: gidFromText(source),
    destination,
    trafficClass: 0xc0,
    sourcePort: 0,
    corrupt: false,
  };
};

/** Two engines; a posts WRITEs until the time is up. */
function flow(options: Partial<PairOptions> = {}, congestion: Partial<Congestion> = ON) {
  const engine = (made: EndpointOptions) => new EngineEndpoint({ ...made, congestion });
  const pair = new Pair({ a: engine, b: engine, arenaBytes: 1 << 16, timeout: 14, ...options });
  const [a, b] = [pair.a as EngineEndpoint, pair.b as EngineEndpoint];
  let posted = 0;
  let done = 0;
  const run = (until: number, each: () => void = () => {}) => {
    pair.network.run(() => {
      each();
      for (const { status } of a.pollSend()) {
        expect(status).toBe('SUCCESS');
        done++;
      }
      while (posted - done < 8) {
        a.postSend({ wrId: posted++, opcode: 'RDMA_WRITE', offset: 0, length: 1 << 16, remoteOffset: 0 });
      }
      return false;
    }, until);
    pair.network.now = until;
    return done;
  };
  const countsOf = (side: EngineEndpoint) => side.adapter.qpCounters(side.info.qpn);
  return { pair, a, b, run, countsOf };
}

const PATH: Partial<PairOptions> = { aToB: { rate: 10e9 }, bToA: { rate: 10e9 } };

test('a flood of CNPs from strangers slows nothing down, for queue pairs that are there or not', () => {
  const alone = flow(PATH).run(5_000);
  const { a, pair, run, countsOf } = flow(PATH);
  let flooded = 0;
  const done = run(5_000, () => {
    for (let i = 0; i < 4; i++) {
      const qpn = i === 0 ? a.info.qpn : (a.info.qpn + i * 257) & 0xff_ffff;
      a.receive([cnp(qpn, `10.0.9.${i}`, a.gid)], pair.network.now);
      flooded++;
    }
  });
  expect(flooded).toBeGreaterThan(2_000);
  expect(done).toBe(alone);
  expect(a.adapter.counters()).toMatchObject({ cnpReceived: flooded, cnpHandled: 0 });
  expect(countsOf(a)).toMatchObject({ cnpReceived: flooded / 4, cnpHandled: 0, retransmittedPackets: 0 });
});

test('a flood of them from the peer leaves the floor, and the flow recovers', { tags: ['slow'] }, () => {
  const { a, b, pair, run, countsOf } = flow(PATH, { ...ON, rpgMinRate: 100 });
  const before = run(2_000);
  const slowed =
    run(12_000, () => a.receive([cnp(a.info.qpn, '10.0.0.2', a.gid)], pair.network.now)) - before;
  expect(countsOf(a).cnpHandled).toBeGreaterThan(500);
  expect(slowed).toBeGreaterThan(0);
  expect(slowed).toBeLessThan(before);
  const recovered = run(62_000);
  expect(run(64_000) - recovered).toBeGreaterThan(0.8 * before);
  expect(countsOf(b)).toMatchObject({ cnpSent: 0 });
});

describe('CNPs together with NAKs', () => {
  test.each(['aimd', 'dcqcn'] as const)(
    '%s: everything arrives, nothing is retried to death',
    (controller) => {
      const loss = { rate: 10e9, loss: 0.02 };
      let naks = 0;
      const set = flow({ aToB: loss, bToA: { rate: 10e9 } }, { controller });
      // As ConnectX-5 does it: each NAK comes with a CNP, mark or not.
      const transmit = set.b.transmit.bind(set.b);
      set.b.transmit = (now) =>
        transmit(now).flatMap((packet) => {
          const isNak = packet.bytes[0] === Opcode.RC_ACKNOWLEDGE && packet.bytes[12] >> 5 !== 0;
          if (!isNak) return [packet];
          naks++;
          return [cnp(set.a.info.qpn, '10.0.0.2', packet.destination), packet];
        });
      const done = set.run(20_000);
      expect(done).toBeGreaterThan(5);
      expect(naks).toBeGreaterThan(10);
      const { cnpReceived, cnpHandled, retryExceededErr } = set.countsOf(set.a);
      expect(cnpReceived).toBeGreaterThan(naks * 0.9);
      expect(cnpHandled).toBe(controller === 'dcqcn' ? cnpReceived : 0);
      expect(retryExceededErr).toBe(0);
      expect(set.a.state).toBe('RTS');
    },
  );
});

test('a peer with a notification point of another make is obeyed', () => {
  const path = { aToB: { rate: 1e9, markAt: 20_000 }, bToA: {} };
  const { a, b, run, countsOf } = flow(path, { ...ON, notify: false });
  answerFor(b, a.info.qpn);
  run(20_000);
  expect(countsOf(a).cnpHandled).toBeGreaterThan(20);
  expect(countsOf(b).cnpSent).toBe(0);
  expect(countsOf(a).retransmittedPackets).toBe(0);
});

test('runs without faults send almost nothing twice', () => {
  expect(looks()).toBeGreaterThan(1);
});
