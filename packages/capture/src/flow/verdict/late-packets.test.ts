/** Packets that come late, and ACKs that others have overtaken: they show that something was slow, not that it was lost. */
import { describe, expect, test } from 'vitest';
import { CaptureBuilder, type PacketOptions } from '../../../testing/capture-builder.ts';
import { ack, send, verdictOf } from '../../../testing/messages.ts';

const A = '10.0.0.1';
const B = '10.0.0.2';
const MS = 1000;
const NAK = 0x60;
/** rxe's ACK timer. */
const TIMER = 67.2 * MS;

/** Messages of one packet, 20 ms apart, that are answered after 100 µs; times in µs. */
function talk(capture: CaptureBuilder, start: number, psn: number, options: PacketOptions = {}) {
  for (let i = 0; i < 4; i++) {
    send(capture, start + i * 20 * MS, psn + i, options);
    ack(capture, start + i * 20 * MS + 100, psn + i);
  }
  return capture;
}

describe('a packet that comes 20 ms late, when it was sent again and the next one is missing, too', () => {
  test('requests: reordered, not lost', () => {
    const held = (isLate: boolean) => {
      const capture = talk(new CaptureBuilder(), 0, 100);
      let id = 300;
      const late: [psn: number, id: number][] = [];
      for (const [time, psn] of [
        [100 * MS, 104],
        [105 * MS, 106],
      ]) {
        late.push([psn, id++]);
        send(capture, time + 1, psn + 1, { id: id++ });
        ack(capture, time + 100, psn, { syndrome: NAK });
        for (const next of [psn, psn + 1]) send(capture, time + 100 + next, next, { id: id++ });
        ack(capture, time + 400, psn + 1);
      }
      if (isLate) for (const [psn, first] of late) send(capture, 120 * MS + psn, psn, { id: first });
      for (let i = 0; i < 4; i++) send(capture, (300 + i) * MS, 108 + i, { id: id++ });
      ack(capture, 304 * MS, 111);
      return verdictOf(capture);
    };
    expect(held(false).kind).toBe('packets-lost');
    const { kind, text, chain } = held(true);
    expect([kind, text]).toEqual([
      'reordering',
      `The path from ${A} to the capture point reordered packets; this explains both recoveries; nothing was lost.`,
    ]);
    expect(chain.at(-1)?.text).toContain('was late, not lost');
  });

  test('only the packet behind it is seen to be sent again, as its copy is late, too', () => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    send(capture, 100 * MS, 105, { id: 301 });
    ack(capture, 100.1 * MS, 104, { syndrome: NAK });
    send(capture, 101 * MS, 105, { id: 303 });
    for (const id of [300, 302]) send(capture, 110 * MS + id, 104, { id });
    ack(capture, 111 * MS, 104);
    send(capture, 111 * MS + TIMER, 105, { id: 304 });
    ack(capture, 112 * MS + TIMER, 105);
    send(capture, 400 * MS, 106, { id: 305 });
    expect(verdictOf(capture).kind).toBe('reordering');
  });

  test('a packet that comes late behind the one that was sent again: the chain has its own PSN', () => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    // 105 passes before 104, and 107 is late.
    send(capture, 100 * MS, 105, { id: 301 });
    send(capture, 100 * MS + 1, 104, { id: 300 });
    send(capture, 100 * MS + 2, 106, { id: 302 });
    send(capture, 100 * MS + 3, 108, { id: 304 });
    ack(capture, 100.1 * MS, 105, { syndrome: NAK });
    send(capture, 105 * MS, 105, { id: 305 });
    send(capture, 105 * MS + 1, 107, { id: 303 });
    for (const [i, psn] of [106, 107, 108].entries()) send(capture, 106 * MS + i, psn, { id: 306 + i });
    ack(capture, 107 * MS, 108);
    send(capture, 400 * MS, 109, { id: 310 });
    const { kind, chain } = verdictOf(capture);
    expect(kind).toBe('reordering');
    const [late] = chain.filter(({ text }) => text.includes('arrives'));
    expect(late).toEqual({
      frame: 15,
      text: 'PSN 107 = 0x00006b arrives behind packets that were sent after it',
    });
  });

  test('READ responses: reordered, not lost', () => {
    const read = (capture: CaptureBuilder, time: number, psn: number) =>
      capture.packet(time, 'a', 'RC_RDMA_READ_REQUEST', { psn, length: 64, migReq: false });
    const response = (capture: CaptureBuilder, time: number, psn: number) =>
      capture.packet(time, 'b', 'RC_RDMA_READ_RESPONSE_ONLY', { psn, payload: 64 });
    const held = (isLate: boolean) => {
      const capture = new CaptureBuilder();
      for (const [time, psn] of [
        [0, 100],
        [5 * MS, 103],
      ]) {
        for (const i of [0, 1, 2]) read(capture, time + i, psn + i);
        for (const i of [0, 2]) response(capture, time + 100 + i, psn + i);
        for (const i of [1, 2]) read(capture, time + 200 + i, psn + i);
        for (const i of [1, 2]) response(capture, time + 300 + i, psn + i);
      }
      if (isLate) for (const psn of [101, 104]) response(capture, 20 * MS + psn, psn);
      read(capture, 300 * MS, 106);
      response(capture, 300.1 * MS, 106);
      return verdictOf(capture);
    };
    expect(held(false).kind).toBe('packets-lost');
    expect(held(true)).toMatchObject({
      kind: 'reordering',
      text: `The path from ${B} to ${A} reordered packets; this explains both recoveries; nothing was lost.`,
    });
  });
});

describe('behind the capture point: the responder acknowledges the first copy, too, when it comes', () => {
  /** A message of three packets, of which a middle one is asked for; the receiver acknowledges duplicates with the newest PSN. @param more ACKs */
  const held = (more: readonly [time: number, psn: number][], isLate = more.length > 0) => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    const part = (time: number, i: number) =>
      capture.packet(time, 'a', `RC_SEND_${(['FIRST', 'MIDDLE', 'LAST'] as const)[i]}`, {
        psn: 104 + i,
        payload: 1024,
        ackReq: i === 2,
        migReq: false,
      });
    for (const i of [0, 1, 2]) part(100 * MS + i, i);
    ack(capture, 100.1 * MS, 105, { syndrome: NAK });
    for (const i of [1, 2]) part(100.2 * MS + i, i);
    ack(capture, 100.4 * MS, 106);
    send(capture, 101 * MS, 107);
    ack(capture, 101.1 * MS, 107);
    for (const [time, psn] of more) ack(capture, time * MS, psn);
    const { kind } = verdictOf(talk(capture, 300 * MS, 108));
    expect(kind).toBe(isLate ? 'reordering' : 'packets-lost');
  };

  test('no more ACKs than packets that ask for one: lost', () => held([]));
  test('with the PSN of the same message', () => held([[120, 106]]));
  test('with that of a later message', () => held([[120, 107]]));
  test('later than a network holds packets: no sign of it', () => held([[250, 107]], false));
});

describe('an ACK that a later one has overtaken', () => {
  test('no packet of the connection came late: what is missing was lost or damaged', () => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    for (const psn of [104, 105]) send(capture, 90 * MS + psn, psn);
    for (const psn of [105, 104]) ack(capture, 91 * MS - psn, psn);
    for (const psn of [106, 107]) send(capture, 100 * MS + psn, psn);
    ack(capture, 101 * MS, 106, { syndrome: NAK });
    for (const psn of [106, 107]) send(capture, 102 * MS + psn, psn);
    ack(capture, 103 * MS, 107);
    expect(verdictOf(talk(capture, 200 * MS, 108)).text).toContain('lost or damaged requests');
  });

  test('no copy is answered twice by it', () => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    for (const psn of [104, 105, 106]) send(capture, 100 * MS + psn, psn);
    send(capture, 100 * MS + TIMER, 104);
    for (const psn of [106, 105]) ack(capture, 100 * MS + TIMER + 300 - psn, psn);
    expect(verdictOf(talk(capture, 300 * MS, 107)).kind).toBe('packets-lost');
  });
});

describe('a path that is slow and loses packets, seen near the responder', () => {
  const gaps = (count: number, reaction: number) => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    for (let i = 0; i < count; i++) {
      const [time, psn] = [(100 + i * 20) * MS, 104 + 2 * i];
      send(capture, time, psn + 1);
      ack(capture, time + 20, psn, { syndrome: NAK });
      for (const next of [psn, psn + 1]) send(capture, time + 20 + reaction + next - psn, next);
      ack(capture, time + 40 + reaction, psn + 1);
    }
    return verdictOf(talk(capture, 500 * MS, 104 + 2 * count));
  };

  test('no NAK is answered soon: the delay is named beside the loss', () => {
    expect(gaps(3, 6 * MS)).toMatchObject({
      kind: 'packets-lost',
      also: [
        {
          kind: 'slow-responder',
          text: `The path to ${A}, or that host, is slow: no NAK was answered within 6 ms.`,
        },
      ],
    });
  });

  test('two NAKs are too few, and answers within 1 ms are soon', () => {
    expect(gaps(2, 6 * MS).also).toEqual([]);
    expect(gaps(3, 1 * MS).also).toEqual([]);
  });
});

test.each([
  ['grants credits', {}, { syndrome: 0x05 }, { syndrome: 0x08 }],
  ['the network duplicated, without Identifications', { id: false }, {}, {}],
] as const)(
  'an ACK that %s does not answer a packet that has not passed the capture',
  (_, options, first, again) => {
    const capture = new CaptureBuilder();
    const asks = (time: number, psn: number) => send(capture, time, psn, options);
    const acks = (time: number, psn: number, more: PacketOptions = {}) =>
      ack(capture, time, psn, { ...options, ...first, ...more });
    for (let i = 0; i < 4; i++) {
      asks(i * 20 * MS, 100 + i);
      acks(i * 20 * MS + 100, 100 + i);
    }
    asks(100 * MS, 105);
    acks(100.1 * MS, 104, { syndrome: NAK });
    for (const psn of [104, 105]) asks(100 * MS + 96 + psn, psn);
    for (const psn of [104, 105]) acks(100 * MS + 196 + psn, psn);
    asks(101 * MS, 106);
    acks(101.1 * MS, 106);
    acks(102 * MS, 106, again);
    for (let i = 0; i < 4; i++) {
      asks((300 + i * 20) * MS, 107 + i);
      acks((300 + i * 20) * MS + 100, 107 + i);
    }
    expect(verdictOf(capture).kind).toBe('packets-lost');
  },
);

test('an ACK that grants credits does not answer a first copy behind the capture', () => {
  const capture = new CaptureBuilder();
  const acks = (time: number, psn: number, syndrome: number) => ack(capture, time, psn, { syndrome });
  for (let i = 0; i < 5; i++) send(capture, i * 20 * MS, 100 + i);
  for (let i = 0; i < 4; i++) acks(i * 20 * MS + 100, 100 + i, 0x05);
  send(capture, 80 * MS + 10, 105);
  acks(80.1 * MS, 104, NAK);
  for (const psn of [104, 105]) send(capture, 80 * MS + 96 + psn, psn);
  for (const psn of [104, 105]) acks(80 * MS + 196 + psn, psn, 0x05);
  send(capture, 81 * MS, 106);
  acks(81.1 * MS, 106, 0x05);
  acks(82 * MS, 106, 0x08);
  for (let i = 0; i < 4; i++) {
    send(capture, (300 + i * 20) * MS, 107 + i);
    acks((300 + i * 20) * MS + 100, 107 + i, 0x05);
  }
  expect(verdictOf(capture).kind).toBe('packets-lost');
});
