import { expect, test } from 'vitest';
import { allRepeats, progress, wireLatency, wireRate } from '../harness/stopwatch.ts';
import type { WirePacket } from '../harness/wire.ts';

const [CLIENT, SERVER] = ['10.77.1.1', '10.77.1.2'];

function packet(ms: number, source: string, opcode: number, psn: number, length = 2): WirePacket {
  const bytes = new Uint8Array(28);
  new DataView(bytes.buffer).setUint32(24, length);
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

test('a READ that leaves as several requests is one message, and a repeat of a part is not one', () => {
  const size = 600_000;
  const parts = [262_144, 262_144, size - 2 * 262_144];
  const packets: WirePacket[] = [packet(0, CLIENT, 0x0c, 0xff_fff0, 4096)];
  let psn = 0xff_fff1;
  for (let message = 0; message < 6; message++) {
    for (const [i, length] of parts.entries()) {
      const at = 10 + 20 * message + i;
      packets.push(packet(at, CLIENT, 0x0c, psn, length));
      if (i === 1) packets.push(packet(at + 0.5, CLIENT, 0x0c, (psn + 7) & 0xff_ffff, 8192));
      psn = (psn + Math.ceil(length / 4096)) & 0xff_ffff;
    }
    packets.push(packet(28 + 20 * message, SERVER, 0x0f, psn - 1));
  }
  const run = { verb: 'read', size, messages: 6 } as const;
  expect(wireLatency(packets, run, CLIENT)).toBeCloseTo(20_000);
  expect(wireRate(packets, run, CLIENT)).toBeCloseTo(6 / 0.118);
});

test('repeats are found by the PSNs of requests where both sides send some', () => {
  const [SEND, ACK] = [0x04, 0x11];
  const asking = (one: WirePacket) => {
    one.payload[8] = 0x80;
    return one;
  };
  const packets = [0, 1, 2, 3].flatMap((i) => [
    packet(10 * i, SERVER, ACK, 15_000_000 + i),
    asking(packet(10 * i + 1, SERVER, SEND, 100 + i)),
    packet(10 * i + 2, CLIENT, SEND, 15_000_000 + i),
    packet(10 * i + 3, CLIENT, ACK, 100 + i),
  ]);
  expect(allRepeats(packets, CLIENT)).toEqual([]);
  const again = asking(packet(80, SERVER, SEND, 103));
  expect(allRepeats([...packets, again], CLIENT)).toEqual([{ psn: 103, unanswered: 0 }]);
  const unanswered = packets.slice(0, -1);
  expect(allRepeats([...unanswered, again], CLIENT)).toEqual([{ psn: 103, unanswered: expect.closeTo(49) }]);
});

test('progress: what each connection has asked, and was answered', () => {
  const nak = packet(9, SERVER, 0x11, 0);
  nak.payload[12] = 0x60;
  const packets = [
    // WRITEs of two packets over the wrap of PSNs: three, the last packet twice; two are acknowledged, a NAK names the third.
    ...[0xff_fffc, 0xff_fffe, 0].flatMap((psn, i) => [
      packet(i, CLIENT, 0x06, psn),
      packet(i, CLIENT, 0x08, (psn + 1) & 0xff_ffff),
    ]),
    packet(4, CLIENT, 0x08, 1),
    packet(8, SERVER, 0x11, 0xff_ffff),
    nak,
    // A READ of another connection, with one of its responses.
    { ...packet(10, CLIENT, 0x0c, 0x90_0000), destQp: 2 },
    packet(11, SERVER, 0x0d, 0x90_0000),
  ];
  expect(progress(packets, SERVER)).toEqual([
    'to queue pair 1: 3 requests begun, 2 answered; 7 packets, 1 of them twice',
    'to queue pair 2: 1 requests begun, 1 answered; 1 packets, 0 of them twice',
  ]);
  expect(progress(packets, CLIENT)).toEqual([]);
});
