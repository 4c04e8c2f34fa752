/** READs and atomics in flight: which responses are missing that no request under way asks for. */
import { psnAdd } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { OutOfOrder } from './out-of-order.ts';
import { ReadRequests } from './read-requests.ts';

const FIRST = 0xff_fff0;

/** Requests for `sizes` responses each, from `FIRST` on. */
function setUp(...sizes: number[]) {
  const list = new ReadRequests();
  const early = new OutOfOrder();
  let next = 0;
  for (const size of sizes) {
    list.add(psnAdd(FIRST, next), psnAdd(FIRST, next + size - 1));
    next += size;
  }
  let unacked = 0;
  /** These responses come, each beyond the first that is missing. */
  const come = (...numbers: number[]) => {
    for (const n of numbers) {
      early.add(psnAdd(FIRST, n));
      list.answered(psnAdd(FIRST, n), early);
    }
  };
  /** Asks for all gaps that there are now, and returns them by numbers. */
  const gaps = () => {
    const found: [number, number][] = [];
    while (list.findGap(early, psnAdd(FIRST, unacked))) {
      found.push([(list.gap - FIRST) & 0xff_ffff, (list.gapEnd - FIRST) & 0xff_ffff]);
      list.repeated(list.gap, list.gapEnd);
    }
    return found;
  };
  /** Everything before this number is answered. */
  const answeredUpTo = (n: number) => {
    while (unacked < n) early.take(psnAdd(FIRST, unacked++));
    list.retire(psnAdd(FIRST, n));
  };
  return { list, early, come, gaps, answeredUpTo };
}

test('nothing early: no gap', () => {
  const { gaps } = setUp(8, 8);
  expect(gaps()).toEqual([]);
});

test('of each request the first gap, across the wrap of the PSN, and each once', () => {
  const { come, gaps } = setUp(20, 20, 20);
  come(1, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 32, 45);
  // 31 is too far from 20; of the third request, what is behind 45 may still come.
  expect(gaps()).toEqual([
    [0, 12],
    [20, 21],
    [40, 45],
  ]);
  expect(gaps()).toEqual([]);
});

test('a response of a request means that the requests sent before it get no more responses', () => {
  const { come, gaps } = setUp(4, 4, 4);
  come(1, 2, 3);
  expect(gaps()).toEqual([[0, 1]]);
  // Of a request that was sent before the repetition.
  come(4, 5, 7);
  expect(gaps()).toEqual([[6, 7]]);
  come(8, 9, 10, 11);
  expect(gaps()).toEqual([]);
  come(6);
  expect(gaps()).toEqual([[0, 1]]);
});

test('the last missing response of a repetition ends it; others do not, nor do those behind it', () => {
  const { come, gaps } = setUp(12);
  come(3);
  expect(gaps()).toEqual([[0, 3]]);
  come(1, 4, 5, 6);
  expect(gaps()).toEqual([]);
  come(2);
  expect(gaps()).toEqual([[0, 1]]);
});

test('requests leave the list in order; what is found begins with the oldest that is missing', () => {
  const { list, come, gaps, answeredUpTo } = setUp(4, 4);
  come(5);
  answeredUpTo(2);
  expect(gaps()).toEqual([
    [2, 4],
    [4, 5],
  ]);
  answeredUpTo(4);
  expect([list.count, list.oldestLast]).toEqual([1, psnAdd(FIRST, 7)]);
  list.clear();
  expect([list.count, gaps()]).toEqual([0, []]);
});

test('responses and repetitions of no request change nothing', () => {
  const { list, early, gaps } = setUp(4);
  list.repeated(psnAdd(FIRST, 100), psnAdd(FIRST, 101));
  list.answered(psnAdd(FIRST, 100), early);
  expect(gaps()).toEqual([]);
});

test('room grows to 128 requests, round and round', () => {
  const list = new ReadRequests();
  for (let i = 0; i < 1000; i++) {
    list.add(i, i);
    if (i >= 127) {
      expect([list.count, list.oldestLast]).toEqual([128, i - 127]);
      list.retire(i - 126);
    }
  }
  expect(list.count).toBe(127);
});

test('room grows while the ring is turned', () => {
  const list = new ReadRequests();
  for (let i = 0; i < 16; i++) list.add(i, i);
  list.retire(10);
  for (let i = 16; i < 40; i++) list.add(i, i);
  for (let i = 10; i < 40; i++) {
    expect([list.count, list.oldestLast]).toEqual([40 - i, i]);
    list.retire(i + 1);
  }
});
