/** UC and UD: messages that arrive whole are delivered, all others are silently dropped. */
import { bthOpcode, bthPsn, internetChecksum, Opcode } from '@node-roce/wire';
import { beforeEach, describe, expect, test } from 'vitest';
import { HeaderSl, TX_SLOT_WORDS, Tx, WcFlags } from '../src/index.ts';
import { addressOf, gidOf, Pair, QKEY } from '../testing/pair.ts';

const MTU = 1024;

function filled(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (i * 7 + (i >> 8)) & 0xff);
}

describe('UC', () => {
  let pair: Pair;
  let source: Uint8Array;
  let target: Uint8Array;
  const regions = () => ({ from: pair.left.register(source.buffer), to: pair.right.register(target.buffer) });
  /** Loses the nth packet that is sent, from 0. */
  const lose = (...lost: number[]) => {
    let n = 0;
    pair.fault = (packet) => (lost.includes(n++) ? [] : [{ packet, delay: 0 }]);
  };
  const received = () => pair.right.poll().map(({ wrId, status, byteLen }) => ({ wrId, status, byteLen }));

  beforeEach(() => {
    pair = new Pair({ type: 'UC', mtu: MTU });
    source = filled(16_384);
    target = new Uint8Array(16_384);
  });

  test('SEND of several packets, with immediate: whole, no ACK, complete when the link has taken it', () => {
    const { from, to } = regions();
    pair.right.postRecv(1, [{ mr: to, length: 4096 }]);
    pair.left.post({ wrId: 9, opcode: 'SEND_WITH_IMM', immediate: 77, sge: [{ mr: from, length: 2500 }] });
    pair.run();
    expect(pair.sent.map(({ packet }) => bthOpcode(packet, 0))).toEqual([
      Opcode.UC_SEND_FIRST,
      Opcode.UC_SEND_MIDDLE,
      Opcode.UC_SEND_LAST_WITH_IMMEDIATE,
    ]);
    expect(pair.left.poll()).toMatchObject([{ wrId: 9, status: 'SUCCESS' }]);
    expect(pair.right.poll()).toMatchObject([
      { wrId: 1, status: 'SUCCESS', byteLen: 2500, immediate: 77, flags: WcFlags.WITH_IMM },
    ]);
    expect(target.subarray(0, 2500)).toEqual(source.subarray(0, 2500));
  });

  test('a send is not complete before the link has taken its packets', () => {
    const { from, to } = regions();
    pair.right.postRecv(1, [{ mr: to, length: 4096 }]);
    pair.left.post({ wrId: 9, opcode: 'SEND', sge: [{ mr: from, length: 100 }] });
    const { adapter, tx } = pair.left;
    tx.clear();
    expect(adapter.transmit(tx)).toBe(1);
    expect(pair.left.poll()).toEqual([]);
    adapter.sent(tx);
    expect(pair.left.poll()).toMatchObject([{ wrId: 9, status: 'SUCCESS' }]);
  });

  test.each([
    ['FIRST', 0],
    ['MIDDLE', 1],
    ['LAST', 2],
  ])('a lost %s drops its message, and the receive entry is used for the next', (_name, index) => {
    const { from, to } = regions();
    pair.right.postRecv(1, [{ mr: to, length: 4096 }]);
    pair.right.postRecv(2, [{ mr: to, offset: 4096, length: 4096 }]);
    lose(index);
    for (const offset of [0, 3000, 6000]) {
      pair.left.post({ opcode: 'SEND', sge: [{ mr: from, offset, length: 3000 }] });
    }
    pair.run();
    expect(received()).toEqual([
      { wrId: 1, status: 'SUCCESS', byteLen: 3000 },
      { wrId: 2, status: 'SUCCESS', byteLen: 3000 },
    ]);
    expect(target.subarray(0, 3000)).toEqual(source.subarray(3000, 6000));
    expect(target.subarray(4096, 7096)).toEqual(source.subarray(6000, 9000));
    expect(pair.left.poll().map((c) => c.status)).toEqual(['SUCCESS', 'SUCCESS', 'SUCCESS']);
  });

  test('WRITE and WRITE with immediate; a lost MIDDLE leaves no completion', () => {
    const { from, to } = regions();
    for (const wrId of [1, 2]) pair.right.postRecv(wrId, []);
    lose(4);
    const write = (offset: number) =>
      pair.left.post({
        opcode: 'RDMA_WRITE_WITH_IMM',
        immediate: offset,
        sge: [{ mr: from, offset, length: 3000 }],
        remote: { addr: to.addr + BigInt(offset), rkey: to.rkey },
      });
    for (const offset of [0, 3000, 6000]) write(offset);
    pair.run();
    expect(pair.right.poll()).toMatchObject([
      { wrId: 1, byteLen: 3000, immediate: 0 },
      { wrId: 2, byteLen: 3000, immediate: 6000 },
    ]);
    expect(target.subarray(0, 3000)).toEqual(source.subarray(0, 3000));
    expect(target.subarray(6000, 9000)).toEqual(source.subarray(6000, 9000));
  });

  test('no receive posted, one that is too small, a wrong rkey, no permission: dropped, nothing breaks', () => {
    const { from, to } = regions();
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
    pair.run();
    pair.right.postRecv(1, [{ mr: to, length: 1500 }]);
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 2000 }] });
    const write = (rkey: number) =>
      pair.left.post({
        opcode: 'RDMA_WRITE',
        sge: [{ mr: from, length: 64 }],
        remote: { addr: to.addr, rkey },
      });
    write((to.rkey ^ 1) >>> 0);
    pair.right.adapter.modifyQp(pair.right.qp.qpn, { qpAccessFlags: 0 });
    write(to.rkey);
    pair.left.post({ wrId: 5, opcode: 'SEND', sge: [{ mr: from, offset: 100, length: 1500 }] });
    pair.run();
    expect(received()).toEqual([{ wrId: 1, status: 'SUCCESS', byteLen: 1500 }]);
    expect(target.subarray(0, 1500)).toEqual(source.subarray(100, 1600));
    expect(pair.right.adapter.qpCounters(pair.right.qp.qpn)).toMatchObject({ outOfBuffer: 1 });
    expect(pair.right.events).toMatchObject([]);
    expect(pair.right.adapter.queryQp(pair.right.qp.qpn).attr.qpState).toBe('RTS');
  });

  test('a message that begins while one is coming in takes its place', () => {
    const { from, to } = regions();
    pair.right.postRecv(1, [{ mr: to, length: 4096 }]);
    lose(2); // LAST of the first; the next FIRST has the PSN that it had not.
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 3000 }] });
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, offset: 4000, length: 10 }] });
    pair.run();
    expect(received()).toEqual([{ wrId: 1, status: 'SUCCESS', byteLen: 10 }]);
    expect(pair.right.adapter.qpCounters(pair.right.qp.qpn).droppedMessages).toBe(1);
  });

  test('a receive entry with a wrong key ends the queue pair', () => {
    const { from, to } = regions();
    pair.right.postRecv(1, [{ mr: { ...to, lkey: to.lkey ^ 1 }, length: 4096 }]);
    pair.right.postRecv(2, [{ mr: to, length: 4096 }]);
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
    pair.run();
    expect(pair.right.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [1, 'LOC_PROT_ERR'],
      [2, 'WR_FLUSH_ERR'],
    ]);
    expect(pair.right.events).toEqual([]);
    expect(pair.right.adapter.queryQp(pair.right.qp.qpn).attr.qpState).toBe('ERR');
  });

  test('a failed send goes to SQE: the rest is flushed, receiving works, and modify leads back', () => {
    const { from, to } = regions();
    const { left, right } = pair;
    left.post({ wrId: 1, opcode: 'SEND', sge: [{ mr: from, length: 2000 }] });
    left.post({ wrId: 2, opcode: 'SEND', sge: [{ mr: { ...from, lkey: from.lkey ^ 1 }, length: 10 }] });
    left.post({ wrId: 3, opcode: 'SEND', flags: 0, sge: [{ mr: from, length: 10 }] });
    right.postRecv(1, [{ mr: to, length: 4096 }]);
    pair.run();
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [1, 'SUCCESS'],
      [2, 'LOC_PROT_ERR'],
      [3, 'WR_FLUSH_ERR'],
    ]);
    expect(received()).toMatchObject([{ wrId: 1, byteLen: 2000 }]);
    expect(left.adapter.queryQp(left.qp.qpn).attr.qpState).toBe('SQE');
    // Posted in SQE: flushed.
    left.post({ wrId: 4, opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
    pair.run();
    expect(left.poll()).toMatchObject([{ wrId: 4, status: 'WR_FLUSH_ERR' }]);
    // The receive side lives.
    const back = right.register(target.buffer);
    const inbox = left.register(new ArrayBuffer(64));
    left.postRecv(7, [{ mr: inbox, length: 64 }]);
    right.post({ opcode: 'SEND', sge: [{ mr: back, length: 64 }] });
    pair.run();
    expect(left.poll()).toMatchObject([{ wrId: 7, status: 'SUCCESS', byteLen: 64 }]);
    right.poll();

    left.adapter.modifyQp(left.qp.qpn, { qpState: 'RTS', curQpState: 'SQE' });
    const psn = left.adapter.queryQp(left.qp.qpn).attr.sqPsn!;
    right.postRecv(8, [{ mr: to, length: 4096 }]);
    left.post({ wrId: 5, opcode: 'SEND', sge: [{ mr: from, length: 30 }] });
    pair.run();
    expect(bthPsn(pair.sent.at(-1)!.packet, 0)).toBe(psn);
    expect(left.poll()).toMatchObject([{ wrId: 5, status: 'SUCCESS' }]);
    expect(received()).toMatchObject([{ wrId: 8, status: 'SUCCESS', byteLen: 30 }]);
  });

  test('a packet too large for its way fails its own entry', () => {
    const { from } = regions();
    const { adapter, tx } = pair.left;
    for (const wrId of [1, 2, 3]) pair.left.post({ wrId, opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
    tx.clear();
    expect(adapter.transmit(tx)).toBe(3);
    tx.slots[TX_SLOT_WORDS + Tx.STATUS] = 90; // EMSGSIZE, of the second.
    adapter.sent(tx);
    expect(pair.left.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [1, 'SUCCESS'],
      [2, 'LOC_LEN_ERR'],
      [3, 'WR_FLUSH_ERR'],
    ]);
  });

  test.each(['RDMA_READ', 'ATOMIC_FETCH_AND_ADD', 'SEND_WITH_INV'] as const)(
    '%s is no operation of UC',
    (opcode) => {
      const { from, to } = regions();
      pair.left.post({ opcode, sge: [{ mr: from, length: 8 }], remote: to });
      pair.run();
      expect(pair.left.poll()).toMatchObject([{ status: 'LOC_QP_OP_ERR' }]);
      expect(pair.sent).toEqual([]);
    },
  );
});

describe('UD', () => {
  let pair: Pair;
  const source = filled(8192);
  let target: Uint8Array;

  beforeEach(() => {
    pair = new Pair({ type: 'UD' });
    target = new Uint8Array(8192);
  });

  function setUp() {
    const from = pair.left.register(source.buffer as ArrayBuffer);
    const to = pair.right.register(target.buffer as ArrayBuffer);
    const ah = pair.left.adapter.createAh(pair.left.pd, addressOf(2));
    const datagram = { ah, qpn: pair.right.qp.qpn, qkey: QKEY };
    return { from, to, ah, datagram };
  }

  test('SEND with immediate: 40 bytes of GRH, the sender’s QPN, the payload', () => {
    const { from, to, datagram } = setUp();
    pair.right.postRecv(1, [
      { mr: to, length: 20 },
      { mr: to, offset: 100, length: 4096 },
    ]);
    pair.left.post({
      wrId: 2,
      opcode: 'SEND_WITH_IMM',
      immediate: 5,
      sge: [{ mr: from, length: 1000 }],
      datagram,
    });
    pair.run();
    expect(pair.left.poll()).toMatchObject([{ wrId: 2, status: 'SUCCESS' }]);
    expect(pair.right.poll()).toMatchObject([
      {
        wrId: 1,
        byteLen: 1040,
        immediate: 5,
        flags: WcFlags.GRH | WcFlags.WITH_IMM,
        srcQp: pair.left.qp.qpn,
        sl: HeaderSl.IPV4,
      },
    ]);
    // The list is cut in the middle of the GRH: 20 zeros, then the IPv4 header.
    expect(target.subarray(0, 20)).toEqual(new Uint8Array(20));
    const ip = target.subarray(100, 120);
    expect([...ip.subarray(0, 2), ip[9]]).toEqual([0x45, 0, 17]);
    expect([...ip.subarray(12)]).toEqual([10, 0, 0, 1, 10, 0, 0, 2]);
    expect((ip[2] << 8) | ip[3]).toBe(20 + 8 + 12 + 8 + 4 + 1000 + 4);
    expect(internetChecksum(ip)).toBe(0);
    expect(target.subarray(120, 1120)).toEqual(source.subarray(0, 1000));
  });

  test('a wrong Q_Key is dropped and counted; one with the top bit stands for the sender’s own', () => {
    const { from, to, datagram } = setUp();
    pair.right.postRecv(1, [{ mr: to, length: 200 }]);
    pair.left.post({
      opcode: 'SEND',
      sge: [{ mr: from, length: 8 }],
      datagram: { ...datagram, qkey: QKEY ^ 1 },
    });
    pair.run();
    expect(pair.right.poll()).toEqual([]);
    expect(pair.right.adapter.qpCounters(pair.right.qp.qpn).qkeyViolations).toBe(1);
    pair.left.post({
      opcode: 'SEND',
      sge: [{ mr: from, length: 8 }],
      datagram: { ...datagram, qkey: 0x8000_0000 },
    });
    pair.run();
    expect(pair.right.poll()).toMatchObject([{ wrId: 1, byteLen: 48 }]);
  });

  test('no receive, or one without room for GRH and payload: dropped and counted', () => {
    const { from, to, datagram } = setUp();
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 100 }], datagram });
    pair.run();
    pair.right.postRecv(1, [{ mr: to, length: 139 }]);
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 100 }], datagram });
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 99 }], datagram });
    pair.run();
    expect(pair.right.poll()).toMatchObject([{ wrId: 1, byteLen: 139, status: 'SUCCESS' }]);
    const counters = pair.right.adapter.qpCounters(pair.right.qp.qpn);
    expect(counters).toMatchObject({ outOfBuffer: 1, droppedPackets: 1, completedReceives: 1 });
  });

  test.each([
    ['longer than the port’s MTU', 4097, 'LOC_LEN_ERR', {}],
    ['without such an address handle', 8, 'LOC_QP_OP_ERR', { ah: 999 }],
  ])('a message %s: SQE', (_name, length, status, change) => {
    const { from, datagram } = setUp();
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length }], datagram: { ...datagram, ...change } });
    pair.run();
    expect(pair.left.poll()).toMatchObject([{ status }]);
    expect(pair.left.adapter.queryQp(pair.left.qp.qpn).attr.qpState).toBe('SQE');
    expect(pair.sent).toEqual([]);
  });

  test('address handles hold their PD, and are gone once', () => {
    const { ah } = setUp();
    const { adapter } = pair.left;
    adapter.destroyAh(ah);
    expect(() => adapter.destroyAh(ah)).toThrow(expect.objectContaining({ attribute: 'ah' }));
    const pd = adapter.allocPd();
    const other = adapter.createAh(pd, addressOf(2));
    expect(() => adapter.deallocPd(pd)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.destroyAh(other);
    adapter.deallocPd(pd);
    expect(() => adapter.createAh(pd, addressOf(2))).toThrow(expect.objectContaining({ attribute: 'pd' }));
  });

  test('a group: every attached queue pair receives its datagrams, and no others do', () => {
    const group = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3);
    const joined: Uint8Array[] = [];
    const peers = {
      add: () => 0,
      remove: () => {},
      join: (gid: Uint8Array) => joined.push(gid),
      leave: () => joined.pop(),
    };
    pair = new Pair({ type: 'UD', right: { peers } });
    const { from, to, ah } = setUp();
    const { adapter } = pair.right;
    const first = pair.right.qp;
    pair.right.postRecv(1, [{ mr: to, length: 500 }]);
    pair.right.createQp({}, { type: 'UD' });
    pair.connect();
    pair.right.postRecv(2, [{ mr: to, offset: 500, length: 500 }]);
    pair.localOf = () => 1;
    const send = () => {
      pair.left.post({
        opcode: 'SEND',
        sge: [{ mr: from, length: 10 }],
        datagram: { ah, qpn: 0xff_ffff, qkey: QKEY },
      });
      pair.run();
    };
    send();
    expect(pair.right.poll()).toEqual([]);
    adapter.attachMcast(first.qpn, group);
    adapter.attachMcast(pair.right.qp.qpn, group);
    adapter.attachMcast(pair.right.qp.qpn, group);
    expect(joined).toEqual([group]);
    send();
    expect(pair.right.poll()).toMatchObject([
      { wrId: 1, qpn: first.qpn, byteLen: 50 },
      { wrId: 2, qpn: pair.right.qp.qpn, byteLen: 50 },
    ]);
    expect([...target.subarray(36, 40)]).toEqual([239, 1, 2, 3]);
    expect(() => adapter.destroyQp(first.qpn)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.detachMcast(first.qpn, group);
    adapter.detachMcast(pair.right.qp.qpn, group);
    expect(joined).toEqual([]);
    expect(() => adapter.detachMcast(first.qpn, group)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
    adapter.destroyQp(first.qpn);
  });

  test('refuses an address that is not a group, and a connected queue pair', () => {
    const { adapter, qp } = pair.left;
    expect(() => adapter.attachMcast(qp.qpn, gidOf(3))).toThrow(
      expect.objectContaining({ attribute: 'gid' }),
    );
    const group = new Uint8Array(16).fill(0xff);
    const rc = new Pair().left;
    expect(() => rc.adapter.attachMcast(rc.qp.qpn, group)).toThrow(
      expect.objectContaining({ attribute: 'qp' }),
    );
  });

  test('QP1 is one, with the number 1', () => {
    const { left } = pair;
    left.createQp({}, { type: 'GSI' });
    expect(left.qp.qpn).toBe(1);
    expect(() => left.createQp({}, { type: 'GSI' })).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
  });
});
