/** A READ whose number of responses nothing has shown, and whose requester asks for its parts again. */
import { expect, test } from 'vitest';
import { CaptureBuilder } from '../../../testing/capture-builder.ts';
import { ack, send } from '../../../testing/messages.ts';

/** The low half of its addresses wraps in the middle of the READ. */
const VA = 0x1_ffff_f000n;

/** @param at bytes from the first READ's address on */
const read = (capture: CaptureBuilder, time: number, psn: number, length: number, at = 0) =>
  capture.packet(time, 'a', 'RC_RDMA_READ_REQUEST', { psn, length, va: VA + BigInt(at), ackReq: true });
const response = (capture: CaptureBuilder, time: number, psn: number, payload: number) =>
  capture.packet(time, 'b', 'RC_RDMA_READ_RESPONSE_ONLY', { psn, payload });

test.each([
  ['the first part was answered', true],
  ['nothing was answered', false],
])('its rest, at a PSN that belongs to it: retransmitted; %s', (_how, isAnswered) => {
  const capture = read(new CaptureBuilder(), 0, 5, 6000);
  read(capture, 8000, 5, 4096);
  if (isAnswered) response(capture, 8100, 5, 4096);
  read(capture, 8200, 6, 1904, 4096);
  if (!isAnswered) response(capture, 8290, 5, 4096);
  response(capture, 8300, 6, 1904);
  const { connections } = capture.finish();
  expect(connections[0].aToB).toMatchObject({ requests: 3, retransmitted: 2 });
  expect(capture.messages).toMatchObject([{ operation: 'RDMA_READ', bytes: 6000, outcome: 'completed' }]);
});

test('a gap of it only, as selective repair asks: the addresses show the path MTU', () => {
  const capture = read(new CaptureBuilder(), 0, 5, 8192);
  read(capture, 8000, 6, 4096, 1024);
  capture.packet(8100, 'b', 'RC_RDMA_READ_RESPONSE_LAST', { psn: 9, payload: 1024 });
  const { connections } = capture.finish();
  expect(connections[0]).toMatchObject({ pathMtu: 1024, aToB: { requests: 2, retransmitted: 1 } });
});

test.each([
  ['another address than that of its PSN at any path MTU', 4096, 1000],
  ['an address before it', 4096, -1024],
  ['past its end', 8192, 1024],
])('a READ of %s shows no path MTU', (_how, length, at) => {
  const capture = read(new CaptureBuilder(), 0, 5, 8192);
  read(capture, 8000, 6, length, at);
  expect(capture.finish().connections[0].pathMtu).toBeUndefined();
});

test('an address that is no whole number of packets behind shows no path MTU', () => {
  const capture = read(new CaptureBuilder(), 0, 5, 16_384);
  read(capture, 8000, 8, 4096, 3 * 256 + 1);
  expect(capture.finish().connections[0].pathMtu).toBeUndefined();
});

test('a READ behind it, at a PSN that a path MTU leaves free, is a new one', () => {
  const capture = read(new CaptureBuilder(), 0, 5, 8192);
  read(capture, 10, 7, 4096);
  for (const [psn, opcode] of [
    [5, 'RC_RDMA_READ_RESPONSE_FIRST'],
    [6, 'RC_RDMA_READ_RESPONSE_LAST'],
    [7, 'RC_RDMA_READ_RESPONSE_ONLY'],
  ] as const)
    capture.packet(100 + psn, 'b', opcode, { psn, payload: 4096 });
  const { connections } = capture.finish();
  expect(connections[0].aToB).toMatchObject({ requests: 2, retransmitted: 0 });
  expect(capture.messages.map(({ bytes }) => bytes)).toEqual([8192, 4096]);
});

test.each([
  [256, 4],
  [512, 2],
])('its first part alone, of %i bytes: the answer to that does not end it', (bytes, packets) => {
  const capture = read(new CaptureBuilder(), 0, 5, 1024);
  read(capture, 60, 5, bytes);
  response(capture, 62, 5, bytes);
  read(capture, 63, 6, 1024 - bytes, bytes);
  for (let i = 1; i < packets; i++) {
    const part = packets === 2 ? 'ONLY' : i === 1 ? 'FIRST' : i === packets - 1 ? 'LAST' : 'MIDDLE';
    capture.packet(64, 'b', `RC_RDMA_READ_RESPONSE_${part}`, { psn: 5 + i, payload: bytes });
  }
  const { connections } = capture.finish();
  expect(connections[0]).toMatchObject({ pathMtu: bytes, aToB: { requests: 3, retransmitted: 2 } });
  expect(capture.messages).toMatchObject([{ operation: 'RDMA_READ', bytes: 1024, outcome: 'completed' }]);
});

test('a READ that was lost before the capture: its responses show how many PSNs it has, and its rest is no new READ', () => {
  const capture = new CaptureBuilder();
  const request = (time: number, psn: number) => send(capture, time, psn, { migReq: true });
  request(0, 100);
  ack(capture, 10, 100);
  request(1000, 103);
  ack(capture, 1010, 101, { syndrome: 0x60 });
  read(capture, 1015, 101, 4496);
  request(1015, 103);
  capture.packet(1025, 'b', 'RC_RDMA_READ_RESPONSE_FIRST', { psn: 101, payload: 4096 });
  capture.packet(1025, 'b', 'RC_RDMA_READ_RESPONSE_LAST', { psn: 102, payload: 400 });
  ack(capture, 1025, 103);
  // The last response did not arrive.
  read(capture, 1035, 102, 400, 4096);
  const { connections } = capture.finish();
  expect(connections[0].aToB).toMatchObject({ retransmitted: 3, missedByCapture: 0 });
});

test('a shorter READ of another address at its PSN is another one, and shows no path MTU', () => {
  const capture = read(new CaptureBuilder(), 0, 5, 8192);
  // A second later, of a queue pair that was made anew.
  capture.packet(1e6, 'a', 'RC_RDMA_READ_REQUEST', { psn: 5, ackReq: true, length: 256, va: 0x9000n });
  response(capture, 1e6 + 10, 5, 256);
  read(capture, 2e6, 6, 2048);
  for (const [psn, part] of [
    [6, 'FIRST'],
    [7, 'LAST'],
  ] as const)
    capture.packet(2e6 + 10, 'b', `RC_RDMA_READ_RESPONSE_${part}`, { psn, payload: 1024 });
  expect(capture.finish().connections[0]).toMatchObject({ pathMtu: 1024 });
});

test('a READ from before the capture comes again, behind one of which nothing is answered: all have their responses', () => {
  const capture = new CaptureBuilder();
  const psns = [5, 13, 21];
  for (const psn of psns.slice(1)) read(capture, psn, psn, 8192);
  for (const psn of psns) read(capture, 68_000 + psn, psn, 8192);
  for (let psn = 5; psn < 29; psn++) {
    const part = psns.includes(psn) ? 'FIRST' : psns.includes(psn + 1) || psn === 28 ? 'LAST' : 'MIDDLE';
    capture.packet(70_000 + psn, 'b', `RC_RDMA_READ_RESPONSE_${part}`, { psn, payload: 1024 });
  }
  const { connections } = capture.finish();
  expect(connections[0]).toMatchObject({ pathMtu: 1024, aToB: { missedByCapture: 0 } });
  const all = psns.map((firstPsn) => ({ firstPsn, bytes: 8192, outcome: 'completed' }));
  expect(capture.messages).toMatchObject(all);
});
