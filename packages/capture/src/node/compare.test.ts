import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LinkType, PcapEncoder } from '@node-roce/pcap';
import { Opcode } from '@node-roce/wire';
import { afterAll, describe, expect, test } from 'vitest';
import { frameOf } from '../../testing/capture-builder.ts';
import { compareCaptures, NothingInCommonError } from './compare.ts';

const folder = mkdtempSync(join(tmpdir(), 'roce-compare-'));
afterAll(() => rmSync(folder, { recursive: true }));

const MS = 1e6;
const START = 1_700_000_000;

/** Numbers 0 … 1 from a seed (mulberry32). */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Seen {
  /** True nanoseconds. */
  time: number;
  frame: Uint8Array;
}

/** Writes a capture with a clock of its own. */
function write(
  name: string,
  seen: readonly Seen[],
  clock: (time: number) => number = (time) => time,
): string {
  const encoder = new PcapEncoder({ linkType: LinkType.RAW });
  const sorted = seen
    .map(({ time, frame }) => ({ time: clock(time), frame }))
    .sort((x, y) => x.time - y.time);
  for (const { time, frame } of sorted) {
    const seconds = Math.floor(time / 1e9);
    encoder.packet({ data: frame, seconds: START + seconds, nanoseconds: Math.floor(time - seconds * 1e9) });
  }
  const path = join(folder, `${name}.pcap`);
  writeFileSync(path, encoder.take());
  return path;
}

/** Packets both ways over a link of 3 ms ± 1 ms that loses 5 %, in order. */
function exchange({ packets = 1000, gap = 0.4 * MS, seed = 1, ids = true } = {}) {
  const dice = random(seed);
  const taps: Record<'a' | 'b', Seen[]> = { a: [], b: [] };
  const lost = { a: [] as number[], b: [] as number[] };
  const delays = { a: [] as number[], b: [] as number[] };
  const last = { a: 0, b: 0 };
  for (let i = 0; i < packets; i++) {
    const from = i % 2 === 0 ? 'a' : 'b';
    const to = from === 'a' ? 'b' : 'a';
    const time = i * gap + dice() * 0.2 * MS;
    const opcode = from === 'a' ? Opcode.RC_RDMA_WRITE_ONLY : Opcode.RC_ACKNOWLEDGE;
    const frame = frameOf(from, opcode, {
      psn: i >> 1,
      id: ids ? 1 + (i >> 1) : false,
      payload: from === 'a' ? 64 : 0,
    });
    taps[from].push({ time, frame });
    const arrival = Math.max(last[from] + 1000, time + (2 + 2 * dice()) * MS);
    if (dice() < 0.05 && i > 10 && i < packets - 40) {
      lost[from].push(i >> 1);
      continue;
    }
    last[from] = arrival;
    delays[from].push(arrival - time);
    taps[to].push({ time: arrival, frame });
  }
  return { taps, lost, delays };
}

const mean = (values: readonly number[]) => values.reduce((x, y) => x + y) / values.length;

describe('a link of 3 ms ± 1 ms that loses 5 %', () => {
  test.each([
    ['clocks that agree', 0],
    ['clock B 250 ms behind', -250 * MS],
    ['clock B a day ahead', 86_400_000 * MS],
  ])('%s: the offset, the delay, each loss', async (_, offset) => {
    const { taps, lost, delays } = exchange();
    const { clock, aToB, bToA, events, outside } = await compareCaptures(
      write('a', taps.a),
      write('b', taps.b, (time) => time + offset),
    );
    expect(Math.abs(clock.offset - offset)).toBeLessThan(0.1 * MS);
    expect(clock.drift).toBe(0);
    expect(clock.uncertainty).toBeGreaterThan(1.9 * MS);
    expect(outside).toEqual({ a: 0, b: 0 });
    for (const [transit, from] of [
      [aToB, 'a'],
      [bToA, 'b'],
    ] as const) {
      expect(transit).toMatchObject({
        from,
        lost: lost[from].length,
        arrived: 500 - lost[from].length,
        unseen: 0,
      });
      expect(Math.abs(transit.delay!.mean / mean(delays[from]) - 1)).toBeLessThan(0.1);
    }
    expect(lost.a.length).toBeGreaterThan(10);
    const found = (source: string) => events.filter((event) => event.source === source).map(({ psn }) => psn);
    expect(found('10.0.0.1')).toEqual(lost.a);
    expect(found('10.0.0.2')).toEqual(lost.b);
    expect(events.every(({ fate }) => fate === 'lost')).toBe(true);
  });

  test('a clock that gains 40 ppm over two minutes', async () => {
    const { taps, lost, delays } = exchange({ packets: 6000, gap: 20 * MS });
    const { clock, aToB } = await compareCaptures(
      write('a', taps.a),
      write('b', taps.b, (time) => time * (1 + 40e-6) + 5 * MS),
    );
    expect(clock.drift / 1000).toBeGreaterThan(38);
    expect(clock.drift / 1000).toBeLessThan(42);
    expect(Math.abs(clock.offset - 5 * MS)).toBeLessThan(0.2 * MS);
    expect(aToB.lost).toBe(lost.a.length);
    expect(Math.abs(aToB.delay!.mean / mean(delays.a) - 1)).toBeLessThan(0.1);
  });

  test('without Identifications (IPv6)', async () => {
    const { taps, lost } = exchange({ ids: false });
    const { aToB, bToA, events } = await compareCaptures(write('a', taps.a), write('b', taps.b));
    expect([aToB.lost, bToA.lost]).toEqual([lost.a.length, lost.b.length]);
    expect(events.filter(({ source }) => source === 'fd77::1').map(({ psn }) => psn)).toEqual(lost.a);
  });
});

describe('hosts 1 and 3 at tap A, host 2 at tap B', () => {
  const US = 1000;
  /** Requests that take 20 µs from host 1 and 200 µs from host 3, and their ACKs, which take 20 µs. */
  function taps(acks = true): Record<'a' | 'b', Seen[]> {
    const a: Seen[] = [];
    const b: Seen[] = [];
    for (let psn = 0; psn < 40; psn++)
      for (const [host, delay] of [
        [1, 20 * US],
        [3, 200 * US],
      ]) {
        const sent = (psn * 10 + host) * MS;
        const request = frameOf('a', Opcode.RC_SEND_ONLY, { psn, host, payload: 64, id: 100 + psn });
        a.push({ time: sent, frame: request });
        b.push({ time: sent + delay, frame: request });
        if (!acks) continue;
        const ack = frameOf('b', Opcode.RC_ACKNOWLEDGE, { psn, host, id: 900 + 2 * psn + host });
        b.push({ time: sent + delay + 5 * US, frame: ack });
        a.push({ time: sent + delay + 25 * US, frame: ack });
      }
    return { a, b };
  }

  test.each([0, -250 * MS])('both directions, clock B %i ns ahead', async (offset) => {
    const { a, b } = taps();
    const { clock, aToB, bToA } = await compareCaptures(
      write('a', a),
      write('b', b, (time) => time + offset),
    );
    expect(clock).toMatchObject({ offset, uncertainty: 20 * US });
    expect(aToB).toMatchObject({ sent: 80, arrived: 80, delay: { min: 20 * US, max: 200 * US } });
    expect(bToA).toMatchObject({ sent: 80, arrived: 80, delay: { min: 20 * US, max: 20 * US } });
  });

  test('requests only: packets of one direction', async () => {
    const { a, b } = taps(false);
    const { clock, aToB, bToA } = await compareCaptures(write('a', a), write('b', b));
    expect(clock).toMatchObject({ offset: 20 * US, uncertainty: undefined });
    expect(aToB).toMatchObject({ sent: 80, arrived: 80 });
    expect(bToA).toMatchObject({ sent: 0, arrived: 0 });
  });

  test('another host, which gets no answers: the offset reveals its side', async () => {
    const { a, b } = taps();
    for (let psn = 0; psn < 40; psn++) {
      const frame = frameOf('a', Opcode.RC_SEND_ONLY, { psn, id: false });
      a.push({ time: (psn * 10 + 7) * MS, frame });
      b.push({ time: (psn * 10 + 7) * MS + 60 * US, frame });
    }
    const { clock, aToB, bToA } = await compareCaptures(
      write('a', a),
      write('b', b, (time) => time - 250 * MS),
    );
    expect(clock).toMatchObject({ offset: -250 * MS, uncertainty: 20 * US });
    expect([aToB.sent, bToA.sent]).toEqual([120, 80]);
  });
});

describe('single packets', () => {
  const packet = (psn: number, options: Parameters<typeof frameOf>[2] = {}) =>
    frameOf('a', Opcode.RC_RDMA_WRITE_ONLY, { psn, payload: 64, id: 100 + psn, ...options });
  const ack = (psn: number) => frameOf('b', Opcode.RC_ACKNOWLEDGE, { psn, id: 900 + psn });
  /** Ten packets each way, 1 ms from tap to tap; `b` is changed by the test. */
  const both = () => {
    const a: Seen[] = [];
    const b: Seen[] = [];
    for (let i = 0; i < 10; i++) {
      a.push({ time: i * 10 * MS, frame: packet(i) }, { time: (i * 10 + 5) * MS, frame: ack(i) });
      b.push({ time: (i * 10 + 1) * MS, frame: packet(i) }, { time: (i * 10 + 4) * MS, frame: ack(i) });
    }
    return { a, b };
  };
  const compare = async ({ a, b }: ReturnType<typeof both>) =>
    await compareCaptures(write('a', a), write('b', b));

  test('one that comes damaged', async () => {
    const seen = both();
    seen.b[6].frame = packet(3, { badIcrc: true });
    const { aToB, events } = await compare(seen);
    expect(aToB).toMatchObject({ sent: 10, arrived: 10, damaged: 1, lost: 0 });
    expect(events).toMatchObject([
      { fate: 'damaged', frameA: 7, frameB: 7, psn: 3, opcode: 'RC RDMA Write Only' },
    ]);
  });

  test('one that comes twice', async () => {
    const seen = both();
    seen.b.push({ time: 31.2 * MS, frame: packet(3) });
    const { aToB, events } = await compare(seen);
    expect(aToB).toMatchObject({ sent: 10, arrived: 10, duplicated: 1 });
    expect(events).toMatchObject([{ fate: 'duplicated', frameA: undefined, frameB: 8, psn: 3 }]);
  });

  test('one that comes late', async () => {
    const seen = both();
    seen.b[6].time = 45 * MS;
    expect((await compare(seen)).aToB).toMatchObject({ sent: 10, arrived: 10, reordered: 1, lost: 0 });
  });

  test('one that the capture near its sender missed', async () => {
    const seen = both();
    seen.a.splice(6, 1);
    const { aToB, events } = await compare(seen);
    expect(aToB).toMatchObject({ sent: 9, unseen: 1, lost: 0 });
    expect(events).toMatchObject([{ fate: 'unseen', frameA: undefined, frameB: 7, psn: 3 }]);
  });

  test('a retransmission of the same identity, whose first copy was lost', async () => {
    const seen = both();
    const again = { time: 70 * MS, frame: packet(3, { id: false }) };
    seen.a[6] = { time: 30 * MS, frame: again.frame };
    seen.a.push(again);
    seen.b[6] = { time: 71 * MS, frame: again.frame };
    // Its address is another one; the packets that arrive show on which side it is.
    seen.a.push({ time: 20 * MS, frame: packet(2, { id: false }) });
    seen.b.push({ time: 21 * MS, frame: packet(2, { id: false }) });
    const { events } = await compare(seen);
    expect(events.map(({ fate, time }) => [fate, time])).toEqual([['lost', 30 * MS]]);
  });

  test('a capture that ends early: packets after its end are not judged', async () => {
    const seen = both();
    seen.b.length = 10;
    const { aToB, outside } = await compare(seen);
    expect(aToB).toMatchObject({ sent: 5, arrived: 5, lost: 0 });
    expect(outside).toEqual({ a: 10, b: 0 });
  });

  test('one direction only: the least delay counts as 0', async () => {
    const seen = both();
    const requests = ({ frame }: Seen) => frame.length > 60;
    const { clock, aToB } = await compare({ a: seen.a.filter(requests), b: seen.b.filter(requests) });
    expect(clock).toMatchObject({ offset: 1 * MS, uncertainty: undefined, samples: 10 });
    expect(aToB.delay).toMatchObject({ min: 0, max: 0 });
  });

  test('nothing in common', async () => {
    const seen = both();
    const other = seen.b.map(({ time }, i) => ({ time, frame: packet(500 + i) }));
    await expect(compare({ a: seen.a, b: other })).rejects.toBeInstanceOf(NothingInCommonError);
  });
});
