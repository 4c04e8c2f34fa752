/** The words of completions, the counts of a queue pair's requests, and the events that completions raise (ibv_poll_cq(3), ibv_req_notify_cq(3)). */
import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { type QpInit, RecvWqe, Ring, SendFlags, SendWqe, WcOpcode, type WrOpcodeName } from '../src/index.ts';
import { ByHand } from '../testing/by-hand.ts';

const FIRST = 0x500;
const P = 1000;
const remote = { addr: 0n, rkey: 1 };

function connected() {
  const events: number[] = [];
  const hand = new ByHand(
    { sqPsn: FIRST, rqPsn: P, pathMtu: 256 },
    { onCompletionEvent: (cq) => events.push(cq) },
  );
  const { side } = hand;
  const { adapter } = side;
  const mr = side.register(new ArrayBuffer(4096));
  /** Posts a request of 8 bytes, whose number fills both words. */
  const post = (opcode: WrOpcodeName, wrId: number, flags: number = SendFlags.SIGNALED) => {
    const { sq } = side;
    side.post({ wrId, opcode, sge: [{ mr, length: 8 }], remote, flags });
    sq.words[sq.wordOf((sq.producer - 1) | 0) + SendWqe.WR_ID_HIGH] = ~wrId;
  };
  const postRecv = (wrId: number, length = 64) => {
    const { rq } = side;
    side.postRecv(wrId, [{ mr, length }]);
    rq.words[rq.wordOf((rq.producer - 1) | 0) + RecvWqe.WR_ID_HIGH] = ~wrId;
  };
  const ack = (number: number, syndrome = 0x1f) =>
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST + number, aeth: { syndrome } });
  const send = (number: number, length = 8, solicited = false) => {
    const packet = hand.packet({
      opcode: Opcode.RC_SEND_ONLY,
      psn: P + number,
      payload: new Uint8Array(length),
    });
    if (solicited) packet[1] |= 0x80;
    hand.put(packet);
  };
  const upper = () => {
    const { cq } = side;
    return Array.from({ length: cq.used }, (_, i) => ~cq.words[cq.wordOf(cq.consumer + i) + 1]);
  };
  const counters = () => adapter.qpCounters(side.qp.qpn);
  return { hand, side, adapter, mr, post, postRecv, ack, send, upper, counters, events };
}

describe('a request completes', () => {
  test.each<[WrOpcodeName, number]>([
    ['SEND', WcOpcode.SEND],
    ['SEND_WITH_IMM', WcOpcode.SEND],
    ['RDMA_WRITE', WcOpcode.RDMA_WRITE],
    ['RDMA_WRITE_WITH_IMM', WcOpcode.RDMA_WRITE],
  ])('%s with its number, operation, length and peer', (opcode, operation) => {
    const { hand, side, post, ack, upper, counters } = connected();
    post(opcode, 0x1234);
    hand.out();
    ack(0);
    expect(upper()).toEqual([0x1234]);
    expect(side.poll()).toEqual([
      {
        wrId: 0x1234,
        status: 'SUCCESS',
        opcode: operation,
        byteLen: 8,
        immediate: 0,
        flags: 0,
        qpn: side.qp.qpn,
        srcQp: 77,
        sl: 0,
      },
    ]);
    const sends = operation === WcOpcode.SEND ? 1 : 0;
    expect(counters()).toMatchObject({
      sentMessages: 1,
      completedSends: sends,
      failedSends: 0,
      flushedSends: 0,
    });
  });

  test('with success only where that was asked for', () => {
    const { hand, side, post, ack, counters } = connected();
    post('RDMA_WRITE', 1, 0);
    post('RDMA_WRITE', 2);
    post('RDMA_WRITE', 3, 0);
    hand.out();
    ack(2);
    expect(side.poll().map(({ wrId }) => wrId)).toEqual([2]);
    expect(counters().sentMessages).toBe(3);
  });

  test('each, where the queue pair was made so (sq_sig_all)', () => {
    const { hand, side, adapter, post, ack } = connected();
    const { cap } = side.qp;
    const { pd, cqHandle } = side;
    const init: QpInit = { pd, type: 'RC', sendCq: cqHandle, recvCq: cqHandle, cap, sqSigAll: true };
    side.use(adapter.createQp(init));
    hand.connect({ sqPsn: FIRST, pathMtu: 256 });
    post('RDMA_WRITE', 1, 0);
    hand.out();
    ack(0);
    expect(side.poll().map(({ wrId }) => wrId)).toEqual([1]);
  });

  test('with an error whether that was asked for or not; what is behind it is flushed', () => {
    const { hand, side, post, ack, counters } = connected();
    post('SEND', 1, 0);
    post('SEND', 2, 0);
    hand.out();
    ack(0, 0x62);
    post('SEND', 3, 0);
    hand.out();
    expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [1, 'REM_ACCESS_ERR'],
      [2, 'WR_FLUSH_ERR'],
      [3, 'WR_FLUSH_ERR'],
    ]);
    expect(counters()).toMatchObject({ sentMessages: 0, completedSends: 0, failedSends: 1, flushedSends: 2 });
  });
});

describe('a receive completes', () => {
  test('with its number, the length of the message and the peer', () => {
    const { side, postRecv, send, upper, counters } = connected();
    postRecv(0x4321);
    send(0, 20);
    expect(upper()).toEqual([0x4321]);
    expect(side.poll()).toEqual([
      {
        wrId: 0x4321,
        status: 'SUCCESS',
        opcode: WcOpcode.RECV,
        byteLen: 20,
        immediate: 0,
        flags: 0,
        qpn: side.qp.qpn,
        srcQp: 77,
        sl: 0,
      },
    ]);
    expect(counters()).toMatchObject({ completedReceives: 1, failedReceives: 0, flushedReceives: 0 });
  });

  test('that the message fills to the last byte', () => {
    const { side, postRecv, send } = connected();
    postRecv(1, 20);
    send(0, 20);
    expect(side.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS', byteLen: 20 }]);
  });

  test('with an error where it is too short; those behind it are flushed', () => {
    const { side, postRecv, send, counters } = connected();
    for (const wrId of [1, 2, 3]) postRecv(wrId, 20);
    send(0, 24);
    expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [1, 'LOC_LEN_ERR'],
      [2, 'WR_FLUSH_ERR'],
      [3, 'WR_FLUSH_ERR'],
    ]);
    expect(counters()).toMatchObject({
      completedReceives: 0,
      failedReceives: 1,
      shortReceives: 1,
      flushedReceives: 2,
    });
  });

  test('with as many elements as the queue pair allows', () => {
    const { side, mr, send, counters } = connected();
    side.postRecv(
      1,
      [1, 2, 3, 4].map((length) => ({ mr, length })),
    );
    send(0, 10);
    expect(side.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS', byteLen: 10 }]);
    expect(counters().shortReceives).toBe(0);
    side.postRecv(2, [{ mr, length: 64 }]);
    side.rq.words[side.rq.wordOf(1) + RecvWqe.SGE_COUNT] = 5;
    send(1, 8);
    expect(side.poll()).toMatchObject([{ wrId: 2, status: 'LOC_QP_OP_ERR' }]);
    expect(counters()).toMatchObject({ failedReceives: 1, shortReceives: 0 });
  });
});

describe('a program that waits for solicited completions hears of', () => {
  const armed = () => {
    const set = connected();
    const ring = new Ring(set.side.cq.shape);
    ring.arm(2);
    return set;
  };

  test('a solicited receive, and no other', () => {
    const { side, postRecv, send, events } = armed();
    for (const wrId of [1, 2]) postRecv(wrId);
    send(0);
    expect(events).toEqual([]);
    send(1, 8, true);
    expect(events).toEqual([side.cqHandle]);
  });

  test('no request that succeeds', () => {
    const { hand, post, ack, events } = armed();
    post('SEND', 1);
    hand.out();
    ack(0);
    expect(events).toEqual([]);
  });

  test.each(['a request', 'a receive', 'a flushed request', 'a flushed receive'])('%s that fails', (what) => {
    const { hand, side, adapter, post, postRecv, ack, send, events } = armed();
    const toError = () => adapter.modifyQp(side.qp.qpn, { qpState: 'ERR' });
    if (what.endsWith('receive')) postRecv(1, 4);
    else post('SEND', 1);
    hand.out();
    if (what.startsWith('a flushed')) toError();
    else if (what === 'a request') ack(0, 0x62);
    else send(0, 8);
    expect(events).toEqual([side.cqHandle]);
  });
});
