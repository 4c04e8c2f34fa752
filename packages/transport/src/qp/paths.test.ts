/** Paths to a peer: the parts of its address vector that a connection takes, and the peer's index that it holds (ibv_modify_qp(3)). */
import { Opcode, sourcePortForConnection } from '@node-roce/wire';
import { describe, expect, test, vi } from 'vitest';
import { ByHand, type PacketInit } from '../../testing/by-hand.ts';
import { addressOf, gidOf } from '../../testing/pair.ts';
import { EMPTY_GID, Tx, TxBatch } from '../index.ts';

const P = 1000;
const entry = (gid: Uint8Array) => ({ gid, address: 'x', type: 'RoCE v2' as const });
const v6 = Uint8Array.of(0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9);

/** A connected queue pair whose link numbers peers from 30. */
function connected(route = {}) {
  let next = 30;
  const peers = { add: vi.fn(() => next++), remove: vi.fn() };
  const hand = new ByHand({}, { peers, gids: [gidOf(2), gidOf(3)].map(entry) });
  const { side } = hand;
  side.createQp();
  peers.add.mockClear();
  const address = addressOf(1);
  const ahAttr = { ...address, grh: { ...address.grh, ...route } };
  hand.connect({ rqPsn: P, ahAttr });
  const { addr, rkey } = side.register(new ArrayBuffer(64));
  const write = (psn: number): PacketInit => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn,
    reth: { addr, rkey, length: 4 },
    payload: new Uint8Array(4),
  });
  /** The slot of the ACK of a WRITE. */
  const slot = () => {
    const tx = new TxBatch(side.adapter.regions);
    side.adapter.transmit(tx);
    expect(tx.count).toBe(1);
    return tx.slots;
  };
  return { hand, side, peers, write, slot, ahAttr };
}

test('packets go to the peer with the traffic class and the port of the flow', () => {
  const { hand, side, peers, write, slot } = connected({ trafficClass: 0x68, hopLimit: 9, sgidIndex: 1 });
  expect(peers.add.mock.calls).toEqual([[gidOf(1), 1, 9]]);
  hand.putFrom({ local: 1 }, write(P));
  const slots = slot();
  expect([slots[Tx.PEER], slots[Tx.TRAFFIC_CLASS]]).toEqual([31, 0x68]);
  expect(slots[Tx.SOURCE_PORT]).toBe(sourcePortForConnection(0, side.qp.qpn, 77));
});

test('the flow label gives the port', () => {
  const { hand, side, write, slot } = connected({ flowLabel: 0xabcde });
  hand.put(write(P));
  expect(slot()[Tx.SOURCE_PORT]).toBe(sourcePortForConnection(0xabcde, side.qp.qpn, 77));
});

test('the address vector is taken over at once: what the program does with its memory later is nothing to it', () => {
  const memory = new Uint8Array(32);
  memory.set(gidOf(1), 16);
  const dgid = memory.subarray(16);
  const { hand, side, write } = connected({ dgid });
  memory.fill(0xff);
  hand.put(write(P));
  expect(hand.out()).toHaveLength(1);
  expect(side.adapter.queryQp(side.qp.qpn).attr.ahAttr!.grh.dgid).toEqual(gidOf(1));
});

describe('another address vector in SQD', () => {
  test('the first peer is given back, packets come from and go to the second', () => {
    const { hand, side, peers, write, slot } = connected();
    const { adapter, qp } = side;
    adapter.modifyQp(qp.qpn, { qpState: 'SQD' });
    expect(peers.remove).not.toHaveBeenCalled();
    adapter.modifyQp(qp.qpn, { qpState: 'SQD', ahAttr: addressOf(5) });
    expect(peers.remove.mock.calls).toEqual([[31]]);
    hand.putFrom({ source: 1 }, write(P));
    expect(adapter.counters().wrongSource).toBe(1);
    hand.putFrom({ source: 5 }, write(P));
    expect(slot()[Tx.PEER]).toBe(32);
  });

  test('other attributes leave the peer', () => {
    const { hand, side, peers, write, slot } = connected();
    const { adapter, qp } = side;
    adapter.modifyQp(qp.qpn, { qpState: 'SQD' });
    adapter.modifyQp(qp.qpn, { qpState: 'SQD', minRnrTimer: 3 });
    expect(peers.add).toHaveBeenCalledTimes(1);
    expect(peers.remove).not.toHaveBeenCalled();
    hand.put(write(P));
    expect(slot()[Tx.PEER]).toBe(31);
  });
});

test('a peer with index 0 is given back as any other', () => {
  const peers = { add: () => 0, remove: vi.fn() };
  const { side } = new ByHand({}, { peers });
  const { adapter, qp } = side;
  adapter.modifyQp(qp.qpn, { qpState: 'SQD' });
  adapter.modifyQp(qp.qpn, { qpState: 'SQD', ahAttr: addressOf(5) });
  expect(peers.remove.mock.calls).toEqual([[0]]);
});

test('a queue pair that was never connected has no peer to give back', () => {
  const peers = { add: () => 0, remove: vi.fn() };
  const { side } = new ByHand({}, { peers });
  side.createQp();
  side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
  side.adapter.destroyQp(side.qp.qpn);
  expect(peers.remove).not.toHaveBeenCalled();
});

test('a queue pair that is destroyed takes no packet, though it took the last one', () => {
  const { hand, side, write } = connected();
  hand.put(write(P));
  hand.out();
  const packet = hand.packet(write(P + 1));
  side.adapter.destroyQp(side.qp.qpn);
  hand.put(packet);
  expect(side.adapter.counters().unknownQp).toBe(1);
});

test('QP1 holds up no other queue pair', () => {
  const { side } = connected();
  side.createQp({}, { type: 'GSI' });
  side.createQp();
  side.adapter.destroyQp(1);
  side.createQp({}, { type: 'GSI' });
});

describe('a group', () => {
  const group = Uint8Array.from(gidOf(1), (byte, i) => (i === 12 ? 239 : byte));
  const group6 = Uint8Array.of(0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9);

  /** A UD queue pair of a device with these GIDs. */
  function datagrams(...gids: Uint8Array[]) {
    const join = vi.fn(() => 1000);
    const { side } = new ByHand(
      {},
      { peers: { add: () => 0, remove: () => {}, join }, gids: gids.map(entry) },
    );
    side.createQp({}, { type: 'UD' });
    return { side, join, attach: (gid: Uint8Array) => side.adapter.attachMcast(side.qp.qpn, gid) };
  }
  const INVALID = expect.objectContaining({ errno: 'EINVAL', attribute: 'gid' });

  test('is joined at the first GID of its IP version', () => {
    const { join, attach } = datagrams(gidOf(2), EMPTY_GID.gid, v6, gidOf(3), v6);
    attach(group);
    attach(group6);
    expect(join.mock.calls).toEqual([
      [group, 0],
      [group6, 2],
    ]);
  });

  test('needs a GID of its version', () => {
    const { attach } = datagrams(gidOf(2), EMPTY_GID.gid);
    expect(() => attach(group6)).toThrow(INVALID);
  });

  test('has an address of 16 bytes', () => {
    const { side, attach } = datagrams(gidOf(2), v6);
    expect(() => attach(group6.subarray(0, 15))).toThrow(INVALID);
    expect(() => attach([...group6] as never)).toThrow(INVALID);
    expect(() => side.adapter.detachMcast(side.qp.qpn, group6)).toThrow(INVALID);
    expect(() => side.adapter.attachMcast(999, group6)).toThrow(expect.objectContaining({ attribute: 'qp' }));
  });

  test.each([
    ['RC', 'an RC'],
    ['UC', 'a UC'],
  ] as const)('is nothing for %s', (type, article) => {
    const { side, attach } = datagrams(gidOf(2));
    side.createQp({}, { type });
    expect(() => attach(group)).toThrow(`qp: ${article} queue pair cannot join groups (expected UD)`);
  });
});
