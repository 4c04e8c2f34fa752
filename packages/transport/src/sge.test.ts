/** Payload that goes into a scatter/gather list, in pieces (IBTA vol 1 §9.4, ibv_post_recv(3)). */
import { createRandom } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { RegionTable, TxBatch } from './batch.ts';
import { Access } from './constants.ts';
import type { Context } from './context.ts';
import { DEVICE_LIMITS, type MrCreated } from './control.ts';
import { SGE_WORDS, Sge } from './entry-words.ts';
import { Memory } from './memory.ts';
import { checkList, Scattered, scatter } from './sge.ts';
import { addFragment } from './slots.ts';

/** A region over bytes 100 … 199 of a buffer, and a list that begins at the third word. */
function make(
  elements: { at?: number; length: number; key?: number }[],
  access: number = Access.LOCAL_WRITE,
) {
  const memory = new Memory(new RegionTable(), createRandom(3).next, DEVICE_LIMITS);
  const pd = memory.allocPd();
  const buffer = new ArrayBuffer(300);
  const mr: MrCreated = memory.register({ pd, backing: 1, buffer, offset: 100, length: 100, access });
  const words = new Uint32Array(2 + 8 * SGE_WORDS);
  elements.forEach(({ at = 0, length, key = mr.lkey }, i) => {
    const w = 2 + i * SGE_WORDS;
    const address = mr.addr + BigInt(at);
    words[w + Sge.ADDRESS_HIGH] = Number(address >> 32n);
    words[w + Sge.ADDRESS_LOW] = Number(address & 0xffff_ffffn);
    words[w + Sge.LENGTH] = length;
    words[w + Sge.LKEY] = key;
  });
  /** Source, offset in the buffer, bytes. */
  const copies: number[][] = [];
  const written: number[][] = [];
  const context = {
    memory,
    place: (source: number, _mr: unknown, offset: number, length: number) =>
      copies.push([source, offset, length]),
    write: (_own: Uint8Array, source: number, _mr: unknown, offset: number, length: number) =>
      written.push([source, offset, length]),
  } as unknown as Context;
  const put = (offset: number, length: number, count = elements.length, own?: Uint8Array) =>
    scatter(context, pd, words, 2, count, offset, 1000, length, own);
  const check = (needed: number, by = pd, count = elements.length) =>
    checkList(context, by, { words }, 2, count, needed);
  return { memory, pd, mr, put, check, copies, written };
}

const LIST = [
  { at: 0, length: 10 },
  { at: 50, length: 0 },
  { at: 20, length: 5 },
  { at: 90, length: 10 },
];

describe('payload goes into a list', () => {
  test.each<[string, number, number, number[][]]>([
    [
      'all of it',
      0,
      25,
      [
        [1000, 100, 10],
        [1010, 120, 5],
        [1015, 190, 10],
      ],
    ],
    ['a part of one element', 3, 4, [[1000, 103, 4]]],
    ['from the end of one on', 10, 5, [[1000, 120, 5]]],
    [
      'over an end',
      9,
      3,
      [
        [1000, 109, 1],
        [1001, 120, 2],
      ],
    ],
    ['the last byte', 24, 1, [[1000, 199, 1]]],
    ['nothing', 25, 0, []],
  ])('%s', (_what, offset, length, expected) => {
    const { put, copies, written } = make(LIST);
    expect(put(offset, length)).toBe(Scattered.OK);
    expect(copies).toEqual(expected);
    expect(put(offset, length, LIST.length, new Uint8Array(0))).toBe(Scattered.OK);
    expect(written).toEqual(expected);
  });

  test('more than there is room for is too long', () => {
    const { put } = make(LIST);
    expect(put(0, 26)).toBe(Scattered.TOO_LONG);
    expect(put(25, 1)).toBe(Scattered.TOO_LONG);
    expect(put(0, 16, 3)).toBe(Scattered.TOO_LONG);
    expect(put(0, 1, 0)).toBe(Scattered.TOO_LONG);
  });

  test.each<[string, Parameters<typeof make>]>([
    ['under another key', [[{ length: 8, key: 0x1234 }]]],
    ['past its region', [[{ at: 93, length: 8 }]]],
    ['before its region', [[{ at: -1, length: 8 }]]],
    ['in a region that may not be written', [[{ length: 8 }], Access.REMOTE_READ]],
  ])('an element %s takes nothing, even for a part that would fit', (_what, args) => {
    const { put, check, copies } = make(...args);
    expect(put(0, 1)).toBe(Scattered.PROTECTION);
    expect(copies).toEqual([]);
    expect(check(Access.LOCAL_WRITE)).toBe(-1);
  });

  test('of a region that changed its PD, or has gone, takes nothing', () => {
    const { memory, mr, put, check } = make([{ length: 8 }]);
    expect(check(Access.LOCAL_WRITE)).toBe(8);
    const other = memory.allocPd();
    const init = { pd: other, backing: 1, buffer: new ArrayBuffer(300), offset: 100, length: 100, access: 1 };
    memory.reregister(mr.handle, init, false);
    expect([put(0, 1), check(0)]).toEqual([Scattered.PROTECTION, -1]);
    memory.deregister(mr.handle);
    expect([put(0, 1), check(0)]).toEqual([Scattered.PROTECTION, -1]);
  });
});

describe('a list', () => {
  test('is as long as its elements; one of nothing needs no key', () => {
    const { check } = make([...LIST, { length: 0, key: 5 }]);
    expect(check(Access.LOCAL_WRITE)).toBe(25);
    expect(check(0, undefined, 3)).toBe(15);
    expect(check(0, undefined, 0)).toBe(0);
  });

  test('needs all the rights that are asked for', () => {
    const { check } = make([{ length: 8 }], Access.LOCAL_WRITE | Access.REMOTE_READ);
    expect(check(Access.LOCAL_WRITE | Access.REMOTE_READ)).toBe(8);
    expect(check(Access.LOCAL_WRITE | Access.REMOTE_WRITE)).toBe(-1);
  });
});

test('a fragment beyond 4 GiB has its offset in two words', () => {
  const batch = new TxBatch(new RegionTable(), 4);
  addFragment(batch, 3, 7, 9);
  addFragment(batch, 4, 5 * 2 ** 32 + 6, 8);
  expect([...batch.fragments.subarray(0, 8)]).toEqual([3, 7, 0, 9, 4, 6, 5, 8]);
  expect(batch.fragmentCount).toBe(2);
});
