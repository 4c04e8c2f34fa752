import { Icrc, RX_SLOT_WORDS, Rx, RxBatch } from '@node-roce/transport';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { packetsOf, sendPackets } from '../testing/packets.ts';
import type { FaultOptions } from './fault-path.ts';
import { FaultLink } from './faults.ts';
import { MemoryNetwork } from './memory.ts';

const packet = (n: number) => {
  const bytes = new Uint8Array(32).fill(n);
  bytes[0] = n >> 8;
  bytes[1] = n & 0xff;
  return bytes;
};
const numberOf = (payload: number[]) => payload[0] * 256 + payload[1];

/** Sends packets 0 … n − 1 from a to b, with the faults at one of them, and looks until `until` µs. */
function run(options: FaultOptions, { at = 'b', n = 1000, until = 10_000, step = 10 } = {}) {
  let now = 0;
  const network = new MemoryNetwork();
  const plainA = network.link('10.0.0.1');
  const plainB = network.link('10.0.0.2');
  const a = at === 'a' ? new FaultLink(plainA, options, () => now) : plainA;
  const b = at === 'b' ? new FaultLink(plainB, options, () => now) : plainB;
  const peer = a.add(b.gids[0].gid, 0, 64);
  const seen: { n: number; at: number; verdict: number; payload: number[] }[] = [];
  const rx = new RxBatch(64, 64 * 1024);
  const own = new RxBatch(64, 64 * 1024);
  const look = () => {
    a.receive(own);
    while (b.receive(rx) > 0) {
      for (const { payload, verdict } of packetsOf(rx)) {
        seen.push({ n: numberOf(payload), at: now, verdict, payload });
      }
    }
  };
  for (let i = 0; i < n; i += 10) {
    sendPackets(
      a,
      peer,
      Array.from({ length: Math.min(10, n - i) }, (_, k) => packet(i + k)),
    );
    look();
    now += step;
  }
  for (; now <= until; now += step) look();
  return { seen, numbers: seen.map((s) => s.n), stats: (at === 'a' ? a : b).stats() };
}

const inOrder = Array.from({ length: 1000 }, (_, i) => i);

describe.each(['a', 'b'])('faults at the %s end', (at) => {
  test('no fault: every packet, in order', () => {
    expect(run({}, { at }).numbers).toEqual(inOrder);
  });

  test('loss takes about its share and nothing else', () => {
    const { numbers, stats } = run({ loss: 0.2, seed: 7 }, { at });
    const lost = stats['inbound.lost'] + stats['outbound.lost'];
    expect(numbers.length + lost).toBe(1000);
    expect(lost).toBeGreaterThan(140);
    expect(lost).toBeLessThan(260);
    expect(numbers).toEqual([...numbers].sort((x, y) => x - y));
  });

  test('all is lost at 1', () => {
    expect(run({ loss: 1 }, { at }).numbers).toEqual([]);
  });

  test('duplicates are the same packet once more', () => {
    const { numbers, stats } = run({ duplicate: 0.1 }, { at });
    const twice = stats['inbound.duplicated'] + stats['outbound.duplicated'];
    expect(twice).toBeGreaterThan(50);
    expect(numbers.length).toBe(1000 + twice);
    expect([...new Set(numbers)]).toEqual(inOrder);
  });

  test('reordered packets are overtaken, and none is lost', () => {
    const { numbers } = run({ reorder: 0.1, reorderBy: 50 }, { at });
    expect(numbers).not.toEqual(inOrder);
    expect([...numbers].sort((x, y) => x - y)).toEqual(inOrder);
  });

  test('bursts lose packets in a row', () => {
    const { numbers, stats } = run({ burst: { begin: 0.02, end: 0.25 } }, { at });
    const lost = inOrder.filter((n) => !numbers.includes(n));
    expect(lost.length).toBe(stats['inbound.lost'] + stats['outbound.lost']);
    const bursts = lost.filter((n) => !lost.includes(n - 1)).length;
    expect(lost.length / bursts).toBeGreaterThan(2.5);
    expect(lost.length / bursts).toBeLessThan(6);
  });

  test('a rate spaces packets, and those that its queue has no room for are lost', () => {
    // 32 bytes and 46 of headers are 10 µs at 62.4 Mb/s; ten packets come at a time, every 10 µs.
    const { seen, stats } = run({ rate: 62.4e6, queue: 1000 }, { at });
    const lost = stats['inbound.lost'] + stats['outbound.lost'];
    expect(seen.length).toBe(1000 - lost);
    expect(lost).toBeGreaterThan(800);
    for (const [i, { at: when }] of seen.entries()) {
      if (i > 0) expect(when - seen[i - 1].at).toBe(10);
    }
  });

  test('a long queue marks what can be marked', () => {
    let now = 0;
    const network = new MemoryNetwork();
    const faults: FaultOptions = { rate: 62.4e6, markAt: 200 };
    const wrap = (end: string, address: string) => {
      const link = network.link(address);
      return at === end ? new FaultLink(link, faults, () => now) : link;
    };
    const [a, b] = [wrap('a', '10.0.0.1'), wrap('b', '10.0.0.2')];
    const peer = a.add(b.gids[0].gid, 0, 64);
    const packets = Array.from({ length: 6 }, (_, i) => packet(i));
    const ecn: number[] = [];
    for (const trafficClass of [2, 0]) {
      sendPackets(a, peer, packets, { trafficClass });
      b.receive(new RxBatch(64, 65_536)); // The faults at b see them now.
      now += 1000;
      a.receive(new RxBatch(64, 65_536)); // The faults at a let them go.
      const rx = new RxBatch(64, 65_536);
      b.receive(rx);
      for (let i = 0; i < rx.count; i++) ecn.push(rx.slots[i * RX_SLOT_WORDS + Rx.TRAFFIC_CLASS]);
    }
    // 78 bytes each: the fourth is the first that finds 200 and more waiting.
    expect(ecn).toEqual([2, 2, 2, 3, 3, 3, 0, 0, 0, 0, 0, 0]);
  });

  test('the delay is the one asked for', () => {
    const { seen } = run({ delay: 500 }, { at });
    expect(seen.length).toBe(1000);
    for (const { n, at: when } of seen) expect(when).toBe(Math.floor(n / 10) * 10 + 500);
  });
});

test('a packet that is corrupted on arrival differs by one bit and has a bad ICRC', () => {
  const { seen, stats } = run({ corrupt: 0.5 });
  const bad = seen.filter((s) => s.verdict === Icrc.BAD);
  expect(bad.length).toBe(stats['inbound.corrupted']);
  expect(bad.length).toBeGreaterThan(350);
  const good = seen.filter((s) => s.verdict === Icrc.OK);
  for (const { payload, n } of good) expect(payload).toEqual([...packet(n)]);
  const bits = (b: number) => b.toString(2).replaceAll('0', '').length;
  for (const { payload } of bad.slice(0, 50)) {
    const index = seen.findIndex((s) => s.payload === payload);
    const original = packet(index);
    expect(payload.reduce((sum, byte, i) => sum + bits(byte ^ original[i]), 0)).toBe(1);
  }
});

test('corruption on the way out is a loss, as the receiver sees it', () => {
  const { seen, stats } = run({ corrupt: 0.5 }, { at: 'a' });
  expect(seen.every((s) => s.verdict === Icrc.OK)).toBe(true);
  expect(seen.length).toBe(1000 - stats['outbound.lost']);
});

test('one direction only', () => {
  expect(run({ loss: 1, direction: 'outbound' }).numbers).toEqual(inOrder);
  expect(run({ loss: 1, direction: 'inbound' }, { at: 'a' }).numbers).toEqual(inOrder);
});

test('the same seed makes the same run, another one another', () => {
  const faults = { loss: 0.1, duplicate: 0.1, reorder: 0.1, corrupt: 0.1, delay: [0, 300] as const };
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 0xffff_ffff }), fc.constantFrom('a', 'b'), (seed, at) => {
      const options = { at, n: 100, until: 1500 };
      expect(run({ ...faults, seed }, options)).toEqual(run({ ...faults, seed }, options));
    }),
    { numRuns: 20 },
  );
  expect(run({ ...faults, seed: 1 }).numbers).not.toEqual(run({ ...faults, seed: 2 }).numbers);
});

test('a delayed packet leaves with the bytes that it had when it was sent', () => {
  let now = 0;
  const network = new MemoryNetwork();
  const b = network.link('10.0.0.2');
  const a = new FaultLink(network.link('10.0.0.1'), { delay: 100 }, () => now);
  const bytes = packet(7);
  sendPackets(a, a.add(b.gids[0].gid, 0, 64), [bytes]);
  bytes.fill(0xee);
  const rx = new RxBatch(8, 4096);
  expect(b.receive(rx)).toBe(0);
  now = 100;
  a.receive(new RxBatch(8, 4096));
  expect(b.receive(rx)).toBe(1);
  expect(packetsOf(rx)[0].payload).toEqual([...packet(7)]);
});

test('wakes when a held packet is due', async () => {
  vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const network = new MemoryNetwork();
  const a = network.link('10.0.0.1');
  const b = new FaultLink(network.link('10.0.0.2'), { delay: 20_000 });
  sendPackets(a, a.add(b.gids[0].gid, 0, 64), [packet(1)]);
  const rx = new RxBatch(8, 4096);
  expect(b.receive(rx)).toBe(0);
  const wake = vi.fn();
  b.watch(wake);
  b.setDeadline(Number.POSITIVE_INFINITY);
  vi.advanceTimersByTime(19);
  for (let i = 0; i < 10; i++) await new Promise(setImmediate);
  expect(wake).not.toHaveBeenCalled();
  // Timers of Node are whole milliseconds.
  vi.advanceTimersByTime(2);
  await new Promise(setImmediate);
  expect(wake).toHaveBeenCalled();
  expect(b.receive(rx)).toBe(1);
  b.unwatch();
});

test.each([
  [{ loss: 1.5 }, 'faults.loss'],
  [{ duplicate: -1 }, 'faults.duplicate'],
  [{ corrupt: Number.NaN }, 'faults.corrupt'],
  [{ burst: { begin: 2, end: 0 } }, 'faults.burst'],
  [{ rate: 0 }, 'faults.rate'],
  [{ queue: -1 }, 'faults.queue'],
  [{ markAt: Number.NaN }, 'faults.markAt'],
  [{ markAt: [0, -1, 1] as const }, 'faults.markAt'],
  [{ markAt: [0, 10, 2] as const }, 'faults.markAt'],
  [{ markAt: [0, 10] as never }, 'faults.markAt'],
  [{ reorderBy: -1 }, 'faults.reorderBy'],
  [{ delay: -1 }, 'faults.delay'],
  [{ delay: [0, Number.POSITIVE_INFINITY] as const }, 'faults.delay'],
  [{ direction: 'up' as 'both' }, 'faults.direction'],
])('%o is refused, naming the wrong member', (options, attribute) => {
  const link = new MemoryNetwork().link('10.0.0.1');
  expect(() => new FaultLink(link, options)).toThrow(expect.objectContaining({ errno: 'EINVAL', attribute }));
});
