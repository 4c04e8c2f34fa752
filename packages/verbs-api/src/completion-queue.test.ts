import { CQE_WORDS, createRing, Ring } from '@node-roce/transport';
import { describe, expect, test, vi } from 'vitest';
import { turns } from '../testing/clock.ts';
import { openPair, type Side } from '../testing/pair.ts';
import { CompletionQueue } from './completion-queue.ts';
import type { Engine } from './engine/engine.ts';
import { Registry } from './registry.ts';
import { completionError, WorkCompletion } from './work-completion.ts';

const send = (side: Side, wrId: number, more = {}) =>
  side.qp.postSend({ opcode: 'SEND', wrId, sgList: [{ mr: side.mr, length: 32 }], ...more });
const receive = (side: Side, wrId: number) =>
  side.qp.postRecv({ wrId, sgList: [{ mr: side.mr, offset: 1024 * (wrId % 32), length: 1024 }] });

/** Whether a promise is settled a moment later. */
const settled = async (promise: Promise<unknown>) =>
  Promise.race([promise.then(() => true), turns().then(() => false)]);

describe('polling', () => {
  test('makes progress by itself: no turn of the event loop is needed', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    receive(b, 5);
    send(a, 7, { signaled: true });
    let got: WorkCompletion[] = [];
    for (let i = 0; i < 100 && got.length === 0; i++) {
      b.cq.poll();
      got = a.cq.poll();
    }
    expect(got.map((wc) => [wc.wrId, wc.status, wc.opcode])).toEqual([[7n, 'SUCCESS', 'SEND']]);
  });

  test('fills the completions it is given, and no more', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 6; i++) receive(b, i);
    for (let i = 0; i < 6; i++) send(a, i, { opcode: 'SEND_WITH_IMM', immData: 0xffff_0000 + i });
    while (b.qp.recvPending > 0) await b.device.progress();
    const into = Array.from({ length: 4 }, () => new WorkCompletion());
    const kept = [...into];
    expect(b.cq.pollInto(into)).toBe(4);
    expect(into.map((wc) => wc.wrIdNumber)).toEqual([0, 1, 2, 3]);
    expect(b.cq.pollInto(into)).toBe(2);
    expect(into).toEqual(kept);
    expect(into[1]).toMatchObject({
      wrIdNumber: 5,
      ok: true,
      opcode: 'RECV',
      byteLen: 32,
      immData: 0xffff_0005,
      qpNum: b.qp.qpNum,
    });
    expect(b.cq.pollInto(into)).toBe(0);
  });

  test('into a completion with a setter that polls: each comes once', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 3; i++) receive(b, i);
    for (let i = 0; i < 3; i++) send(a, i);
    while (b.qp.recvPending > 0) await b.device.progress();
    const found: number[] = [];
    const polling = Object.defineProperty(new WorkCompletion(), 'flags', {
      set: () => found.push(...b.cq.poll(1).map(({ wrIdNumber }) => wrIdNumber)),
    });
    const into = [polling, new WorkCompletion(), new WorkCompletion()];
    expect(b.cq.pollInto(into)).toBe(0);
    expect(found).toEqual([0]);
    expect(b.cq.poll().map(({ wrIdNumber }) => wrIdNumber)).toEqual([1, 2]);
    expect(b.cq.poll()).toEqual([]);
  });

  test('wrIds of 64 bits come back whole', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    receive(b, 0);
    const wrId = 0xfedc_ba98_7654_3210n;
    a.qp.postSend({ opcode: 'SEND', wrId, signaled: true, sgList: [{ mr: a.mr, length: 8 }] });
    expect((await a.cq.next()).wrId).toBe(wrId);
  });
});

describe('waiting', () => {
  test('one event for completions after the request, none for earlier ones', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 4; i++) receive(b, i);
    const first = b.cq.wait();
    send(a, 1);
    await first;
    expect(b.cq.poll().length).toBe(1);
    const second = b.cq.wait();
    expect(await settled(second)).toBe(false);
    send(a, 2);
    await second;
  });

  test('solicited only: others do not wake, failures do', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 4; i++) receive(b, i);
    const wait = b.cq.wait({ solicitedOnly: true });
    send(a, 1);
    expect(await settled(wait)).toBe(false);
    send(a, 2, { solicited: true });
    await wait;
    expect(b.cq.poll().map((wc) => wc.wrIdNumber)).toEqual([0, 1]);
    const failed = b.cq.wait({ solicitedOnly: true });
    await b.qp.modify({ qpState: 'ERR' });
    await failed;
    expect(b.cq.poll().every((wc) => wc.status === 'WR_FLUSH_ERR')).toBe(true);
  });

  test('a completion resolves every wait', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    receive(b, 0);
    const waits = [b.cq.wait(), b.cq.wait(), b.cq.wait()];
    expect(await Promise.all(waits.map(settled))).toEqual([false, false, false]);
    send(a, 1);
    await expect(Promise.all(waits)).resolves.toHaveLength(3);
    expect(b.cq.poll()).toMatchObject([{ status: 'SUCCESS' }]);
  });

  test('a signal ends a wait with its reason, before and during', async () => {
    await using pair = await openPair();
    const { cq } = pair.a;
    const reason = new Error('enough');
    await expect(cq.wait({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const wait = cq.next({ signal: controller.signal });
    controller.abort(reason);
    await expect(wait).rejects.toBe(reason);
  });

  test('an aborted signal takes no completion that is there', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    receive(b, 0);
    send(a, 1);
    await b.cq.wait();
    await expect(b.cq.next({ signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow('enough');
    expect(b.cq.poll()).toMatchObject([{ status: 'SUCCESS' }]);
  });

  test('waiting calls reject when the device is closed or fails', async () => {
    const pair = await openPair();
    const wait = pair.a.cq.wait();
    await pair.a.device.close();
    await expect(wait).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED', errno: 'ECANCELED' });
    await pair.b.device.close();
  });
});

describe('iterating', () => {
  test('completions as they come; the loop that is left loses none', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 6; i++) receive(b, i);
    for (let i = 0; i < 6; i++) send(a, i);
    const seen: number[] = [];
    for await (const wc of b.cq) {
      seen.push(wc.wrIdNumber);
      if (seen.length === 3) break;
    }
    for await (const wc of b.cq) {
      seen.push(wc.wrIdNumber);
      if (seen.length === 6) break;
    }
    expect(seen).toEqual([0, 1, 2, 3, 4, 5]);
  });

  test('throws the error of a failed completion; the next ones stay in the queue', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    receive(b, 0);
    receive(b, 1);
    receive(b, 2);
    send(a, 0);
    await b.qp.modify({ qpState: 'ERR' });
    const seen: number[] = [];
    const loop = async () => {
      for await (const wc of b.cq) seen.push(wc.wrIdNumber);
    };
    const failed = { code: 'ERR_ROCE_COMPLETION', attribute: 'WR_FLUSH_ERR' };
    await expect(loop()).rejects.toMatchObject(failed);
    await expect(loop()).rejects.toMatchObject(failed);
    expect(b.cq.poll().length + seen.length).toBe(1);
  });

  test('ends when the device is closed', async () => {
    const pair = await openPair();
    const { a, b } = pair;
    const loop = (async () => {
      let count = 0;
      for await (const _ of b.cq) count++;
      return count;
    })();
    receive(b, 0);
    send(a, 1, { signaled: true });
    await a.cq.next();
    await b.device.close();
    expect(await loop).toBe(1);
    await a.device.close();
  });
});

test('a queue that overran raises an event, fails its queue pairs, and throws once it is empty', async () => {
  await using pair = await openPair({ cqe: 4 });
  const { a, b } = pair;
  for (let i = 0; i < 12; i++) receive(b, i);
  const events: string[] = [];
  b.device.onEvent((event) => events.push(event.type));
  for (let i = 0; i < 12; i++) send(a, i);
  while (b.qp.state !== 'ERR') await turns(1);
  expect(events).toContain('CQ_ERR');
  expect(events).toContain('QP_FATAL');
  expect(b.cq.poll(100).length).toBe(4);
  expect(() => b.cq.poll()).toThrow(expect.objectContaining({ code: 'ERR_ROCE_CQ_OVERRUN' }));
});

test('a wait for a solicited completion rejects when the queue overruns: no completion follows', async () => {
  await using pair = await openPair({ cqe: 4 });
  const { a, b } = pair;
  for (let i = 0; i < 5; i++) receive(b, i);
  const wait = b.cq.wait({ solicitedOnly: true });
  for (let i = 0; i < 4; i++) send(a, i);
  expect(await settled(wait)).toBe(false);
  send(a, 4);
  // Once: it waited for ever.
  expect(await settled(wait)).toBe(true);
  expect(b.cq.poll(5)).toHaveLength(4);
  expect(() => b.cq.poll()).toThrow(expect.objectContaining({ code: 'ERR_ROCE_CQ_OVERRUN' }));
});

test('a queue in use can not be destroyed', async () => {
  await using pair = await openPair();
  const { cq, qp } = pair.a;
  await expect(cq.destroy()).rejects.toMatchObject({ errno: 'EBUSY' });
  await qp.close();
  await cq.destroy();
  await expect(cq.wait()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
});

test('a failed completion as an error', async () => {
  await using pair = await openPair();
  receive(pair.a, 3);
  await pair.a.qp.modify({ qpState: 'ERR' });
  const error = completionError(await pair.a.cq.next());
  expect(error).toMatchObject({ code: 'ERR_ROCE_COMPLETION', attribute: 'WR_FLUSH_ERR' });
  expect(error.message).toBe(
    `discarded, because the queue pair came to the error state before: RECV (wrId 3) of QP ${pair.a.qp.qpNum} \
from QP ${pair.b.qp.qpNum} at 10.0.0.2 ended with WR_FLUSH_ERR`,
  );
});

test.each([
  ['any completion', false],
  ['solicited completions', true],
])(
  'a wait for %s ends with one that another thread writes just before the notification is armed',
  async (_, solicitedOnly) => {
    const shape = createRing(8, CQE_WORDS);
    const engine = { closed: false, poll: () => {} } as unknown as Engine;
    const registry = new Registry<CompletionQueue>(() => {});
    const cq = new CompletionQueue(engine, { handle: 1, cqe: 8, ring: shape }, registry, {}, () => undefined);
    const thread = new Ring(shape);
    const { arm } = Ring.prototype;
    let isTold = false;
    const spy = vi.spyOn(Ring.prototype, 'arm').mockImplementation(function (this: Ring, kind: 1 | 2) {
      thread.publish(1);
      isTold = thread.disarm(true);
      arm.call(this, kind);
    });
    expect(await settled(cq.wait({ solicitedOnly }))).toBe(true);
    expect([isTold, cq.poll().length]).toEqual([false, 1]);
    spy.mockRestore();
  },
);
