import { MemoryNetwork } from '@node-roce/link';
import { createRing, RecvWqe, Ring, recvStride, SendFlags, SendWqe, sendStride } from '@node-roce/transport';
import { describe, expect, test } from 'vitest';
import { openPair, openSide, pattern } from '../testing/pair.ts';
import { RoceError } from './index.ts';
import type { AnySendWr, RecvWr, SendWr, SgElement } from './posting/send-wr.ts';
import { writeRecv, writeSend } from './posting/work-request.ts';

const noRegion = () => {
  throw new Error('not asked for');
};

describe('a work request in the ring', () => {
  const ring = new Ring(createRing(4, sendStride(4, 128)));
  const write = (wr: AnySendWr) => writeSend(ring, 0, wr, 4, 128, noRegion);
  const word = (i: number) => ring.words[ring.wordOf(0) + i];

  test('opcode, flags, 64-bit values in two words', () => {
    write({
      opcode: 'ATOMIC_CMP_AND_SWP',
      wrId: 0x0123_4567_89ab_cdefn,
      signaled: true,
      fence: true,
      remote: { addr: 0xfedc_ba98_7654_3210n, rkey: 0x8000_0001 },
      compareAdd: 0x1122_3344_5566_7788n,
      swap: -1n,
    });
    expect(word(SendWqe.OPCODE_FLAGS)).toBe(5 | ((SendFlags.SIGNALED | SendFlags.FENCE) << 8));
    expect([word(SendWqe.WR_ID_LOW), word(SendWqe.WR_ID_HIGH)]).toEqual([0x89ab_cdef, 0x0123_4567]);
    expect([word(SendWqe.REMOTE_ADDRESS_HIGH), word(SendWqe.REMOTE_ADDRESS_LOW)]).toEqual([
      0xfedc_ba98, 0x7654_3210,
    ]);
    expect(word(SendWqe.RKEY)).toBe(0x8000_0001);
    expect([word(SendWqe.COMPARE_ADD_HIGH), word(SendWqe.COMPARE_ADD_LOW)]).toEqual([
      0x1122_3344, 0x5566_7788,
    ]);
    expect([word(SendWqe.SWAP_HIGH), word(SendWqe.SWAP_LOW)]).toEqual([0xffff_ffff, 0xffff_ffff]);
  });

  test('inline data lies behind the entry, however many parts it has', () => {
    const parts = [Uint8Array.of(1, 2, 3), new Uint8Array(0), Uint8Array.of(4, 5)];
    write({ opcode: 'SEND', inline: true, sgList: parts });
    expect(word(SendWqe.LENGTH)).toBe(5);
    expect(word(SendWqe.SGE_COUNT)).toBe(0);
    const at = (ring.wordOf(0) + SendWqe.SGE) * 4;
    expect([...ring.bytes.subarray(at, at + 5)]).toEqual([1, 2, 3, 4, 5]);
  });

  test('a wrId of more than 32 bits as a number', () => {
    write({ opcode: 'SEND', wrId: 2 ** 40 + 7 });
    expect([word(SendWqe.WR_ID_LOW), word(SendWqe.WR_ID_HIGH)]).toEqual([7, 256]);
    const recv = new Ring(createRing(2, 8));
    writeRecv(recv, 0, { wrId: 2 ** 40 + 7 }, 1, noRegion);
    const w = recv.wordOf(0);
    expect([recv.words[w + RecvWqe.WR_ID_LOW], recv.words[w + RecvWqe.WR_ID_HIGH]]).toEqual([7, 256]);
  });

  test('a list that grows while it is read writes no more elements than were counted', () => {
    const mr = { lkey: 7, length: 8, startHigh: 0, startLow: 0 };
    const growing = (): SgElement[] => {
      const list = [
        {
          get mr() {
            while (list.length < 50) list.push({ mr, length: 1 });
            return mr;
          },
          length: 1,
        },
      ];
      return list as unknown as SgElement[];
    };
    ring.words.fill(0);
    write({ opcode: 'SEND', sgList: growing() });
    expect([word(SendWqe.SGE_COUNT), word(SendWqe.LENGTH)]).toEqual([1, 1]);
    expect(ring.words.subarray(ring.wordOf(1)).every((value) => value === 0)).toBe(true);
    const recv = new Ring(createRing(2, recvStride(1)));
    writeRecv(recv, 0, { sgList: growing() }, 1, noRegion);
    expect(recv.words[recv.wordOf(0) + RecvWqe.SGE_COUNT]).toBe(1);
    expect(recv.words.subarray(recv.wordOf(1)).every((value) => value === 0)).toBe(true);
  });

  const remote = { addr: 0n, rkey: 1 };
  test.each<[string, unknown, string]>([
    ['an unknown opcode', { opcode: 'SNED' }, 'opcode'],
    ['a fraction as wrId', { opcode: 'SEND', wrId: 1.5 }, 'wrId'],
    ['a negative wrId', { opcode: 'SEND', wrId: -1 }, 'wrId'],
    ['a WRITE to nowhere', { opcode: 'RDMA_WRITE' }, 'remote'],
    ['a READ from nowhere', { opcode: 'RDMA_READ' }, 'remote'],
    ['a READ inline', { opcode: 'RDMA_READ', remote, inline: true }, 'inline'],
    ['an atomic without operand', { opcode: 'ATOMIC_FETCH_AND_ADD', remote }, 'compareAdd'],
    ['a swap without swap', { opcode: 'ATOMIC_CMP_AND_SWP', remote, compareAdd: 1n }, 'swap'],
    ['too much inline', { opcode: 'SEND', inline: true, sgList: [new Uint8Array(129)] }, 'sgList'],
    ['immediate of 33 bits', { opcode: 'SEND_WITH_IMM', immData: 2 ** 32 }, 'immData'],
    ['no immediate', { opcode: 'SEND_WITH_IMM' }, 'immData'],
    ['a key out of range', { opcode: 'RDMA_WRITE', remote: { addr: 0n, rkey: -1 } }, 'remote.rkey'],
    ['an address that is a number', { opcode: 'RDMA_WRITE', remote: { addr: 7, rkey: 1 } }, 'remote.addr'],
    ['an element without a region', { opcode: 'SEND', sgList: [{}] }, 'sgList[0]'],
  ])('%s is refused', (_name, wr, attribute) => {
    expect(() => write(wr as SendWr)).toThrow(
      expect.objectContaining({ name: 'RoceError', errno: 'EINVAL', attribute }),
    );
  });
});

describe('posting', () => {
  test('needs a state: no send before RTS, no receive in RESET', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const { qp, device } = side;
    expect(qp.state).toBe('RESET');
    expect(() => qp.postRecv({})).toThrow(
      expect.objectContaining({ code: 'ERR_ROCE_WRONG_STATE', errno: 'EINVAL' }),
    );
    await qp.toInit();
    expect(qp.state).toBe('INIT');
    qp.postRecv({});
    expect(qp.recvPending).toBe(1);
    expect(() => qp.postSend({ opcode: 'SEND' })).toThrow(/in INIT.*RTS/);
    await device.close();
    expect(() => qp.postRecv({})).toThrow(expect.objectContaining({ code: 'ERR_ROCE_CLOSED' }));
  });

  test('a full queue is ENOMEM, and takes more once something is complete', async () => {
    await using pair = await openPair({ cap: { maxSendWr: 4, maxRecvWr: 8 } });
    const { a, b } = pair;
    for (let i = 0; i < 8; i++) b.qp.postRecv({ sgList: [{ mr: b.mr, length: 16 }] });
    expect(() => b.qp.postRecv({})).toThrow(
      expect.objectContaining({ code: 'ERR_ROCE_QUEUE_FULL', errno: 'ENOMEM' }),
    );
    const wr: SendWr = { opcode: 'SEND', signaled: true, sgList: [{ mr: a.mr, length: 16 }] };
    for (let i = 0; i < 4; i++) a.qp.postSend(wr);
    expect(() => a.qp.postSend(wr)).toThrow(expect.objectContaining({ errno: 'ENOMEM' }));
    expect((await a.cq.next()).ok).toBe(true);
    a.qp.postSend(wr);
  });

  test('a resize that is refused while another is under way leaves the limits of that one', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    const { cap } = a.qp;
    const smaller = a.qp.modify({ cap: { ...cap, maxSendWr: 4 } });
    const larger = a.qp.modify({ cap: { ...cap, maxSendWr: 64 } });
    const wr: SendWr = { opcode: 'RDMA_WRITE', signaled: true, remote: b.mr.remote() };
    for (let i = 0; i < 4; i++) a.qp.postSend(wr);
    expect(() => a.qp.postSend(wr)).toThrow(expect.objectContaining({ code: 'ERR_ROCE_QUEUE_FULL' }));
    await expect(larger).rejects.toMatchObject({ errno: 'EBUSY', attribute: 'cap' });
    await smaller;
    for (let i = 0; i < 4; i++) expect((await a.cq.next()).ok).toBe(true);
    expect(a.qp.cap.maxSendWr).toBe(4);
  });

  test('of a list, the requests before the bad one are posted, and the error has its index', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 4; i++) b.qp.postRecv({ wrId: i, sgList: [{ mr: b.mr, length: 16 }] });
    const good: SendWr = { opcode: 'SEND', signaled: true, sgList: [{ mr: a.mr, length: 16 }] };
    const list = [good, good, { ...good, opcode: 'NONE' as 'SEND' }, good];
    expect(() => a.qp.postSend(list)).toThrow(expect.objectContaining({ attribute: 'opcode', index: 2 }));
    expect(a.qp.sendPending).toBe(2);
    await a.cq.next();
    await a.cq.next();
    expect(a.qp.sendPending).toBe(0);
    const receives: RecvWr[] = [{}, { sgList: new Array(9).fill({ mr: b.mr }) }];
    expect(() => b.qp.postRecv(receives)).toThrow(expect.objectContaining({ attribute: 'sgList', index: 1 }));
  });

  test('views are found in their region, others are refused', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    a.memory.set(pattern(100), 1000);
    a.qp.postSend({
      opcode: 'RDMA_WRITE',
      signaled: true,
      sgList: [a.memory.subarray(1000, 1033), a.memory.subarray(1033, 1100)],
      remote: b.mr.remote(7),
    });
    expect((await a.cq.next()).status).toBe('SUCCESS');
    expect(b.memory.subarray(7, 107)).toEqual(pattern(100));
    expect(() => a.qp.postSend({ opcode: 'SEND', sgList: [new Uint8Array(4)] })).toThrow(/lies in no region/);
    const part = new Uint8Array(64);
    const mr = await a.pd.registerMr(part.subarray(16, 32));
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: [part.subarray(16, 32)], remote: b.mr.remote() });
    expect(() => a.qp.postSend({ opcode: 'SEND', sgList: [part.subarray(15, 32)] })).toThrow(/no region/);
    await mr.deregister();
    expect(() => a.qp.postSend({ opcode: 'SEND', sgList: [part.subarray(16, 32)] })).toThrow(/no region/);
  });

  test('inline data may be used again at once', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    b.qp.postRecv({ sgList: [{ mr: b.mr }] });
    const bytes = Uint8Array.of(1, 2, 3);
    a.qp.postSend({ opcode: 'SEND', inline: true, signaled: true, sgList: [bytes] });
    bytes.fill(9);
    await b.cq.next();
    expect([...b.memory.subarray(0, 3)]).toEqual([1, 2, 3]);
  });
});

describe('a getter of a request', () => {
  test('that closes the queue pair: the request is posted, then the queue pair goes', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    let closing: Promise<void> | undefined;
    a.qp.postSend({
      opcode: 'RDMA_WRITE',
      inline: true,
      remote: b.mr.remote(),
      get sgList() {
        closing = a.qp.close();
        return [new Uint8Array(8)];
      },
    });
    expect([a.qp.state, a.qp.sendPending]).toEqual(['RTS', 1]);
    await closing;
    expect([a.qp.state, a.qp.sendPending]).toEqual(['RESET', 0]);
  });

  test('that closes the device, of which there is another context', async () => {
    await using pair = await openPair();
    const { device, mr } = pair.a;
    await using second = device.openContext();
    const pd = await second.allocPd();
    const qp = await pd.createQp({ sendCq: await second.createCq(4), cap: { maxRecvSge: 4 } });
    await qp.toInit();
    let closing: Promise<void> | undefined;
    qp.postRecv({
      wrId: 5,
      get sgList() {
        closing = second.close();
        return [{ mr, length: 8 }];
      },
    });
    expect([qp.state, qp.recvPending]).toEqual(['INIT', 1]);
    await closing;
    expect([qp.state, qp.recvPending]).toEqual(['RESET', 0]);
  });

  test('that posts to the same queue is refused', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    const srq = await a.pd.createSrq();
    const refused = expect.objectContaining({ code: 'ERR_ROCE_WRONG_STATE', errno: 'EINVAL' });
    for (const queue of [a.qp, srq]) {
      const nested = {
        get sgList() {
          queue.postRecv({});
          return [];
        },
      };
      expect(() => queue.postRecv(nested)).toThrow(refused);
      queue.postRecv({});
    }
    const remote = b.mr.remote();
    const nested: SendWr = {
      opcode: 'RDMA_WRITE',
      remote,
      get sgList() {
        a.qp.postSend({ opcode: 'RDMA_WRITE', remote });
        return [];
      },
    };
    expect(() => a.qp.postSend(nested)).toThrow(refused);
    expect(() => a.qp.postBatch([nested])).toThrow(refused);
    a.qp.postSend({
      opcode: 'RDMA_WRITE',
      signaled: true,
      remote,
      get sgList() {
        a.qp.postRecv({ wrId: 2 });
        return [];
      },
    });
    expect([a.qp.sendPending, a.qp.recvPending, srq.pending]).toEqual([1, 2, 1]);
    expect((await a.cq.next()).ok).toBe(true);
  });
});

describe('states', () => {
  test('connect goes to RTS with the defaults that a query shows', async () => {
    await using pair = await openPair({ mtu: 2048 });
    const { attr, init } = await pair.a.qp.query();
    expect(pair.a.qp.state).toBe('RTS');
    expect(attr).toMatchObject({
      qpState: 'RTS',
      pathMtu: 2048,
      destQpNum: pair.b.qp.qpNum,
      timeout: 14,
      retryCnt: 7,
      rnrRetry: 7,
      minRnrTimer: 12,
      maxRdAtomic: 16,
      maxDestRdAtomic: 16,
    });
    expect(init.type).toBe('RC');
  });

  test('the smaller of the two MTUs, and 1024 for a peer without one', async () => {
    const network = new MemoryNetwork();
    const a = await openSide(network, '10.0.0.1', { mtu: 4096 });
    const b = await openSide(network, '10.0.0.2', { mtu: 512 });
    await a.qp.connect(b.qp.connectionData());
    expect((await a.qp.query()).attr.pathMtu).toBe(512);
    const { mtu: _, ...rest } = b.qp.connectionData();
    const other = await a.pd.createQp({ sendCq: a.cq });
    await other.connect(rest);
    expect((await other.query()).attr.pathMtu).toBe(1024);
    await a.device.close();
    await b.device.close();
  });

  test('an error names the attribute, and nothing is changed', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const { qp } = side;
    await expect(qp.modify({ qpState: 'INIT', pkeyIndex: 0, portNum: 2, qpAccessFlags: 0 })).rejects.toThrow(
      expect.objectContaining({ name: 'RoceError', errno: 'EINVAL', attribute: 'portNum' }),
    );
    expect(qp.state).toBe('RESET');
    await expect(qp.connect({ qpNum: 1, psn: 0, gid: 'nonsense' })).rejects.toMatchObject({
      attribute: 'gid',
    });
    await expect(qp.connect({ qpNum: 1, psn: 0, gid: 'fd00::1' })).rejects.toThrow(/of the kind/);
    expect(() => qp.connectionData({ gidIndex: 3 })).toThrow(RoceError);
    await side.device.close();
  });

  test('ERR flushes both queues in order, unsignalled requests too', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 3; i++) b.qp.postRecv({ wrId: i });
    for (let i = 10; i < 13; i++) b.qp.postSend({ opcode: 'SEND', wrId: i });
    await b.qp.modify({ qpState: 'ERR' });
    const found = [];
    for (let i = 0; i < 6; i++) found.push(await b.cq.next());
    expect(found.map((wc) => wc.status)).toEqual(new Array(6).fill('WR_FLUSH_ERR'));
    expect(found.map((wc) => wc.wrIdNumber).sort((x, y) => x - y)).toEqual([0, 1, 2, 10, 11, 12]);
    b.qp.postRecv({ wrId: 99 });
    expect(await b.cq.next()).toMatchObject({ status: 'WR_FLUSH_ERR', wrIdNumber: 99 });
    expect(a.qp.state).toBe('RTS');
  });
});
