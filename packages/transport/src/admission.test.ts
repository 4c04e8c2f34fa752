/** The checks before a queue pair takes a packet (IBTA vol 1 §9.6.1): what fails is counted under its name, and not answered. */
import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort, type PacketInit } from '../testing/by-hand.ts';
import { gidOf } from '../testing/pair.ts';
import type { AdapterCounts } from './index.ts';

const P = 1000;

function connected() {
  const gids = [2, 3].map((n) => ({ gid: gidOf(n), address: `10.0.0.${n}`, type: 'RoCE v2' as const }));
  const hand = new ByHand({ rqPsn: P }, { gids });
  const { addr, rkey } = hand.side.register(new ArrayBuffer(64));
  const write = (psn: number, more: Partial<PacketInit> = {}): PacketInit => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn,
    reth: { addr, rkey, length: 4 },
    payload: new Uint8Array(4),
    ...more,
  });
  const dropped = (name: keyof AdapterCounts) => {
    const counts = hand.side.adapter.counters();
    expect(counts[name]).toBe(1);
    expect(counts.acceptedPackets).toBe(0);
    expect(hand.out()).toEqual([]);
    // The connection stands where it stood.
    hand.put(write(P));
    expect(hand.out().map(inShort)).toEqual([['ACKNOWLEDGE', P, 0x1f]]);
  };
  return { hand, write, dropped };
}

describe('a connected queue pair takes no packet', () => {
  test.each([0, 0x7ffe, 0x8000, 0xfffe])('with the P_Key 0x%s', (pkey) => {
    const { hand, write, dropped } = connected();
    hand.put(write(P, { pkey }));
    dropped('badPkey');
  });

  test('from another address than its peer’s', () => {
    const { hand, write, dropped } = connected();
    hand.putFrom({ source: 4 }, write(P));
    dropped('wrongSource');
  });

  test('from its peer at another local address than its own', () => {
    const { hand, write, dropped } = connected();
    hand.putFrom({ local: 1 }, write(P));
    dropped('wrongSource');
  });

  test('of another transport service', () => {
    const { hand, write, dropped } = connected();
    hand.put(write(P, { opcode: Opcode.UC_RDMA_WRITE_ONLY }));
    dropped('unknownQp');
  });

  test('with an opcode that there is not', () => {
    const { hand, write, dropped } = connected();
    hand.put(write(P, { opcode: 0x3f }));
    dropped('malformed');
  });

  test('of a length that is no multiple of four', () => {
    const { hand, write, dropped } = connected();
    hand.put(hand.packet(write(P)).subarray(0, 31));
    dropped('malformed');
  });

  test('in INIT', () => {
    const { hand, write } = connected();
    const { adapter, qp } = hand.side;
    adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
    adapter.modifyQp(qp.qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0xe });
    hand.put(write(P));
    expect(adapter.counters()).toMatchObject({ wrongState: 1, acceptedPackets: 0 });
  });
});

test('a P_Key of limited membership is the same partition (§10.9.3)', () => {
  const { hand, write } = connected();
  hand.put(write(P, { pkey: 0x7fff }), write(P + 1, { pkey: 0xffff }));
  expect(hand.out().map(inShort)).toEqual([['ACKNOWLEDGE', P + 1, 0x1f]]);
});

test.each([0, 0x9999, 0x7ffe])('an ACK with the P_Key %i acknowledges nothing', (pkey) => {
  const { hand } = connected();
  hand.side.post({ wrId: 3, opcode: 'RDMA_WRITE', sge: [] });
  expect(hand.out()).toHaveLength(1);
  const ack: PacketInit = { opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x500, aeth: { syndrome: 0x1f } };
  hand.put({ ...ack, pkey });
  expect(hand.side.poll()).toEqual([]);
  expect(hand.side.adapter.counters().badPkey).toBe(1);
  hand.put({ ...ack, pkey: 0x7fff });
  expect(hand.side.poll()).toMatchObject([{ wrId: 3, status: 'SUCCESS' }]);
});
