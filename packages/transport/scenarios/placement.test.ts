/** FLUSH and ATOMIC_WRITE (IBTA vol 1 annex A19): requester and responder, answers, rights, duplicates, losses. */
import { bthOpcode, createRandom, NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Access, FlushLevel, FlushType, WcOpcode } from '../src/index.ts';
import { ByHand, inShort } from '../testing/by-hand.ts';
import { Pair } from '../testing/pair.ts';

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, FLUSH_GLOBAL, FLUSH_PERSISTENT } = Access;
const ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | FLUSH_GLOBAL;
const QP_ALL = 0xe | FLUSH_GLOBAL | FLUSH_PERSISTENT;
/** Requests of each kind in the lossy run; 100,000 in `npm run test:long`. */
const LOSSY = Number(process.env.ROCE_PLACEMENTS ?? 2000);

const bytesOf = (value: number) => {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setFloat64(0, value);
  return bytes;
};

function open({ qpAccess = QP_ALL, access = ALL, attr = {} } = {}) {
  const pair = new Pair({ mtu: 256, attr: { qpAccessFlags: qpAccess, ...attr } });
  const memory = new Uint8Array(4096);
  const { addr, rkey } = pair.right.register(memory.buffer, access);
  const { left } = pair;
  const atomicWrite = (wrId: number, at: number, value: Uint8Array, key = rkey) =>
    left.post({
      opcode: 'ATOMIC_WRITE',
      wrId,
      inline: value,
      remote: { addr: addr + BigInt(at), rkey: key },
    });
  const flush = (
    wrId: number,
    at: number,
    extent: { length: number; type?: number; level?: number },
    key = rkey,
  ) => left.post({ opcode: 'FLUSH', wrId, flush: extent, remote: { addr: addr + BigInt(at), rkey: key } });
  const done = () => {
    pair.run();
    return left.poll().map(({ wrId, status, opcode }) => [wrId, status, opcode]);
  };
  const counts = () => pair.right.adapter.qpCounters(pair.right.qp.qpn);
  return { pair, memory, addr, rkey, atomicWrite, flush, done, counts };
}

const { FLUSH, ATOMIC_WRITE, RDMA_WRITE } = WcOpcode;

describe('between two sides', () => {
  test('WRITE, FLUSH, ATOMIC_WRITE: each completes in its turn, and the memory has both', () => {
    const { pair, memory, addr, rkey, atomicWrite, flush, done, counts } = open();
    const from = pair.left.register(new Uint8Array(1000).fill(7).buffer);
    pair.left.post({
      opcode: 'RDMA_WRITE',
      wrId: 1,
      sge: [{ mr: from, length: 1000 }],
      remote: { addr, rkey },
    });
    flush(2, 0, { length: 1000 });
    atomicWrite(3, 1024, bytesOf(3));
    expect(done()).toEqual([
      [1, 'SUCCESS', RDMA_WRITE],
      [2, 'SUCCESS', FLUSH],
      [3, 'SUCCESS', ATOMIC_WRITE],
    ]);
    expect(memory.subarray(0, 1000)).toEqual(new Uint8Array(1000).fill(7));
    expect(memory.subarray(1024, 1032)).toEqual(bytesOf(3));
    expect(counts()).toMatchObject({ flushRequests: 1, atomicWriteRequests: 1, receivedMessages: 3 });
    const requests = pair.sent.filter(({ from: side }) => side === pair.left).map(({ packet }) => packet);
    expect(requests.slice(-2).map((packet) => [bthOpcode(packet, 0), packet.length])).toEqual([
      [Opcode.RC_FLUSH, 12 + 4 + 16],
      [Opcode.RC_ATOMIC_WRITE, 12 + 16 + 8],
    ]);
  });

  test('the 8 bytes come from a list as well, of several elements', () => {
    const { pair, memory, addr, rkey, done } = open();
    const mr = pair.left.register(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8).buffer);
    const sge = [
      { mr, offset: 5, length: 3 },
      { mr, offset: 0, length: 5 },
    ];
    pair.left.post({ opcode: 'ATOMIC_WRITE', wrId: 1, sge, remote: { addr, rkey } });
    expect(done()).toEqual([[1, 'SUCCESS', ATOMIC_WRITE]]);
    expect([...memory.subarray(0, 8)]).toEqual([6, 7, 8, 1, 2, 3, 4, 5]);
  });

  test.each<[string, Parameters<typeof open>[0], (o: ReturnType<typeof open>) => void, string]>([
    ['an address that 8 does not divide', {}, (o) => o.atomicWrite(1, 4, bytesOf(1)), 'REM_INV_REQ_ERR'],
    ['a wrong key', {}, (o) => o.atomicWrite(1, 0, bytesOf(1), o.rkey ^ 1), 'REM_ACCESS_ERR'],
    ['an address beyond the region', {}, (o) => o.atomicWrite(1, 4096, bytesOf(1)), 'REM_ACCESS_ERR'],
    [
      'a region without the right to write',
      { access: REMOTE_READ | FLUSH_GLOBAL },
      (o) => o.atomicWrite(1, 0, bytesOf(1)),
      'REM_ACCESS_ERR',
    ],
    [
      'a queue pair without the right to write',
      { qpAccess: REMOTE_READ },
      (o) => o.atomicWrite(1, 0, bytesOf(1)),
      'REM_INV_REQ_ERR',
    ],
    [
      'a queue pair without the right to flush',
      { qpAccess: 0xe },
      (o) => o.flush(1, 0, { length: 8 }),
      'REM_INV_REQ_ERR',
    ],
    [
      'a region without the right to flush',
      { access: LOCAL_WRITE | REMOTE_WRITE },
      (o) => o.flush(1, 0, { length: 8 }),
      'REM_ACCESS_ERR',
    ],
    [
      'persistence, which no region has',
      {},
      (o) => o.flush(1, 0, { length: 8, type: FlushType.PERSISTENT }),
      'REM_ACCESS_ERR',
    ],
    ['a range beyond the region', {}, (o) => o.flush(1, 4090, { length: 8 }), 'REM_ACCESS_ERR'],
    ['a wrong key, of no bytes', {}, (o) => o.flush(1, 0, { length: 0 }, o.rkey ^ 1), 'REM_ACCESS_ERR'],
    [
      'a wrong key, of a whole region',
      {},
      (o) => o.flush(1, 0, { length: 0, level: FlushLevel.MR }, o.rkey ^ 1),
      'REM_ACCESS_ERR',
    ],
    ['a level that is reserved', {}, (o) => o.flush(1, 0, { length: 8, level: 2 }), 'REM_INV_REQ_ERR'],
  ])('%s is refused', (_, options, post, status) => {
    const opened = open(options);
    post(opened);
    expect(opened.done()).toEqual([[1, status, expect.any(Number)]]);
    const type = status === 'REM_ACCESS_ERR' ? 'QP_ACCESS_ERR' : 'QP_REQ_ERR';
    expect(opened.pair.right.events).toContainEqual({ type, qpn: opened.pair.right.qp.qpn });
    expect(opened.memory.every((byte) => byte === 0)).toBe(true);
  });

  test('a FLUSH of a whole region looks at no range; one of nothing, or without a guarantee, is answered', () => {
    const { flush, done } = open({ qpAccess: 0xe | FLUSH_GLOBAL });
    flush(1, 1 << 20, { length: 1 << 30, level: FlushLevel.MR });
    flush(2, 0, { length: 0 });
    flush(3, 0, { length: 4096, type: 0 });
    expect(done()).toEqual([1, 2, 3].map((wrId) => [wrId, 'SUCCESS', FLUSH]));
  });

  test('a FLUSH of no bytes outside of the region is refused', () => {
    const { flush, done } = open({ qpAccess: 0xe | FLUSH_GLOBAL });
    flush(1, 1 << 20, { length: 0 });
    expect(done()).toEqual([[1, 'REM_ACCESS_ERR', FLUSH]]);
  });

  test('both count against max_rd_atomic', () => {
    const { pair, atomicWrite, flush } = open({ attr: { maxRdAtomic: 2 } });
    for (let i = 0; i < 3; i++) {
      flush(2 * i, 0, { length: 8 });
      atomicWrite(2 * i + 1, 0, bytesOf(i));
    }
    let out = 0;
    let most = 0;
    pair.fault = (packet) => {
      out += bthOpcode(packet, 0) === Opcode.RC_RDMA_READ_RESPONSE_ONLY ? -1 : 1;
      most = Math.max(most, out);
      return [{ packet, delay: 0 }];
    };
    pair.run();
    expect(pair.left.poll()).toHaveLength(6);
    expect(most).toBe(2);
  });

  // Once: the data was sent, and the peer refused the request, which ended the connection on its side as well.
  test('a gather list to flush can not be posted, and the peer hears of nothing', () => {
    const { pair, addr, rkey, done, counts } = open();
    const mr = pair.left.register(new ArrayBuffer(64));
    const sent: number[] = [];
    pair.fault = (packet) => {
      sent.push(bthOpcode(packet, 0));
      return [{ packet, delay: 0 }];
    };
    const flush = { length: 8 };
    pair.left.post({ opcode: 'FLUSH', flush, sge: [{ mr, length: 0 }], wrId: 1, remote: { addr, rkey } });
    expect(done()).toEqual([[1, 'SUCCESS', FLUSH]]);
    sent.length = 0;
    pair.left.post({ opcode: 'FLUSH', flush, sge: [{ mr, length: 8 }], wrId: 2, remote: { addr, rkey } });
    expect(done()).toEqual([[2, 'LOC_LEN_ERR', FLUSH]]);
    expect(sent).toEqual([]);
    expect(counts().flushRequests).toBe(1);
  });

  test.each<[string, Parameters<Pair['left']['post']>[0], string]>([
    ['7 bytes', { opcode: 'ATOMIC_WRITE', inline: new Uint8Array(7) }, 'LOC_LEN_ERR'],
    ['no bytes', { opcode: 'ATOMIC_WRITE' }, 'LOC_LEN_ERR'],
    ['inline data to flush', { opcode: 'FLUSH', inline: new Uint8Array(8) }, 'LOC_QP_OP_ERR'],
  ])('%s can not be posted', (_, work, status) => {
    const { pair, addr, rkey, done } = open();
    pair.left.post({ ...work, wrId: 1, remote: { addr, rkey } });
    expect(done()).toEqual([[1, status, expect.any(Number)]]);
  });

  test(`${LOSSY} of each under 5 percent loss: each executed once, in order`, () => {
    const random = createRandom(3).next;
    const { pair, memory, atomicWrite, flush, counts } = open();
    pair.fault = (packet) => (random() % 20 === 0 ? [] : [{ packet, delay: random() % 5 === 0 ? 30 : 0 }]);
    let [posted, completed] = [0, 0];
    while (completed < 2 * LOSSY) {
      for (; posted < 2 * LOSSY && posted - completed < 60; posted++) {
        if (posted % 2 === 0) atomicWrite(posted, 8 * ((posted / 2) % 64), bytesOf(posted));
        else flush(posted, 0, { length: 512 });
      }
      pair.run(20_000);
      for (const { wrId, status } of pair.left.poll()) {
        expect([wrId, status]).toEqual([completed, 'SUCCESS']);
        if (wrId % 2 === 0 && completed === posted - 1)
          expect(memory.subarray(8 * ((wrId / 2) % 64)).subarray(0, 8)).toEqual(bytesOf(wrId));
        completed++;
      }
    }
    expect(counts().atomicWriteRequests).toBe(LOSSY);
    expect(counts().flushRequests).toBe(LOSSY);
    for (let i = Math.max(0, LOSSY - 64); i < LOSSY; i++)
      expect(memory.subarray(8 * (i % 64), 8 * (i % 64) + 8)).toEqual(bytesOf(2 * i));
  }, 600_000);
});

describe('duplicates', () => {
  const P = 1000;
  const setUp = (maxDestRdAtomic = 16) => {
    const hand = new ByHand({ rqPsn: P, maxDestRdAtomic });
    hand.side.adapter.modifyQp(hand.side.qp.qpn, { qpAccessFlags: QP_ALL });
    const memory = new Uint8Array(64);
    const { addr, rkey } = hand.side.register(memory.buffer, ALL);
    const write = (psn: number, byte: number) => ({
      opcode: Opcode.RC_ATOMIC_WRITE,
      psn,
      reth: { addr, rkey, length: 8 },
      payload: new Uint8Array(8).fill(byte),
    });
    const flush = (psn: number) => ({
      opcode: Opcode.RC_FLUSH,
      psn,
      feth: { placement: FlushType.GLOBAL, selectivity: FlushLevel.RANGE },
      reth: { addr, rkey, length: 64 },
    });
    const put = (init: ReturnType<typeof write> | ReturnType<typeof flush>) => {
      hand.put(init);
      return hand.out().map(inShort);
    };
    return { hand, memory, rkey, write, flush, put };
  };

  test('one that is remembered is answered again, and not executed', () => {
    const { memory, write, flush, put } = setUp();
    expect(put(write(P, 1))).toEqual([['RDMA_READ_RESPONSE_ONLY', P]]);
    expect(put(flush(P + 1))).toEqual([['RDMA_READ_RESPONSE_ONLY', P + 1]]);
    memory.fill(9);
    expect(put(write(P, 1))).toEqual([['RDMA_READ_RESPONSE_ONLY', P]]);
    expect(put(flush(P + 1))).toEqual([['RDMA_READ_RESPONSE_ONLY', P + 1]]);
    expect(memory.every((byte) => byte === 9)).toBe(true);
  });

  test('one that is forgotten: a FLUSH is executed again, an ATOMIC_WRITE dropped', () => {
    const { memory, write, flush, put } = setUp(1);
    put(write(P, 1));
    put(flush(P + 1));
    put(write(P + 2, 2));
    memory.fill(9);
    expect(put(write(P, 1))).toEqual([]);
    expect(put(flush(P + 1))).toEqual([['RDMA_READ_RESPONSE_ONLY', P + 1]]);
    expect(put(flush(P))).toEqual([['RDMA_READ_RESPONSE_ONLY', P]]);
    expect(memory.every((byte) => byte === 9)).toBe(true);
  });

  test('a forgotten FLUSH without the right is dropped', () => {
    const { hand, flush, put, write } = setUp(1);
    put(flush(P));
    put(write(P + 1, 1));
    hand.side.adapter.modifyQp(hand.side.qp.qpn, { qpAccessFlags: 0xe });
    expect(put(flush(P))).toEqual([]);
  });

  test('without responder resources both are refused', () => {
    for (const kind of ['write', 'flush'] as const) {
      const { flush, put, write } = setUp(0);
      expect(put(kind === 'flush' ? flush(P) : write(P, 1))).toEqual([
        ['ACKNOWLEDGE', P, NakCode.INVALID_REQUEST],
      ]);
    }
  });
});

describe('a response that is not right', () => {
  test.each<[string, Partial<Parameters<ByHand['packet']>[0]>]>([
    [
      'has bytes',
      { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, aeth: { syndrome: 0x1f }, payload: new Uint8Array(4) },
    ],
    ['is a FIRST', { opcode: Opcode.RC_RDMA_READ_RESPONSE_FIRST, aeth: { syndrome: 0x1f } }],
    ['is a NAK', { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, aeth: { syndrome: 0x60 } }],
  ])('%s', (_, response) => {
    const hand = new ByHand({ sqPsn: 0x500 });
    hand.side.post({ opcode: 'FLUSH', wrId: 1, flush: { length: 8 }, remote: { addr: 0n, rkey: 5 } });
    expect(hand.out().map(inShort)).toEqual([['FLUSH', 0x500]]);
    hand.put({ opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: 0x500, ...response });
    expect(hand.side.poll()).toMatchObject([{ wrId: 1, status: 'BAD_RESP_ERR' }]);
  });

  test('an ACK alone does not complete it', () => {
    const hand = new ByHand({ sqPsn: 0x500 });
    hand.side.post({ opcode: 'FLUSH', wrId: 1, flush: { length: 8 }, remote: { addr: 0n, rkey: 5 } });
    hand.out();
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x500, aeth: { syndrome: 0x1f, msn: 1 } });
    expect(hand.side.poll()).toEqual([]);
    hand.put({ opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: 0x500, aeth: { syndrome: 0x1f, msn: 1 } });
    expect(hand.side.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
  });
});

test('a region can not be registered for persistence', () => {
  const { pair } = open();
  expect(() => pair.left.register(new ArrayBuffer(8), ALL | FLUSH_PERSISTENT)).toThrow(
    expect.objectContaining({ errno: 'EOPNOTSUPP', attribute: 'access' }),
  );
});
