/**
 * A responder keeps packets that come before one that is missing: copies, which are executed when their turn comes. `quiet`
 * acknowledges none before the requester has sent it again, `ahead` acknowledges as soon as the missing one is there.
 */
import { AethKind, NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort, type PacketInit } from '../../testing/by-hand.ts';
import { type KeepEarly, RECOVERY_DEFAULTS } from '../index.ts';

const FIRST = 1000;
const NAK = NakCode.PSN_SEQUENCE_ERROR;
const ACK = 0x1f;

function setUp(keepEarly: KeepEarly) {
  const hand = new ByHand({ rqPsn: FIRST }, { recovery: { keepEarly } });
  const { side } = hand;
  const bytes = new Uint8Array(new ArrayBuffer(8192));
  const mr = side.register(bytes.buffer);
  /** A WRITE of its own number to its own place. */
  const write = (n: number, ackReq = true): PacketInit => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn: FIRST + n,
    ackReq,
    reth: { addr: mr.addr + BigInt(n % 8192), rkey: mr.rkey, length: 1 },
    payload: Uint8Array.of(n + 1),
  });
  const send = (n: number): PacketInit => ({
    opcode: Opcode.RC_SEND_ONLY,
    psn: FIRST + n,
    payload: Uint8Array.of(n + 1),
  });
  /** The replies to a batch: PSN beyond the first, and the syndrome. */
  const put = (...packets: PacketInit[]) => {
    hand.put(...packets);
    return hand.out().map((packet) => {
      const [name, psn, value] = inShort(packet);
      return name === 'ACKNOWLEDGE' ? [psn - FIRST, value] : [name, psn - FIRST];
    });
  };
  const written = () => [...bytes.subarray(0, 8)];
  return { hand, side, mr, write, send, put, written, counters: () => side.adapter.counters() };
}

describe('off', () => {
  test('discards early packets, and executes them when they are retransmitted', () => {
    const { put, write, written, counters } = setUp('off');
    expect(put(write(0), write(2), write(3))).toEqual([
      [0, ACK],
      [1, NAK],
    ]);
    expect(put(write(1))).toEqual([[1, ACK]]);
    expect(written()).toEqual([1, 2, 0, 0, 0, 0, 0, 0]);
    expect(put(write(2), write(3))).toEqual([[3, ACK]]);
    expect(counters()).toMatchObject({ keptPackets: 0, outOfSeqRequest: 2 });
  });
});

describe.each(['quiet', 'ahead'] as const)('%s', (mode) => {
  test('touches no memory before the missing packet is there', () => {
    const { put, write, written, counters } = setUp(mode);
    put(write(0), write(2), write(3));
    expect(written()).toEqual([1, 0, 0, 0, 0, 0, 0, 0]);
    expect(counters()).toMatchObject({ keptPackets: 2, outOfSeqRequest: 2, writeRequests: 1 });
  });

  test('executes each packet once, whatever is retransmitted', () => {
    const { put, write, written, counters } = setUp(mode);
    put(write(0), write(2), write(4), write(5));
    for (let round = 0; round < 3; round++) for (let n = 1; n < 6; n++) put(write(n));
    expect(written()).toEqual([1, 2, 3, 4, 5, 6, 0, 0]);
    expect(counters().writeRequests).toBe(6);
  });

  test('drops the NAK if the missing packet comes in the same batch', () => {
    const { put, write, written } = setUp(mode);
    const replies = put(write(0), write(2), write(1), write(2));
    expect(replies.map(([, syndrome]) => syndrome)).toEqual([ACK]);
    expect(written().slice(0, 3)).toEqual([1, 2, 3]);
  });

  test('sends an RNR NAK when the turn of a message comes that has no receive', () => {
    const { put, send, write, hand, side, mr } = setUp(mode);
    expect(put(write(0), send(2), send(3))).toEqual([
      [0, ACK],
      [1, NAK],
    ]);
    const replies = [...put(write(1)), ...put(send(2))];
    const rnr = replies.filter(([, syndrome]) => Number(syndrome) >> 5 === AethKind.RNR_NAK);
    expect(new Set(rnr.map(([psn]) => psn))).toEqual(new Set([2]));
    for (let i = 0; i < 2; i++) side.postRecv(i, [{ mr, offset: 100 + i, length: 1 }]);
    put(send(2));
    put(send(3));
    expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [0, 'SUCCESS'],
      [1, 'SUCCESS'],
    ]);
    expect(hand.out()).toEqual([]);
  });

  test('checks the key when the turn of a request comes', () => {
    const { put, write, side, mr } = setUp(mode);
    const other = { ...write(2), reth: { addr: mr.addr, rkey: mr.rkey ^ 0x100, length: 1 } };
    expect(put(write(0), other)).toEqual([
      [0, ACK],
      [1, NAK],
    ]);
    const replies = [...put(write(1)), ...put(other)];
    expect(replies.at(-1)).toEqual([2, NakCode.REMOTE_ACCESS_ERROR]);
    expect(side.adapter.queryQp(side.qp.qpn).attr.qpState).toBe('ERR');
  });

  test('answers READs and atomics in their turn', () => {
    const { put, write, mr } = setUp(mode);
    const reth = { addr: mr.addr, rkey: mr.rkey, length: 2048 };
    const read: PacketInit = { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: FIRST + 2, reth };
    const atomic: PacketInit = {
      opcode: Opcode.RC_FETCH_ADD,
      psn: FIRST + 4,
      atomic: { addr: mr.addr + 64n, rkey: mr.rkey, swapAdd: 1n },
    };
    expect(put(write(0), read, atomic)).toEqual([
      [0, ACK],
      [1, NAK],
    ]);
    const replies = [...put(write(1)), ...put(read), ...put(atomic)];
    expect(replies.map(([what]) => what)).toEqual(
      expect.arrayContaining(['RDMA_READ_RESPONSE_FIRST', 'RDMA_READ_RESPONSE_LAST', 'ATOMIC_ACKNOWLEDGE']),
    );
  });

  test('keeps no packet further ahead than its range', () => {
    const { put, write, counters } = setUp(mode);
    put(write(0), write(1023), write(1024), write(1025), write(5000));
    expect(counters()).toMatchObject({ keptPackets: 2, outOfSeqRequest: 4 });
  });

  test('forgets all at RESET, in ERR and with a new receive PSN', () => {
    const { put, write, hand, side, written } = setUp(mode);
    put(write(0), write(2), write(3));
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'ERR' });
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    hand.connect({ rqPsn: FIRST + 1 });
    expect(put(write(1))).toEqual([[1, ACK]]);
    expect(put(write(4))).toEqual([[2, NAK]]);
    expect(written()).toEqual([1, 2, 0, 0, 0, 0, 0, 0]);
  });

  test('delivers messages of many packets across the PSN wrap', () => {
    const set = setUp(mode);
    const { hand, side } = set;
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    hand.connect({ rqPsn: 0xff_fffe });
    const local = new Uint8Array(new ArrayBuffer(8192));
    const mr = side.register(local.buffer);
    side.postRecv(7, [{ mr, length: 8192 }]);
    const packet = (i: number): PacketInit => ({
      opcode: i === 0 ? Opcode.RC_SEND_FIRST : i === 7 ? Opcode.RC_SEND_LAST : Opcode.RC_SEND_MIDDLE,
      psn: (0xff_fffe + i) & 0xff_ffff,
      ackReq: i === 7,
      payload: new Uint8Array(1024).fill(i + 1),
    });
    hand.put(...[0, 2, 3, 5, 6, 7].map(packet));
    hand.out();
    for (const i of [1, 2, 3, 4, 5, 6, 7]) hand.put(packet(i));
    expect(side.poll()).toMatchObject([{ wrId: 7, status: 'SUCCESS', byteLen: 8192 }]);
    expect(Array.from({ length: 8 }, (_, i) => local[i * 1024])).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });
});

describe('quiet', () => {
  test('acknowledges nothing that was not retransmitted', () => {
    const { put, write, written } = setUp('quiet');
    expect(put(write(0), write(2), write(3), write(4))).toEqual([
      [0, ACK],
      [1, NAK],
    ]);
    expect(put(write(1))).toEqual([[1, ACK]]);
    expect(written().slice(0, 5)).toEqual([1, 2, 0, 0, 0]);
    // 2 is lost again, 3 comes: what is kept takes the place of 2.
    expect(put(write(3))).toEqual([[3, ACK]]);
    expect(written().slice(0, 5)).toEqual([1, 2, 3, 4, 0]);
    expect(put(write(4))).toEqual([[4, ACK]]);
  });

  test('a kept packet that ends the connection: its NAK is the only reply', () => {
    const { put, write, mr } = setUp('quiet');
    const wrong = { ...write(2), reth: { addr: mr.addr, rkey: mr.rkey ^ 0x100, length: 1 } };
    put(write(0), wrong, write(3), write(4));
    put(write(1));
    // 2 is lost again, and 4 comes, behind which there is a gap.
    expect(put(write(4))).toEqual([[2, NakCode.REMOTE_ACCESS_ERROR]]);
  });

  test('asks again for the missing packet when a packet comes that was never sent before', () => {
    const { put, write } = setUp('quiet');
    put(write(0), write(2), write(3));
    // The missing one was only late: the requester has not gone back yet.
    expect(put(write(1))).toEqual([[1, ACK]]);
    expect(put(write(4))).toEqual([[2, NAK]]);
  });

  test('once a packet was retransmitted, goes on with all that follows', () => {
    const { put, write, written } = setUp('quiet');
    put(write(0), write(2), write(3), write(4));
    put(write(1));
    expect(put(write(2))).toEqual([[2, ACK]]);
    // 3 and 4 are lost again, and 5 is new.
    expect(put(write(5))).toEqual([[5, ACK]]);
    expect(written().slice(0, 6)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  // Once: the copy that was kept asked for none, and the requester waited for its timer.
  test('acknowledges a packet retransmitted with AckReq, though its copy asked for no ACK', () => {
    const { put, write } = setUp('quiet');
    put(write(0), write(2, false), write(3, false));
    expect(put(write(1, false))).toEqual([]);
    expect(put(write(3))).toEqual([[3, ACK]]);
  });

  // Once: each packet that followed drew another one, and rxe counts each against its `rnr_retry`.
  test('sends one RNR NAK for what it kept, and goes on when there is a receive', () => {
    const { put, send, write, side, mr } = setUp('quiet');
    put(write(0), send(2), send(3), send(4), send(5));
    put(write(1));
    // 2 is lost again.
    const [[psn, syndrome], ...others] = put(send(3)) as [number, number][];
    expect([psn, syndrome >> 5]).toEqual([2, AethKind.RNR_NAK]);
    expect([...others, ...put(send(4))]).toEqual([]);
    for (let i = 0; i < 4; i++) side.postRecv(i, [{ mr, offset: 100 + i, length: 1 }]);
    expect(put(send(5))).toEqual([[5, ACK]]);
    expect(side.poll().map(({ wrId }) => wrId)).toEqual([0, 1, 2, 3]);
  });
});

describe('ahead', () => {
  test('acknowledges all that it keeps once the missing packet is there', () => {
    const { put, write, written } = setUp('ahead');
    put(write(0), write(2, false), write(3, false), write(4, false));
    expect(put(write(1, false))).toEqual([[4, ACK]]);
    expect(written().slice(0, 5)).toEqual([1, 2, 3, 4, 5]);
  });

  test('asks for the next gap at once', () => {
    const { put, write } = setUp('ahead');
    put(write(0), write(2), write(4), write(5));
    expect(put(write(1))).toEqual([
      [2, ACK],
      [3, NAK],
    ]);
    expect(put(write(3))).toEqual([[5, ACK]]);
  });

  test('is silent after an RNR NAK, as long as the requester waits', () => {
    const { put, send } = setUp('ahead');
    const [[psn, syndrome]] = put(send(0)) as [number, number][];
    expect([psn, syndrome >> 5]).toEqual([0, AethKind.RNR_NAK]);
    expect(put(send(1))).toEqual([]);
  });

  test('asks again while packets come that ask for an ACK: the NAK may be lost', () => {
    const { put, write } = setUp('ahead');
    expect(put(write(1))).toEqual([[0, NAK]]);
    expect(put(write(2, false))).toEqual([]);
    expect(put(write(3))).toEqual([[0, NAK]]);
  });
});

describe('auto', () => {
  /** Whether kept packets are acknowledged as soon as the missing packet is there. */
  const isAhead = ({ put, write }: ReturnType<typeof setUp>) => {
    put(write(0), write(2));
    return put(write(1))[0][0] === 2;
  };

  test('is the default, and quiet', () => {
    expect(RECOVERY_DEFAULTS.keepEarly).toBe('auto');
    const { hand } = setUp('auto');
    expect(hand.side.qp.selective).toBe(true);
    expect(isAhead(setUp('auto'))).toBe(false);
  });

  test('is ahead once it is known that the requester knows, until RESET', () => {
    const set = setUp('auto');
    const { hand, side } = set;
    side.adapter.acknowledgeAhead(side.qp.qpn);
    expect(isAhead(set)).toBe(true);
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    hand.connect({ rqPsn: FIRST });
    expect(isAhead(set)).toBe(false);
  });

  test.each(['off', 'quiet'] as const)('the choice of the program stays: %s', (mode) => {
    const set = setUp(mode);
    set.side.adapter.acknowledgeAhead(set.side.qp.qpn);
    expect(isAhead(set)).toBe(false);
  });
});
