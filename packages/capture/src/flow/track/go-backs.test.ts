/** Late packets of one go-back-N beside those of the next one, where no Identification tells them apart. */
import { expect, test } from 'vitest';
import { CaptureBuilder } from '../../../testing/capture-builder.ts';
import { ack, send } from '../../../testing/messages.ts';

const SEQUENCE_NAK = 0x60;
/** RNR NAK of 640 µs. */
const NOT_READY = 0x2c;

test('of two copies behind a NAK one may be late: neither is for certain the one that the NAK asked for', () => {
  const capture = new CaptureBuilder();
  const options = { id: 0, migReq: true };
  send(capture, 0, 100, options);
  ack(capture, 10, 100, { id: 0 });
  for (const psn of [101, 102, 103]) send(capture, 1000, psn, options);
  ack(capture, 1010, 101, { id: 0, syndrome: NOT_READY });
  // The requester goes back after the wait. 102 is held up on the way.
  for (const psn of [101, 103]) send(capture, 1660, psn, options);
  ack(capture, 1670, 102, { id: 0, syndrome: SEQUENCE_NAK });
  for (const time of [1680, 1685]) send(capture, time, 102, options);
  ack(capture, 1690, 103, { id: 0 });
  capture.finish();
  const [asked, late] = capture.verdicts.slice(-3);
  expect([asked.retransmission, late.retransmission]).not.toContain(undefined);
  expect([asked.grade, late.grade]).not.toContain('certain');
});

test('behind two probes, of which one asks for an answer that the capture has: the NAK that follows is not for certain what is answered', () => {
  const capture = new CaptureBuilder();
  const options = { migReq: true };
  send(capture, 0, 100, options);
  ack(capture, 1, 100);
  // Two µs to the sender and back.
  for (const psn of [101, 102]) send(capture, 1000, psn, options);
  ack(capture, 1001, 101, { syndrome: SEQUENCE_NAK });
  for (const psn of [101, 102]) send(capture, 1003, psn, options);
  ack(capture, 1004, 102);
  // The ACK of 103, and the answer to the atomic, do not reach it; 105 and 106 do not reach the responder.
  send(capture, 2000, 103, options);
  const atomic = (time: number) => capture.packet(time, 'a', 'RC_FETCH_ADD', { psn: 104, ackReq: true });
  atomic(2000);
  for (const psn of [105, 106]) send(capture, 2000, psn, options);
  ack(capture, 2001, 103);
  for (const psn of [103, 106]) send(capture, 2053, psn, options);
  ack(capture, 2054, 103);
  ack(capture, 2054, 105, { syndrome: SEQUENCE_NAK });
  atomic(2056);
  for (const psn of [105, 106]) send(capture, 2056, psn, options);
  ack(capture, 2058, 106);
  capture.finish();
  const again = capture.verdicts.slice(-4, -1);
  expect(again.map(({ retransmission }) => retransmission)).not.toContain(undefined);
  expect(again.map(({ grade }) => grade)).not.toContain('certain');
});

test('a probe after twice the time of the one before it, just when a timer would end: neither is certain', () => {
  const capture = send(new CaptureBuilder(), 0, 100, { migReq: true });
  ack(capture, 100, 100);
  // 350 + 700 µs are 0.1 % more than 4.096 µs · 2^8.
  for (const time of [200, 550, 1250]) send(capture, time, 101, { migReq: true });
  ack(capture, 1350, 101);
  capture.finish();
  expect(capture.verdicts.at(-2)!.retransmission).not.toBe(undefined);
  expect(capture.verdicts.at(-2)!.grade).not.toBe('certain');
});

/** At the sender, which answers a NAK at once. */
function atSender() {
  const capture = new CaptureBuilder();
  const sent = (time: number, ...psns: number[]) => {
    for (const psn of psns) send(capture, time, psn, { migReq: true });
  };
  sent(0, 100);
  ack(capture, 20, 100);
  sent(50, 101, 102);
  ack(capture, 70, 101, { syndrome: SEQUENCE_NAK });
  sent(70, 101, 102);
  ack(capture, 90, 102);
  /** Grades of the packets that come again after that. */
  const grades = () => {
    capture.finish();
    const again = capture.verdicts.filter(({ retransmission }) => retransmission !== undefined);
    return again.slice(2).map(({ grade }) => grade);
  };
  return { capture, sent, grades };
}

test('what comes after an RNR wait may be a probe: then the NAK that answers it is no certain cause', () => {
  const { capture, sent, grades } = atSender();
  sent(200, 103, 104, 105);
  // 10 µs.
  ack(capture, 220, 103, { syndrome: 0x21 });
  sent(230, 103, 104, 105);
  ack(capture, 250, 103, { syndrome: 0x21 });
  sent(305, 103, 105);
  ack(capture, 325, 103);
  ack(capture, 325, 104, { syndrome: SEQUENCE_NAK });
  sent(325, 104, 105);
  ack(capture, 345, 105);
  const [first, ...others] = grades();
  expect(first).toBe('certain');
  expect(others.slice(-2)).toEqual(['likely', 'likely']);
});

test('of what comes after an RNR wait, the next packet follows: it was no probe, and a NAK is for what it asks for', () => {
  const { capture, sent, grades } = atSender();
  sent(200, 103, 104, 105);
  ack(capture, 220, 103, { syndrome: 0x21 });
  sent(230, 103, 104, 105);
  ack(capture, 250, 103, { syndrome: 0x21 });
  sent(305, 103, 104, 105);
  ack(capture, 325, 103);
  ack(capture, 325, 104, { syndrome: SEQUENCE_NAK });
  sent(325, 104, 105);
  ack(capture, 345, 105);
  expect(grades().slice(-2)).toEqual(['certain', 'certain']);
});

test('a silence of 2 ms is no adaptive interval of a sender that probes sooner', () => {
  const { capture, sent, grades } = atSender();
  for (const time of [200, 500]) sent(time, 103);
  ack(capture, 600, 103);
  for (const time of [700, 2700]) sent(time, 104);
  ack(capture, 2800, 104);
  expect(grades()).toEqual(['certain', 'likely']);
});

test('long after the answer to a probe it is the timer that goes back', () => {
  const { capture, sent, grades } = atSender();
  sent(200, 103, 104);
  sent(300, 103);
  ack(capture, 320, 103);
  // 4.096 µs · 2^9.
  sent(320 + 2097.152, 104);
  ack(capture, 2500, 104);
  expect(grades()).toEqual(['certain', 'certain']);
  expect(capture.causes.slice(2)).toEqual(['probe', 'timeout']);
});

test('an answer passes the tap late: what comes again behind it may be a probe, though it was missing before', () => {
  const capture = new CaptureBuilder();
  const again = (time: number) => {
    capture.packet(time, 'a', 'RC_ATOMIC_WRITE', { psn: 103, payload: 8, length: 8, ackReq: true });
    send(capture, time, 104, { migReq: true });
  };
  send(capture, 0, 100, { migReq: true });
  ack(capture, 50, 100);
  for (const psn of [101, 102]) send(capture, 100, psn, { migReq: true });
  ack(capture, 150, 101, { syndrome: SEQUENCE_NAK });
  for (const psn of [101, 102]) send(capture, 200, psn, { migReq: true });
  ack(capture, 250, 102);
  again(300);
  ack(capture, 350, 104);
  again(400);
  ack(capture, 450, 104);
  capture.packet(575, 'b', 'RC_RDMA_READ_RESPONSE_ONLY', { psn: 103, payload: 0 });
  again(600);
  capture.finish();
  const grades = capture.verdicts.filter(({ retransmission }) => retransmission !== undefined);
  expect(grades.slice(2, 4).map(({ grade }) => grade)).toEqual(['certain', 'certain']);
  expect(grades.slice(4).map(({ grade }) => grade)).not.toContain('certain');
});
