import { createRandom } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';

import { type SimPacket, Wire, type WireOptions } from './wire.ts';

const packet: SimPacket = {
  bytes: new Uint8Array(954),
  source: new Uint8Array(16),
  destination: new Uint8Array(16),
  trafficClass: 2,
  sourcePort: 0xc000,
  corrupt: false,
};

/** The arrivals of 10,000 packets, one each µs. */
function carryMany(options: WireOptions) {
  const wire = new Wire(options, createRandom(5));
  return Array.from({ length: 10_000 }, (_, now) => wire.carry(packet, now));
}
const share = (lists: unknown[][], condition: (list: unknown[]) => boolean) =>
  lists.filter(condition).length / lists.length;

describe('wire', () => {
  test('delays, and does nothing else unless asked to', () => {
    expect(carryMany({ delay: 7 })[3]).toEqual([{ packet, time: 10 }]);
    expect(carryMany({}).every((arrivals) => arrivals.length === 1)).toBe(true);
  });

  test('loses and duplicates as often as it should', () => {
    expect(share(carryMany({ loss: 0.2 }), ({ length }) => length === 0)).toBeCloseTo(0.2, 1);
    expect(share(carryMany({ duplicate: 0.1 }), ({ length }) => length === 2)).toBeCloseTo(0.1, 1);
  });

  test('bursts lose packets in a row', () => {
    const lost = carryMany({ burst: { begin: 0.02, end: 0.25 } }).map(({ length }) => length === 0);
    const bursts = lost.filter((is, i) => is && !lost[i - 1]).length;
    expect(lost.filter(Boolean).length / bursts).toBeCloseTo(4, 0);
  });

  test('a corrupt packet differs in one bit and is marked; the original is left alone', () => {
    const [arrival] = new Wire({ corrupt: 1 }, createRandom(1)).carry(packet, 0);
    const flipped = [...arrival.packet.bytes]
      .map((byte, i) => byte ^ packet.bytes[i])
      .filter((byte) => byte !== 0);
    expect(flipped.length).toBe(1);
    expect(Math.log2(flipped[0]) % 1).toBe(0);
    expect(arrival.packet.corrupt).toBe(true);
    expect(packet.bytes.every((byte) => byte === 0)).toBe(true);
  });

  test('a reordered packet comes later than the one after it', () => {
    const times = carryMany({ delay: 5, reorder: 0.5 }).map(([{ time }]) => time);
    expect(times.some((time, i) => i > 0 && time < times[i - 1])).toBe(true);
  });

  test('a rate spaces packets, fills a queue, marks and drops', () => {
    // 1000 bytes with all headers: 8 µs at 1 Gb/s.
    const wire = new Wire({ delay: 0, rate: 1e9, queue: 4000, markAt: 2000 }, createRandom(1));
    const arrivals = Array.from({ length: 6 }, () => wire.carry(packet, 0));
    expect(arrivals.map(([arrival]) => arrival?.time)).toEqual([8, 16, 24, 32, undefined, undefined]);
    expect(arrivals.slice(0, 4).map(([{ packet: p }]) => p.trafficClass & 3)).toEqual([2, 2, 3, 3]);
    expect(wire.carry({ ...packet, trafficClass: 0 }, 10)[0].packet.trafficClass).toBe(0);
    expect([wire.queued(10), wire.queued(1000)]).toEqual([3750, 0]);
  });

  test('marks some packets between two thresholds, more the more wait, and all beyond', () => {
    const wire = new Wire({ delay: 0, rate: 1e9, markAt: [10_000, 30_000, 0.5] }, createRandom(1));
    const marks: boolean[][] = [[], [], [], []];
    for (let now = 0; now < 4e6; now += 400) {
      // 50 packets that follow one another, then nothing until all have left.
      for (let i = 0; i < 50; i++) {
        const waiting = wire.queued(now);
        const [{ packet: carried }] = wire.carry(packet, now);
        marks[Math.min(3, Math.floor(waiting / 10_000))].push((carried.trafficClass & 3) === 3);
      }
    }
    const shares = marks.map((list) => list.filter(Boolean).length / list.length);
    expect([shares[0], shares[3]]).toEqual([0, 1]);
    expect(shares[1]).toBeCloseTo(0.1125, 2);
    expect(shares[2]).toBeCloseTo(0.3625, 2);
  });
});

test('a seed repeats, another one does not', () => {
  const draw = (seed: number) => {
    const random = createRandom(seed);
    return Array.from({ length: 8 }, () => random.next());
  };
  expect(draw(3)).toEqual(draw(3));
  expect(draw(3)).not.toEqual(draw(4));
});
