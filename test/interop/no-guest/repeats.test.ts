import { expect, test } from 'vitest';
import { repeats } from '../harness/repeats.ts';
import type { WirePacket } from '../harness/wire.ts';

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
