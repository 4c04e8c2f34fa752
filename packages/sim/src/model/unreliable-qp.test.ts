import { gidFromText, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import type { ModelPacket } from './packet.ts';
import { createReceiveQueue, type ReceiveQueue } from './receive-queue.ts';
import { ModelUnreliableQp } from './unreliable-qp.ts';
import type { ModelSendRequest } from './work.ts';

const MTU = 256;
const make = (service: 'UC' | 'UD', receives?: ReceiveQueue) =>
  new ModelUnreliableQp(
    { service, qpn: 1, destQpn: 2, pathMtu: MTU, qkey: 7, accessFlags: 0, sqPsn: 0xffffff, rqPsn: 0 },
    { regions: [] },
    receives,
  );

const send = (wrId: number, length: number, rest: Partial<ModelSendRequest> = {}): ModelSendRequest => ({
  wrId,
  opcode: 'SEND',
  local: new Uint8Array(length),
  destination: { gid: gidFromText('10.0.0.2'), qpn: 2, qkey: 0x11 },
  ...rest,
});

function sent(qp: ModelUnreliableQp): ModelPacket[] {
  const packets: ModelPacket[] = [];
  for (let next = qp.transmit(); next !== undefined; next = qp.transmit()) packets.push(next.packet);
  return packets;
}

describe('requester', () => {
  test('UC: done when the last packet was sent; no AckReq', () => {
    const qp = make('UC');
    qp.postSend(send(1, MTU + 1));
    expect(qp.transmit()?.packet).toMatchObject({
      opcode: Opcode.UC_SEND_FIRST,
      psn: 0xffffff,
      ackReq: false,
    });
    expect(qp.sendCompletions).toEqual([]);
    expect(qp.transmit()?.packet).toMatchObject({ opcode: Opcode.UC_SEND_LAST, psn: 0, ackReq: false });
    expect(qp.sendCompletions).toEqual([{ wrId: 1, status: 'SUCCESS', opcode: 'SEND', byteLen: MTU + 1 }]);
  });

  test('UD: a packet each, with the Q_Key of the request or, for a controlled one, its own', () => {
    const qp = make('UD');
    const to = send(0, 1).destination!;
    qp.postSend(send(1, 4, { signaled: false }));
    qp.postSend(send(2, MTU, { destination: { ...to, qkey: 0x8000_0000 }, opcode: 'SEND_WITH_IMM' }));
    expect(sent(qp)).toMatchObject([
      { opcode: Opcode.UD_SEND_ONLY, psn: 0xffffff, destQpn: 2, deth: { qkey: 0x11, srcQpn: 1 } },
      { opcode: Opcode.UD_SEND_ONLY_WITH_IMMEDIATE, psn: 0, deth: { qkey: 7, srcQpn: 1 }, immediate: 0 },
    ]);
    expect(qp.sendCompletions.map(({ wrId }) => wrId)).toEqual([2]);
  });

  test.each<['UC' | 'UD', string, Partial<ModelSendRequest>]>([
    ['UD', 'LOC_LEN_ERR', { local: new Uint8Array(MTU + 1) }],
    ['UD', 'LOC_QP_OP_ERR', { opcode: 'RDMA_WRITE' }],
    ['UC', 'LOC_QP_OP_ERR', { opcode: 'RDMA_READ' }],
    ['UC', 'LOC_PROT_ERR', { broken: true }],
    ['UC', 'MW_BIND_ERR', { opcode: 'LOCAL_INV', invalidateRkey: 1 }],
  ])('%s: %s stops the send queue, not the receive queue', (service, status, change) => {
    const qp = make(service);
    qp.postReceive({ wrId: 9, local: new Uint8Array(MTU) });
    qp.postSend(send(1, 1));
    qp.postSend({ ...send(2, 1), ...change, signaled: false });
    qp.postSend(send(3, 1));
    expect(sent(qp).length).toBe(1);
    qp.postSend(send(4, 1));
    expect(qp.sendCompletions.map((c) => c.status)).toEqual([
      'SUCCESS',
      status,
      'WR_FLUSH_ERR',
      'WR_FLUSH_ERR',
    ]);
    expect(qp.state).toBe('SQE');
    const opcode = service === 'UC' ? Opcode.UC_SEND_ONLY : Opcode.UD_SEND_ONLY;
    const [packet] = sent(withSend(service));
    qp.receive({ ...packet, opcode, deth: { qkey: 7, srcQpn: 2 } }, new Uint8Array(40));
    expect(qp.receiveCompletions).toMatchObject([{ wrId: 9, status: 'SUCCESS' }]);
    qp.resume();
    qp.postSend(send(5, 1));
    // The PSN goes on where it stopped.
    expect(sent(qp)).toMatchObject([{ psn: 0 }]);
  });
});

function withSend(service: 'UC' | 'UD'): ModelUnreliableQp {
  const qp = make(service);
  qp.postSend(send(1, 1));
  return qp;
}

describe('a shared receive queue (§10.2.9)', () => {
  const packet = (service: 'UC' | 'UD') => ({ ...sent(withSend(service))[0], deth: { qkey: 7, srcQpn: 2 } });

  test('serves several queue pairs in the order of their messages, and reports once that it runs low', () => {
    const srq = createReceiveQueue(true);
    srq.limit = 2;
    const qps = [make('UC', srq), make('UD', srq)];
    for (let wrId = 1; wrId <= 3; wrId++) srq.waiting.push({ wrId, local: new Uint8Array(100) });
    const take = (index: 0 | 1) => {
      qps[index].receive(packet(index === 0 ? 'UC' : 'UD'), new Uint8Array(40));
      return qps[index].receiveCompletions.at(-1)?.wrId;
    };
    expect([take(0), srq.limitEvents]).toEqual([1, 0]);
    expect([take(1), srq.limitEvents]).toEqual([2, 1]);
    expect([take(0), srq.limitEvents]).toEqual([3, 1]);
  });

  test('keeps its receives when a queue pair fails, which raises one event', () => {
    const srq = createReceiveQueue(true);
    const qp = make('UD', srq);
    qp.postReceive({ wrId: 1, local: new Uint8Array(100) });
    qp.fail();
    qp.fail();
    expect([srq.waiting.length, qp.receiveCompletions, qp.events]).toEqual([1, [], ['QP_LAST_WQE_REACHED']]);
    qp.receive(packet('UD'), new Uint8Array(40));
    expect(qp.receiveCompletions).toEqual([]);
  });
});
