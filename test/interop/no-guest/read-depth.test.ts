import { Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { readDepth } from '../harness/read-depth.ts';
import type { WirePacket } from '../harness/wire.ts';

const [US, PEER] = ['10.77.1.1', '10.77.1.2'];
const MTU = 1024;
const { RC_RDMA_READ_REQUEST, RC_RDMA_READ_RESPONSE_LAST, RC_RDMA_READ_RESPONSE_MIDDLE } = Opcode;

/** A packet at `ms`: our request for `responses`, or a response. */
function packet(ms: number, psn: number, { responses = 0, opcode = RC_RDMA_READ_REQUEST as number }) {
  const payload = new Uint8Array(28);
  new DataView(payload.buffer).setUint32(24, responses * MTU);
  const source = responses > 0 ? US : PEER;
  const where = { source, opcode, destQp: 1, icrcOk: true, frame: payload };
  return { ...where, psn, time: 1000 + ms / 1000, payload } satisfies WirePacket;
}
const request = (ms: number, psn: number, responses = 7) => packet(ms, psn, { responses });
const last = (ms: number, psn: number) => packet(ms, psn, { opcode: RC_RDMA_READ_RESPONSE_LAST });
const middle = (ms: number, psn: number) => packet(ms, psn, { opcode: RC_RDMA_READ_RESPONSE_MIDDLE });
const depth = (packets: WirePacket[], late?: number) => readDepth(packets, US, MTU, late);

/** Requests for seven responses each, `count` of them from `psn` on. */
const requests = (count: number, psn = 0) => Array.from({ length: count }, (_, i) => request(i, psn + 7 * i));

test('counts unanswered requests, across the wrap of the PSN', () => {
  expect(depth([request(0, 0xff_fffe), request(1, 5), last(2, 4), request(3, 12)])).toBe(2);
  expect(depth([request(0, 0), middle(1, 5), request(2, 7), last(3, 6)])).toBe(2);
});

test('a 17th request counts', () => {
  expect(depth([...requests(17)])).toBe(17);
  expect(depth([...requests(16), last(20, 6), request(21, 112), request(22, 119)])).toBe(17);
});

test('a repeated request does not count, even if its answer was under way', () => {
  const probe = request(21, 0);
  expect(depth([...requests(16), last(20, 6), probe, request(22, 112)])).toBe(16);
});

test('a request for a part of an earlier one does not count', () => {
  const gap = request(21, 2, 1);
  expect(depth([...requests(16), last(20, 6), gap, request(22, 112), request(23, 10, 2)])).toBe(16);
});

test('answers that come late are outstanding until then', () => {
  expect(depth([request(0, 0), last(1, 6), request(2, 7)])).toBe(1);
  expect(depth([request(0, 0), last(1, 6), request(2, 7)], 0.4)).toBe(2);
});
