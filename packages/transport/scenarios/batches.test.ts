/** The table of regions, room in a batch, and packets put together from their fragments. */
import { describe, expect, test } from 'vitest';
import {
  Copy,
  copyBatch,
  gatherSlot,
  isMemoryGone,
  RegionTable,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from '../src/batch.ts';
import { addFragment, finishSlot, type SlotSource } from '../src/slots.ts';

describe('the table of regions', () => {
  test('gives each view an index, and one that is free first', () => {
    const table = new RegionTable();
    const [a, b, c] = [new Uint8Array(1), new Uint8Array(2), new Uint8Array(3)];
    expect([table.add(a), table.add(b)]).toEqual([0, 1]);
    table.remove(0);
    expect(table.views).toEqual([undefined, b]);
    expect(table.add(c)).toBe(0);
    expect(table.add(a)).toBe(2);
    expect(table.views).toEqual([c, b, a]);
  });

  test('knows for any number of regions whether another thread can write them', () => {
    const table = new RegionTable();
    for (let i = 0; i < 40; i++)
      table.add(new Uint8Array(i % 3 === 0 ? new SharedArrayBuffer(1) : new ArrayBuffer(1)));
    expect([...table.shared.subarray(0, 40)]).toEqual(
      Array.from({ length: 40 }, (_, i) => (i % 3 === 0 ? 1 : 0)),
    );
    table.remove(0);
    table.add(new Uint8Array(1));
    expect(table.shared[0]).toBe(0);
  });

  test('gives no index anew that a batch may name', () => {
    const table = new RegionTable();
    table.add(new Uint8Array(1));
    const batch = new TxBatch(table, 1);
    table.batches.open(batch);
    table.remove(0);
    expect(table.add(new Uint8Array(1))).toBe(1);
    table.batches.close(batch);
    expect(table.add(new Uint8Array(1))).toBe(0);
  });
});

describe('a batch', () => {
  test('is full without a slot, or without room for the longest list and one fragment', () => {
    const batch = new TxBatch(new RegionTable(), 2, 40);
    const full = (count: number, fragmentCount: number) => {
      Object.assign(batch, { count, fragmentCount });
      return batch.full;
    };
    expect([full(0, 0), full(1, 7), full(2, 0), full(0, 8), full(2, 8)]).toEqual([
      false,
      false,
      true,
      true,
      true,
    ]);
    batch.clear();
    expect([batch.count, batch.fragmentCount, batch.full]).toEqual([0, 0, false]);
  });

  /** Two packets, the second of two fragments and a pad. */
  function filled() {
    const regions = new RegionTable();
    const batch = new TxBatch(regions, 4);
    const bytes = Uint8Array.from({ length: 20 }, (_, i) => i + 1);
    const [first, second] = [regions.add(bytes), regions.add(bytes.slice().reverse())];
    const source = {
      slotTag: 0x0300_0007,
      attributes: { peer: 4, trafficClass: 5, dataTrafficClass: 7, sourcePort: 6 },
      counters: { sentPackets: 0 },
    } as SlotSource;
    batch.headers.fill(0xaa, 0, 12);
    addFragment(batch, first, 3, 2);
    finishSlot(source, batch, 12, 0, 2, 2);
    batch.headers.fill(0xbb, 64, 80);
    addFragment(batch, first, 17, 3);
    addFragment(batch, second, 0, 2);
    finishSlot(source, batch, 16, 1, 5, 3, 9);
    return { regions, batch, first, second, source };
  }

  test('has a slot for each packet', () => {
    const { batch, source } = filled();
    expect([...batch.slots.subarray(0, TX_SLOT_WORDS)]).toEqual([
      0, 12, 0, 1, 2, 2, 4, 7, 6, 0x0300_0007, 0, 0, 1,
    ]);
    const second = batch.slots.subarray(TX_SLOT_WORDS, 2 * TX_SLOT_WORDS);
    expect([...second]).toEqual([64, 16, 1, 2, 5, 3, 4, 7, 6, 0x0300_0007, 0, 9, 1]);
    expect([batch.count, source.counters.sentPackets]).toEqual([2, 2]);
    // Without payload.
    finishSlot(source, batch, 12, batch.fragmentCount, 0, 0);
    expect(batch.slots[2 * TX_SLOT_WORDS + Tx.TRAFFIC_CLASS]).toBe(5);
  });

  test('puts packets together: header, fragments, pad, and room', () => {
    const { batch } = filled();
    expect([...gatherSlot(batch, 0)]).toEqual([...new Array(12).fill(0xaa), 4, 5, 0, 0]);
    const second = [...new Array(16).fill(0xbb), 18, 19, 20, 20, 19, 0, 0, 0];
    expect([...gatherSlot(batch, 1)]).toEqual(second);
    expect([...gatherSlot(batch, 1, 4)]).toEqual([...second, 0, 0, 0, 0]);
  });

  test('knows a packet whose memory is gone, or shorter than it was', () => {
    const { regions, batch, first, second } = filled();
    const gone = () => [isMemoryGone(batch, 0), isMemoryGone(batch, 1)];
    expect(gone()).toEqual([false, false]);
    regions.views[first] = new Uint8Array(19);
    expect(gone()).toEqual([false, true]);
    regions.views[first] = new Uint8Array(20);
    regions.views[second] = undefined;
    expect(gone()).toEqual([false, true]);
    expect([...gatherSlot(batch, 1)].slice(16)).toEqual([0, 0, 0, 0, 0, 0, 0, 0]);
    batch.fragments[2 * 4 + 2] = 1; // An offset beyond 4 GiB.
    regions.views[second] = new Uint8Array(20);
    expect(gone()).toEqual([false, true]);
    expect(batch.slots[Tx.FRAGMENT_COUNT]).toBe(1);
  });
});

test('copies go from the slab to their regions, in order; those to regions that are gone nowhere', () => {
  const regions = new RegionTable();
  const target = new Uint8Array(8);
  const region = regions.add(target);
  const list = new Uint32Array(20);
  const put = (i: number, source: number, to: number, offset: number, length: number) => {
    list[i * 5 + Copy.SOURCE] = source;
    list[i * 5 + Copy.REGION] = to;
    list[i * 5 + Copy.OFFSET_LOW] = offset;
    list[i * 5 + Copy.LENGTH] = length;
  };
  put(0, 1, region, 2, 3);
  put(1, 5, region, 4, 2);
  put(2, 0, 9, 0, 4);
  put(3, 0, region, 0, 8); // Not counted.
  copyBatch(Uint8Array.of(10, 11, 12, 13, 14, 15, 16, 17), regions, list, 3);
  expect([...target]).toEqual([0, 0, 11, 12, 15, 16, 0, 0]);
});
