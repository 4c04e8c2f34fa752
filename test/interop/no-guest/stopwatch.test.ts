import { expect, test } from 'vitest';
import { wireLatency, wireRate } from '../harness/stopwatch.ts';
import type { WirePacket } from '../harness/wire.ts';

const [CLIENT, SERVER] = ['10.77.1.1', '10.77.1.2'];

function packet(ms: number, source: string, opcode: number, psn: number): WirePacket {
  const bytes = new Uint8Array(16);
  return { source, opcode, psn, destQp: 1, icrcOk: true, time: ms / 1000, payload: bytes, frame: bytes };
}

test('a rate is of the last messages, up to the last answer', () => {
  const packets = [
    // A warm-up, then four WRITEs of two packets, one of them sent twice; the server's own are not counted.
    packet(0, CLIENT, 0x0a, 0),
    packet(1, SERVER, 0x11, 0),
    ...[0, 1, 2, 2, 3].flatMap((i, at) => [
      packet(10 + 10 * at, CLIENT, 0x06, 1 + 2 * i),
      packet(11 + 10 * at, CLIENT, 0x08, 2 + 2 * i),
    ]),
    packet(55, SERVER, 0x06, 9),
    packet(60, SERVER, 0x11, 8),
    // Of the dialogue's connection.
    packet(90, SERVER, 0x11, 700),
  ];
  const run = { verb: 'write', size: 4096, messages: 4 } as const;
  expect(wireRate(packets, run, CLIENT)).toBeCloseTo(4 / 0.05);
  expect(() => wireRate(packets, { ...run, messages: 6 }, CLIENT)).toThrow('5 of 6 messages');
});

test('with a duration, the rate between its margins', () => {
  const packets = Array.from({ length: 5000 }, (_, i) => packet(i < 2500 ? i : i * 2, CLIENT, 0x2a, i));
  const run = { verb: 'write', size: 64, messages: 0, duration: 4, margin: 1 } as const;
  expect(wireRate(packets, run, CLIENT)).toBeCloseTo(1500 / 2, -1);
});

test('a latency is the mean without the two longest', () => {
  const starts = [0, 1, 2, 3, 50, 51, 52, 90];
  const packets = starts.flatMap((ms, i) => [packet(ms, CLIENT, 0x0c, i), packet(ms + 0.5, SERVER, 0x10, i)]);
  expect(wireLatency(packets, { verb: 'read', size: 2, messages: 8 }, CLIENT)).toBeCloseTo(1000);
});
