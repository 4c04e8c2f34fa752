/** Packets that reach no queue pair, each counted by its reason (IBTA vol 1 §9.6.1), and the states in which those that do are taken. */
import { Opcode } from '@node-roce/wire';
import { describe, expect, test, vi } from 'vitest';
import { type AdapterCounts, Icrc, RX_SLOT_WORDS, Rx } from '../src/index.ts';
import { ByHand, type PacketInit } from '../testing/by-hand.ts';
import { addressOf, gidOf, QKEY } from '../testing/pair.ts';

const P = 1000;
const gid = (n: number) => Uint8Array.of(0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, n);

function connected(options = {}) {
  const hand = new ByHand({ rqPsn: P }, options);
  const { side } = hand;
  const { addr, rkey } = side.register(new ArrayBuffer(64));
  const write = (psn = P, more: Partial<PacketInit> = {}): PacketInit => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn,
    reth: { addr, rkey, length: 4 },
    payload: new Uint8Array(4),
    ...more,
  });
  const counts = (counters: Partial<AdapterCounts>) => {
    const all = side.adapter.counters();
    const zero: Record<string, number> = {};
    for (const name of ['icrcErrors', 'icrcOutOfWindow', 'malformed', 'unknownQp', 'wrongState'] as const)
      zero[name] = 0;
    expect(all).toMatchObject({
      ...zero,
      wrongSource: 0,
      badPkey: 0,
      cnpReceived: 0,
      acceptedPackets: 0,
      ...counters,
    });
  };
  return { hand, side, write, counts };
}

test.each([
  [Icrc.BAD, 'icrcErrors'],
  [Icrc.OUT_OF_WINDOW, 'icrcOutOfWindow'],
])('verdict %i on the ICRC', (verdict, counter) => {
  const { hand, side, write, counts } = connected();
  const { rx, adapter } = side;
  hand.putFrom({ source: 9 }, write()); // Fills the slot.
  rx.sources.set(addressOf(1).grh.dgid, 0);
  rx.slots[Rx.VERDICT] = verdict;
  adapter.receive(rx);
  counts({ wrongSource: 1, [counter]: 1 });
});

describe('malformed', () => {
  test.each<[string, (set: ReturnType<typeof connected>) => Uint8Array]>([
    ['less than a BTH', ({ hand, write }) => hand.packet(write()).subarray(0, 8)],
    ['an opcode that there is not', ({ hand, write }) => hand.packet(write(P, { opcode: 0x3f }))],
    [
      'another version of the transport',
      ({ hand, write }) => {
        const packet = hand.packet(write());
        packet[1] |= 1;
        return packet;
      },
    ],
    ['less than its headers', ({ hand, write }) => hand.packet(write()).subarray(0, 24)],
    ['a length that is no multiple of four', ({ hand, write }) => hand.packet(write()).subarray(0, 30)],
    [
      'an ACK with payload',
      ({ hand }) =>
        hand.packet({
          opcode: Opcode.RC_ACKNOWLEDGE,
          psn: 0,
          aeth: { syndrome: 31 },
          payload: new Uint8Array(4),
        }),
    ],
    [
      'an ACK with a pad alone',
      ({ hand }) =>
        hand.packet({
          opcode: Opcode.RC_ACKNOWLEDGE,
          psn: 0,
          aeth: { syndrome: 31 },
          payload: new Uint8Array(4),
          pad: 3,
        }),
    ],
  ])('%s', (_what, make) => {
    const set = connected();
    set.hand.put(make(set));
    set.counts({ malformed: 1 });
  });

  test('a READ or an atomic with payload is not: its length is a fault that is answered (§9.7.4.1.6)', () => {
    for (const [opcode, more] of [
      [Opcode.RC_RDMA_READ_REQUEST, {}],
      [Opcode.RC_FETCH_ADD, { reth: undefined, atomic: { addr: 0n, rkey: 0, swapAdd: 0n } }],
    ] as const) {
      const { hand, write, counts } = connected();
      hand.put(write(P, { opcode, ...more }));
      counts({ acceptedPackets: 1 });
      expect(hand.out()).toHaveLength(1);
    }
  });
});

test('a congestion notification is counted, for its queue pair where there is one', () => {
  const { hand, side, counts } = connected();
  const packet = hand.packet({ opcode: Opcode.CNP, psn: 0, payload: new Uint8Array(16) });
  hand.put(packet);
  expect(side.adapter.qpCounters(side.qp.qpn).cnpReceived).toBe(1);
  packet[7] ^= 1;
  hand.put(packet);
  counts({ cnpReceived: 2 });
  expect(side.adapter.qpCounters(side.qp.qpn).cnpReceived).toBe(1);
});

describe('from another address than the peer’s', () => {
  test.each([0, 3, 4, 7, 8, 11, 12, 15])('in byte %i', (index) => {
    const gids = [gidOf(2), gid(2)].map((each) => ({ gid: each, address: '', type: 'RoCE v2' as const }));
    const { hand, side, write, counts } = connected({ gids });
    const ahAttr = { ...addressOf(1), grh: { ...addressOf(1).grh, dgid: gid(1), sgidIndex: 1 } };
    side.createQp();
    hand.connect({ rqPsn: P, ahAttr });
    const { rx, adapter } = side;
    hand.putFrom({ local: 1 }, write()); // Fills the slot; its source is no GID of the peer's.
    rx.sources.set(gid(1), 0);
    rx.sources[index] ^= 1;
    adapter.receive(rx);
    counts({ wrongSource: 2 });
    rx.sources[index] ^= 1;
    adapter.receive(rx);
    counts({ wrongSource: 2, acceptedPackets: 1 });
  });
});

test('the second packet of a batch is looked at by its own slot', () => {
  const { hand, side, write, counts } = connected();
  const { rx, adapter } = side;
  hand.put(write(P), write(P + 1), write(P + 2));
  counts({ acceptedPackets: 3 });
  rx.sources[16 + 15] ^= 1;
  rx.slots[2 * RX_SLOT_WORDS + Rx.LOCAL] = 1;
  adapter.receive(rx);
  counts({ acceptedPackets: 4, wrongSource: 2 });
});

describe('a state that does not take it', () => {
  test('requests of RC: RTR, RTS and SQD; responses RTS and SQD', () => {
    const { hand, side, write, counts } = connected();
    const { adapter, qp } = side;
    const response: PacketInit = { opcode: Opcode.RC_ACKNOWLEDGE, psn: 5, aeth: { syndrome: 31 } };
    hand.put(response, write(P));
    counts({ acceptedPackets: 2, staleResponses: 1 });
    adapter.modifyQp(qp.qpn, { qpState: 'SQD' });
    hand.put(response, write(P + 1));
    counts({ acceptedPackets: 4, staleResponses: 2 });
    adapter.modifyQp(qp.qpn, { qpState: 'ERR' });
    hand.put(response, write(P + 2));
    counts({ acceptedPackets: 4, staleResponses: 2, wrongState: 2 });
    adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
    hand.connect({ rqPsn: P }, 'RTR');
    hand.put(response, write(P));
    counts({ acceptedPackets: 5, staleResponses: 2, wrongState: 3 });
  });

  test('datagrams: INIT takes none, RTR does', () => {
    const { hand, side, counts } = connected();
    const { adapter } = side;
    side.createQp({}, { type: 'UD' });
    const { qpn } = side.qp;
    const datagram = hand.packet({ opcode: Opcode.UD_SEND_ONLY, psn: 0, payload: new Uint8Array(12) });
    adapter.modifyQp(qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: QKEY });
    hand.put(datagram);
    counts({ wrongState: 1 });
    adapter.modifyQp(qpn, { qpState: 'RTR' });
    hand.put(datagram);
    counts({ wrongState: 1, acceptedPackets: 1 });
  });
});

describe('for a number that no queue pair has', () => {
  test('it is counted', () => {
    const { hand, write, counts } = connected();
    const packet = hand.packet(write());
    packet[7] ^= 1;
    hand.put(packet);
    counts({ unknownQp: 1 });
  });

  test('the host may create QP1 for a packet to it, and for no other', () => {
    const onGeneralServices = vi.fn(() => {
      side.createQp({}, { type: 'GSI' });
      const { adapter } = side;
      adapter.modifyQp(1, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: QKEY });
      adapter.modifyQp(1, { qpState: 'RTR' });
    });
    const { hand, side, write, counts } = connected({ onGeneralServices });
    const packet = hand.packet(write());
    packet[7] ^= 1;
    hand.put(packet);
    expect(onGeneralServices).not.toHaveBeenCalled();
    const datagram = hand.packet({ opcode: Opcode.UD_SEND_ONLY, psn: 0, payload: new Uint8Array(12) });
    datagram.set([0, 0, 1], 5);
    hand.put(datagram, datagram);
    expect(onGeneralServices).toHaveBeenCalledTimes(1);
    counts({ unknownQp: 1, acceptedPackets: 2 });
  });
});

test('a packet to a group is a datagram to the QPN of groups', () => {
  const peers = { add: () => 0, remove: () => {}, join: () => 1000 };
  const { hand, side, counts, write } = connected({ peers });
  const { adapter } = side;
  side.createQp({}, { type: 'UD' });
  const { qpn } = side.qp;
  adapter.modifyQp(qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: QKEY });
  adapter.modifyQp(qpn, { qpState: 'RTR' });
  const group = Uint8Array.from(addressOf(1).grh.dgid, (byte, i) => (i === 12 ? 239 : byte));
  adapter.attachMcast(qpn, group);
  const datagram = hand.packet({ opcode: Opcode.UD_SEND_ONLY, psn: 0, payload: new Uint8Array(12) });
  hand.putFrom({ local: 1000 }, datagram); // To the queue pair's own number.
  counts({ unknownQp: 1 });
  const other = hand.packet(write());
  other.set([0xff, 0xff, 0xff], 5);
  hand.putFrom({ local: 1000 }, other);
  counts({ unknownQp: 2 });
  datagram.set([0xff, 0xff, 0xff], 5);
  hand.putFrom({ local: 0 }, datagram);
  counts({ unknownQp: 3 });
  hand.putFrom({ local: 1000 }, datagram);
  counts({ unknownQp: 3, acceptedPackets: 1 });
});
