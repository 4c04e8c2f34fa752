/** A send entry that can't be sent completes in its turn, after all before it (IBTA vol 1 §10.8.5.1: completions are in order). */
import { expect, test } from 'vitest';
import { WcStatus } from '../constants.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { FailedEntry } from './failed-entry.ts';

const { LOC_LEN_ERR, LOC_PROT_ERR } = WcStatus;

function setUp(head: number) {
  const done: [entry: number, status: number][] = [];
  let failures = 0;
  const queue = {
    head,
    complete(status: number) {
      done.push([this.head, status]);
      this.head = (this.head + 1) | 0;
    },
  };
  const owner = { sendFailed: () => failures++ };
  const failed = new FailedEntry(owner as unknown as Owner, queue as unknown as SendQueue);
  return { queue, failed, done, failures: () => failures };
}

// Indices are free-running counts of 32 bits.
const STARTS = [0, 5, 0x7fff_ffff, -1];

test.each(STARTS)('it waits for the entries before it, at %i', (head) => {
  const { queue, failed, done, failures } = setUp(head);
  const index = (head + 2) | 0;
  failed.set(index, LOC_LEN_ERR);
  for (; queue.head !== index; queue.head = (queue.head + 1) | 0) {
    expect(failed.completeIfOldest()).toBe(false);
    expect([failed.waiting, failed.isAt(index), failed.isAt(queue.head)]).toEqual([true, true, false]);
    expect(failed.check()).toBeUndefined();
  }
  expect(failed.completeIfOldest()).toBe(true);
  expect(done).toEqual([[index, LOC_LEN_ERR]]);
  expect(failures()).toBe(1);
});

test.each(STARTS)('of several the first in the queue fails, at %i', (head) => {
  for (const order of [
    [1, 2],
    [2, 1],
    [1, 1],
  ]) {
    const { queue, failed, done } = setUp(head);
    const at = order.map((distance) => (head + distance) | 0);
    failed.set(at[0], LOC_LEN_ERR);
    failed.set(at[1], LOC_PROT_ERR);
    queue.head = (head + 1) | 0;
    expect(failed.completeIfOldest()).toBe(true);
    expect(done).toEqual([[(head + 1) | 0, order[0] === 1 ? LOC_LEN_ERR : LOC_PROT_ERR]]);
  }
});

test.each(STARTS)('it does not fail if it was done after all, at %i', (head) => {
  const { queue, failed, done, failures } = setUp(head);
  failed.set(head, LOC_LEN_ERR);
  queue.head = (head + 1) | 0;
  expect(failed.check()).toBe('an entry that is done has failed');
  expect(failed.completeIfOldest()).toBe(false);
  expect(failed.waiting).toBe(false);
  expect([done, failures()]).toEqual([[], 0]);
});

test('none has failed at first, and none once it is forgotten', () => {
  const { failed, queue, done } = setUp(0);
  expect([failed.waiting, failed.isAt(0), failed.completeIfOldest()]).toEqual([false, false, false]);
  failed.set(0, LOC_LEN_ERR);
  failed.forget();
  expect([failed.waiting, failed.isAt(0), failed.completeIfOldest()]).toEqual([false, false, false]);
  queue.head = 3;
  expect(failed.check()).toBeUndefined();
  expect(done).toEqual([]);
});
