/**
 * A peer that is slow, not lossy: it takes packets in batches, works on each for a while, and loses the processor now and then. The path loses
 * nothing. Three laws, for each kind of request, in virtual time:
 *
 * - almost nothing is sent twice;
 * - recovery that helps elsewhere does not hurt here: goodput with probes is at least 0.9 of that without;
 * - equal queue pairs end within a factor of 1.5.
 *
 * ROCE_SIM_SEEDS=20: seeds of each row, 1 by default.
 */
import { CONNECTION_DEFAULTS, EngineDevice, Network, type SlowOptions } from '@node-roce/sim';
import { gidFromText } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { type GoodputOptions, runGoodput } from './goodput.ts';
import { mostDuplicates } from './laws.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 1);
const seeds = Array.from({ length: SEEDS }, (_, i) => i + 1);

/** A busy machine; and an emulated kernel, which takes milliseconds for each READ. */
const PAUSES: SlowOptions = { batch: 64, perPacket: 3, pause: 0.05, pauseMin: 500, pauseMax: 8000 };
const EMULATED: SlowOptions = { batch: 64, perPacket: 100, pause: 0.02, pauseMin: 1000, pauseMax: 20_000 };

type Row = Omit<GoodputOptions, 'seed' | 'peer'>;
const PATH = { rate: 5e9, roundTrip: 60, pathMtu: 1024 };
const LONG = { messageBytes: 70_001, depth: 8 };
const ROWS: [name: string, row: Row][] = [
  [
    'WRITE, it pauses',
    { ...PATH, opcode: 'RDMA_WRITE', slow: PAUSES, messageBytes: 4099, depth: 32, duration: 200_000 },
  ],
  [
    'WRITE, emulated',
    { ...PATH, opcode: 'RDMA_WRITE', slow: EMULATED, messageBytes: 65_536, duration: 500_000 },
  ],
  [
    'SEND, it pauses',
    { ...PATH, opcode: 'SEND', slow: PAUSES, messageBytes: 4099, depth: 32, duration: 200_000 },
  ],
  [
    'SEND, one at a time',
    { ...PATH, opcode: 'SEND', slow: PAUSES, messageBytes: 100, depth: 1, duration: 500_000 },
  ],
  [
    'READ, it pauses',
    {
      ...PATH,
      ...LONG,
      opcode: 'RDMA_READ',
      slow: { ...PAUSES, batch: 1, perPacket: 200 },
      duration: 200_000,
    },
  ],
  [
    'READ, emulated',
    {
      ...PATH,
      ...LONG,
      opcode: 'RDMA_READ',
      slow: { ...EMULATED, batch: 1, perPacket: 6400, pause: 0.1 },
      duration: 1_000_000,
    },
  ],
  [
    'READ, short',
    { ...PATH, opcode: 'RDMA_READ', slow: PAUSES, messageBytes: 100, depth: 16, duration: 200_000 },
  ],
  [
    'atomics',
    { ...PATH, opcode: 'ATOMIC_FETCH_AND_ADD', slow: PAUSES, messageBytes: 8, depth: 16, duration: 200_000 },
  ],
];

describe.each(ROWS)('%s', (_, row) => {
  test.each(seeds)('seed %d', { timeout: 600_000 }, (seed) => {
    const run = (probes: boolean) =>
      runGoodput({ ...row, peer: 'engine', seed, device: { recovery: { probes } } });
    const [on, off] = [run(true), run(false)];
    expect(off.retransmitted).toBe(0);
    expect(off.messages).toBeGreaterThan(20);
    expect(on.messages / off.messages).toBeGreaterThanOrEqual(0.9);
    // Some are on their way at the end.
    expect(on.duplicates).toBeLessThanOrEqual(on.retransmitted);
    expect(on.duplicates).toBeLessThanOrEqual(mostDuplicates(on.packets));
  });
});

// A slow READ that outlasts the ACK timer is asked for again, one request at a time, and the timer learns how long it takes.
test.each(seeds)('READs that take longer than the ACK timer: seed %d', { timeout: 600_000 }, (seed) => {
  const slow = { batch: 1, perPacket: 12_000 };
  // 7 requests of 64 and 5 responses each are 168 ms; the timer runs 134 ms.
  const row = {
    ...PATH,
    ...LONG,
    depth: 7,
    opcode: 'RDMA_READ' as const,
    peer: 'engine' as const,
    seed,
    slow,
  };
  const { messages, timeouts, retransmitted } = runGoodput({ ...row, duration: 5_000_000 });
  // 24 ms each.
  expect(messages).toBeGreaterThan(0.8 * (5_000_000 / 24_000));
  expect(timeouts).toBeLessThan(5);
  expect(retransmitted).toBeLessThan(30);
});

describe('equal queue pairs of a device end within a factor of 1.5', () => {
  const COUNT = 300;
  test.each(seeds)('five of them, seed %d', { timeout: 600_000 }, (seed) => {
    const network = new Network(seed);
    network.record = false;
    const [a, b] = [1, 2].map((number) => {
      const gid = gidFromText(`10.0.0.${number}`);
      return new EngineDevice({ gid, arenaBytes: 4096, seed: seed + number, depth: 128, checkEvery: 4096 });
    });
    network.add(a);
    network.add(b);
    const wire = { delay: 30, rate: 5e9 };
    network.link(a, b, wire);
    network.link(b, a, wire);
    for (const host of [a, b]) network.slow(host, PAUSES);
    const pairs = Array.from({ length: 5 }, () => {
      const [from, to] = [a, b].map((device) => device.createQp({ service: 'RC', psn: 0 }));
      from.connect(to.info, { ...CONNECTION_DEFAULTS, timeout: 14 });
      to.connect(from.info, { ...CONNECTION_DEFAULTS, timeout: 14 });
      return { from, posted: 0, done: 0, end: 0 };
    });
    const step = () => {
      for (const pair of pairs) {
        for (const { status } of pair.from.pollSend()) {
          expect(status).toBe('SUCCESS');
          pair.done++;
        }
        if (pair.done === COUNT && pair.end === 0) pair.end = network.now;
        while (pair.posted < COUNT && pair.posted - pair.done < 64) {
          pair.from.postSend({
            wrId: pair.posted++,
            opcode: 'RDMA_WRITE',
            offset: 0,
            length: 4093,
            remoteOffset: 0,
          });
        }
      }
      return pairs.every(({ done }) => done === COUNT);
    };
    expect(network.run(step)).toBe(true);
    const ends = pairs.map(({ end }) => end);
    expect(Math.max(...ends) / Math.min(...ends)).toBeLessThan(1.5);
    const { duplicateRequest, receivedPackets } = b.adapter.counters();
    expect(duplicateRequest).toBeLessThanOrEqual(mostDuplicates(receivedPackets));
  });
});

// Both packets come to the peer while it is paused, and it joins their answers: to the requester that looks like a loss that the probe repaired.
// Once: it took the path for one that loses, and sent several probes of two packets for each pause.
describe.each(['RDMA_READ', 'RDMA_WRITE'] as const)('pauses that grow: %s', (opcode) => {
  test.each([1, 2])('%d outstanding', { timeout: 600_000 }, (depth) => {
    for (let step = 60; step <= 240; step += 60) {
      const { from, duplicates, pauses } = runGrowing(opcode, depth, step);
      expect(from.timeouts).toBe(0);
      expect(pauses).toBe(58);
      expect(duplicates, `each ${step} µs longer`).toBeLessThan(pauses / 3);
    }
  });
});

/** 600 requests to a peer that stops after each tenth, each time `step` µs longer than before. */
function runGrowing(opcode: 'RDMA_READ' | 'RDMA_WRITE', depth: number, step: number) {
  const network = new Network(1);
  network.record = false;
  const [a, b] = [1, 2].map((number) => {
    const gid = gidFromText(`10.0.0.${number}`);
    return new EngineDevice({ gid, arenaBytes: 4096, seed: number, depth: 16, checkEvery: 4096 });
  });
  network.add(a);
  network.add(b);
  network.link(a, b, { delay: 30, rate: 5e9 });
  network.link(b, a, { delay: 30, rate: 5e9 });
  const [from, to] = [a, b].map((device) => device.createQp({ service: 'RC', psn: 0 }));
  from.connect(to.info, { ...CONNECTION_DEFAULTS, timeout: 14 });
  to.connect(from.info, { ...CONNECTION_DEFAULTS, timeout: 14 });
  let [posted, done, pauses] = [0, 0, 0];
  const go = () => {
    for (const { status } of from.pollSend()) {
      expect(status).toBe('SUCCESS');
      done++;
    }
    while (posted < 600 && posted - done < depth) {
      from.postSend({ wrId: posted++, opcode, offset: 0, length: 100, remoteOffset: 0 });
      if (posted > 20 && posted % 10 === 0) network.stall(b, network.now + 100 + ++pauses * step);
    }
    return done === 600;
  };
  expect(network.run(go)).toBe(true);
  const { duplicateRequest } = b.adapter.counters();
  return { from: a.adapter.counters(), duplicates: duplicateRequest, pauses };
}

const EIGHT_BYTES = ['ATOMIC_FETCH_AND_ADD', 'ATOMIC_CMP_AND_SWP', 'ATOMIC_WRITE'] as const;
const MESSAGES = [
  'SEND',
  'SEND_WITH_IMM',
  'RDMA_WRITE',
  'RDMA_WRITE_WITH_IMM',
  'RDMA_READ',
  'FLUSH',
] as const;

describe('10,000 messages on a path that loses nothing, to a peer that is prompt: no packet twice', () => {
  test.each([...MESSAGES, ...EIGHT_BYTES])('%s', { timeout: 600_000 }, (opcode) => {
    const messageBytes = (EIGHT_BYTES as readonly string[]).includes(opcode) ? 8 : 3000;
    const row = { ...PATH, rate: 10e9, opcode, messageBytes, seed: 1, peer: 'engine' as const };
    // None before the measurement: it counts all that is retransmitted.
    const { messages, retransmitted, duplicates, probes, timeouts } = runGoodput({
      ...row,
      duration: 45_000,
    });
    expect(messages).toBeGreaterThan(10_000);
    expect({ retransmitted, duplicates, probes, timeouts }).toEqual({
      retransmitted: 0,
      duplicates: 0,
      probes: 0,
      timeouts: 0,
    });
  });
});
