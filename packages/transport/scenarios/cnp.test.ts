/** Congestion notification packets of an adapter: those it sends for marks, and when; and those it obeys (IBTA vol 1 annex A17.9). */
import { bthOpcode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { type Congestion, type QpType, TX_SLOT_WORDS, Tx } from '../src/index.ts';
import { ByHand, type PacketInit } from '../testing/by-hand.ts';
import { addressOf } from '../testing/pair.ts';

const P = 1000;
const CE = 3;
/** Of a connection with traffic class 104: DSCP 26. */
const DSCP = 104;
const PEER_QPN = 77;

function setUp(congestion: Partial<Congestion> = { controller: 'dcqcn' }, type: QpType = 'RC') {
  const ahAttr = { ...addressOf(1), grh: { ...addressOf(1).grh, trafficClass: DSCP } };
  const hand = new ByHand({ rqPsn: P, ahAttr }, { congestion });
  const { side } = hand;
  if (type === 'UC') {
    side.createQp({}, { type });
    const { adapter, qp } = side;
    const way = { ahAttr, pathMtu: 1024, destQpNum: PEER_QPN, rqPsn: P };
    adapter.modifyQp(qp.qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0xe });
    adapter.modifyQp(qp.qpn, { qpState: 'RTR', ...way });
    adapter.modifyQp(qp.qpn, { qpState: 'RTS', sqPsn: 1 });
  }
  const region = side.register(new ArrayBuffer(1 << 20));
  let psn = P;
  /** A packet of the peer, with this traffic class. */
  const arrives = (trafficClass: number, more: Partial<PacketInit> = {}) => {
    const opcode = type === 'UC' ? Opcode.UC_RDMA_WRITE_ONLY : Opcode.RC_RDMA_WRITE_ONLY;
    const { addr, rkey } = region;
    const init = {
      opcode,
      psn: psn++,
      ackReq: false,
      reth: { addr, rkey, length: 4 },
      payload: new Uint8Array(4),
      ...more,
    };
    hand.putFrom({ trafficClass }, init);
  };
  /** The packets that leave now, with their traffic classes. */
  const leaves = () => {
    const { tx, adapter } = side;
    tx.clear();
    adapter.transmit(tx);
    const packets = Array.from({ length: tx.count }, (_, i) => ({
      opcode: bthOpcode(tx.headers, tx.slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET]),
      trafficClass: tx.slots[i * TX_SLOT_WORDS + Tx.TRAFFIC_CLASS],
      bytes: tx.headers.slice(
        tx.slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET],
        tx.slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET] + tx.slots[i * TX_SLOT_WORDS + Tx.HEADER_LENGTH],
      ),
      payload: tx.slots[i * TX_SLOT_WORDS + Tx.PAYLOAD_LENGTH],
    }));
    adapter.sent(tx);
    adapter.checkInvariants();
    return packets;
  };
  const cnps = () => leaves().filter(({ opcode }) => opcode === Opcode.CNP).length;
  /** Goes to a time with every timer on the way, and returns when CNPs left. */
  const goTo = (end: number) => {
    const times: number[] = [];
    for (;;) {
      for (let i = cnps(); i > 0; i--) times.push(hand.now);
      const next = side.adapter.nextDeadline();
      if (next > end) break;
      hand.now = Math.max(hand.now, next);
      side.adapter.advance();
    }
    hand.now = end;
    return times;
  };
  const counts = () => side.adapter.qpCounters(side.qp.qpn);
  return { hand, side, region, arrives, leaves, cnps, goTo, counts };
}

const cnp = (hand: ByHand, more: Partial<PacketInit> = {}) =>
  hand.packet({ opcode: Opcode.CNP, psn: 0, ackReq: false, payload: new Uint8Array(16), ...more });

describe('sent', () => {
  test('bytes: as ConnectX sends it, but for the queue pair and without ECT', () => {
    const { arrives, leaves, counts } = setUp();
    arrives(CE);
    expect(
      leaves().map(({ bytes, ...packet }) => ({ ...packet, bytes: Buffer.from(bytes).toString('hex') })),
    ).toEqual([
      {
        opcode: Opcode.CNP,
        trafficClass: 48 << 2,
        payload: 0,
        // BECN; MigReq 0; PSN 0; 16 reserved bytes of zero.
        bytes: `8100ffff${'40'}00004d${'00000000'}${'00'.repeat(16)}`,
      },
    ]);
    expect(counts()).toMatchObject({ ecnMarked: 1, cnpSent: 1 });
  });

  test.each<[string, Partial<Congestion>, QpType, number]>([
    ['by default', {}, 'RC', 0],
    ['to UC too', { notify: true }, 'UC', 1],
    ['without a rate of its own', { notify: true }, 'RC', 1],
    ['not, where that is switched off', { controller: 'dcqcn', notify: false }, 'RC', 0],
  ])('%s', (_what, congestion, type, expected) => {
    const { arrives, cnps, counts } = setUp(congestion, type);
    for (const trafficClass of [CE, DSCP | CE]) arrives(trafficClass);
    expect([cnps(), counts().cnpSent, counts().ecnMarked]).toEqual([expected, expected, 2]);
  });

  test('not for packets without a mark, nor for those that are nobody’s', () => {
    const { hand, arrives, cnps } = setUp();
    for (const trafficClass of [0, 1, 2, DSCP, DSCP | 2]) arrives(trafficClass);
    const stranger = hand.packet({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0, aeth: { syndrome: 31 } });
    hand.putFrom({ source: 9, trafficClass: CE }, stranger);
    expect(cnps()).toBe(0);
  });

  test('one at once, then one for each interval with a mark, to the µs', () => {
    const { hand, arrives, goTo } = setUp();
    const sent: number[] = [];
    // Marks at every 7 µs up to 200, none up to 400, then two that are near.
    for (let at = 3; at < 200; at += 7) {
      sent.push(...goTo(at));
      arrives(CE);
    }
    sent.push(...goTo(400));
    expect(sent).toEqual([3, 53, 103, 153, 203]);
    arrives(CE);
    sent.push(...goTo(401));
    arrives(CE);
    arrives(CE);
    sent.push(...goTo(1000));
    expect(sent.slice(5)).toEqual([400, 450]);
    expect(hand.side.adapter.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  test('the interval is an option, and each queue pair has its own', () => {
    const { hand, side, arrives, goTo } = setUp({ controller: 'dcqcn', minTimeBetweenCnps: 4 });
    arrives(CE);
    expect(goTo(0)).toEqual([0]);
    side.createQp();
    hand.connect({ rqPsn: 3000 });
    arrives(CE, { psn: 3000 });
    expect(goTo(1)).toEqual([0]);
    arrives(CE, { psn: 3001 });
    expect(goTo(100)).toEqual([4]);
  });

  test('random marks: never nearer than the interval, and none is left without an answer', () => {
    const { hand, arrives, goTo } = setUp();
    const marks: number[] = [];
    const sent: number[] = [];
    for (let i = 0, at = 0; i < 2000; i++) {
      at += (i * 2_654_435_761) % (i % 17 === 0 ? 211 : 13);
      sent.push(...goTo(at));
      arrives(CE);
      marks.push(at);
    }
    sent.push(...goTo(hand.now + 100));
    for (let i = 1; i < sent.length; i++) expect(sent[i] - sent[i - 1]).toBeGreaterThanOrEqual(50);
    for (const at of marks) expect(sent.some((time) => time >= at && time <= at + 50)).toBe(true);
    expect(sent.length).toBeGreaterThan(100);
  });

  test('none after RESET and ERR, and the next connection begins anew', () => {
    const { hand, side, arrives, cnps, goTo } = setUp();
    arrives(CE);
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'ERR' });
    expect(cnps()).toBe(0);
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    hand.connect({ rqPsn: P });
    arrives(CE, { psn: P });
    expect(goTo(0)).toEqual([0]);
    arrives(CE, { psn: P + 1 });
    side.adapter.destroyQp(side.qp.qpn);
    expect([goTo(100), side.adapter.counters().cnpSent]).toEqual([[], 1]);
    side.adapter.checkInvariants();
  });

  test('in addition to the ACK and the NAK that answer the same packets', () => {
    const { arrives, leaves } = setUp();
    arrives(CE, { ackReq: true });
    expect(leaves().map(({ opcode }) => opcode)).toEqual([Opcode.CNP, Opcode.RC_ACKNOWLEDGE]);
    arrives(CE, { psn: P + 7 });
    expect(leaves().map(({ opcode }) => opcode)).toEqual([Opcode.RC_ACKNOWLEDGE]);
  });
});

describe('data', () => {
  test.each([
    ['dcqcn', DSCP | 2],
    ['aimd', DSCP],
  ] as const)('%s: packets with payload carry %i, others the traffic class alone', (controller, expected) => {
    const { side, region, arrives, leaves } = setUp({ controller });
    const { addr, rkey } = region;
    side.post({ opcode: 'RDMA_WRITE', sge: [{ mr: region, length: 3000 }], remote: { addr, rkey } });
    arrives(0, {
      opcode: Opcode.RC_RDMA_READ_REQUEST,
      reth: { addr, rkey, length: 2000 },
      payload: new Uint8Array(0),
    });
    arrives(0, { psn: P + 2, ackReq: true });
    side.post({ opcode: 'RDMA_READ', sge: [{ mr: region, length: 8 }], remote: { addr, rkey } });
    const seen = leaves();
    expect(seen.filter(({ payload }) => payload > 0)).toHaveLength(3 + 2);
    expect(seen.filter(({ payload }) => payload === 0)).toHaveLength(2);
    for (const { payload, trafficClass } of seen) expect(trafficClass).toBe(payload > 0 ? expected : DSCP);
  });

  test('a traffic class with ECN bits of its own is no mark', () => {
    const { hand, side, region, leaves } = setUp();
    side.createQp();
    const ahAttr = { ...addressOf(1), grh: { ...addressOf(1).grh, trafficClass: 0x61 } };
    hand.connect({ ahAttr });
    side.post({ opcode: 'RDMA_WRITE', sge: [{ mr: region, length: 8 }], remote: region });
    expect(leaves()[0].trafficClass).toBe(0x62);
  });
});

describe('received', () => {
  test('from the peer: obeyed', () => {
    const { hand, counts, side } = setUp();
    hand.put(cnp(hand));
    expect(counts()).toMatchObject({ cnpReceived: 1, cnpHandled: 1, receivedPackets: 0 });
    expect(side.adapter.counters()).toMatchObject({ cnpReceived: 1, cnpHandled: 1 });
    expect(hand.out()).toEqual([]);
  });

  test('MigReq, reserved bits and a source port of any kind make no difference', () => {
    const { hand, counts } = setUp();
    const packet = cnp(hand);
    packet[1] ^= 0x40;
    packet[4] = 0x7f;
    packet.fill(0xaa, 12);
    hand.put(packet);
    expect(counts().cnpHandled).toBe(1);
  });

  type Setting = ReturnType<typeof setUp>;
  test.each<[string, Partial<Congestion>, (set: Setting) => void, number]>([
    ['where it is off', {}, ({ hand }) => hand.put(cnp(hand)), 1],
    ['from a stranger', { controller: 'dcqcn' }, ({ hand }) => hand.putFrom({ source: 9 }, cnp(hand)), 1],
    ['at another address', { controller: 'dcqcn' }, ({ hand }) => hand.putFrom({ local: 5 }, cnp(hand)), 1],
    ['in another partition', { controller: 'dcqcn' }, ({ hand }) => hand.put(cnp(hand, { pkey: 0x1234 })), 1],
    ['too short', { controller: 'dcqcn' }, ({ hand }) => hand.put(cnp(hand).subarray(0, 12)), 1],
    [
      'too long',
      { controller: 'dcqcn' },
      ({ hand }) => hand.put(cnp(hand, { payload: new Uint8Array(20) })),
      1,
    ],
    [
      'for no queue pair',
      { controller: 'dcqcn' },
      ({ hand }) => {
        const packet = cnp(hand);
        packet[7] ^= 1;
        hand.put(packet);
      },
      0,
    ],
    [
      'for a queue pair in INIT',
      { controller: 'dcqcn' },
      ({ hand, side }) => {
        side.createQp();
        side.adapter.modifyQp(side.qp.qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
        hand.putFrom({ source: 0 }, cnp(hand));
        hand.put(cnp(hand));
      },
      2,
    ],
    [
      'for one in ERR',
      { controller: 'dcqcn' },
      ({ hand, side }) => {
        side.adapter.modifyQp(side.qp.qpn, { qpState: 'ERR' });
        hand.put(cnp(hand));
      },
      1,
    ],
    [
      'for UC',
      { controller: 'dcqcn' },
      ({ hand, side }) => {
        side.createQp({}, { type: 'UC' });
        const { adapter, qp } = side;
        adapter.modifyQp(qp.qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
        const way = { ahAttr: addressOf(1), pathMtu: 1024, destQpNum: PEER_QPN, rqPsn: 0 };
        adapter.modifyQp(qp.qpn, { qpState: 'RTR', ...way });
        hand.put(cnp(hand));
      },
      1,
    ],
  ])('%s: ignored and counted', (_what, congestion, put, received) => {
    const set = setUp(congestion);
    put(set);
    expect(set.counts()).toMatchObject({ cnpReceived: received, cnpHandled: 0 });
    const { cnpReceived, cnpHandled, malformed, wrongState, wrongSource } = set.side.adapter.counters();
    expect(cnpReceived).toBeGreaterThan(0);
    expect({ cnpHandled, malformed, wrongState, wrongSource }).toEqual({
      cnpHandled: 0,
      malformed: 0,
      wrongState: 0,
      wrongSource: 0,
    });
    expect(set.hand.out()).toEqual([]);
  });
});
