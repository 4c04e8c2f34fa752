import { Opcode, psnAdd } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { aeth, bth, expectPacket, payload } from '../matchers.ts';
import type { ModelPacket } from './packet.ts';
import { respond } from './rc-responder.ts';
import { createResponder, postReceive, type Responder, type ResponderConfig } from './rc-responder-state.ts';
import { ModelAccess } from './verbs.ts';

const MTU = 256;
const FIRST = 0xfffffe; // two packets before the wrap
const KEY = 5;
const ALL = ModelAccess.REMOTE_WRITE | ModelAccess.REMOTE_READ | ModelAccess.REMOTE_ATOMIC;

function responder(config: Partial<ResponderConfig> = {}): Responder {
  const bytes = Uint8Array.from({ length: 4096 }, (_, i) => i * 3);
  const region = { rkey: KEY, base: 0x1000n, bytes, access: ALL, invalidatable: false };
  const window = { ...region, rkey: 6, bytes: bytes.subarray(0, 64), invalidatable: true };
  return createResponder(
    {
      qpn: 1,
      destQpn: 9,
      pathMtu: MTU,
      accessFlags: ALL,
      maxDestRdAtomic: 2,
      minRnrTimer: 3,
      flowControl: false,
      ...config,
    },
    { regions: [region, window] },
    FIRST,
  );
}

/** A request; PSNs count from the first expected one. */
function request(opcode: number, psn: number, rest: Partial<ModelPacket> = {}): ModelPacket {
  return {
    opcode,
    destQpn: 1,
    psn: psnAdd(FIRST, psn),
    ackReq: true,
    solicited: false,
    pkey: 0xffff,
    payload: new Uint8Array(0),
    ...rest,
  };
}

const bytes = (length: number) => Uint8Array.from({ length }, (_, i) => i + 1);
const at = (va: bigint, length: number, rkey = KEY) => ({ reth: { va, rkey, length } });
const receive = (r: Responder, wrId: number, length = 1024) =>
  postReceive(r, { wrId, local: new Uint8Array(length) });
const write = (psn: number, length = 4) =>
  request(Opcode.RC_RDMA_WRITE_ONLY, psn, { ...at(0x1000n, length), payload: bytes(length) });
const add = (psn: number, va = 0x1000n) =>
  request(Opcode.RC_FETCH_ADD, psn, { atomicEth: { va, rkey: KEY, swapAdd: 1n, compare: 0n } });
const only = (r: Responder, packet: ModelPacket) => {
  const { replies } = respond(r, packet);
  expect(replies.length).toBe(1);
  return replies[0];
};
const expectNak = (r: Responder, packet: ModelPacket, nak: number) =>
  expectPacket(only(r, packet), bth({ opcode: 'RC_ACKNOWLEDGE', psn: packet.psn }), aeth({ nak }));

describe('PSN (§9.7.4.1.1)', () => {
  test('one NAK for packets ahead, then silence, and duplicates are answered meanwhile', () => {
    const r = responder();
    respond(r, write(0));
    expectPacket(only(r, write(2)), bth({ psn: psnAdd(FIRST, 1) }), aeth({ nak: 0x60, msn: 1 }));
    expect(respond(r, write(3)).dropped).toBe('ahead of the expected PSN, NAK is out');
    expectPacket(only(r, write(0)), bth({ psn: FIRST }), aeth({ ack: 31, msn: 1 }));
    expectPacket(only(r, write(1)), bth({ psn: psnAdd(FIRST, 1) }), aeth({ ack: 31, msn: 2 }));
    expectPacket(only(r, write(3)), bth({ psn: psnAdd(FIRST, 2) }), aeth({ nak: 0x60 }));
  });

  test('the duplicate region reaches back 2^23', () => {
    const r = responder();
    respond(r, write(0));
    expect(respond(r, write(1 - 2 ** 23)).replies[0].aeth?.syndrome).toBe(31);
    expect(respond(r, write(1 + 2 ** 23 - 1)).replies[0].aeth?.syndrome).toBe(0x60);
  });

  test('a READ takes as many PSNs as it has responses', () => {
    const r = responder();
    respond(r, request(Opcode.RC_RDMA_READ_REQUEST, 0, at(0x1000n, 3 * MTU + 1)));
    expect(r.ePsn).toBe(psnAdd(FIRST, 4));
    expect(r.msn).toBe(1);
  });
});

describe('header (§9.6.1)', () => {
  test.each([0x7fff, 0xffff])('P_Key 0x%x is taken', (pkey) => {
    expect(only(responder(), { ...write(0), pkey }).aeth?.syndrome).toBe(31);
  });
  test('another P_Key is dropped', () => {
    expect(respond(responder(), { ...write(0), pkey: 0x8001 }).dropped).toBe('P_Key mismatch');
  });
});

describe('opcode sequence (§9.7.4.1.2)', () => {
  test.each([
    ['MIDDLE first', [request(Opcode.RC_SEND_MIDDLE, 0, { payload: bytes(MTU) })]],
    ['LAST first', [request(Opcode.RC_RDMA_WRITE_LAST, 0, { payload: bytes(1) })]],
    [
      'ONLY inside a message',
      [request(Opcode.RC_RDMA_WRITE_FIRST, 0, { ...at(0x1000n, 2 * MTU), payload: bytes(MTU) }), write(1)],
    ],
    [
      'a SEND that goes on a WRITE',
      [
        request(Opcode.RC_RDMA_WRITE_FIRST, 0, { ...at(0x1000n, 2 * MTU), payload: bytes(MTU) }),
        request(Opcode.RC_SEND_LAST, 1, { payload: bytes(MTU) }),
      ],
    ],
  ])('%s', (_, packets) => {
    const r = responder();
    receive(r, 1);
    for (const packet of packets.slice(0, -1)) respond(r, packet);
    expectNak(r, packets.at(-1)!, 0x61);
    expect(r.state).toBe('ERR');
    expect(respond(r, write(5)).dropped).toBe('error state');
  });
});

describe('operation (§9.7.4.1.3), resources (§9.7.4.1.4)', () => {
  test.each([
    ['WRITE', ALL & ~ModelAccess.REMOTE_WRITE, write(0)],
    ['READ', ALL & ~ModelAccess.REMOTE_READ, request(Opcode.RC_RDMA_READ_REQUEST, 0, at(0x1000n, 1))],
    ['atomic', ALL & ~ModelAccess.REMOTE_ATOMIC, add(0)],
  ])('a queue pair without %s', (_, accessFlags, packet) => {
    expectNak(responder({ accessFlags }), packet, 0x61);
  });

  test('no READ or atomic was agreed on', () => expectNak(responder({ maxDestRdAtomic: 0 }), add(0), 0x61));

  test('no receive: RNR NAK, then silence for later packets, then again', () => {
    const r = responder();
    const first = request(Opcode.RC_SEND_FIRST, 0, { payload: bytes(MTU) });
    const last = request(Opcode.RC_SEND_LAST, 1, { payload: bytes(1) });
    expectPacket(only(r, first), bth({ psn: FIRST }), aeth({ rnr: 3, msn: 0 }));
    expect(respond(r, last).replies).toEqual([]);
    expectPacket(only(r, first), aeth({ rnr: 3 }));
    receive(r, 1);
    respond(r, first);
    const { completions } = respond(r, last);
    expect(completions).toEqual([{ wrId: 1, status: 'SUCCESS', opcode: 'RECV', byteLen: MTU + 1 }]);
  });

  test('a WRITE with immediate needs its receive at the last packet only', () => {
    const r = responder();
    respond(r, request(Opcode.RC_RDMA_WRITE_FIRST, 0, { ...at(0x1000n, MTU + 1), payload: bytes(MTU) }));
    const last = request(Opcode.RC_RDMA_WRITE_LAST_WITH_IMMEDIATE, 1, { payload: bytes(1), immediate: 7 });
    expectPacket(only(r, last), bth({ psn: psnAdd(FIRST, 1) }), aeth({ rnr: 3 }));
  });

  test('a receive with a bad key', () => {
    const r = responder();
    postReceive(r, { wrId: 1, local: new Uint8Array(9), broken: true });
    receive(r, 2);
    const { replies, completions } = respond(r, request(Opcode.RC_SEND_ONLY, 0, { payload: bytes(4) }));
    expectPacket(replies[0], aeth({ nak: 0x63 }));
    expect(completions.map(({ status }) => status)).toEqual(['LOC_PROT_ERR', 'WR_FLUSH_ERR']);
  });
});

describe('length (§9.7.4.1.6)', () => {
  test.each([
    ['FIRST shorter than the path MTU', request(Opcode.RC_SEND_FIRST, 0, { payload: bytes(MTU - 1) })],
    ['ONLY longer than the path MTU', request(Opcode.RC_SEND_ONLY, 0, { payload: bytes(MTU + 1) })],
    ['more than 2^31', request(Opcode.RC_RDMA_READ_REQUEST, 0, at(0x1000n, 2 ** 31 + 1))],
    ['less than announced', request(Opcode.RC_RDMA_WRITE_ONLY, 0, { ...at(0x1000n, 5), payload: bytes(4) })],
    [
      'more than announced',
      request(Opcode.RC_RDMA_WRITE_FIRST, 0, { ...at(0x1000n, 5), payload: bytes(MTU) }),
    ],
    ['misaligned atomic', add(0, 0x1004n)],
  ])('%s', (_, packet) => {
    const r = responder();
    receive(r, 1);
    expectNak(r, packet, 0x61);
  });

  test('an empty LAST', () => {
    const r = responder();
    receive(r, 1);
    respond(r, request(Opcode.RC_SEND_FIRST, 0, { payload: bytes(MTU) }));
    expectNak(r, request(Opcode.RC_SEND_LAST, 1), 0x61);
  });
});

describe('access (§9.7.4.1.5)', () => {
  test.each([
    ['key', at(0x1000n, 4, 77)],
    ['before the region', at(0xfffn, 4)],
    ['past the region', at(0x1ffdn, 4)],
    ['past the end of addresses', at(0xffff_ffff_ffff_fffen, 4)],
  ])('%s', (_, range) => {
    expectNak(responder(), request(Opcode.RC_RDMA_WRITE_ONLY, 0, { ...range, payload: bytes(4) }), 0x62);
  });

  test('no bytes need no key', () => {
    const r = responder();
    expectPacket(only(r, request(Opcode.RC_RDMA_WRITE_ONLY, 0, at(0n, 0, 77))), aeth({ ack: 31 }));
    expectPacket(
      only(r, request(Opcode.RC_RDMA_READ_REQUEST, 1, at(0n, 0, 77))),
      bth({ opcode: 'RC_RDMA_READ_RESPONSE_ONLY' }),
      payload(0),
    );
  });

  test('SEND with invalidate ends a window, and only a window', () => {
    const r = responder();
    receive(r, 1);
    receive(r, 2);
    const invalidate = (psn: number) =>
      request(Opcode.RC_SEND_ONLY_WITH_INVALIDATE, psn, { invalidateRkey: 6, payload: bytes(1) });
    expect(respond(r, invalidate(0)).completions[0]).toMatchObject({ invalidatedRkey: 6 });
    expectNak(r, invalidate(1), 0x62);
  });
});

describe('repetitions (§9.7.5.1.5)', () => {
  test('a SEND is not received twice, and its ACK does not answer the READ after it', () => {
    const r = responder();
    receive(r, 1);
    receive(r, 2);
    const send = request(Opcode.RC_SEND_ONLY, 0, { payload: bytes(4), ackReq: false });
    respond(r, send);
    respond(r, request(Opcode.RC_RDMA_READ_REQUEST, 1, at(0x1000n, 600)));
    const again = respond(r, send);
    expect(again.completions).toEqual([]);
    expectPacket(again.replies[0], bth({ opcode: 'RC_ACKNOWLEDGE', psn: FIRST }), aeth({ ack: 31, msn: 2 }));
  });

  test('the rest of a READ is read again, memory as it is now; nothing else is', () => {
    const r = responder();
    respond(r, request(Opcode.RC_RDMA_READ_REQUEST, 0, at(0x1000n, 600)));
    r.memory.regions[0].bytes[300] = 99;
    const { replies } = respond(r, request(Opcode.RC_RDMA_READ_REQUEST, 1, at(0x1100n, 344)));
    expect(replies.map(({ payload: data }) => data.length)).toEqual([256, 88]);
    expect(replies[0].payload[44]).toBe(99);
    for (const wrong of [at(0x1000n, 344), at(0x1100n, 345), at(0x1100n, 344, 6)]) {
      expect(respond(r, request(Opcode.RC_RDMA_READ_REQUEST, 1, wrong)).dropped).toBe(
        'no such READ is remembered',
      );
    }
  });

  test('an atomic is answered from memory of it, as long as that lasts', () => {
    const r = responder();
    r.memory.regions[0].bytes.fill(0, 0, 8);
    for (let psn = 0; psn < 3; psn++) expect(only(r, add(psn)).original).toBe(BigInt(psn));
    expect(only(r, add(1)).original).toBe(1n);
    expect(respond(r, add(0)).dropped).toBe('no such atomic is remembered');
    expect(r.memory.regions[0].bytes[0]).toBe(3);
  });

  test('a message in progress goes on', () => {
    const r = responder();
    receive(r, 1);
    respond(r, write(0));
    respond(r, request(Opcode.RC_SEND_FIRST, 1, { payload: bytes(MTU) }));
    respond(r, write(0));
    const { completions } = respond(r, request(Opcode.RC_SEND_LAST, 2, { payload: bytes(1) }));
    expect(completions).toMatchObject([{ wrId: 1, byteLen: MTU + 1 }]);
  });
});

test('credits count the receives, rounded down to a code (§9.7.5.2.2)', () => {
  const r = responder({ flowControl: true });
  for (let i = 0; i < 5; i++) receive(r, i);
  expectPacket(only(r, write(0)), aeth({ ack: 4 }));
  receive(r, 5);
  expectPacket(only(r, write(1)), aeth({ ack: 5 }));
});

test('an ACK in the middle of a message does not count it (§9.7.7.1)', () => {
  const r = responder();
  receive(r, 1);
  const first = request(Opcode.RC_SEND_FIRST, 0, { payload: bytes(MTU) });
  expectPacket(only(r, first), bth({ psn: FIRST }), aeth({ ack: 31, msn: 0 }));
});
