/** Posting by numbers and by prepared lists: the entries and errors are those of requests that are objects. */
import { MemoryNetwork } from '@node-roce/link';
import {
  createRing,
  QpStateCode,
  RecvWqe,
  Ring,
  RoceError,
  recvStride,
  SendWqe,
  SGE_WORDS,
  sendStride,
} from '@node-roce/transport';
import { createRandom } from '@node-roce/wire';
import { describe, expect, test, vi } from 'vitest';
import { openPair, openSide, pattern } from '../testing/pair.ts';
import type { Engine } from './engine/engine.ts';
import { MemoryRegion, SendFlags, type SendWr } from './index.ts';
import { PostQueues, type PostQueuesInit } from './posting/post-queues.ts';

const NUMBER = 7;
const CAP = { maxSendWr: 6, maxRecvWr: 5, maxSendSge: 2, maxRecvSge: 1, maxInlineData: 32 };

/** The queues of a queue pair in RTS, without an engine that takes anything from them. */
function openQueues(type: PostQueuesInit['type'] = 'RC', change: Partial<typeof CAP> = {}) {
  const cap = { ...CAP, ...change };
  const sendQueue = new Ring(createRing(cap.maxSendWr, sendStride(cap.maxSendSge, cap.maxInlineData), false));
  const recvQueue = new Ring(createRing(cap.maxRecvWr, recvStride(cap.maxRecvSge), false));
  sendQueue.state = recvQueue.state = QpStateCode.RTS;
  const rung: boolean[] = [];
  const engine = { closed: false, ring: (_: number, receives: boolean) => rung.push(receives) };
  const find = () => {
    throw new Error('not asked for');
  };
  const created = { qpn: NUMBER, sendQueue, recvQueue, cap };
  const queues = new PostQueues({ engine: engine as unknown as Engine, type, created, find, srq: undefined });
  return { queues, sendQueue, recvQueue, rung, engine };
}

/** A region whose address carries into its high word where an offset is added. */
function region(): MemoryRegion {
  const mr = Object.create(MemoryRegion.prototype) as MemoryRegion;
  const buffer = new ArrayBuffer(4096);
  return Object.assign(mr, {
    ...{ lkey: 0x8000_0123, length: 4096, buffer, bufferOffset: 0 },
    ...{ startHigh: 0xabc, startLow: 0xffff_ff00 },
  });
}

/** What a program sees of a call. */
function outcome(call: () => void): unknown {
  try {
    call();
    return 'posted';
  } catch (error) {
    if (!(error instanceof RoceError)) return `${error}`;
    const { code, errno, attribute, expected, message } = error;
    return { code, errno, attribute, expected, message };
  }
}

const MR = region();
const OFFSETS = [
  0,
  1,
  255,
  256,
  4095,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 40,
  -1,
  1.5,
  Number.NaN,
  2 ** 53,
  undefined,
  null,
  '1',
  3n,
];
const LENGTHS = [
  0,
  1,
  64,
  4096,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 32 - 1,
  2 ** 32,
  -1,
  0.5,
  Number.NaN,
  undefined,
  null,
  '8',
  8n,
];
const WR_IDS = [
  0,
  1,
  2 ** 31,
  2 ** 53 - 1,
  2 ** 53,
  -1,
  1.5,
  5n,
  -1n,
  2n ** 64n - 1n,
  undefined,
  null,
  '1',
  {},
];
const REGIONS = [
  MR,
  undefined,
  null,
  5,
  {},
  { lkey: 1, length: 8, startHigh: 0, startLow: 16 },
  new Uint8Array(8),
];
const FLAGS = Array.from({ length: 16 }, (_, flags) => flags);
const numbered = (flags: number) => ({
  fence: (flags & SendFlags.FENCE) !== 0,
  signaled: (flags & SendFlags.SIGNALED) !== 0,
  solicited: (flags & SendFlags.SOLICITED) !== 0,
  inline: (flags & SendFlags.INLINE) !== 0,
});

/** Half of the draws are what programs pass; of the rest any of the values may be wrong. */
function draws(seed: number, count: number) {
  const random = createRandom(seed);
  const below = (n: number) => Math.floor((random.next() / 2 ** 32) * n);
  const one = <T>(values: readonly T[]): T => values[below(values.length)];
  return Array.from({ length: count }, () => {
    const plain = below(2) === 0;
    return {
      mr: plain ? MR : one(REGIONS),
      offset: plain ? below(4096) : one(OFFSETS),
      length: plain ? below(4096) : one(LENGTHS),
      wrId: plain ? below(2 ** 31) : one(WR_IDS),
      flags: one(FLAGS),
      // The queue is emptied now and then, so that many of the draws find it full.
      empties: below(4) === 0,
    };
  });
}

const published = (ring: Ring, of: (w: number) => unknown) =>
  Array.from({ length: ring.used }, (_, i) => of(ring.wordOf(ring.consumer + i)));

/** What the posted entries say: opcode to length, then elements or inline bytes. What refused requests left behind them is nobody's. */
const sends = (ring: Ring) =>
  published(ring, (w) => {
    const [sges, length] = ring.words.subarray(w + SendWqe.SGE_COUNT);
    const bytes = sges === 0 ? length : 4 * SGE_WORDS * sges;
    const data = 4 * (w + SendWqe.SGE);
    return [[...ring.words.subarray(w, w + 5)], [...ring.bytes.subarray(data, data + bytes)]];
  });
const receives = (ring: Ring) =>
  published(ring, (w) => [...ring.words.subarray(w, w + RecvWqe.SGE + SGE_WORDS)]);

/** Arguments of the wrong type. */
type Any = never;

describe('the same as by objects', () => {
  test.each(['RC', 'UC', 'RAW_PACKET', 'UD', 'GSI', 'XRC_INI'] as const)('%s: SENDs', (type) => {
    const byNumbers = openQueues(type);
    const byObjects = openQueues(type);
    const seen = new Set<string>();
    for (const { mr, offset, length, wrId, flags, empties } of draws(1, 3000)) {
      const numbers = outcome(() =>
        byNumbers.queues.postSendOf(mr as Any, offset as Any, length as Any, flags, wrId as Any),
      );
      const objects = outcome(() =>
        byObjects.queues.postSend({
          ...{ opcode: 'SEND', wrId: wrId as Any, ...numbered(flags) },
          sgList: [{ mr, offset, length }] as Any,
        }),
      );
      expect(numbers).toEqual(objects);
      seen.add(
        typeof numbers === 'string'
          ? numbers
          : ((numbers as RoceError).attribute ?? (numbers as RoceError).code),
      );
      expect(sends(byNumbers.sendQueue)).toEqual(sends(byObjects.sendQueue));
      if (!empties) continue;
      byNumbers.sendQueue.releaseAll();
      byObjects.sendQueue.releaseAll();
    }
    const needed = { UD: 'ud', GSI: 'ud', XRC_INI: 'remoteSrqn' }[type as string] ?? 'posted';
    for (const what of [needed, 'sgList[0]', 'sgList[0].offset', 'sgList[0].length', 'wrId'])
      expect(seen).toContain(what);
    if (needed === 'posted') expect(seen).toContain('ERR_ROCE_QUEUE_FULL');
  });

  test.each(['RC', 'UD', 'XRC_INI'] as const)('%s: receives', (type) => {
    const byNumbers = openQueues(type);
    const byObjects = openQueues(type);
    const seen = new Set<string>();
    for (const { mr, offset, length, wrId, empties } of draws(2, 3000)) {
      const numbers = outcome(() =>
        byNumbers.queues.postRecvOf(mr as Any, offset as Any, length as Any, wrId as Any),
      );
      const objects = outcome(() =>
        byObjects.queues.postRecv({ wrId: wrId as Any, sgList: [{ mr, offset, length }] as Any }),
      );
      expect(numbers).toEqual(objects);
      seen.add(
        typeof numbers === 'string'
          ? numbers
          : ((numbers as RoceError).attribute ?? (numbers as RoceError).code),
      );
      expect(receives(byNumbers.recvQueue)).toEqual(receives(byObjects.recvQueue));
      if (!empties) continue;
      byNumbers.recvQueue.releaseAll();
      byObjects.recvQueue.releaseAll();
    }
    for (const what of type === 'XRC_INI' ? ['qp'] : ['posted', 'wrId', 'sgList[0]', 'ERR_ROCE_QUEUE_FULL'])
      expect(seen).toContain(what);
  });

  test('what programs pass is posted without an object; the rest is left to the object form', () => {
    const { queues, sendQueue, recvQueue } = openQueues();
    const postSend = vi.spyOn(queues, 'postSend');
    const postRecv = vi.spyOn(queues, 'postRecv');
    for (const flags of FLAGS.filter((one) => (one & SendFlags.INLINE) === 0)) {
      queues.postSendOf(MR, 16, 64, flags, flags);
      sendQueue.releaseAll();
    }
    queues.postSendOf(MR, 0, 2 ** 31 - 1, 0, 2n ** 64n - 1n);
    queues.postRecvOf(MR, 4095, 1, 5);
    // Without a length, too: to the end of the region.
    queues.postSendOf(MR, 16, undefined, 0, 0);
    queues.postRecvOf(MR, 4095, undefined, 0);
    expect(sends(sendQueue).at(-1)).toEqual([expect.arrayContaining([4080]), expect.anything()]);
    recvQueue.releaseAll();
    expect(postSend).not.toHaveBeenCalled();
    expect(postRecv).not.toHaveBeenCalled();
    sendQueue.releaseAll();
    queues.postSendOf(MR, 0, 2 ** 31, 0, 0);
    queues.postSendOf(MR, 0, 8, SendFlags.INLINE, 0);
    queues.postRecvOf(MR, 0, 2 ** 31, 0);
    expect([postSend.mock.calls.length, postRecv.mock.calls.length]).toEqual([2, 1]);
  });

  test('flags that are none', () => {
    const { queues, sendQueue } = openQueues();
    for (const flags of [16, -1, 0.5, Number.NaN, 2 ** 32, '2', null, 2n, Symbol('2'), {}]) {
      const call = () => queues.postSendOf(MR, 0, 8, flags as Any, 0);
      expect(outcome(call)).toMatchObject({ code: 'ERR_ROCE_INVALID_ATTRIBUTE', attribute: 'flags' });
    }
    expect(sendQueue.used).toBe(0);
  });

  test('states, a queue pair that is gone, a device that is closed', () => {
    for (const state of [
      QpStateCode.RESET,
      QpStateCode.INIT,
      QpStateCode.RTR,
      QpStateCode.SQD,
      QpStateCode.ERR,
    ]) {
      const all = [openQueues(), openQueues()];
      for (const { sendQueue, recvQueue } of all) sendQueue.state = recvQueue.state = state;
      const [{ queues: numbers }, { queues: objects }] = all;
      const one = { wrId: 0, sgList: [{ mr: MR, offset: 0, length: 8 }] };
      const same = () => {
        const byObjects = outcome(() => objects.postSend({ opcode: 'SEND', ...one }));
        expect(outcome(() => numbers.postSendOf(MR, 0, 8, 0, 0))).toEqual(byObjects);
        expect(outcome(() => numbers.postRecvOf(MR, 0, 8, 0))).toEqual(outcome(() => objects.postRecv(one)));
      };
      same();
      numbers.destroyed = objects.destroyed = true;
      same();
      for (const { engine } of all) engine.closed = true;
      same();
    }
  });

  test('queues that take no elements', () => {
    const none = { maxSendSge: 0, maxRecvSge: 0 };
    const { queues } = openQueues('RC', none);
    const { queues: objects } = openQueues('RC', none);
    const one = { sgList: [{ mr: MR, offset: 0, length: 8 }] };
    const [send, receive] = [
      outcome(() => queues.postSendOf(MR, 0, 8, 0, 0)),
      outcome(() => queues.postRecvOf(MR, 0, 8, 0)),
    ];
    expect(send).toMatchObject({ attribute: 'sgList' });
    expect(send).toEqual(outcome(() => objects.postSend({ opcode: 'SEND', ...one })));
    expect(receive).toEqual(outcome(() => objects.postRecv(one)));
  });

  test("a doorbell rings once where the engine sleeps; a program's proxy of a region that posts as it is read loses nothing", () => {
    const { queues, sendQueue, recvQueue, rung } = openQueues();
    sendQueue.sleep(0);
    recvQueue.sleep(0);
    for (let i = 0; i < 2; i++) {
      queues.postSendOf(MR, 0, 8, 0, i);
      queues.postRecvOf(MR, 0, 8, i);
    }
    expect(rung).toEqual([false, true]);
    sendQueue.releaseAll();
    let posts = 0;
    const proxy = new Proxy(MR, {
      get(target, name) {
        if (name === 'lkey' && posts++ === 0) queues.postSendOf(MR, 0, 8, 0, 100);
        return Reflect.get(target, name);
      },
    });
    const first = sendQueue.producer;
    queues.postSendOf(proxy, 0, 8, 0, 200);
    const id = (index: number) => sendQueue.words[sendQueue.wordOf(index) + 1];
    expect([sendQueue.used, id(first), id(first + 1)]).toEqual([2, 100, 200]);
  });
});

describe('prepared lists', () => {
  const list = (count: number): SendWr[] =>
    Array.from({ length: count }, (_, i) => ({
      opcode: 'SEND',
      wrId: 50 + i,
      signaled: i === count - 1,
      sgList: [{ mr: MR, offset: i, length: 64 }],
    }));

  test('each post has the entries of postBatch, also around the end of the queue', () => {
    const prepared = openQueues();
    const posted = openQueues();
    const three = prepared.queues.prepare(list(3));
    expect(three.length).toBe(3);
    for (let i = 0; i < 20; i++) {
      three.post();
      posted.queues.postBatch(list(3));
      expect(sends(prepared.sendQueue)).toEqual(sends(posted.sendQueue));
      expect(prepared.sendQueue.producer).toBe(posted.sendQueue.producer);
      for (const { sendQueue } of [prepared, posted]) sendQueue.releaseAll();
    }
  });

  test('a full queue takes nothing, and the error names the first request without room', () => {
    const { queues, sendQueue } = openQueues();
    const four = queues.prepare(list(4));
    four.post();
    const error = { code: 'ERR_ROCE_QUEUE_FULL', errno: 'ENOMEM', index: 2 };
    expect(() => four.post()).toThrow(expect.objectContaining(error));
    expect(sendQueue.used).toBe(4);
    sendQueue.releaseAll();
    four.post();
    expect(() => queues.prepare(list(7)).post()).toThrow(expect.objectContaining({ ...error }));
    sendQueue.releaseAll();
    expect(() => queues.prepare(list(7)).post()).toThrow(expect.objectContaining({ ...error, index: 6 }));
    expect(sendQueue.used).toBe(0);
    queues.prepare([]).post();
    expect(sendQueue.used).toBe(0);
  });

  test('the errors of a list are those of postBatch, and come when it is prepared', () => {
    const { queues, sendQueue } = openQueues();
    const lists: unknown[] = [
      ...[
        5,
        undefined,
        'x',
        [null],
        [5],
        [{}],
        [{ opcode: 'SNED' }],
        [...list(1), { opcode: 'SEND', wrId: -1 }],
      ],
      ...[[{ opcode: 'SEND', ud: {} }], [{ opcode: 'RDMA_WRITE' }], [{ opcode: 'SEND', sgList: [MR] }]],
    ];
    const withIndex = (call: () => void) => {
      try {
        call();
        return 'posted';
      } catch (error) {
        const { code, errno, attribute, message, index } = error as RoceError & { index: number };
        return { code, errno, attribute, message, index };
      }
    };
    for (const one of lists) {
      const prepared = withIndex(() => queues.prepare(one as Any));
      expect(prepared).not.toBe('posted');
      expect(prepared).toEqual(withIndex(() => queues.postBatch(one as Any)));
    }
    expect(() => queues.prepare([...list(1), { opcode: 'BIND_MW', bind: {} } as Any])).toThrow(
      expect.objectContaining({ attribute: 'opcode', index: 1 }),
    );
    expect(sendQueue.used).toBe(0);
    sendQueue.state = QpStateCode.INIT;
    const early = queues.prepare(list(1));
    expect(() => early.post()).toThrow(expect.objectContaining({ code: 'ERR_ROCE_WRONG_STATE' }));
    sendQueue.state = QpStateCode.RTS;
    early.post();
    queues.destroyed = true;
    expect(() => early.post()).toThrow(expect.objectContaining({ code: 'ERR_ROCE_WRONG_STATE' }));
    expect(() => queues.prepare(list(1))).toThrow(expect.objectContaining({ code: 'ERR_ROCE_WRONG_STATE' }));
  });

  test('a getter of a request that is prepared may post: each has its own entry', () => {
    const { queues, sendQueue } = openQueues();
    const [request] = list(1);
    const prepared = queues.prepare([
      {
        ...request,
        get wrId() {
          queues.postSendOf(MR, 0, 8, 0, 7);
          return 8;
        },
      } as SendWr,
    ]);
    const [posted] = [sendQueue.used];
    expect(posted).toBeGreaterThan(0);
    prepared.post();
    expect(sendQueue.words[sendQueue.wordOf(posted) + 1]).toBe(8);
  });
});

describe('between two devices', () => {
  test('messages arrive as they were sent, and completions name them', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    a.memory.set(pattern(4096));
    for (let i = 0; i < 8; i++) b.qp.postRecvOf(b.mr, i * 512, 512, 100 + i);
    for (let i = 0; i < 4; i++) a.qp.postSendOf(a.mr, i * 100, 100, i === 3 ? SendFlags.SIGNALED : 0, i);
    a.qp
      .prepare(
        [4, 5, 6, 7].map((wrId) => ({
          ...{ opcode: 'SEND', wrId, signaled: wrId === 7 },
          sgList: [{ mr: a.mr, offset: wrId * 100, length: 100 }],
        })),
      )
      .post();
    for (const wrId of [3, 7]) expect(await a.cq.next()).toMatchObject({ ok: true, wrIdNumber: wrId });
    for (let i = 0; i < 8; i++) {
      expect(await b.cq.next()).toMatchObject({ ok: true, wrIdNumber: 100 + i, byteLen: 100 });
      expect(b.memory.subarray(i * 512, i * 512 + 100)).toEqual(a.memory.subarray(i * 100, i * 100 + 100));
    }
    // Without a length: to the end of the region; inline bytes may change at once.
    b.qp.postRecvOf(b.mr);
    const end = a.memory.length - 20;
    const sent = a.memory.slice(end);
    a.qp.postSendOf(a.mr, end, undefined, SendFlags.INLINE | SendFlags.SIGNALED);
    a.memory.fill(0, end);
    expect(await b.cq.next()).toMatchObject({ ok: true, byteLen: 20 });
    expect(b.memory.subarray(0, 20)).toEqual(sent);
  });

  test('a part beyond the region fails as it does by objects', async () => {
    for (const byNumbers of [true, false]) {
      await using pair = await openPair();
      const { qp, mr, cq, memory } = pair.a;
      const part = { mr, offset: memory.length - 8, length: 9 };
      if (byNumbers) qp.postSendOf(part.mr, part.offset, part.length, 0, 9);
      else qp.postSend({ opcode: 'SEND', wrId: 9, sgList: [part] });
      expect(await cq.next()).toMatchObject({ status: 'LOC_PROT_ERR', wrIdNumber: 9 });
    }
  });

  test('a shared receive queue takes receives by numbers; a queue pair of it does not', async () => {
    const network = new MemoryNetwork();
    const a = await openSide(network, '10.0.0.1');
    const b = await openSide(network, '10.0.0.2');
    const srq = await b.pd.createSrq({ maxWr: 4, maxSge: 1 });
    const qp = await b.pd.createQp({ sendCq: b.cq, srq });
    await a.qp.connect(qp.connectionData());
    await qp.connect(a.qp.connectionData());
    a.memory.set(pattern(100));
    srq.postRecvOf(b.mr, 64, 128, 5);
    a.qp.postSendOf(a.mr, 0, 100);
    expect(await b.cq.next()).toMatchObject({ ok: true, wrIdNumber: 5, byteLen: 100 });
    expect(b.memory.subarray(64, 164)).toEqual(a.memory.subarray(0, 100));
    const same = (numbers: () => void, objects: () => void) =>
      expect(outcome(numbers)).toEqual(outcome(objects));
    same(
      () => qp.postRecvOf(b.mr, 0, 8),
      () => qp.postRecv({ sgList: [{ mr: b.mr, length: 8 }] }),
    );
    for (const [mr, offset, length, wrId] of [
      [b.mr, -1, 8, 0],
      [b.mr, 0, -8, 0],
      [b.mr, 0, 8, -1],
      [null, 0, 8, 0],
    ] as [MemoryRegion, number, number, number][])
      same(
        () => srq.postRecvOf(mr, offset, length, wrId),
        () => srq.postRecv({ wrId, sgList: [{ mr, offset, length }] }),
      );
    while (outcome(() => srq.postRecvOf(b.mr)) === 'posted');
    const receive = { wrId: 0, sgList: [{ mr: b.mr }] };
    same(
      () => srq.postRecvOf(b.mr, 0, 8),
      () => srq.postRecv(receive),
    );
    expect(outcome(() => srq.postRecvOf(b.mr, 0, 8))).toMatchObject({ code: 'ERR_ROCE_QUEUE_FULL' });
    await qp.close();
    await srq.destroy();
    same(
      () => srq.postRecvOf(b.mr, 0, 8),
      () => srq.postRecv(receive),
    );
    await a.device.close();
    await b.device.close();
    same(
      () => srq.postRecvOf(b.mr, 0, 8),
      () => srq.postRecv(receive),
    );
  });

  const stale = { code: 'ERR_ROCE_WRONG_STATE', errno: 'EINVAL', attribute: 'cap' };

  test('a resize makes prepared lists stale; until it is done they are posted where they fit', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 4; i++) b.qp.postRecvOf(b.mr);
    const sendOf = (elements: number): SendWr => ({
      opcode: 'SEND',
      signaled: true,
      sgList: Array.from({ length: elements }, () => ({ mr: a.mr, length: 8 })),
    });
    const inline: SendWr = {
      opcode: 'SEND',
      signaled: true,
      inline: true,
      sgList: [a.memory.subarray(0, 9)],
    };
    const lists = [[sendOf(1)], [sendOf(1), sendOf(2)], [inline]].map((list) => a.qp.prepare(list));
    const resized = a.qp.modify({ cap: { ...a.qp.cap, maxSendWr: 512, maxSendSge: 1, maxInlineData: 8 } });
    const busy = expect.objectContaining({ code: 'ERR_ROCE_BUSY', errno: 'EBUSY', attribute: 'cap' });
    lists[0].post();
    for (const list of lists.slice(1)) expect(() => list.post()).toThrow(busy);
    expect(a.qp.sendPending).toBe(1);
    await resized;
    expect((await a.cq.next()).ok).toBe(true);
    for (const list of lists) expect(() => list.post()).toThrow(expect.objectContaining(stale));
    expect(a.qp.sendPending).toBe(0);
    a.qp.prepare([sendOf(1)]).post();
    expect((await a.cq.next()).ok).toBe(true);
  });

  test('a resize that is refused makes no list stale, whenever it was prepared', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 4; i++) b.qp.postRecvOf(b.mr);
    const request: SendWr = { opcode: 'SEND', signaled: true, sgList: [{ mr: a.mr, length: 8 }] };
    const before = a.qp.prepare([request]);
    const refused = a.qp.modify({ cap: { ...a.qp.cap, maxSendSge: 1e6 } });
    const meanwhile = a.qp.prepare([request]);
    await expect(refused).rejects.toThrow(RoceError);
    for (const prepared of [before, meanwhile]) {
      prepared.post();
      expect((await a.cq.next()).ok).toBe(true);
    }
    await a.qp.modify({ cap: { ...a.qp.cap, maxSendWr: 512 } });
    for (const prepared of [before, meanwhile])
      expect(() => prepared.post()).toThrow(expect.objectContaining(stale));
  });
});
