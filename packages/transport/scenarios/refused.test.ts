/**
 * A packet that the link refuses, because its memory is gone (EFAULT) or because it is too large for its way (EMSGSIZE), is known as
 * request or reply and with its PSN: what fails is the work request that it is of, and no other.
 */
import { bthOpcode, bthPsn, NakCode, Opcode, opcodeInfo } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { EFAULT, Fragment, Tx, TxBatch } from '../src/index.ts';
import { ByHand } from '../testing/by-hand.ts';
import { type Packet, Pair, type Side } from '../testing/pair.ts';

const EMSGSIZE = 90;
const FIRST = 0x10;

const statuses = (side: Side) => side.poll().map(({ wrId, status }) => [wrId, status]);
const isReadResponse = (packet: Packet) => bthOpcode(packet, 0) === Opcode.RC_RDMA_READ_RESPONSE_ONLY;

/** The left reads from the right, which has a SEND of its own out, for which the left has no receive. */
function setUp(rightPsn = 0x100) {
  const pair = new Pair({ psn: [FIRST, rightPsn], attr: { timeout: 10 } });
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(4096));
  const remote = right.register(new ArrayBuffer(4096));
  const source = right.register(new ArrayBuffer(64));
  right.post({ wrId: 77, opcode: 'SEND', sge: [{ mr: source, length: 8 }] });
  pair.run(300);
  left.post({ wrId: 1, opcode: 'RDMA_READ', sge: [{ mr: local, length: 64 }], remote });
  return { pair, left, right, local, remote };
}

describe('a reply that the link refuses', () => {
  // H5. Once: LOC_LEN_ERR and LOC_PROT_ERR on the SEND, and the queue pair is in the error state.
  test.each([
    ['EMSGSIZE', EMSGSIZE],
    ['EFAULT', EFAULT],
  ])('%s, once: no request of the responder fails for it', (_name, errno) => {
    const { pair, left, right, local } = setUp();
    let refused = 0;
    pair.refuse = (packet, from) => (from === right && isReadResponse(packet) && refused++ === 0 ? errno : 0);
    pair.run(100);
    expect(refused).toBe(1);
    expect(right.poll()).toEqual([]);
    // The requester asks again, as for a packet that was lost.
    left.postRecv(5, [{ mr: local, length: 64 }]);
    pair.run(5_000_000);
    expect(statuses(left)).toEqual(
      expect.arrayContaining([
        [1, 'SUCCESS'],
        [5, 'SUCCESS'],
      ]),
    );
    expect(statuses(right)).toEqual([[77, 'SUCCESS']]);
    expect(right.adapter.counters().sendErrors).toBe(1);
  });

  test('with the PSN of a request that is out: that request goes on', () => {
    const { pair, left, right, local } = setUp(FIRST);
    let refused = 0;
    pair.refuse = (packet, from) =>
      from === right && isReadResponse(packet) && refused++ === 0 ? EMSGSIZE : 0;
    left.postRecv(5, [{ mr: local, length: 64 }]);
    pair.run(5_000_000);
    expect(refused).toBe(2); // The second is the answer to the retry.
    expect(statuses(right)).toEqual([[77, 'SUCCESS']]);
  });

  test('an ACK, with the PSN of the oldest request that is out: that request goes on', () => {
    const pair = new Pair({ psn: [FIRST, FIRST], attr: { timeout: 10 } });
    const { left, right } = pair;
    const mine = left.register(new ArrayBuffer(64));
    const theirs = right.register(new ArrayBuffer(64));
    right.post({ wrId: 77, opcode: 'SEND', sge: [{ mr: theirs, length: 8 }] });
    pair.run(300);
    let refused = 0;
    pair.refuse = (packet, from) =>
      from === right && bthOpcode(packet, 0) === Opcode.RC_ACKNOWLEDGE && refused++ === 0 ? EMSGSIZE : 0;
    right.postRecv(6, [{ mr: theirs, length: 64 }]);
    left.post({ wrId: 2, opcode: 'SEND', sge: [{ mr: mine, length: 8 }] });
    pair.run(300);
    expect(refused).toBe(1);
    left.postRecv(5, [{ mr: mine, length: 64 }]);
    pair.run(5_000_000);
    expect(statuses(right)).toEqual([
      [6, 'SUCCESS'],
      [77, 'SUCCESS'],
    ]);
  });

  // H5. Once: LOC_PROT_ERR on the SEND.
  test('EFAULT, the region of a READ is gone: the requester hears of it, and no request of the responder fails for it', () => {
    const { pair, left, right, remote } = setUp();
    let gone = false;
    pair.refuse = (packet, from) => {
      if (from !== right || !isReadResponse(packet)) return 0;
      // It waited for room in the socket, and meanwhile the program took the memory away.
      if (!gone) right.adapter.deregisterMr(remote.handle);
      gone = true;
      return EFAULT;
    };
    pair.run(5_000_000);
    expect(gone).toBe(true);
    expect(statuses(left)).toEqual([[1, 'REM_ACCESS_ERR']]);
    const naks = pair.sent.filter(
      ({ from, packet }) => from === right && packet[12] === NakCode.REMOTE_ACCESS_ERROR,
    );
    expect(naks.map(({ packet }) => [bthOpcode(packet, 0), bthPsn(packet, 0)])).toContainEqual([
      Opcode.RC_ACKNOWLEDGE,
      FIRST,
    ]);
    // Flushed with its queue pair, or still out.
    for (const [, status] of statuses(right)) expect(status).toBe('WR_FLUSH_ERR');
  });
});

describe('a request that the link refuses', () => {
  /** Three WRITEs of two packets each; the link refuses one packet. */
  function writeThree(psn: number, errno: number) {
    const pair = new Pair({ psn: [FIRST, 0x100] });
    const local = pair.left.register(new ArrayBuffer(4096));
    const remote = pair.right.register(new ArrayBuffer(4096));
    pair.refuse = (packet, from) =>
      from === pair.left && opcodeInfo(bthOpcode(packet, 0))!.isRequest && bthPsn(packet, 0) === psn
        ? errno
        : 0;
    for (let i = 1; i <= 3; i++) {
      pair.left.post({ wrId: i, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 2000 }], remote });
    }
    pair.run(10_000_000);
    return pair;
  }

  // Once: the oldest work request fails, whatever packet it was.
  test.each([
    ['EMSGSIZE', EMSGSIZE, 'LOC_LEN_ERR', 2],
    ['EMSGSIZE', EMSGSIZE, 'LOC_LEN_ERR', 3],
    ['EFAULT', EFAULT, 'LOC_PROT_ERR', 2],
    ['EFAULT', EFAULT, 'LOC_PROT_ERR', 4],
  ])(
    '%s (%i): its own work request fails with %s, those before it are done',
    (_name, errno, status, packet) => {
      const pair = writeThree(FIRST + packet, errno);
      const failed = 1 + (packet >> 1);
      expect(statuses(pair.left)).toEqual(
        [1, 2, 3].map((id) => [id, id < failed ? 'SUCCESS' : id === failed ? status : 'WR_FLUSH_ERR']),
      );
      expect(pair.left.adapter.queryQp(pair.left.qp.qpn).attr.qpState).toBe('ERR');
    },
  );

  test('EMSGSIZE: the first', () => {
    expect(statuses(writeThree(FIRST, EMSGSIZE).left)).toEqual([
      [1, 'LOC_LEN_ERR'],
      [2, 'WR_FLUSH_ERR'],
      [3, 'WR_FLUSH_ERR'],
    ]);
  });

  test('for another reason, once: it was lost, and is retransmitted', () => {
    const pair = new Pair({ psn: [FIRST, 0x100] });
    const local = pair.left.register(new ArrayBuffer(4096));
    const remote = pair.right.register(new ArrayBuffer(4096));
    let refused = 0;
    pair.refuse = (packet) => (bthPsn(packet, 0) === FIRST + 1 && refused++ === 0 ? 101 : 0); // ENETUNREACH
    pair.left.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 4000 }], remote });
    pair.run();
    expect(statuses(pair.left)).toEqual([[1, 'SUCCESS']]);
    expect(pair.left.adapter.qpCounters(pair.left.qp.qpn).sendErrors).toBe(1);
  });
});

describe('a batch that the link looks at late', () => {
  const remote = { addr: 0n, rkey: 0 };
  function setUpByHand() {
    const hand = new ByHand({ sqPsn: FIRST, pathMtu: 256, timeout: 14 });
    const { side } = hand;
    const { adapter } = side;
    const mr = side.register(new ArrayBuffer(4096));
    const tx = new TxBatch(adapter.regions, 16, 128);
    const write = (wrId: number, length: number) =>
      side.post({ wrId, opcode: 'RDMA_WRITE', sge: [{ mr, length }], remote });
    const answer = (psn: number, syndrome = 0x1f) =>
      hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome } });
    return { hand, side, adapter, mr, tx, write, answer };
  }

  test('refuses a packet that was retransmitted and is acknowledged by now: nothing fails', () => {
    const { hand, side, adapter, tx, write, answer } = setUpByHand();
    write(1, 1024);
    expect(hand.out()).toHaveLength(4);
    answer(FIRST, NakCode.PSN_SEQUENCE_ERROR);
    expect(adapter.transmit(tx)).toBe(4);
    answer(FIRST + 1); // The first copies arrived after all.
    tx.slots[Tx.STATUS] = EMSGSIZE;
    adapter.sent(tx);
    expect(side.poll()).toEqual([]);
    answer(FIRST + 3);
    expect(statuses(side)).toEqual([[1, 'SUCCESS']]);
  });

  test('refuses a packet of the last connection: the next one goes on', () => {
    const { hand, side, adapter, tx, write, answer } = setUpByHand();
    write(1, 8);
    expect(adapter.transmit(tx)).toBe(1);
    adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    hand.connect({ sqPsn: FIRST, pathMtu: 256 });
    write(2, 8);
    expect(hand.out()).toHaveLength(1);
    tx.slots[Tx.STATUS] = EMSGSIZE;
    adapter.sent(tx);
    expect(side.poll()).toEqual([]);
    // The device counts it; it is no error of the connection that there is now.
    expect(adapter.counters().sendErrors).toBe(1);
    expect(adapter.qpCounters(side.qp.qpn).sendErrors).toBe(0);
    answer(FIRST);
    expect(statuses(side)).toEqual([[2, 'SUCCESS']]);
  });

  // C4.
  test('names a region that is gone: its index is nobody else until then', () => {
    const { side, adapter, mr, tx, write } = setUpByHand();
    write(1, 8);
    expect(adapter.transmit(tx)).toBe(1);
    const index = tx.fragments[Fragment.REGION];
    const was = adapter.regions.views[index];
    adapter.deregisterMr(mr.handle);
    for (let i = 0; i < 4; i++) side.register(new ArrayBuffer(64));
    expect([was, undefined]).toContain(adapter.regions.views[index]);
    tx.slots[Tx.STATUS] = EFAULT;
    adapter.sent(tx);
    expect(statuses(side)).toEqual([[1, 'LOC_PROT_ERR']]);
    side.register(new ArrayBuffer(64));
    expect([was, undefined]).not.toContain(adapter.regions.views[index]);
  });

  test('requests of a program that did not see the RESET are dropped', () => {
    const { hand, side, adapter, write, answer } = setUpByHand();
    adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    write(1, 8); // The state word of the ring forbids it; another thread may look too early.
    hand.connect({ sqPsn: FIRST, pathMtu: 256 });
    expect(hand.out()).toEqual([]);
    write(2, 8);
    expect(hand.out()).toHaveLength(1);
    answer(FIRST);
    expect(statuses(side)).toEqual([[2, 'SUCCESS']]);
  });

  test('requests posted before RTS are dropped, however late they are', () => {
    const { hand, side, adapter, write, answer } = setUpByHand();
    adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    hand.connect({ pathMtu: 256 }, 'RTR');
    write(1, 8);
    const rts = { sqPsn: FIRST, timeout: 14, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 1 };
    adapter.modifyQp(side.qp.qpn, { qpState: 'RTS', ...rts });
    expect(hand.out()).toEqual([]);
    write(2, 8);
    expect(hand.out()).toHaveLength(1);
    answer(FIRST);
    expect(statuses(side)).toEqual([[2, 'SUCCESS']]);
  });
});
