/** Entries that fail after others, and entries that need not fail after all. */
import { bthOpcode, Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { NO_PEER, SendWqe, TX_SLOT_WORDS, Tx, TxBatch } from '../src/index.ts';
import { ByHand, inShort } from '../testing/by-hand.ts';
import { Pair } from '../testing/pair.ts';

const KIB = 1024;
const EMSGSIZE = 90;

function setUp() {
  const pair = new Pair();
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(1 << 20));
  const remote = right.register(new ArrayBuffer(1 << 20));
  const write = (wrId: number, length: number, mr = local) =>
    left.post({ wrId, opcode: 'RDMA_WRITE', sge: [{ mr, length }], remote });
  const statuses = () => left.poll().map(({ wrId, status }) => [wrId, status]);
  return { pair, left, right, local, remote, write, statuses };
}

test('a retransmission that the link refuses fails nothing if the first sending is acknowledged after all', () => {
  const { pair, left, write, statuses } = setUp();
  const late = new Set<number>();
  // The ACK is late: the packet is retransmitted, and refused.
  pair.fault = (packet) => {
    const isAck = bthOpcode(packet, 0) === Opcode.RC_ACKNOWLEDGE && late.size === 0;
    if (isAck) late.add(1);
    return [{ packet, delay: isAck ? 140_000 : 0 }];
  };
  let again = 0;
  left.adapter.checkInvariants();
  pair.refuse = (packet, side) => {
    const isWrite = bthOpcode(packet, 0) === Opcode.RC_RDMA_WRITE_ONLY;
    return side === left && isWrite && again++ === 2 ? EMSGSIZE : 0;
  };
  write(1, 64);
  write(2, 64);
  pair.run(500_000);
  expect(again).toBeGreaterThan(2);
  write(3, 64);
  pair.run(1_000_000);
  const all = statuses();
  // Either the refused packet failed its request while it was outstanding, or all are done; nothing hangs.
  if (all[0][1] === 'SUCCESS') expect(all.map(([, status]) => status)).toEqual(Array(3).fill('SUCCESS'));
  else expect(all[0][1]).toBe('LOC_LEN_ERR');
  expect(all).toHaveLength(3);
});

test('an entry whose region leaves its PD and comes back while it waits: it fails or is sent, and none after it hangs', () => {
  for (const lost of [false, true]) {
    const { pair, left, write, statuses } = setUp();
    const buffer = new ArrayBuffer(64 * KIB);
    const backing = 100;
    const init = { backing, buffer, offset: 0, length: 64 * KIB, access: 0xf };
    const moving = left.adapter.registerMr({ ...init, pd: left.pd });
    const away = left.adapter.allocPd();
    let n = 0;
    pair.fault = (packet) => (lost && ++n === 20 ? [] : [{ packet, delay: 0 }]);
    write(1, 30 * KIB);
    write(2, 8 * KIB, moving);
    pair.run(5);
    left.adapter.reregisterMr(moving.handle, { ...init, pd: away }, false);
    pair.run(18);
    left.adapter.reregisterMr(moving.handle, { ...init, pd: left.pd }, false);
    write(3, 8);
    pair.run(10_000_000);
    left.adapter.checkInvariants();
    const all = statuses();
    expect(all).toHaveLength(3);
    expect(all[0]).toEqual([1, 'SUCCESS']);
    const expected = all[1][1] === 'SUCCESS' ? 'SUCCESS' : 'WR_FLUSH_ERR';
    expect(all[2]).toEqual([3, expected]);
  }
});

test('an entry that is published after RESET, by a thread that did not see it, is not executed by the next connection', () => {
  const { pair, left, right, remote, statuses } = setUp();
  const stale = left.register(new Uint8Array(64).fill(0xee).buffer);
  left.adapter.modifyQp(left.qp.qpn, { qpState: 'RESET' });
  right.adapter.modifyQp(right.qp.qpn, { qpState: 'RESET' });
  left.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr: stale, length: 64 }], remote });
  pair.connect();
  pair.run(100_000);
  expect(pair.sent).toEqual([]);
  expect(left.sq.used).toBe(0);
  left.post({ wrId: 2, opcode: 'RDMA_WRITE', sge: [{ mr: stale, length: 8 }], remote });
  pair.run(100_000);
  expect(statuses()).toEqual([[2, 'SUCCESS']]);
  expect(left.sq.words[left.sq.wordOf(0) + SendWqe.WR_ID_LOW]).toBe(1);
});

/** Request 1 fills the first window; `then` is behind it, with its first element in a region that goes before it leaves. */
function waitingForTheWindow(then: 'one packet' | 'two packets') {
  const hand = new ByHand({ sqPsn: 0, pathMtu: 256 });
  const { side } = hand;
  const { adapter } = side;
  const mr = side.register(new ArrayBuffer(1 << 16));
  const gone = side.register(new ArrayBuffer(256));
  const remote = { addr: 0n, rkey: 1 };
  const first = then === 'one packet' ? [] : [{ mr, length: 256 }];
  side.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr, length: 32 * 256 }], remote });
  side.post({ wrId: 2, opcode: 'RDMA_WRITE', sge: [...first, { mr: gone, length: 256 }], remote });
  expect(hand.out()).toHaveLength(32);
  adapter.deregisterMr(gone.handle);
  const acknowledge = (psn: number) =>
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome: 0x1f } });
  const statuses = () => side.poll().map(({ wrId, status }) => [wrId, status]);
  return { hand, adapter, qpn: side.qp.qpn, acknowledge, statuses };
}

test('packets of an entry that fails in the same turn do not leave: its memory is the program’s again', () => {
  const { adapter, acknowledge, statuses } = waitingForTheWindow('two packets');
  acknowledge(31);
  const tx = new TxBatch(adapter.regions, 64);
  expect(adapter.transmit(tx)).toBe(1);
  expect(statuses()).toEqual([
    [1, 'SUCCESS'],
    [2, 'LOC_PROT_ERR'],
  ]);
  // Once: the first packet stayed in the batch, for as long as the link had no room.
  expect(Array.from({ length: tx.count }, (_, i) => tx.slots[i * TX_SLOT_WORDS + Tx.PEER])).toEqual([
    NO_PEER,
  ]);
  adapter.sent(tx);
});

test('SQD: an entry that could not be sent is not started, so it does not fail before RTS', () => {
  const { hand, adapter, qpn, acknowledge, statuses } = waitingForTheWindow('one packet');
  acknowledge(15);
  expect(hand.out()).toEqual([]);
  adapter.modifyQp(qpn, { qpState: 'SQD' });
  // Once: LOC_PROT_ERR now, and the error state.
  acknowledge(31);
  expect(statuses()).toEqual([[1, 'SUCCESS']]);
  expect(adapter.queryQp(qpn).attr).toMatchObject({ qpState: 'SQD', sqDraining: false });
  adapter.modifyQp(qpn, { qpState: 'RTS' });
  expect(hand.out()).toEqual([]);
  expect(statuses()).toEqual([[2, 'LOC_PROT_ERR']]);
});

test('a request that another thread posts while the queue pair fails in its turn is flushed, and no packet of it leaves', () => {
  const onAsyncEvent = ({ type }: { type: string }) => {
    // With an SRQ this event is raised once the queues are flushed.
    if (type === 'QP_LAST_WQE_REACHED') post(3);
  };
  const hand = new ByHand({}, { onAsyncEvent });
  const { side } = hand;
  const { adapter, pd } = side;
  const srq = adapter.createSrq({ pd, maxWr: 4, maxSge: 1, limit: 0 });
  side.createQp({}, { srq: srq.handle });
  hand.connect({ sqPsn: 0, timeout: 18 });
  const mr = side.register(new ArrayBuffer(64));
  const gone = side.register(new ArrayBuffer(64));
  const post = (wrId: number) => {
    const remote = { addr: 0n, rkey: 1 };
    side.post({ wrId, opcode: 'RDMA_WRITE', sge: [{ mr: wrId === 2 ? gone : mr, length: 8 }], remote });
  };
  post(1);
  expect(hand.out().map(inShort)).toEqual([['RDMA_WRITE_ONLY', 0]]);
  hand.now += 20;
  hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0, aeth: { syndrome: 0x1f } });
  post(2);
  hand.out();
  adapter.deregisterMr(gone.handle);
  // The probe finds that the memory is gone. Once: request 3 left with PSN 2, in the error state.
  expect(hand.run(10_000)).toEqual([]);
  expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
    [1, 'SUCCESS'],
    [2, 'LOC_PROT_ERR'],
    [3, 'WR_FLUSH_ERR'],
  ]);
});
