import { AssertionError } from 'node:assert';
import { expect, test } from 'vitest';
import { aeth, bth, expectPacket, immediate, payload, reth } from './matchers.ts';
import type { ModelPacket } from './model/packet.ts';

const packet: ModelPacket = {
  opcode: 17,
  solicited: false,
  pkey: 0xffff,
  destQpn: 5,
  ackReq: false,
  psn: 7,
  aeth: { syndrome: 0x60, msn: 3 },
  payload: new Uint8Array(4),
};

/** The error of `expectPacket`. */
function errorOf(...args: Parameters<typeof expectPacket>): AssertionError {
  try {
    expectPacket(...args);
  } catch (error) {
    if (error instanceof AssertionError) return error;
    throw error;
  }
  throw new Error('expectPacket did not throw');
}

test('passes a packet whose fields are as expected', () => {
  expect(() =>
    expectPacket(
      packet,
      bth({ opcode: 'RC_ACKNOWLEDGE', psn: 7, destQpn: 5 }),
      aeth({ nak: 0x60, msn: 3 }),
      payload(4),
      payload(new Uint8Array(4)),
    ),
  ).not.toThrow();
  const ack = { ...packet, aeth: { syndrome: 0x1f, msn: 3 } };
  expect(() => expectPacket(ack, aeth({ ack: true }), aeth({ ack: 0x1f }))).not.toThrow();
});

test('throws an AssertionError with the fields that differ', () => {
  const error = errorOf(packet, bth({ psn: 8, ackReq: true, destQpn: 5 }), payload(0), immediate(1));
  expect(error.actual).toEqual({
    'BTH psn': 7,
    'BTH ackReq': false,
    'payload length': 4,
    'immediate data': undefined,
  });
  expect(error.expected).toEqual({
    'BTH psn': 8,
    'BTH ackReq': true,
    'payload length': 0,
    'immediate data': 1,
  });
  expect(error.message).toBe(
    'RC Acknowledge, PSN 7, syndrome 0x60, MSN 3, 4 bytes: BTH psn is 7, expected 8, BTH ackReq is false, expected true, ' +
      'payload length is 4, expected 0, immediate data is absent, expected 1',
  );
});

test('names a syndrome of another kind, and headers that are missing', () => {
  expect(errorOf(packet, aeth({ ack: true })).actual).toEqual({ 'AETH ack': '0x60' });
  expect(errorOf(packet, aeth({ rnr: 14 })).expected).toEqual({ 'AETH rnr': 14 });
  expect(errorOf(packet, reth({ length: 1 })).actual).toEqual({ 'RETH length': undefined });
  const rnr = { ...packet, aeth: { syndrome: 0x2c, msn: 3 } };
  expect(errorOf(rnr, aeth({ rnr: 14 })).actual).toEqual({ 'AETH rnr': 12 });
});

test('throws where there is no packet, or bytes that cannot be decoded', () => {
  expect(errorOf(undefined).message).toBe('expected a packet, there is none');
  expect(errorOf(new Uint8Array(3)).message).toMatch(/^expected an RC packet: /);
});
