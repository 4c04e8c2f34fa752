/** Completion queues from the engine's side: room, overrun, events, and the ring before a resize (ibv_req_notify_cq(3), ibv_resize_cq(3)). */
import { expect, test } from 'vitest';
import { CompletionQueue } from './completion-queue.ts';
import { CQE_WORDS, Cqe } from './entry-words.ts';
import { createRing, Ring } from './rings.ts';

function make(entries = 4) {
  const queue = new CompletionQueue(7, entries, (count, stride) => new Ring(createRing(count, stride)));
  /** The program's side of the ring that it has now. */
  const program = () => new Ring(queue.created.ring);
  const complete = (solicited = false) => {
    const w = queue.claim();
    if (w >= 0) queue.commit(solicited);
    return w;
  };
  return { queue, program, complete };
}

test('an entry is seen when it is published, and all before it', () => {
  const { queue, program, complete } = make();
  expect(queue.dirty).toBe(false);
  complete();
  complete();
  expect([queue.dirty, program().used]).toEqual([true, 0]);
  queue.publish();
  expect([queue.dirty, program().used, queue.outstanding]).toEqual([false, 2, 2]);
  program().release(1);
  expect(queue.outstanding).toBe(1);
});

test('an entry has nothing of the one before it in its place', () => {
  const { queue, program, complete } = make(1);
  const w = complete();
  queue.words.fill(0xffff, w, w + CQE_WORDS);
  queue.publish();
  program().release(1);
  expect(queue.claim()).toBe(w);
  const left = [Cqe.BYTE_LEN, Cqe.IMMEDIATE, Cqe.SRC_QP, Cqe.FLAGS, Cqe.VENDOR_ERR, Cqe.PKEY_INDEX, Cqe.SL];
  expect(left.map((word) => queue.words[w + word])).toEqual([0, 0, 0, 0, 0, 0, 0]);
});

test('one more than there is room for overruns it for good', () => {
  const { queue, program, complete } = make(2);
  complete();
  complete();
  expect([complete(), queue.overrun, program().state]).toEqual([-1, true, 1]);
  queue.publish();
  program().release(2);
  expect(complete()).toBe(-1);
  expect(program().used).toBe(0);
});

test('the event that was asked for comes with what was published, once', () => {
  const { queue, program, complete } = make();
  program().arm(1);
  expect(queue.publish()).toBe(false);
  complete();
  expect(queue.publish()).toBe(true);
  complete();
  expect(queue.publish()).toBe(false);
});

test('a program that no event has woken for 64 publications polls', () => {
  const { queue, program, complete } = make(128);
  const publish = () => {
    complete();
    queue.publish();
  };
  publish();
  expect(queue.wakes).toBe(false);
  program().arm(1);
  for (let i = 0; i < 64; i++) {
    publish();
    expect(queue.wakes).toBe(true);
  }
  publish();
  expect(queue.wakes).toBe(false);
});

test('a solicited event comes with a solicited completion, whichever of the published it is', () => {
  const { queue, program, complete } = make(8);
  program().arm(2);
  complete();
  expect(queue.publish()).toBe(false);
  complete(true);
  complete();
  expect(queue.publish()).toBe(true);
  program().arm(2);
  complete();
  expect(queue.publish()).toBe(false);
});

test('a program that waits for a solicited completion hears of the overrun, once', () => {
  const { queue, program, complete } = make(1);
  complete();
  queue.publish();
  program().arm(2);
  complete();
  expect(queue.publish()).toBe(true);
  program().arm(2);
  complete();
  expect(queue.publish()).toBe(false);
});

test('after a resize, completions go to the new ring; unpolled ones stay in the old one', () => {
  const { queue, program, complete } = make(2);
  complete();
  queue.publish();
  const old = program();
  const { handle, cqe } = queue.resize(5);
  expect([handle, cqe, queue.outstanding]).toEqual([7, 8, 1]);
  complete();
  complete();
  queue.publish();
  expect([old.used, program().used, queue.outstanding]).toEqual([1, 2, 3]);
  old.release(1);
  expect(queue.outstanding).toBe(2);
});

test('an event that was asked for at the old ring comes, too; and one of both once', () => {
  const { queue, program, complete } = make(2);
  const old = program();
  queue.resize(8);
  old.arm(1);
  complete();
  expect(queue.publish()).toBe(true);
  old.arm(1);
  program().arm(1);
  complete();
  expect(queue.publish()).toBe(true);
  complete();
  expect(queue.publish()).toBe(false);
});

test('an overrun is not undone by a resize', () => {
  const { queue, program, complete } = make(1);
  complete();
  complete();
  queue.publish();
  queue.resize(8);
  expect([complete(), program().state, queue.overrun]).toEqual([-1, 1, true]);
});
