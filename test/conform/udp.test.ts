/** The tester's line over a UDP socket: frames as the device sent them, with what the kernel hides. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { UdpLine, Untestable } from '@node-roce/conform';
import { buildPacket, parseFrame } from '@node-roce/wire';
import { afterAll, beforeAll, expect, test } from 'vitest';

const [HERE, THERE] = ['127.0.0.1', '127.0.0.2'];
const UDP_END = 42;
const device = createSocket('udp4');
let line: UdpLine;

beforeAll(async () => {
  device.bind(4791, THERE);
  await once(device, 'listening');
  line = await UdpLine.open(THERE, HERE);
});
afterAll(() => {
  line.close();
  device.close();
});

const packet = (
  source: string,
  destination: string,
  ip: { id?: number; flagsAndOffset?: number; tos?: number } = {},
  sourcePort = 4791,
) =>
  buildPacket({
    ethernet: { source: '00:00:00:00:00:00', destination: '00:00:00:00:00:00' },
    ip: { source, destination, ttl: 64, ...ip },
    udp: { sourcePort },
    bth: { opcode: 'RC_SEND_ONLY', destQp: 7, psn: 9 },
    payload: Uint8Array.of(1, 2, 3, 4),
  });

async function received(body: Uint8Array): Promise<Uint8Array | undefined> {
  device.send(body, 4791, HERE);
  let frames: { frame: Uint8Array }[] = [];
  await line.wait(() => {
    frames = line.take();
    return frames.length > 0;
  }, 240_000);
  return frames[0]?.frame;
}

test('a packet has the identification and the flags that its ICRC covers', async () => {
  for (const ip of [{}, { id: 0xbeef }, { id: 1, flagsAndOffset: 0 }]) {
    const parsed = parseFrame((await received(packet(THERE, HERE, ip).slice(UDP_END)))!);
    expect(parsed).toMatchObject({
      ok: true,
      packet: { icrcStatus: 'ok', ip: { id: 0, flagsAndOffset: 0x4000, ...ip }, bth: { destQp: 7, psn: 9 } },
    });
  }
});

test('a wrong ICRC stays wrong, and bytes that are no packet are a frame', async () => {
  const spoilt = packet(THERE, HERE).slice(UDP_END);
  spoilt[spoilt.length - 1] ^= 1;
  expect(parseFrame((await received(spoilt))!)).toMatchObject({ ok: true, packet: { icrcStatus: 'bad' } });
  for (const length of [0, 3, 15]) {
    const frame = (await received(new Uint8Array(length)))!;
    expect(frame).toHaveLength(UDP_END + length);
    expect(parseFrame(frame).ok).toBe(false);
  }
});

test('leaves as it was made, or not at all', async () => {
  const frame = packet(HERE, THERE);
  const arrived = once(device, 'message');
  line.send(frame);
  expect(new Uint8Array((await arrived)[0])).toEqual(frame.slice(UDP_END));
  for (const ip of [{ id: 1 }, { flagsAndOffset: 0 }, { tos: 3 }])
    expect(() => line.send(packet(HERE, THERE, ip))).toThrow(Untestable);
  expect(() => line.send(packet('127.0.0.3', THERE))).toThrow(Untestable);
  expect(() => line.send(packet(HERE, THERE, {}, 0xc123))).toThrow(Untestable);
});
