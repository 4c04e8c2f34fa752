import { expect, test } from 'vitest';
import { RegionTable, TxBatch } from './batch.ts';
import { QpStateCode } from './constants.ts';
import { RingSlabs } from './ring-slabs.ts';
import { CONTROL_WORDS, Control, Ring } from './rings.ts';

const SIZE = 4;
const STRIDE = 3;

function setUp(count = 40) {
  const regions = new RegionTable();
  const slabs = new RingSlabs(regions);
  const rings = Array.from({ length: count }, () => slabs.newRing(SIZE, STRIDE));
  return { regions, slabs, rings };
}

test('rings of a slab share no word', () => {
  const { rings } = setUp();
  for (const [i, ring] of rings.entries()) {
    ring.state = i + 1;
    ring.publish(100 + i);
    ring.release(99 + i);
    ring.sleep(100 + i);
    ring.arm(1);
    for (let k = 0; k < SIZE; k++) ring.words.fill(1000 + i, ring.wordOf(k), ring.wordOf(k) + STRIDE);
  }
  for (const [i, ring] of rings.entries()) {
    expect([ring.state, ring.producer, ring.consumer, ring.moved]).toEqual([i + 1, 100 + i, 99 + i, false]);
    expect([ring.wake(), ring.wake(), ring.disarm(false), ring.disarm(false)]).toEqual([
      true,
      false,
      true,
      false,
    ]);
    for (let k = 0; k < SIZE; k++)
      for (let w = 0; w < STRIDE; w++) expect(ring.words[ring.wordOf(k) + w]).toBe(1000 + i);
  }
});

test.each([1, 2, 3, 4, 15])('ring %i of 17 is given back: nothing of the others changes', (gone) => {
  const { slabs, rings } = setUp(17);
  for (const ring of rings) {
    ring.state = QpStateCode.RTS;
    ring.publish(1);
    ring.sleep(1);
    ring.arm(1);
    ring.words.fill(7, ring.wordOf(0), ring.wordOf(SIZE - 1) + STRIDE);
  }
  slabs.free(rings[gone]);
  for (const [i, ring] of rings.entries()) {
    if (i === gone) continue;
    expect([ring.state, ring.producer, ring.wake(), ring.disarm(false)]).toEqual([
      QpStateCode.RTS,
      1,
      true,
      true,
    ]);
    const entries = ring.words.subarray(ring.wordOf(0), ring.wordOf(SIZE - 1) + STRIDE);
    expect(new Set(entries)).toEqual(new Set([7]));
  }
});

test('both sides of a ring in one thread are one object, or see the same', () => {
  const [ring] = setUp(1).rings;
  expect(Ring.of(ring.shape)).toBe(ring);
  const other = new Ring(ring.shape);
  other.publish(2);
  expect([ring.has(0), ring.used, other.wordOf(1)]).toEqual([true, 2, ring.wordOf(1)]);
});

test('inline data is read from the slab, at the words of its entry', () => {
  const { regions, slabs, rings } = setUp(3);
  const ring = rings[2];
  ring.words[ring.wordOf(1)] = 0x0403_0201;
  const view = regions.views[slabs.regionOf(ring) ?? -1] as Uint8Array;
  const at = ring.wordOf(1) * 4;
  expect([...view.subarray(at, at + 4)]).toEqual([1, 2, 3, 4]);
});

test('a ring that was given back is in RESET, and its place is as new', () => {
  const { slabs, rings } = setUp(3);
  const [, ring] = rings;
  ring.state = QpStateCode.RTS;
  ring.publish(3);
  ring.sleep(3);
  const entries = ring.wordOf(0);
  expect(slabs.free(ring)).toBe(true);
  expect([ring.state, ring.used, ring.has(0)]).toEqual([QpStateCode.RESET, 0, false]);
  const next = slabs.newRing(SIZE, STRIDE);
  expect(next.wordOf(0)).toBe(entries);
  expect([next.state, next.producer, next.consumer, next.wake(), next.moved]).toEqual([
    0,
    0,
    0,
    false,
    false,
  ]);
});

test('rings that were given back share no word', () => {
  const { slabs, rings } = setUp(3);
  for (const ring of rings) slabs.free(ring);
  rings[0].publish(1);
  rings[0].moveTo(rings[1]);
  expect([rings[0].moved, rings[2].moved, rings[2].used]).toEqual([true, false, 0]);
  expect(rings[2].words.every((word) => word === 0)).toBe(true);
});

test('a place is not taken again while a batch may be read from it', () => {
  const { regions, slabs, rings } = setUp(2);
  const batch = new TxBatch(regions, 1);
  const entries = rings[1].wordOf(0);
  regions.batches.open(batch);
  slabs.free(rings[1]);
  expect(slabs.newRing(SIZE, STRIDE).wordOf(0)).not.toBe(entries);
  regions.batches.close(batch);
  expect(slabs.newRing(SIZE, STRIDE).wordOf(0)).toBe(entries);
});

test('of many rings that are given back, one slab stays', () => {
  const { regions, slabs, rings } = setUp(2000);
  const inUse = () => regions.views.filter((view) => view !== undefined).length;
  expect(inUse()).toBeGreaterThan(3);
  for (const ring of rings) slabs.free(ring);
  expect(inUse()).toBe(1);
  expect(slabs.newRing(SIZE, STRIDE).state).toBe(0);
  expect(inUse()).toBe(1);
});

test('a large ring has a buffer of its own', () => {
  const ring = setUp(0).slabs.newRing(1 << 14, 20);
  expect(ring.slab).toBeUndefined();
  expect(ring.buffer.byteLength).toBe((CONTROL_WORDS + (1 << 14) * 20) * 4);
  expect(setUp(0).slabs.free(ring)).toBe(false);
});

test('the words of the control page leave room for those of three other rings', () => {
  for (const word of Object.values(Control)) expect(word % 16).toBeLessThan(4);
});
