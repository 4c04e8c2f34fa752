import { Opcode, type OpcodeName, psnAdd } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import type { ModelPacket } from './packet.ts';
import { postReceive } from './rc-responder-state.ts';
import { createReceiveQueue } from './receive-queue.ts';
import { createUcResponder, receiveUc, type UcResponder } from './uc-responder.ts';
import { ModelAccess } from './verbs.ts';

const MTU = 256;
const FIRST = 0xffffff; // the last before the wrap
const KEY = 5;

function responder({ shared = false, accessFlags = ModelAccess.REMOTE_WRITE as number } = {}): UcResponder {
  const bytes = new Uint8Array(2048);
  const region = { rkey: KEY, base: 0x1000n, bytes, access: ModelAccess.REMOTE_WRITE, invalidatable: false };
  const config = { qpn: 1, pathMtu: MTU, accessFlags };
  return createUcResponder(config, { regions: [region] }, FIRST, createReceiveQueue(shared));
}

const post = (r: UcResponder, wrId: number, length = 1024) => {
  const local = new Uint8Array(length);
  postReceive(r, { wrId, local });
  return local;
};

/** A packet by its name without `UC_`; PSNs count from the first expected one. */
function packet(name: string, psn: number, length: number, rest: Partial<ModelPacket> = {}): ModelPacket {
  return {
    opcode: Opcode[`UC_${name}` as OpcodeName],
    destQpn: 1,
    psn: psnAdd(FIRST, psn),
    ackReq: false,
    solicited: false,
    pkey: 0xffff,
    payload: new Uint8Array(length).fill(psn + 1),
    ...rest,
  };
}

const write = (name: string, psn: number, length: number, total: number, va = 0x1000n) =>
  packet(`RDMA_WRITE_${name}`, psn, length, { reth: { va, rkey: KEY, length: total } });

/** The completions of all packets together. */
const give = (r: UcResponder, ...packets: ModelPacket[]) =>
  packets.flatMap((p) => receiveUc(r, p).completions);
const received = (wrId: number, byteLen: number) => ({ wrId, status: 'SUCCESS', opcode: 'RECV', byteLen });

describe('messages', () => {
  test('a SEND of several packets fills a receive and completes it', () => {
    const r = responder();
    const local = post(r, 7);
    const done = give(
      r,
      packet('SEND_FIRST', 0, MTU),
      packet('SEND_MIDDLE', 1, MTU),
      packet('SEND_LAST_WITH_IMMEDIATE', 2, 3, { immediate: 9, solicited: true }),
    );
    expect(done).toEqual([{ ...received(7, 2 * MTU + 3), immediate: 9, solicited: true }]);
    expect([local[0], local[MTU], local[2 * MTU], local[2 * MTU + 3]]).toEqual([1, 2, 3, 0]);
  });

  test('a WRITE lands and completes nothing, with immediate a receive', () => {
    const r = responder();
    post(r, 7);
    expect(give(r, write('FIRST', 0, MTU, MTU + 1), packet('RDMA_WRITE_LAST', 1, 1))).toEqual([]);
    expect([...r.memory.regions[0].bytes.subarray(MTU - 1, MTU + 2)]).toEqual([1, 2, 0]);
    const immediate = write('ONLY_WITH_IMMEDIATE', 2, 4, 4);
    expect(give(r, { ...immediate, immediate: 1 })).toEqual([
      { ...received(7, 4), opcode: 'RECV_RDMA_WITH_IMM', immediate: 1 },
    ]);
  });
});

describe('a lost packet drops its message and no other (§9.8.2.2)', () => {
  const message = (at: number) => [
    packet('SEND_FIRST', at, MTU),
    packet('SEND_MIDDLE', at + 1, MTU),
    packet('SEND_LAST', at + 2, 1),
  ];

  test.each([0, 1, 2])('packet %i', (lost) => {
    const r = responder();
    const local = post(r, 7);
    post(r, 8);
    expect(give(r, ...message(0).filter((_, i) => i !== lost))).toEqual([]);
    // The same receive is filled from its start by the next message.
    expect(give(r, ...message(3))).toEqual([received(7, 2 * MTU + 1)]);
    expect([local[0], local[MTU], local[2 * MTU]]).toEqual([4, 5, 6]);
    expect(r.receives.waiting.map(({ wrId }) => wrId)).toEqual([8]);
  });

  test('a packet that comes twice is one too many inside a message', () => {
    const r = responder();
    post(r, 7);
    const [first, middle, last] = message(0);
    expect(give(r, first, middle, middle, last)).toEqual([]);
    expect(give(r, ...message(3))).toEqual([received(7, 2 * MTU + 1)]);
  });

  test('a FIRST or ONLY begins a message whatever its PSN is', () => {
    const r = responder();
    post(r, 7);
    post(r, 8);
    expect(give(r, packet('SEND_ONLY', 1000, 1), packet('SEND_ONLY', 10, 2))).toEqual([
      received(7, 1),
      received(8, 2),
    ]);
  });

  test('a packet of the other operation ends the message', () => {
    const r = responder();
    post(r, 7);
    const mixed = [packet('SEND_FIRST', 0, MTU), packet('RDMA_WRITE_LAST', 1, 1), packet('SEND_LAST', 2, 1)];
    expect(give(r, ...mixed)).toEqual([]);
    expect(give(r, packet('SEND_ONLY', 3, 1))).toEqual([received(7, 1)]);
  });

  test('a receive of an SRQ completes in error: it cannot go back among the others', () => {
    const r = responder({ shared: true });
    post(r, 7);
    post(r, 8);
    const done = give(r, packet('SEND_FIRST', 0, MTU), packet('SEND_ONLY', 2, 1));
    expect(done).toEqual([{ wrId: 7, status: 'REM_INV_REQ_ERR' }, received(8, 1)]);
    expect(r.state).toBe('READY');
  });
});

describe('dropped in silence', () => {
  test.each<[string, ModelPacket]>([
    ['no receive', packet('SEND_ONLY', 0, 1)],
    ['RC', { ...packet('SEND_ONLY', 0, 1), opcode: Opcode.RC_SEND_ONLY }],
    ['another P_Key', packet('SEND_ONLY', 0, 1, { pkey: 0x8001 })],
    ['an unknown key', packet('RDMA_WRITE_ONLY', 0, 1, { reth: { va: 0x1000n, rkey: 6, length: 1 } })],
    ['out of range', write('ONLY', 0, 1, 1, 0x1800n)],
    ['less than the length in the RETH', write('ONLY', 0, 1, 2)],
    ['a FIRST that does not fill the MTU', write('FIRST', 0, 1, MTU + 1)],
  ])('%s', (_what, bad) => {
    const r = responder();
    expect(receiveUc(r, bad)).toEqual({ completions: [], dropped: expect.any(String) });
    expect(r.memory.regions[0].bytes.every((byte) => byte === 0)).toBe(true);
    post(r, 7);
    expect(give(r, packet('SEND_ONLY', 1, 1))).toEqual([received(7, 1)]);
  });

  test('the rest of a message whose beginning found no receive', () => {
    const r = responder();
    expect(give(r, packet('SEND_FIRST', 0, MTU))).toEqual([]);
    post(r, 7);
    expect(give(r, packet('SEND_LAST', 1, 1))).toEqual([]);
    expect(r.receives.waiting.length).toBe(1);
  });

  test('a queue pair that allows no WRITE', () => {
    const r = responder({ accessFlags: 0 });
    expect(receiveUc(r, write('ONLY', 0, 1, 1)).dropped).toBe('the queue pair allows no WRITE');
  });

  test('a message too long for the receive; the receive stays', () => {
    const r = responder();
    post(r, 7, MTU);
    expect(give(r, packet('SEND_FIRST', 0, MTU), packet('SEND_LAST', 1, 1))).toEqual([]);
    expect(give(r, packet('SEND_ONLY', 2, MTU))).toEqual([received(7, MTU)]);
  });

  test('of an SRQ too, unless its message had begun', () => {
    const r = responder({ shared: true });
    post(r, 7, 1);
    expect(give(r, packet('SEND_ONLY', 0, 2))).toEqual([]);
    expect(give(r, packet('SEND_ONLY', 1, 1))).toEqual([received(7, 1)]);
    post(r, 8, MTU);
    const tooLong = [packet('SEND_FIRST', 2, MTU), packet('SEND_LAST', 3, 1)];
    expect(give(r, ...tooLong)).toEqual([{ wrId: 8, status: 'REM_INV_REQ_ERR' }]);
  });
});

test('a receive that cannot be written ends the connection', () => {
  const r = responder();
  postReceive(r, { wrId: 7, local: new Uint8Array(8), broken: true });
  post(r, 8);
  expect(give(r, packet('SEND_ONLY', 0, 1))).toEqual([
    { wrId: 7, status: 'LOC_PROT_ERR' },
    { wrId: 8, status: 'WR_FLUSH_ERR' },
  ]);
  expect(receiveUc(r, packet('SEND_ONLY', 1, 1)).dropped).toBe('error state');
});
