import { Opcode, psnAdd } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { bth, expectPacket, payload, reth } from '../matchers.ts';
import type { ModelPacket } from './packet.ts';
import { advanceTime, receiveResponse } from './rc-requester.ts';
import {
  createRequester,
  nextDeadline,
  postSend,
  type Requester,
  type RequesterConfig,
} from './rc-requester-state.ts';
import { planPacket, sendPacket } from './rc-requester-transmit.ts';
import type { ModelSendRequest } from './work.ts';

const FIRST = 0xfffffe;
const MTU = 256;

function requester(config: Partial<RequesterConfig> = {}): Requester {
  return createRequester(
    {
      destQpn: 9,
      pathMtu: MTU,
      timeout: 4,
      retryCnt: 2,
      rnrRetry: 2,
      maxRdAtomic: 2,
      flowControl: false,
      window: 64,
      timerFactor: 1,
      ...config,
    },
    FIRST,
  );
}

const remote = { va: 0x1000n, rkey: 5 };
const post = (q: Requester, wrId: number, opcode: ModelSendRequest['opcode'], bytes: number, rest = {}) =>
  postSend(q, { wrId, opcode, local: Uint8Array.from({ length: bytes }, (_, i) => i), remote, ...rest });

/** Everything that may be sent. */
function sendAll(q: Requester, now = 0): ModelPacket[] {
  const packets: ModelPacket[] = [];
  for (let plan = planPacket(q); typeof plan !== 'string'; plan = planPacket(q)) {
    packets.push(sendPacket(q, plan, now));
  }
  return packets;
}

function response(opcode: number, psn: number, rest: Partial<ModelPacket> = {}): ModelPacket {
  return {
    opcode,
    destQpn: 1,
    psn: psnAdd(FIRST, psn),
    ackReq: false,
    solicited: false,
    pkey: 0xffff,
    payload: new Uint8Array(0),
    ...rest,
  };
}
const ack = (psn: number, syndrome = 31, msn = 0) =>
  response(Opcode.RC_ACKNOWLEDGE, psn, { aeth: { syndrome, msn } });
const statuses = (completions: { wrId: number; status: string }[]) =>
  completions.map(({ wrId, status }) => `${wrId} ${status}`);

test('cuts a message at the path MTU, its place shown by the opcode (§9.7.3)', () => {
  const q = requester();
  post(q, 1, 'SEND_WITH_IMM', 2 * MTU + 1, { immediate: 7, solicited: true });
  const packets = sendAll(q);
  expectPacket(
    packets[0],
    bth({ opcode: 'RC_SEND_FIRST', psn: FIRST, ackReq: false, solicited: false }),
    payload(MTU),
  );
  expectPacket(packets[1], bth({ opcode: 'RC_SEND_MIDDLE', psn: 0xffffff }), payload(MTU));
  expectPacket(
    packets[2],
    bth({ opcode: 'RC_SEND_LAST_WITH_IMMEDIATE', psn: 0, ackReq: true, solicited: true }),
    payload(1),
  );
});

test('an ACK completes everything up to it, in order (§9.7.5.1.2)', () => {
  const q = requester();
  for (let i = 1; i <= 3; i++) post(q, i, 'RDMA_WRITE', 4, { signaled: i !== 2 });
  sendAll(q);
  expect(statuses(receiveResponse(q, ack(2), 1))).toEqual(['1 SUCCESS', '3 SUCCESS']);
  expect(nextDeadline(q)).toBe(Number.POSITIVE_INFINITY);
});

test('a ghost is ignored (§9.7.6.1.1)', () => {
  const q = requester();
  post(q, 1, 'RDMA_WRITE', 4);
  sendAll(q);
  expect(receiveResponse(q, ack(1), 1)).toEqual([]);
  expect(receiveResponse(q, ack(-1), 1)).toEqual([]);
  expect(receiveResponse(q, ack(1, 0x62), 1)).toEqual([]);
  expect(q.state).toBe('READY');
});

test.each([0x9999, 0x1234, 0])('a response of partition %i is ignored, its credits too (§9.6.1)', (pkey) => {
  const q = requester({ flowControl: true });
  post(q, 1, 'SEND', 4);
  post(q, 2, 'SEND', 4);
  expect(sendAll(q)).toHaveLength(1);
  const before = structuredClone(q);
  for (const syndrome of [31, 0x62, 0x60, 0x21]) {
    expect(receiveResponse(q, { ...ack(0, syndrome, 1), pkey }, 1)).toEqual([]);
  }
  expect(q).toEqual(before);
  expect(statuses(receiveResponse(q, { ...ack(0, 31, 1), pkey: 0x7fff }, 1))).toEqual(['1 SUCCESS']);
});

test('an ACK past an unanswered READ is an implied NAK, once (§9.7.6.1.2)', () => {
  const q = requester();
  post(q, 1, 'RDMA_READ', 3 * MTU);
  post(q, 2, 'RDMA_WRITE', 4);
  sendAll(q);
  receiveResponse(
    q,
    response(Opcode.RC_RDMA_READ_RESPONSE_FIRST, 0, {
      payload: new Uint8Array(MTU),
      aeth: { syndrome: 31, msn: 1 },
    }),
    1,
  );
  expect(receiveResponse(q, ack(3), 2)).toEqual([]);
  expect(q.retriesLeft).toBe(1);
  const again = sendAll(q);
  expectPacket(again[0], bth({ psn: psnAdd(FIRST, 1) }), reth({ va: 0x1100n, length: 2 * MTU }));
  expectPacket(again[1], bth({ opcode: 'RC_RDMA_WRITE_ONLY' }));
  receiveResponse(q, ack(3), 3);
  expect(q.retriesLeft).toBe(1);
});

test('a READ response of the wrong length or place is a bad response', () => {
  for (const [opcode, length] of [
    [Opcode.RC_RDMA_READ_RESPONSE_LAST, MTU],
    [Opcode.RC_RDMA_READ_RESPONSE_FIRST, MTU - 1],
  ]) {
    const q = requester();
    post(q, 1, 'RDMA_READ', 2 * MTU);
    post(q, 2, 'SEND', 1);
    sendAll(q);
    const bad = response(opcode, 0, { payload: new Uint8Array(length), aeth: { syndrome: 31, msn: 1 } });
    expect(statuses(receiveResponse(q, bad, 1))).toEqual(['1 BAD_RESP_ERR', '2 WR_FLUSH_ERR']);
  }
});

test('the timer fires after k · T, again and again, and then no more (§9.7.6.1.3)', () => {
  const q = requester({ timerFactor: 3 });
  post(q, 1, 'SEND', 1);
  sendAll(q, 100);
  const step = 3 * 4.096 * 16;
  for (let i = 1; i <= 2; i++) {
    expect(nextDeadline(q)).toBeCloseTo(100 + i * step);
    expect(advanceTime(q, nextDeadline(q))).toEqual([]);
    expect(sendAll(q, 100 + i * step).length).toBe(1);
  }
  expect(statuses(advanceTime(q, nextDeadline(q)))).toEqual(['1 RETRY_EXC_ERR']);
  expect(postSend(q, { wrId: 2, opcode: 'SEND', local: new Uint8Array(1) })[0].status).toBe('WR_FLUSH_ERR');
});

test('an RNR NAK waits its time, and a NAK 0x60 or a copy of it costs nothing meanwhile (§9.7.5.2.8)', () => {
  const q = requester({ rnrRetry: 1 });
  post(q, 1, 'SEND', 2 * MTU);
  sendAll(q);
  receiveResponse(q, ack(0, 0x20 | 12), 10);
  expect(planPacket(q)).toBe('RNR wait');
  for (const syndrome of [0x60, 0x2c]) expect(receiveResponse(q, ack(0, syndrome), 11)).toEqual([]);
  expect([q.retriesLeft, q.rnrRetriesLeft]).toEqual([2, 0]);
  expect(nextDeadline(q)).toBe(650);
  advanceTime(q, 650);
  expect(sendAll(q, 650).length).toBe(2);
  expect(statuses(receiveResponse(q, ack(0, 0x20 | 12), 700))).toEqual(['1 RNR_RETRY_EXC_ERR']);
});

test.each([
  [0x61, 'REM_INV_REQ_ERR'],
  [0x62, 'REM_ACCESS_ERR'],
  [0x63, 'REM_OP_ERR'],
])('NAK 0x%x acknowledges the requests before it and ends the connection', (syndrome, status) => {
  const q = requester();
  for (let i = 1; i <= 3; i++) post(q, i, 'SEND', 1, { signaled: i !== 3 });
  sendAll(q);
  expect(statuses(receiveResponse(q, ack(1, syndrome), 1))).toEqual([
    '1 SUCCESS',
    `2 ${status}`,
    '3 WR_FLUSH_ERR',
  ]);
});

test('credits: one message past the limit; WRITE and READ need none (§9.7.7.2)', () => {
  const q = requester({ flowControl: true });
  for (let i = 1; i <= 4; i++) post(q, i, 'SEND', 1);
  expect(sendAll(q).length).toBe(1);
  expect(planPacket(q)).toBe('credits');
  receiveResponse(q, ack(0, 0, 1), 1);
  expect(sendAll(q).length).toBe(1);
  receiveResponse(q, ack(1, 1, 2), 2);
  expect(sendAll(q).length).toBe(2);
  receiveResponse(q, ack(3, 0, 4), 3);
  post(q, 5, 'SEND', 1);
  post(q, 6, 'SEND', 1);
  post(q, 7, 'SEND', 1);
  expect(sendAll(q).length).toBe(1);
  receiveResponse(q, ack(3, 31, 4), 4); // its only news is the credits
  expect(sendAll(q).length).toBe(2);

  const w = requester({ flowControl: true });
  post(w, 1, 'RDMA_WRITE', 1);
  post(w, 2, 'RDMA_WRITE', 1);
  post(w, 3, 'RDMA_READ', 1);
  expect(sendAll(w).length).toBe(3);
});

test('READs and atomics out are limited, a fence waits for them, a window for ACKs', () => {
  const q = requester();
  for (let i = 1; i <= 3; i++) post(q, i, 'RDMA_READ', 1);
  expect(sendAll(q).length).toBe(2);
  expect(planPacket(q)).toBe('rd_atomic');

  const f = requester();
  post(f, 1, 'RDMA_READ', 1);
  post(f, 2, 'SEND', 1, { fence: true });
  expect(sendAll(f).length).toBe(1);
  expect(planPacket(f)).toBe('fence');

  const w = requester({ window: 3 });
  post(w, 1, 'SEND', 10 * MTU);
  expect(sendAll(w).length).toBe(3);
  expect(planPacket(w)).toBe('window');
});
