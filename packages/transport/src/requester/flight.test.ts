/** The PSNs in flight: unacknowledged ≤ cursor ≤ next never sent, compared across the wrap of PSNs (IBTA vol 1 §9.2.3, §9.7.4.1.1). */
import { psnAdd } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import type { SendQueue } from '../qp/send-queue.ts';
import { Flight, PSN_SPAN } from './flight.ts';

/** One entry of `packets` packets, at a given index. */
function setUp(psn: number, packets = 100, head = 7) {
  const started = (head + 1) | 0;
  const queue = {
    head,
    started,
    firstPsn: () => psn,
    packetsOf: () => packets,
    words: new Uint32Array(64),
    wordOf: () => 0,
    maxElements: 0,
  };
  const flight = new Flight(queue as unknown as SendQueue);
  flight.start(psn);
  const send = (count: number) => {
    flight.cursor.advance(queue as unknown as SendQueue, count);
    return flight.advanced();
  };
  const state = () =>
    [flight.unackedPsn, flight.cursor.psn, flight.sendPsn].map((at) => (at - psn) & 0xff_ffff);
  return { queue, flight, send, state };
}

describe.each([0, 0x10, 0xff_fffe])('from PSN %i on', (psn) => {
  test('packets are in flight from when they are sent until they are acknowledged', () => {
    const { flight, send, state } = setUp(psn);
    expect([flight.isOver, flight.out]).toEqual([true, 0]);
    expect(send(1)).toBe(true);
    expect(send(4)).toBe(true);
    expect([flight.isOver, flight.out]).toEqual([false, 5]);
    expect(state()).toEqual([0, 5, 5]);
    expect(flight.acknowledged(psnAdd(psn, 3))).toBe(3);
    expect(flight.out).toBe(2);
    expect(flight.acknowledged(psnAdd(psn, 5))).toBe(2);
    expect([flight.isOver, flight.out]).toEqual([true, 0]);
    expect(flight.check()).toBeUndefined();
  });

  test('a go-back-N sends the same PSNs again, with a cause, and then new ones', () => {
    const { flight, send, state } = setUp(psn);
    send(5);
    flight.acknowledged(psnAdd(psn, 2));
    expect(flight.cause).toBe('timeout');
    flight.goBack('sequence-nak', 256);
    expect([flight.cause, flight.out, flight.isOver]).toEqual(['sequence-nak', 0, false]);
    expect(state()).toEqual([2, 2, 5]);
    expect(send(2)).toBe(false);
    expect(send(1)).toBe(false);
    expect(send(1)).toBe(true);
    expect(state()).toEqual([2, 6, 6]);
    expect(flight.check()).toBeUndefined();
  });

  test('the cursor is behind where what it went back to is acknowledged', () => {
    const { flight, send, queue } = setUp(psn);
    send(5);
    flight.goBack('timeout', 256);
    expect(flight.isCursorBehind).toBe(false);
    flight.acknowledged(psnAdd(psn, 2));
    expect(flight.isCursorBehind).toBe(true);
    expect(flight.check()).toBe('the cursor is at -2 of 3 PSNs in flight');
    flight.seekUnacked(256);
    expect(flight.isCursorBehind).toBe(false);
    queue.head++;
    expect(flight.isCursorBehind).toBe(true);
  });

  test('nothing is in flight after a stop, and the next PSN stays', () => {
    const { flight, send, state } = setUp(psn);
    send(5);
    flight.goBack('timeout', 256);
    flight.stop();
    expect([flight.isOver, flight.out]).toEqual([true, 0]);
    expect(state()).toEqual([5, 5, 5]);
  });

  test('UC and UD: packets that the link has taken are done', () => {
    const { flight, send, state } = setUp(psn);
    send(5);
    flight.taken();
    expect(state()).toEqual([5, 5, 5]);
  });
});

test('RESET forgets the cause', () => {
  const { flight, send } = setUp(3);
  send(2);
  flight.goBack('rnr', 256);
  flight.start(9);
  expect([flight.cause, flight.sendPsn, flight.unackedPsn, flight.cursor.psn]).toEqual(['timeout', 9, 9, 9]);
});

describe('the check sees', () => {
  test.each([0, 7, 0x7fff_ffff, -1])('a cursor outside of the entries that were started, at %i', (head) => {
    const { flight, queue } = setUp(5, 100, head);
    expect(flight.check()).toBeUndefined();
    queue.head = (head + 1) | 0;
    expect(flight.check()).toMatch(/the cursor is at entry/);
    queue.head = queue.started = (head - 1) | 0;
    expect(flight.check()).toMatch(/the cursor is at entry/);
  });

  test('more in flight than PSNs can distinguish', () => {
    const { flight, send } = setUp(5, 1 << 23);
    send(PSN_SPAN + 128);
    expect(flight.check()).toBeUndefined();
    send(1);
    expect(flight.check()).toMatch(/PSNs in flight/);
  });

  test('a cursor past what was ever sent', () => {
    const { flight, queue } = setUp(5);
    flight.cursor.advance(queue as unknown as SendQueue, 3);
    expect(flight.check()).toBe('the cursor is at 3 of 0 PSNs in flight');
    flight.advanced();
    expect(flight.check()).toBeUndefined();
  });

  test('PSNs that belong to no entry, or to another than the oldest', () => {
    const { flight, queue, send } = setUp(5, 10);
    send(5);
    expect(flight.check()).toBeUndefined();
    queue.firstPsn = () => 6;
    expect(flight.check()).toBe('unacked PSN -1 of the oldest entry');
    queue.firstPsn = () => 5;
    queue.packetsOf = () => 0;
    expect(flight.check()).toBe('unacked PSN 0 of the oldest entry');
    queue.packetsOf = () => 1;
    expect(flight.check()).toBeUndefined();
    queue.started = queue.head;
    expect(flight.check()).toBe('5 PSNs in flight belong to no entry');
  });
});
