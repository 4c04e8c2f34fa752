/** Requesters that keep the answers behind a missing one, as node-roce does, and those that go back for all, as rxe does. */
import { expect, test } from 'vitest';
import { CaptureBuilder } from '../../../testing/capture-builder.ts';
import { ack, send } from '../../../testing/messages.ts';

const OPTIONS = { id: 0, migReq: true, ackReq: true, length: 8 };
/** An ATOMIC WRITE. */
const place = (capture: CaptureBuilder, time: number, psn: number) =>
  capture.packet(time, 'a', 'RC_ATOMIC_WRITE', { ...OPTIONS, psn, payload: 8 });
const read = (capture: CaptureBuilder, time: number, psn: number) =>
  capture.packet(time, 'a', 'RC_RDMA_READ_REQUEST', { ...OPTIONS, psn });
const answer = (capture: CaptureBuilder, time: number, psn: number) =>
  capture.packet(time, 'b', 'RC_RDMA_READ_RESPONSE_ONLY', { id: 0, psn, payload: 8 });

test('an ATOMIC WRITE asked for alone shows that the answer behind it is kept: the next packet is the oldest, and is probed', () => {
  const capture = send(new CaptureBuilder(), 0, 100, OPTIONS);
  ack(capture, 10, 100, { id: 0 });
  place(capture, 1000, 101);
  read(capture, 1000, 102);
  answer(capture, 1010, 102);
  place(capture, 1010, 101);
  answer(capture, 1020, 101);
  for (const time of [1020, 1070]) for (const psn of [103, 104]) send(capture, time, psn, OPTIONS);
  for (const psn of [103, 104]) ack(capture, 1080, psn, { id: 0 });
  capture.finish();
  expect(capture.verdicts.filter(({ repeatedFrame }) => repeatedFrame)).toEqual([]);
  expect(capture.causes).toEqual(['implied-nak', 'probe', 'probe']);
});

test('one that asks for the answer behind it as well goes back: the next packet is not the oldest', () => {
  const capture = send(new CaptureBuilder(), 0, 100, OPTIONS);
  ack(capture, 10, 100, { id: 0 });
  place(capture, 1000, 101);
  read(capture, 1000, 102);
  answer(capture, 1010, 102);
  place(capture, 1010, 101);
  read(capture, 1010, 102);
  answer(capture, 1020, 101);
  for (const psn of [103, 104]) send(capture, 1020, psn, OPTIONS);
  // Nothing asked for it: a mirror shows it twice.
  send(capture, 1070, 103, OPTIONS);
  capture.finish();
  expect(capture.causes).toEqual(['implied-nak', 'implied-nak']);
  expect(capture.verdicts.at(-1)).toMatchObject({ repeatedFrame: true });
});

test('asking for what is missing does not start the time of a probe anew', () => {
  const capture = send(new CaptureBuilder(), 0, 100, OPTIONS);
  ack(capture, 10, 100, { id: 0 });
  const part = (time: number, psn: number, which: 'FIRST' | 'MIDDLE' | 'LAST') =>
    capture.packet(time, 'b', `RC_RDMA_READ_RESPONSE_${which}`, { id: 0, psn, payload: 1024 });
  const ask = (time: number, psn: number, packets: number) =>
    capture.packet(time, 'a', 'RC_RDMA_READ_REQUEST', { ...OPTIONS, psn, length: packets * 1024 });
  place(capture, 1000, 101);
  ask(1000, 102, 4);
  for (const [psn, which] of [
    [103, 'MIDDLE'],
    [105, 'LAST'],
  ] as const)
    part(1020, psn, which);
  place(capture, 1020, 101);
  // Up to the last one, which is here.
  ask(1020, 102, 3);
  part(1040, 102, 'FIRST');
  place(capture, 1040, 101);
  place(capture, 1050, 101);
  answer(capture, 1060, 101);
  capture.finish();
  expect(capture.verdicts.filter(({ repeatedFrame }) => repeatedFrame)).toEqual([]);
  expect(capture.causes.length).toBe(4);
});

test('of a requester that keeps, a mirror shows what is sent after a pause twice: that is no probe', () => {
  const capture = send(new CaptureBuilder(), 0, 100, OPTIONS);
  ack(capture, 10, 100, { id: 0 });
  place(capture, 1000, 101);
  read(capture, 1000, 102);
  answer(capture, 1010, 102);
  place(capture, 1010, 101);
  answer(capture, 1020, 101);
  for (const [i, time] of [2000, 3000, 4000].entries()) {
    for (const copy of [time, time + 5]) send(capture, copy, 103 + i, OPTIONS);
    ack(capture, time + 20, 103 + i, { id: 0 });
  }
  capture.finish();
  expect(capture.causes).toEqual(['implied-nak']);
  expect(capture.verdicts.filter(({ repeatedFrame }) => repeatedFrame).length).toBe(3);
});
