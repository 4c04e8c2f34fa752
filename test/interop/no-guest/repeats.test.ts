import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { hasStopped, repeats } from '../harness/repeats.ts';
import { anyHasStopped } from '../harness/stopwatch.ts';
import { readPackets, type WirePacket } from '../harness/wire.ts';

const [US, PEER] = ['10.77.1.1', '10.77.1.2'];

/** A packet at `ms`: a request of the peer's, or our ACK (`syndrome`). */
function packet(
  ms: number,
  psn: number,
  { ackReq = false, syndrome }: { ackReq?: boolean; syndrome?: number },
) {
  const payload = new Uint8Array(16);
  payload[8] = ackReq ? 0x80 : 0;
  payload[12] = syndrome ?? 0;
  const ours = syndrome !== undefined;
  const where = { source: ours ? US : PEER, opcode: ours ? 0x11 : 0x01, destQp: 1, icrcOk: true };
  return { ...where, psn, time: 1000 + ms / 1000, payload, frame: payload } satisfies WirePacket;
}
const request = (ms: number, psn: number, ackReq = false) => packet(ms, psn, { ackReq });
const ack = (ms: number, psn: number, syndrome = 0x1f) => packet(ms, psn, { syndrome });

test('in order and answered: nothing', () => {
  expect(repeats([request(0, 0xff_ffff), request(1, 0, true), ack(2, 0), request(3, 1, true)], US)).toEqual(
    [],
  );
});

test('a repetition of an answered request is not our fault', () => {
  const packets = [request(0, 5), request(1, 6, true), ack(2, 6), request(66, 5), request(67, 6, true)];
  expect(repeats(packets, US)).toEqual([{ psn: 5, unanswered: 0 }]);
});

test('requests that we left unanswered, and for how long', () => {
  const late = [request(0, 5), request(1, 6, true), request(66, 5), request(67, 6, true), ack(68, 6)];
  expect(repeats(late, US)).toEqual([{ psn: 5, unanswered: expect.closeTo(65, 3) }]);
  const nak = [
    request(0, 5),
    request(1, 6, true),
    ack(2, 5, 0x60),
    request(3, 5),
    ack(4, 5, 0x60),
    request(9, 5),
  ];
  expect(repeats(nak, US).map(({ psn }) => psn)).toEqual([5, 5]);
  // Of two, the older counts; an ACK of the first leaves the second.
  const two = [request(0, 1, true), request(10, 2, true), ack(20, 1), request(80, 2, true)];
  expect(repeats(two, US)).toEqual([{ psn: 2, unanswered: expect.closeTo(70, 3) }]);
});

test('a requester that stopped after it repeated what our ACK was on the way for', () => {
  const before = [
    request(0, 8, true),
    ack(1, 8),
    request(2, 9, true),
    ack(3, 9),
    request(4, 9, true),
    ack(5, 9),
  ];
  expect(hasStopped(before, US)).toBe(true);
  const onward = [...before, request(6, 10, true), ack(7, 10)];
  expect(hasStopped(onward, US)).toBe(true);
  // It went on.
  expect(hasStopped([...onward, request(8, 11, true), ack(9, 11)], US)).toBe(false);
  // Ours is the silence: the last request, or the one that was repeated, has no ACK.
  expect(hasStopped([...before, request(6, 10, true)], US)).toBe(false);
  expect(hasStopped([request(0, 9, true), request(66, 9, true), ack(67, 9)], US)).toBe(false);
  // Nothing was repeated.
  expect(hasStopped([request(0, 8, true), ack(1, 8), request(2, 9, true), ack(3, 9)], US)).toBe(false);
});

test('one that stopped, on the wire: the end of ib_send_lat of Linux 6.1', () => {
  const packets = readPackets(readFileSync(new URL('stopped.pcap', import.meta.url)));
  expect(packets).toHaveLength(60);
  expect(anyHasStopped(packets, US)).toBe(true);
  expect(anyHasStopped(packets.slice(0, -12), US)).toBe(false);
});
