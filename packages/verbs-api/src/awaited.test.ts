/** Awaited requests, also among posted ones, and the end of a queue pair. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openPair, type Pair } from '../testing/pair.ts';
import type { RoceError } from './index.ts';

let pair: Pair;
beforeEach(async () => {
  pair = await openPair();
});
afterEach(() => pair[Symbol.asyncDispose]());

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const bytes = (value: string) => new TextEncoder().encode(value);

describe('awaited requests', () => {
  test('a SEND of any bytes, and a receive', async () => {
    const { a, b } = pair;
    const received = b.qp.receive({ mr: b.mr });
    const sent = await a.qp.send(bytes('hello'));
    expect([sent.ok, sent.opcode]).toEqual([true, 'SEND']);
    expect(text(b.mr.bytes(0, (await received).byteLen))).toBe('hello');
  });

  test('a SEND with immediate data, of registered memory', async () => {
    const { a, b } = pair;
    const received = b.qp.receive({ mr: b.mr });
    a.mr.bytes(0, 4).set([1, 2, 3, 4]);
    await a.qp.send({ mr: a.mr, length: 4 }, { immData: 7, solicited: true });
    expect(await received).toMatchObject({ byteLen: 4, immData: 7 });
  });

  test('WRITE, READ, fetch-and-add, compare-and-swap', async () => {
    const { a, b } = pair;
    await a.qp.write(bytes('written'), b.mr.remote(64));
    expect(text(b.mr.bytes(64, 7))).toBe('written');
    await a.qp.read({ mr: a.mr, length: 7 }, b.mr.remote(64));
    expect(text(a.mr.bytes(0, 7))).toBe('written');
    const word = (at: number) => new DataView(a.memory.buffer).getBigUint64(at, true);
    const [into, counter] = [{ mr: a.mr, offset: 8, length: 8 }, b.mr.remote(128)];
    await a.qp.fetchAdd(into, counter, 5);
    expect((await a.qp.fetchAdd(into, counter, 2n)).opcode).toBe('FETCH_ADD');
    expect(word(8)).toBe(5n);
    await a.qp.compareSwap(into, counter, 7n, 100n);
    expect(word(8)).toBe(7n);
    expect(new DataView(b.memory.buffer).getBigUint64(128, true)).toBe(100n);
  });

  test('mix with posted ones, whose completions alone show, in their order', async () => {
    const { a, b } = pair;
    const order: string[] = [];
    const remote = b.mr.remote();
    const awaited: Promise<unknown>[] = [];
    for (let i = 0; i < 20; i++) {
      a.qp.postSend({
        wrId: i,
        opcode: 'RDMA_WRITE',
        inline: true,
        signaled: true,
        sgList: [bytes('x')],
        remote,
      });
      awaited.push(a.qp.write(bytes('y'), remote).then(() => order.push(`awaited ${i}`)));
    }
    for (let i = 0; i < 20; i++) expect((await a.cq.next()).wrIdNumber).toBe(i);
    await Promise.all(awaited);
    expect(order).toEqual(Array.from({ length: 20 }, (_, i) => `awaited ${i}`));
    expect(a.cq.poll()).toEqual([]);
  });

  test('mix with a program that polls, also into its own completions', async () => {
    const { a, b } = pair;
    const remote = b.mr.remote();
    const awaited = a.qp.write(bytes('y'), remote);
    a.qp.postSend({
      wrId: 9,
      opcode: 'RDMA_WRITE',
      inline: true,
      signaled: true,
      sgList: [bytes('x')],
      remote,
    });
    const found: number[] = [];
    const into = [new (await import('./index.ts')).WorkCompletion()];
    while (found.length === 0) {
      if (a.cq.pollInto(into) > 0) found.push(into[0].wrIdNumber);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(found).toEqual([9]);
    await awaited;
  });

  test('raise no event of a channel that was not asked for', async () => {
    const { a, b } = pair;
    const channel = a.device.createCompChannel();
    const cq = await a.device.createCq(16, { channel });
    const qp = await a.pd.createQp({ sendCq: cq });
    const other = await b.pd.createQp({ sendCq: b.cq });
    await qp.connect(other.connectionData());
    await other.connect(qp.connectionData());
    await qp.write(bytes('x'), b.mr.remote());
    expect(channel.pollEvent()).toBeUndefined();
    cq.requestNotify();
    const event = channel.getEvent();
    const awaited = qp.write(bytes('y'), b.mr.remote());
    qp.postSend({ wrId: 3, opcode: 'RDMA_WRITE', signaled: true, remote: b.mr.remote() });
    await awaited;
    expect(await event).toBe(cq);
    cq.ackEvents(1);
    expect((await cq.next()).wrId).toBe(3n);
  });

  test('reject with the status of the failed request, and later ones with the flush', async () => {
    const { a, b } = pair;
    const bad = { ...b.mr.remote(), rkey: 1 };
    const [first, second] = await Promise.allSettled([
      a.qp.write(bytes('x'), bad),
      a.qp.write(bytes('x'), b.mr.remote()),
    ]);
    const reason = (result: PromiseSettledResult<unknown>) => (result as PromiseRejectedResult).reason;
    expect(reason(first)).toMatchObject({ code: 'ERR_ROCE_COMPLETION', attribute: 'REM_ACCESS_ERR' });
    const request = `RDMA_WRITE of QP ${a.qp.qpNum} to QP ${b.qp.qpNum} at 10.0.0.2`;
    expect(reason(first).message).toContain(`: ${request} ended with REM_ACCESS_ERR`);
    expect(reason(second)).toMatchObject({ code: 'ERR_ROCE_COMPLETION', attribute: 'WR_FLUSH_ERR' });
    await expect(a.qp.send(bytes('x'))).rejects.toMatchObject({ attribute: 'WR_FLUSH_ERR' });
  });

  test('settle when they are posted as the last one before them settles', async () => {
    const { a, b } = pair;
    const other = await a.pd.createQp({ sendCq: a.cq });
    const peer = await b.pd.createQp({ sendCq: b.cq });
    await other.connect(peer.connectionData());
    await peer.connect(other.connectionData());
    const later = new Promise((resolve, reject) => {
      a.qp.onClose(() => other.write(bytes('x'), b.mr.remote()).then(resolve, reject));
    });
    await expect(a.qp.write(bytes('x'), { addr: 0n, rkey: 1 })).rejects.toThrow('REM_ACCESS_ERR');
    expect(await later).toMatchObject({ ok: true });
  });

  test('reject for what posting refuses', async () => {
    const { a, b } = pair;
    await expect(a.qp.send(new Uint8Array(4096))).rejects.toMatchObject({
      errno: 'EINVAL',
      attribute: 'sgList',
    });
    await expect(a.qp.write(bytes('x'), { addr: 1 } as never)).rejects.toMatchObject({
      attribute: 'remote.addr',
    });
    await expect(a.qp.send(bytes('x'), { imm: 1 } as never)).rejects.toMatchObject({ expected: 'immData' });
    const fresh = await a.pd.createQp({ sendCq: a.cq });
    await expect(fresh.send(bytes('x'))).rejects.toMatchObject({ code: 'ERR_ROCE_WRONG_STATE' });
    await expect(b.qp.receive({ mr: undefined } as never)).rejects.toMatchObject({ attribute: 'sgList[0]' });
  });

  test('an abort rejects with its reason; the request goes on, and its completion is dropped', async () => {
    const { a, b } = pair;
    const abort = new AbortController();
    const received = b.qp.receive({ mr: b.mr }, { signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(received).rejects.toThrow('enough');
    await a.qp.send(bytes('late'));
    expect(text(b.mr.bytes(0, 4))).toBe('late');
    expect(b.cq.poll()).toEqual([]);
    await expect(a.qp.send(bytes('x'), { signal: AbortSignal.abort(new Error('before')) })).rejects.toThrow(
      'before',
    );
  });

  test.each([
    ['close', (p: Pair) => p.b.qp.close(), 'ERR_ROCE_CLOSED'],
    ['RESET', (p: Pair) => p.b.qp.modify({ qpState: 'RESET' }), 'ERR_ROCE_CLOSED'],
    ['the error state', (p: Pair) => p.b.qp.modify({ qpState: 'ERR' }), 'ERR_ROCE_COMPLETION'],
    ['the end of the device', (p: Pair) => p.b.device.close(), 'ERR_ROCE_CLOSED'],
  ])('reject at %s', async (_what, end, code) => {
    const received = pair.b.qp.receive({ mr: pair.b.mr });
    const expected = expect(received).rejects.toMatchObject({ code });
    await end(pair);
    await expected;
  });
});

describe('the end of a queue pair', () => {
  test('closed by the program: closed resolves, and the event has no cause', async () => {
    const causes: unknown[] = [];
    pair.a.qp.onClose((cause) => causes.push(cause));
    const { closed } = pair.a.qp;
    await pair.a.qp.close();
    await closed;
    expect(causes).toEqual([undefined]);
  });

  test('a request that fails: the cause is its completion, which the program still polls', async () => {
    const { a, b } = pair;
    const cause = new Promise<RoceError | undefined>((resolve) => a.qp.onClose(resolve));
    a.qp.postSend({
      wrId: 5,
      opcode: 'RDMA_WRITE',
      sgList: [{ mr: a.mr, length: 1 }],
      remote: { ...b.mr.remote(), rkey: 1 },
    });
    await expect(a.qp.closed).rejects.toMatchObject({
      code: 'ERR_ROCE_COMPLETION',
      attribute: 'REM_ACCESS_ERR',
    });
    expect((await cause)?.attribute).toBe('REM_ACCESS_ERR');
    expect((await a.cq.next()).wrId).toBe(5n);
  });

  test('a request of the peer that is refused: the cause is the event', async () => {
    const { a, b } = pair;
    const { closed } = b.qp;
    await a.qp.write(bytes('x'), { ...b.mr.remote(), rkey: 1 }).catch(() => {});
    await expect(closed).rejects.toMatchObject({ code: 'ERR_ROCE_QP_FAILED', errno: 'EIO' });
  });

  test('the device closes', async () => {
    const { closed } = pair.a.qp;
    await pair.a.device.close();
    await expect(closed).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  });

  test('after RESET there is another end; a listener can be taken off', async () => {
    const { a } = pair;
    const seen: unknown[] = [];
    const off = a.qp.onClose(() => seen.push('first'));
    off();
    await a.qp.modify({ qpState: 'ERR' });
    await expect(a.qp.closed).rejects.toThrow('was taken to the error state');
    await a.qp.modify({ qpState: 'RESET' });
    a.qp.onClose(() => seen.push('second'));
    await a.qp.close();
    await a.qp.closed;
    expect(seen).toEqual(['second']);
  });
});
