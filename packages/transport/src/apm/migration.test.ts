/** Automatic path migration (IBTA vol 1 §17.2.8). The rules are those of docs/rules.md, by number. */
import { bthMigReq, Opcode, opcodeInfo } from '@node-roce/wire';
import { describe, expect, test, vi } from 'vitest';
import { ByHand, inShort, type PacketInit } from '../../testing/by-hand.ts';
import { addressOf, gidOf, type Packet, Pair, type PairOptions, Side } from '../../testing/pair.ts';
import { alternateTo, migrating } from '../../testing/two-paths.ts';
import { InboundPacket } from '../inbound.ts';
import { Icrc, type QpAttr, type QpType, RX_SLOT_WORDS, Rx, RxBatch, Tx, TxBatch } from '../index.ts';
import type { QpAttributes } from '../qp/attributes.ts';
import { PathMigration } from './migration.ts';

const MTU = 1024;
const KEPT = 60_000;

/** Two sides with two paths between them, and memory that left writes into right's. */
function open({ attr = {}, ...options }: PairOptions = {}) {
  const pair = new Pair({
    left: migrating(1),
    right: migrating(2),
    attr: { timeout: 8, retryCnt: 2, ...attr },
    ...options,
  });
  const { left, right } = pair;
  const source = Uint8Array.from({ length: KEPT }, (_, i) => i * 7 + (i >> 8));
  const target = new Uint8Array(KEPT);
  const from = left.register(source.buffer);
  const to = right.register(target.buffer);
  const modify = (side: Side, change: QpAttr) => side.adapter.modifyQp(side.qp.qpn, change);
  const query = (side: Side) => side.adapter.queryQp(side.qp.qpn).attr;
  const states = () => [left, right].map((side) => query(side).pathMigState);
  const write = (length = 100, wrId = 1) =>
    left.post({
      opcode: 'RDMA_WRITE',
      wrId,
      sge: [{ mr: from, length }],
      remote: { addr: to.addr, rkey: to.rkey },
    });
  const load = (side: Side, change: Partial<QpAttr> = {}) =>
    modify(side, { ...alternateTo(side === left ? 2 : 1, change), pathMigState: 'REARM' });
  /** A message, and its ACK. */
  const exchange = () => {
    write();
    pair.run();
    expect(left.poll().map(({ status }) => status)).toEqual(['SUCCESS']);
  };
  /** Both are ARMED: each has seen the other one's bit fall. */
  const arm = () => {
    exchange();
    load(left);
    load(right);
    exchange();
    expect(states()).toEqual(['ARMED', 'ARMED']);
  };
  const events = (side: Side) => side.events.splice(0).map(({ type }) => type);
  const bits = (from: Side) =>
    pair.sent.filter((p) => p.from === from).map(({ packet }) => bthMigReq(packet, 0));
  const cut = (path: number) => {
    pair.fault = (packet, _now, sgidIndex) => (sgidIndex === path ? [] : [{ packet, delay: 0 }]);
  };
  return {
    pair,
    left,
    right,
    source,
    target,
    from,
    to,
    modify,
    query,
    states,
    write,
    load,
    exchange,
    arm,
    events,
    bits,
    cut,
  };
}

describe('arming', () => {
  test('P1: a connection starts MIGRATED, and its packets have MigReq set', () => {
    const { left, right, states, exchange, bits } = open();
    exchange();
    expect(states()).toEqual(['MIGRATED', 'MIGRATED']);
    expect([...bits(left), ...bits(right)]).toEqual([1, 1]);
  });

  test('P2: in REARM and ARMED requests, ACKs and READ responses have MigReq 0', () => {
    const { pair, left, right, load, states, exchange, bits, from, to } = open();
    exchange();
    load(left);
    load(right);
    pair.sent.length = 0;
    exchange();
    left.post({
      opcode: 'RDMA_READ',
      sge: [{ mr: from, length: 3000 }],
      remote: { addr: to.addr, rkey: to.rkey },
    });
    left.post({
      opcode: 'ATOMIC_FETCH_AND_ADD',
      sge: [{ mr: from, length: 8 }],
      remote: { addr: to.addr, rkey: to.rkey },
    });
    pair.run();
    expect(states()).toEqual(['ARMED', 'ARMED']);
    expect(bits(left)).toEqual([0, 0, 0]);
    expect(bits(right)).toEqual([0, 0, 0, 0, 0]);
  });

  test('P3: REARM becomes ARMED when the bit of the peer, which was 1, is 0', () => {
    const { left, right, load, states, exchange } = open();
    exchange();
    load(left);
    exchange();
    expect(states()).toEqual(['REARM', 'MIGRATED']);
    load(right);
    exchange();
    expect(states()).toEqual(['ARMED', 'ARMED']);
    expect([left.events, right.events]).toEqual([[], []]);
  });

  test('P4: a peer that always sends 0 arms nobody', () => {
    const { left, right, load, states, exchange } = open();
    // It goes to REARM before its first packet, so that none ever has the bit.
    load(right);
    load(left);
    exchange();
    exchange();
    expect(states()).toEqual(['REARM', 'REARM']);
  });

  test('P4: rxe, which always sends 0, and whose connection then fails as one without other paths', () => {
    const { hand, side, ack, events } = byHand();
    side.adapter.modifyQp(side.qp.qpn, { ...alternateTo(1), pathMigState: 'REARM' });
    hand.put(ack(0x500, 0));
    post(side);
    hand.out();
    hand.put(ack(0x500, 0));
    expect(side.poll().map(({ status }) => status)).toEqual(['SUCCESS']);
    expect(side.adapter.queryQp(side.qp.qpn).attr.pathMigState).toBe('REARM');
    post(side);
    hand.run(10_000_000);
    expect(side.poll().map(({ status }) => status)).toEqual(['RETRY_EXC_ERR']);
    expect(events()).toEqual([]);
  });

  test('P5: the step is refused without a whole alternate path, and to ARMED', () => {
    const { left, modify, query } = open();
    const before = query(left);
    const refused = (change: QpAttr, attribute: string, code: string) => {
      expect(() => modify(left, change)).toThrow(
        expect.objectContaining({ attribute, code, errno: 'EINVAL' }),
      );
      expect(query(left)).toEqual(before);
    };
    refused({ pathMigState: 'REARM' }, 'altAhAttr', 'ERR_ROCE_MISSING_ATTRIBUTE');
    refused({ ...alternateTo(2), pathMigState: 'ARMED' }, 'pathMigState', 'ERR_ROCE_INVALID_ATTRIBUTE');
    for (const name of ['altAhAttr', 'altPkeyIndex', 'altPortNum', 'altTimeout'] as const) {
      const { [name]: _, ...rest } = alternateTo(2);
      refused(rest, name, 'ERR_ROCE_MISSING_ATTRIBUTE');
    }
  });

  test('P5: MIGRATED is refused in REARM, where the peer may be armed', () => {
    const { left, modify, load, states } = open();
    load(left);
    expect(() => modify(left, { pathMigState: 'MIGRATED' })).toThrow(
      expect.objectContaining({ attribute: 'pathMigState', errno: 'EINVAL' }),
    );
    expect(states()[0]).toBe('REARM');
  });

  test('P5: MIGRATED where it is so, and REARM once more, change nothing', () => {
    const { left, right, modify, load, states, arm, exchange } = open();
    modify(left, { pathMigState: 'MIGRATED' });
    expect(states()).toEqual(['MIGRATED', 'MIGRATED']);
    arm();
    load(left);
    expect(states()).toEqual(['REARM', 'ARMED']);
    exchange();
    expect(states()).toEqual(['ARMED', 'ARMED']);
    expect([left.events, right.events]).toEqual([[], []]);
  });

  test.each<[keyof QpAttr, unknown[]]>([
    ['altPkeyIndex', [-1, 1, 0.5]],
    ['altPortNum', [0, 2]],
    ['altTimeout', [-1, 32]],
    ['pathMigState', ['armed', 1]],
  ])('P6: %s out of its range', (name, values) => {
    const { left, modify, query } = open();
    const before = query(left);
    for (const value of values) {
      expect(() => modify(left, { ...alternateTo(2), [name]: value })).toThrow(
        expect.objectContaining({ attribute: name, errno: 'EINVAL' }),
      );
    }
    expect(query(left)).toEqual(before);
  });

  test('P6: an alternate address vector that leads nowhere is named', () => {
    const { left, modify } = open();
    const { altAhAttr } = alternateTo(2);
    const wrong = { ...altAhAttr!, grh: { ...altAhAttr!.grh, sgidIndex: 2 } };
    expect(() => modify(left, { ...alternateTo(2), altAhAttr: wrong })).toThrow(
      expect.objectContaining({ attribute: 'altAhAttr.grh.sgidIndex' }),
    );
  });
});

describe('migrating', () => {
  test('P13: what was lost on the path before is not awaited, though the peer has more than was retransmitted', () => {
    const probes = { recovery: { probes: false } };
    const { pair, left, right, arm, write } = open({
      left: { ...migrating(1), ...probes },
      right: { ...migrating(2), ...probes },
    });
    arm();
    // All fits into the window by then, but not into that of a new path.
    write(KEPT);
    pair.run();
    left.poll();
    let arrive = 40;
    pair.fault = (packet, _now, sgidIndex, from) =>
      sgidIndex === 1 || (from === left && arrive-- > 0) ? [{ packet, delay: 0 }] : [];
    write(KEPT);
    pair.run();
    expect(left.poll().map(({ status }) => status)).toEqual(['SUCCESS']);
    // Those of the primary path.
    expect(left.adapter.counters().timeouts).toBe(3);
    expect([left, right].map(({ adapter }) => adapter.counters().retryExceededErr)).toEqual([0, 0]);
  });

  test.each([0, 1])(
    'P7: with the retries of the primary path used up, in the middle of a message (path cut after %i packets)',
    (after) => {
      const { pair, left, right, source, target, arm, write, states, events, query } = open();
      arm();
      let left0 = after;
      pair.fault = (packet, _now, sgidIndex) =>
        sgidIndex === 0 && left0-- <= 0 ? [] : [{ packet, delay: 0 }];
      write(KEPT);
      pair.run();
      expect(left.poll().map(({ status }) => status)).toEqual(['SUCCESS']);
      expect(target).toEqual(source);
      expect(states()).toEqual(['MIGRATED', 'MIGRATED']);
      expect([events(left), events(right)]).toEqual([['PATH_MIG'], ['PATH_MIG']]);
      for (const side of [left, right]) {
        const { ahAttr, timeout, altAhAttr } = query(side);
        expect(ahAttr!.grh.sgidIndex).toBe(1);
        expect([timeout, altAhAttr]).toEqual([13, undefined]);
      }
    },
  );

  test('P8: the retries reload: as many again on the other path, at its timeout, then RETRY_EXC_ERR', () => {
    const { pair, left, arm, write, events } = open({
      left: { ...migrating(1), recovery: { probes: false } },
    });
    arm();
    pair.sent.length = 0;
    pair.fault = () => [];
    const start = pair.now;
    write();
    pair.run(10_000_000);
    expect(left.poll().map(({ status }) => status)).toEqual(['RETRY_EXC_ERR']);
    expect(events(left)).toEqual(['PATH_MIG']);
    const times = pair.sent.map(({ at }) => at - start);
    const primary = 2 * 4.096 * 2 ** 8;
    const alternate = 2 * 4.096 * 2 ** 13;
    const expected = [0, 1, 2].map((i) => i * primary);
    expected.push(...[0, 1, 2].map((i) => 3 * primary + i * alternate));
    expect(times).toHaveLength(6);
    for (const [i, at] of times.entries()) expect(at).toBeCloseTo(expected[i], 3);
    expect(pair.sent.map(({ packet }) => bthMigReq(packet, 0))).toEqual([0, 0, 0, 1, 1, 1]);
  });

  test('P8: not while the receiver is not ready: RNR retries end as they do', () => {
    const { pair, left, arm, events, from } = open({ attr: { rnrRetry: 1, minRnrTimer: 1 } });
    arm();
    left.post({ opcode: 'SEND', sge: [{ mr: from, length: 8 }] });
    pair.run();
    expect(left.poll().map(({ status }) => status)).toEqual(['RNR_RETRY_EXC_ERR']);
    expect(events(left)).toEqual([]);
  });

  test.each(['left', 'right'] as const)('P9: by modify at %s, with the peer', (name) => {
    const { pair, left, right, source, target, arm, write, states, events, modify, cut } = open();
    arm();
    write(KEPT);
    pair.run(15);
    modify(pair[name], { pathMigState: 'MIGRATED' });
    cut(0);
    pair.run();
    expect(left.poll().map(({ status }) => status)).toEqual(['SUCCESS']);
    expect(target).toEqual(source);
    expect(states()).toEqual(['MIGRATED', 'MIGRATED']);
    expect([events(left), events(right)]).toEqual([['PATH_MIG'], ['PATH_MIG']]);
  });

  test('P9: both at once', () => {
    const { left, right, arm, states, events, modify, exchange } = open();
    arm();
    modify(left, { pathMigState: 'MIGRATED' });
    modify(right, { pathMigState: 'MIGRATED' });
    exchange();
    expect(states()).toEqual(['MIGRATED', 'MIGRATED']);
    expect([events(left), events(right)]).toEqual([['PATH_MIG'], ['PATH_MIG']]);
  });

  test('P10: the bit of a packet by the alternate path takes the peer along, and the packet counts', () => {
    const { hand, side, slot, arm, write, events } = byHand();
    arm();
    hand.putFrom({ source: 11, local: 1 }, write(1001, 1));
    expect(events()).toEqual(['PATH_MIG']);
    const slots = slot();
    expect(side.routes[slots[Tx.PEER]]).toMatchObject({ sgidIndex: 1 });
    expect(side.adapter.queryQp(side.qp.qpn).attr.rqPsn).toBe(1002);
  });

  test('P10: in REARM as well: the packets by which the peer armed this side are lost', () => {
    const { hand, side, write, events } = byHand();
    hand.put(write(999, 1));
    hand.out();
    side.adapter.modifyQp(side.qp.qpn, { ...alternateTo(1), pathMigState: 'REARM' });
    hand.putFrom({ source: 11, local: 1 }, write(1000, 1));
    expect(events()).toEqual(['PATH_MIG']);
    expect(side.adapter.queryQp(side.qp.qpn).attr).toMatchObject({ pathMigState: 'MIGRATED', rqPsn: 1001 });
  });

  test('P20: a late copy by the alternate path moves nobody to a path that is dead', () => {
    const { pair, left, right, arm, modify, write, cut, exchange, states, events } = open();
    exchange();
    const old = pair.sent.find(({ from }) => from === left)!.packet;
    arm();
    cut(0);
    write();
    pair.run();
    expect(states()).toEqual(['MIGRATED', 'MIGRATED']);
    // The dead path is the alternate one now.
    modify(left, { ...alternateTo(2, {}, 0), pathMigState: 'REARM' });
    modify(right, { ...alternateTo(1, {}, 0), pathMigState: 'REARM' });
    write();
    pair.run();
    expect(states()).toEqual(['ARMED', 'ARMED']);
    left.poll();
    events(right);
    arrive(right, old, { source: 1, local: 0 });
    expect([states(), events(right)]).toEqual([['ARMED', 'ARMED'], []]);
    expect(right.adapter.counters().wrongSource).toBe(1);
    write();
    pair.run();
    expect(left.poll().map(({ status }) => status)).toEqual(['SUCCESS']);
  });

  test.each<[string, number, number]>([
    ['that is ahead', 1002, 1],
    ['far ahead', 1001 + 0x7f_ffff, 1],
    ['of long ago', 1001 - 1025, 2],
    ['of the half circle before', 1001 - 0x80_0000, 2],
    ['from before REARM', 999, 1],
  ])('P20: the bit of a request %s means nothing', (_what, psn, times) => {
    const { hand, side, arm, write, events, state } = byHand();
    arm();
    for (let i = 0; i < times; i++) hand.putFrom({ source: 11, local: 1 }, write(psn, 1));
    // Nor does the path that nobody knows.
    hand.putFrom({ source: 9, local: 1 }, write(psn, 1));
    expect(events()).toEqual([]);
    expect(state()).toMatchObject({ pathMigState: 'ARMED', rqPsn: 1001 });
    expect(side.adapter.counters().wrongSource).toBe(times + 1);
    expect(hand.out()).toEqual([]);
  });

  test.each<[string, number, number]>([
    ['a repetition since REARM', 1000, 1],
    ['one from before REARM, the second time', 999, 2],
  ])('P20: %s takes the peer along, and is acknowledged: its ACK was lost', (_what, psn, times) => {
    const { hand, arm, write, events, state } = byHand();
    arm();
    for (let i = 0; i < times; i++) hand.putFrom({ source: 11, local: 1 }, write(psn, 1));
    expect(events()).toEqual(['PATH_MIG']);
    expect(state().pathMigState).toBe('MIGRATED');
    expect(hand.out().map(inShort)).toEqual([['ACKNOWLEDGE', 1000, 0x1f]]);
  });

  test.each([
    ['two at a time', [997, 998, 997]],
    ['many at a time', [996, 997, 998, 999, 996]],
    ['two at a time, after a late copy of one before them', [995, 997, 998, 997, 998, 997]],
  ])('P20: requests from before REARM (%s) take the peer along when it begins anew', (_what, psns) => {
    const { hand, arm, write, events, state } = byHand();
    arm();
    for (const psn of psns.slice(0, -1)) hand.putFrom({ source: 11, local: 1 }, write(psn, 1));
    expect(events()).toEqual([]);
    hand.putFrom({ source: 11, local: 1 }, write(psns.at(-1)!, 1));
    expect(events()).toEqual(['PATH_MIG']);
    expect(state().pathMigState).toBe('MIGRATED');
    expect(hand.out().map(inShort)).toEqual([['ACKNOWLEDGE', 1000, 0x1f]]);
  });

  // By itself: so many packets take a while. A READ of 2 GiB takes 2^23 PSNs.
  test.each([
    [2 ** 20, 4],
    [2 ** 20, 9],
    [2 ** 20, 15],
    [2 ** 20, 17],
    [2 ** 23, 1],
    [2 ** 23, 2],
    [2 ** 23, 3],
  ])('P20: the peer is heard %i PSNs after REARM, %i times', (step, times) => {
    const source = new Uint32Array(gidOf(1).buffer);
    const other = new Uint32Array(gidOf(11).buffer);
    const hand = new ByHand({}, migrating(2));
    const qp = {
      qpn: 5,
      attributes: { source, local: 0, alternate: { source: other, local: 1 } } as unknown as QpAttributes,
      expectedPsn: 0,
      awaits: ({ psn }: InboundPacket) => psn === qp.expectedPsn,
      takePath: vi.fn(),
      setMigReq() {},
      event() {},
    };
    const migration = new PathMigration(qp);
    const opcode = Opcode.RC_RDMA_READ_REQUEST;
    const packet = new InboundPacket();
    const rx = new RxBatch(1, 64);
    const admit = (from: number, local: number, bit: number) => {
      const reth = { addr: 0n, rkey: 0, length: 0 };
      rx.slab.set(withBit(hand, { opcode, psn: qp.expectedPsn, reth }, bit));
      rx.sources.set(gidOf(from));
      rx.slots[Rx.LOCAL] = local;
      packet.fill(rx, 0, 0, opcodeInfo(opcode)!, 0);
      return migration.admit(packet);
    };
    admit(1, 0, 1);
    migration.enter('REARM');
    admit(1, 0, 0);
    expect(migration.state).toBe('ARMED');
    for (let i = 0; i < times; i++) {
      admit(1, 0, 0);
      qp.expectedPsn = (qp.expectedPsn + step) & 0xff_ffff;
    }
    expect(admit(11, 1, 1)).toBe(true);
    expect(qp.takePath).toHaveBeenCalledOnce();
  });

  test('P20: a READ that is repeated takes the peer along while it is remembered', () => {
    const { hand, side, arm, events } = byHand();
    arm();
    const { addr, rkey } = side.register(new ArrayBuffer(8192));
    const read = (psn: number, length: number, bit: number) =>
      withBit(hand, { opcode: Opcode.RC_RDMA_READ_REQUEST, psn, reth: { addr, rkey, length } }, bit);
    hand.put(read(1001, 2048, 0));
    expect(hand.out()).toHaveLength(2);
    // Of the two responses one was asked for again.
    const rest = withBit(
      hand,
      { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1002, reth: { addr: addr + 1024n, rkey, length: 1024 } },
      1,
    );
    hand.putFrom({ source: 11, local: 1 }, rest);
    expect(events()).toEqual(['PATH_MIG']);
    expect(hand.out().map(inShort)).toEqual([['RDMA_READ_RESPONSE_ONLY', 1002]]);
  });

  test('P20: an ACK takes this side along if it is for a packet in flight', () => {
    const { hand, side, arm, ack, events, state } = byHand();
    arm();
    for (const psn of [0x4ff, 0x500]) hand.putFrom({ source: 11, local: 1 }, ack(psn, 1));
    expect(events()).toEqual([]);
    post(side);
    hand.out();
    hand.putFrom({ source: 11, local: 1 }, ack(0x501, 1));
    expect([events(), state().pathMigState]).toEqual([[], 'ARMED']);
    hand.putFrom({ source: 11, local: 1 }, ack(0x500, 1));
    expect([events(), state().pathMigState]).toEqual([['PATH_MIG'], 'MIGRATED']);
    expect(side.poll().map(({ status }) => status)).toEqual(['SUCCESS']);
  });

  test('P20: late copies by the primary path arm nobody', () => {
    const { hand, side, write, state } = byHand();
    hand.put(write(999, 1), write(1000, 1));
    side.adapter.modifyQp(side.qp.qpn, { ...alternateTo(1), pathMigState: 'REARM' });
    hand.put(write(999, 0), write(1000, 0), write(1002, 0));
    expect(state().pathMigState).toBe('REARM');
    hand.put(write(1001, 0));
    expect(state().pathMigState).toBe('ARMED');
  });

  test('P7: a sequence NAK without a retry left, beyond what an RNR NAK had put back: the other path goes on there', () => {
    const gids = migrating(2);
    const hand = new ByHand({ retryCnt: 0, timeout: 14, rqPsn: 999 }, gids);
    const { side } = hand;
    const write = (psn: number, bit: number) =>
      withBit(hand, { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn, reth: { addr: 0n, rkey: 0, length: 0 } }, bit);
    hand.put(write(999, 1));
    side.adapter.modifyQp(side.qp.qpn, { ...alternateTo(1), pathMigState: 'REARM' });
    hand.put(write(1000, 0));
    hand.out();
    const answer = (psn: number, syndrome: number) =>
      hand.put(withBit(hand, { opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome } }, 0));
    // The first ACK brings credits without a limit.
    post(side);
    hand.out();
    answer(0x500, 0x1f);
    for (let i = 0; i < 8; i++) side.post({ wrId: i, opcode: 'SEND', inline: Uint8Array.of(i) });
    expect(hand.out()).toHaveLength(8);
    answer(0x502, 0x20 | 1);
    side.poll();
    hand.now += 100;
    side.adapter.advance();
    // The link takes two of the retransmitted packets; of the first sending, all up to the sixth arrived.
    const tx = new TxBatch(side.adapter.regions, 2);
    side.adapter.transmit(tx);
    side.adapter.sent(tx);
    answer(0x507, 0x60);
    expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual(
      [1, 2, 3, 4, 5].map((i) => [i, 'SUCCESS']),
    );
    expect(side.adapter.queryQp(side.qp.qpn).attr.pathMigState).toBe('MIGRATED');
    expect(hand.out().map(inShort)).toEqual([
      ['SEND_ONLY', 0x507],
      ['SEND_ONLY', 0x508],
    ]);
  });

  test('P11: a request for another path than the alternate one: PATH_MIG_ERR, once, and the packet is dropped', () => {
    const { hand, side, arm, write, events, state } = byHand();
    arm();
    // By the primary path, from elsewhere, to the wrong GID.
    hand.put(write(1001, 1));
    hand.putFrom({ source: 9, local: 1 }, write(1001, 1));
    hand.putFrom({ source: 11, local: 0 }, write(1001, 1));
    expect(events()).toEqual(['PATH_MIG_ERR']);
    expect(state()).toMatchObject({ pathMigState: 'ARMED', rqPsn: 1001 });
    expect(side.adapter.counters().wrongSource).toBe(3);
    // It is raised again after the next REARM.
    side.adapter.modifyQp(side.qp.qpn, { pathMigState: 'REARM' });
    hand.put(write(1001, 0));
    hand.put(write(1002, 1));
    expect(events()).toEqual(['PATH_MIG_ERR']);
  });

  test('P12: packets by the alternate path without the bit, and all of it in MIGRATED, are of a stranger', () => {
    const { hand, side, arm, write, events, state } = byHand();
    side.adapter.modifyQp(side.qp.qpn, alternateTo(1));
    hand.putFrom({ source: 11, local: 1 }, write(1000, 1));
    expect(side.adapter.counters().wrongSource).toBe(1);
    arm();
    hand.putFrom({ source: 11, local: 1 }, write(1001, 0));
    expect(side.adapter.counters().wrongSource).toBe(2);
    expect(state()).toMatchObject({ pathMigState: 'ARMED', rqPsn: 1001 });
    expect(events()).toEqual([]);
  });

  test('P12: after a migration the path before is a stranger, until it is loaded again', () => {
    const { hand, side, arm, write, events, state } = byHand();
    arm();
    hand.putFrom({ source: 11, local: 1 }, write(1001, 1));
    hand.put(write(1002, 0), write(1002, 1));
    expect(side.adapter.counters().wrongSource).toBe(2);
    const back = { altAhAttr: addressOf(1), altPkeyIndex: 0, altPortNum: 1, altTimeout: 14 };
    side.adapter.modifyQp(side.qp.qpn, { ...back, pathMigState: 'REARM' });
    hand.putFrom({ source: 11, local: 1 }, write(1002, 0));
    expect(state().pathMigState).toBe('ARMED');
    hand.put(write(1003, 1));
    expect(events()).toEqual(['PATH_MIG', 'PATH_MIG']);
    expect(state()).toMatchObject({ pathMigState: 'MIGRATED', rqPsn: 1004, timeout: 14 });
  });

  test('P13: a side that migrates retransmits the packets in flight, though no timer runs', () => {
    const { pair, left, right, arm, write, modify, source, target } = open({ attr: { timeout: 0 } });
    arm();
    modify(left, { ...alternateTo(2, { altTimeout: 0 }) });
    pair.fault = () => [];
    write(KEPT);
    pair.run();
    expect(left.poll()).toEqual([]);
    pair.fault = undefined;
    modify(right, { pathMigState: 'MIGRATED' });
    modify(left, { pathMigState: 'MIGRATED' });
    pair.run();
    expect(left.poll().map(({ status }) => status)).toEqual(['SUCCESS']);
    expect(target).toEqual(source);
  });

  test('P13: READs, atomics and SENDs that were in flight are executed once', () => {
    const { pair, left, right, from, to, arm, cut, events } = open();
    arm();
    const counter = new BigUint64Array(8);
    const remote = right.register(counter.buffer);
    for (let i = 0; i < 4; i++) right.postRecv(i, [{ mr: to, offset: 8192 * i, length: 8192 }]);
    for (let i = 0; i < 4; i++) {
      left.post({
        opcode: 'ATOMIC_FETCH_AND_ADD',
        wrId: i,
        compareAdd: 1n,
        sge: [{ mr: from, offset: 40_000 + 8 * i, length: 8 }],
        remote: { addr: remote.addr, rkey: remote.rkey },
      });
      left.post({ opcode: 'SEND', wrId: i, sge: [{ mr: from, length: 5000 }] });
      left.post({
        opcode: 'RDMA_READ',
        wrId: i,
        sge: [{ mr: from, offset: 20_000, length: 5000 }],
        remote: { addr: to.addr, rkey: to.rkey },
      });
    }
    // The requests arrive, no answer does.
    pair.run(5);
    cut(0);
    pair.run();
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual(
      [0, 1, 2, 3].flatMap((i) => Array(3).fill([i, 'SUCCESS'])),
    );
    expect(right.poll().map(({ wrId, byteLen }) => [wrId, byteLen])).toEqual(
      [0, 1, 2, 3].map((i) => [i, 5000]),
    );
    expect(counter[0]).toBe(4n);
    expect([events(left), events(right)]).toEqual([['PATH_MIG'], ['PATH_MIG']]);
  });

  test('P14: UC migrates by modify, and by the bit', () => {
    const { pair, left, right, arm2, modify, states, events } = openUc();
    arm2();
    modify(left, { pathMigState: 'MIGRATED' });
    left.post({ opcode: 'SEND', sge: [] });
    pair.run();
    expect(states()).toEqual(['MIGRATED', 'MIGRATED']);
    expect([events(left), events(right)]).toEqual([['PATH_MIG'], ['PATH_MIG']]);
  });

  test('P20: a late copy of a UC packet takes nobody along, one after a loss does', () => {
    const { pair, left, right, arm2, modify, states } = openUc();
    const bySecond = { source: 11, local: 1 };
    left.post({ opcode: 'SEND', sge: [] });
    pair.run();
    const old = pair.sent.find(({ from }) => from === left)!.packet;
    arm2();
    arrive(right, old, bySecond);
    expect(states()).toEqual(['ARMED', 'ARMED']);
    pair.fault = () => [];
    left.post({ opcode: 'SEND', sge: [] });
    pair.run();
    pair.fault = undefined;
    modify(left, { pathMigState: 'MIGRATED' });
    left.post({ opcode: 'SEND', sge: [] });
    pair.run();
    expect(states()).toEqual(['MIGRATED', 'MIGRATED']);
  });
});

describe('the object', () => {
  test('P15: a query shows the alternate path from RTR on, and the state from RTS on; RESET forgets both', () => {
    const { left, modify, query, arm, exchange } = open();
    expect(query(left)).toMatchObject({ pathMigState: 'MIGRATED' });
    expect('altAhAttr' in query(left)).toBe(false);
    arm();
    expect(query(left)).toMatchObject({ ...alternateTo(2), pathMigState: 'ARMED' });
    query(left).altAhAttr!.grh.dgid.fill(0);
    expect(query(left).altAhAttr).toEqual(alternateTo(2).altAhAttr);
    modify(left, { qpState: 'RESET' });
    modify(left, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
    expect('pathMigState' in query(left)).toBe(false);
    modify(left, { qpState: 'RTR', ...RTR });
    expect('altAhAttr' in query(left)).toBe(false);
    modify(left, { qpState: 'RTS', ...RTS });
    expect(query(left)).toMatchObject({ pathMigState: 'MIGRATED' });
    expect(exchange).toBeDefined();
  });

  test('P15: the alternate path may come with the step to RTR, REARM with the step to RTS', () => {
    const { left, modify, query } = open();
    modify(left, { qpState: 'RESET' });
    modify(left, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
    modify(left, { qpState: 'RTR', ...RTR, ...alternateTo(2) });
    expect(query(left)).toMatchObject(alternateTo(2));
    modify(left, { qpState: 'RTS', ...RTS, pathMigState: 'REARM' });
    expect(query(left)).toMatchObject({ ...alternateTo(2), pathMigState: 'REARM' });
  });

  test('each peer of the link is held while a path has it, and given back once', () => {
    const held = new Map<number, number>();
    let next = 0;
    const peers = {
      add: vi.fn(() => {
        held.set(next, 1);
        return next++;
      }),
      remove: vi.fn((peer: number) => {
        held.set(peer, (held.get(peer) as number) - 1);
      }),
    };
    const hand = new ByHand({}, { peers, ...migrating(2) });
    const { side } = hand;
    const modify = (attr: QpAttr) => side.adapter.modifyQp(side.qp.qpn, attr);
    const now = () => [...held].filter(([, count]) => count === 1).map(([peer]) => peer);
    expect(now()).toEqual([0]);
    modify(alternateTo(1));
    modify({ ...alternateTo(1), pathMigState: 'REARM' });
    expect(now()).toEqual([0, 2]);
    const write = (psn: number, bit: number) => withBit(hand, { opcode: Opcode.RC_SEND_ONLY, psn }, bit);
    hand.put(write(1000, 1), write(1000, 0));
    hand.out();
    hand.putFrom({ source: 11, local: 1 }, write(1000, 1));
    hand.out();
    expect(now()).toEqual([2]);
    modify(alternateTo(1));
    modify({ qpState: 'RESET' });
    hand.out();
    expect(now()).toEqual([]);
    expect([...held.values()].every((count) => count === 0)).toBe(true);
  });

  test('P16: refused by name without experimental, and never in a query', () => {
    const pair = new Pair();
    const { adapter, qp } = pair.left;
    const refused = { errno: 'EOPNOTSUPP', message: expect.stringContaining('experimental') };
    expect(() => adapter.modifyQp(qp.qpn, { pathMigState: 'REARM' })).toThrow(
      expect.objectContaining(refused),
    );
    expect(() => adapter.modifyQp(qp.qpn, alternateTo(2))).toThrow(
      expect.objectContaining({ ...refused, attribute: 'altAhAttr' }),
    );
    expect('pathMigState' in adapter.queryQp(qp.qpn).attr).toBe(false);
  });

  test.each<QpType>(['UD', 'GSI'])('P16: %s has no paths', (type) => {
    const { left } = open();
    left.createQp({}, { type });
    const { adapter, qp } = left;
    adapter.modifyQp(qp.qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: 1 });
    adapter.modifyQp(qp.qpn, { qpState: 'RTR' });
    expect(() => adapter.modifyQp(qp.qpn, { qpState: 'RTS', sqPsn: 1, pathMigState: 'MIGRATED' })).toThrow(
      expect.objectContaining({ attribute: 'pathMigState', errno: 'EINVAL' }),
    );
    expect('pathMigState' in adapter.queryQp(qp.qpn).attr).toBe(false);
  });
});

const RTR: QpAttr = {
  ahAttr: addressOf(2),
  pathMtu: MTU,
  destQpNum: 7,
  rqPsn: 1,
  maxDestRdAtomic: 1,
  minRnrTimer: 1,
};
const RTS: QpAttr = { sqPsn: 1, timeout: 14, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 1 };

/** A packet with the given MigReq bit. */
function withBit(hand: ByHand, init: PacketInit, bit: number) {
  const packet = hand.packet(init);
  packet[1] = (packet[1] & ~0x40) | (bit << 6);
  return packet;
}

/** A packet comes in at a side, from a source, at one of its GIDs. */
function arrive(side: Side, packet: Packet, { source, local }: { source: number; local: number }): void {
  const { rx, adapter } = side;
  rx.slab.set(packet);
  rx.slots.fill(0, 0, RX_SLOT_WORDS);
  rx.slots[Rx.LENGTH] = packet.length;
  rx.slots[Rx.LOCAL] = local;
  rx.slots[Rx.VERDICT] = Icrc.OK;
  rx.sources.set(gidOf(source), 0);
  rx.count = 1;
  adapter.receive(rx);
}

const post = (side: Side) => side.post({ opcode: 'SEND', inline: Uint8Array.of(1) });

/** One side whose peer is the test, with GIDs 1 and 11; ours are 2 and 12. */
function byHand() {
  const hand = new ByHand({ retryCnt: 1, timeout: 8, rqPsn: 999 }, migrating(2));
  const { side } = hand;
  const { addr, rkey } = side.register(new ArrayBuffer(64));
  const write = (psn: number, bit: number) =>
    withBit(
      hand,
      {
        opcode: Opcode.RC_RDMA_WRITE_ONLY,
        psn,
        reth: { addr, rkey, length: 4 },
        payload: new Uint8Array(4),
      },
      bit,
    );
  const ack = (psn: number, bit: number) =>
    withBit(hand, { opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome: 0x1f } }, bit);
  /** The peer takes PSN 1000 for it. */
  const arm = () => {
    hand.put(write(999, 1));
    side.adapter.modifyQp(side.qp.qpn, { ...alternateTo(1), pathMigState: 'REARM' });
    hand.put(write(1000, 0));
    hand.out();
    expect(side.adapter.queryQp(side.qp.qpn).attr.pathMigState).toBe('ARMED');
  };
  const slot = () => {
    const tx = new TxBatch(side.adapter.regions);
    side.adapter.transmit(tx);
    expect(tx.count).toBe(1);
    return tx.slots;
  };
  const events = () => side.events.splice(0).flatMap(({ type }) => (type === 'COMM_EST' ? [] : [type]));
  const state = () => side.adapter.queryQp(side.qp.qpn).attr;
  return { hand, side, write, ack, arm, slot, events, state };
}

function openUc() {
  const opened = open({ type: 'UC' });
  const { pair, left, right, load, states } = opened;
  const both = () => {
    for (const side of [left, right]) side.post({ opcode: 'SEND', sge: [] });
    pair.run();
  };
  const arm2 = () => {
    for (let i = 0; i < 8; i++) for (const side of [left, right]) side.postRecv(i, []);
    both();
    load(left);
    load(right);
    both();
    expect(states()).toEqual(['ARMED', 'ARMED']);
  };
  return { ...opened, arm2 };
}

test('a link without room for the alternate peer: nothing of the call happens, and the new peer of the path is given back', () => {
  const held = new Set<number>();
  let room = 4;
  const add = () => {
    if (held.size >= room) throw new Error('no room');
    const peer = [...Array(9).keys()].find((each) => !held.has(each)) as number;
    held.add(peer);
    return peer;
  };
  const peers = { add, remove: (peer: number) => void held.delete(peer) };
  const side = new Side(1, 1, { ...migrating(1), peers });
  const qpn = side.qp.qpn;
  side.adapter.modifyQp(qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  const rtr: QpAttr = {
    qpState: 'RTR',
    pathMtu: MTU,
    ahAttr: addressOf(2),
    destQpNum: 17,
    rqPsn: 0,
    maxDestRdAtomic: 1,
    minRnrTimer: 1,
    ...alternateTo(2),
  };
  room = 1;
  expect(() => side.adapter.modifyQp(qpn, rtr)).toThrow('no room');
  expect(held.size).toBe(0);
  expect(side.adapter.queryQp(qpn).attr.qpState).toBe('INIT');
  room = 2;
  side.adapter.modifyQp(qpn, rtr);
  expect(held.size).toBe(2);
  side.adapter.destroyQp(qpn);
  expect(held.size).toBe(0);
});
