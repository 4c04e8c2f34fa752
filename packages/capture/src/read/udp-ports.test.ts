/** UDP ports other than 4791, and tunnels with the same addresses inside. */
import { LinkType } from '@node-roce/pcap';
import { buildPacket, parseFrame, setU16 } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ACK } from '../../testing/frames.ts';
import { rawRecord } from '../../testing/records.ts';
import { IcrcVerdict, RocePacket } from './packet.ts';
import { PacketReader, type PacketReaderOptions } from './reader.ts';

/** The ACK to another UDP port, with its ICRC. */
function toPort(destinationPort: number): Uint8Array {
  const parsed = parseFrame(ACK);
  if (!parsed.ok) throw new Error(parsed.detail);
  const { ethernet, ip, udp, bth, extensions, payload } = parsed.packet;
  return buildPacket({
    version: 2,
    ethernet: ethernet!,
    ip,
    udp: { ...udp!, destinationPort },
    bth,
    extensions,
    payload,
  });
}

function read(frames: readonly Uint8Array[], options: PacketReaderOptions = {}) {
  const seen: RocePacket[] = [];
  const onPacket = (packet: RocePacket) => seen.push(Object.assign(new RocePacket(), packet));
  const reader = new PacketReader({ ...options, onPacket });
  for (const frame of frames) reader.frame(rawRecord(frame, { linkType: LinkType.ETHERNET }));
  return { seen, summary: reader.summary() };
}

const damaged = (frame: Uint8Array) => {
  const copy = frame.slice();
  copy[copy.length - 8] ^= 1;
  return copy;
};

test('a UDP port with right ICRCs is found, and from then on damaged packets to it are RoCE, too', () => {
  const frame = toPort(18_515);
  const { seen, summary } = read([damaged(frame), frame, damaged(frame), toPort(18_516)]);
  expect(seen.map(({ frame: number, icrc, destinationPort }) => [number, icrc, destinationPort])).toEqual([
    [2, IcrcVerdict.OK, 18_515],
    [3, IcrcVerdict.BAD, 18_515],
    [4, IcrcVerdict.OK, 18_516],
  ]);
  expect(summary).toMatchObject({ otherPorts: [18_515, 18_516], otherKinds: { 'UDP port 18515': 1 } });
});

test('a port that was asked for needs no ICRC', () => {
  const { seen, summary } = read([damaged(toPort(18_515))], { ports: [18_515] });
  expect(seen).toHaveLength(1);
  expect(summary.otherPorts).toEqual([]);
});

test('ICRCs are tried in vain a few times a port only', () => {
  let calls = 0;
  const crc32 = () => {
    calls++;
    return 1;
  };
  const long = buildLong();
  read(
    Array.from({ length: 1000 }, () => long),
    { crc32 },
  );
  expect(calls).toBeGreaterThan(10);
  expect(calls).toBeLessThan(100);
});

/** Long enough that its CRC is computed by the given function. */
function buildLong(): Uint8Array {
  const parsed = parseFrame(ACK);
  if (!parsed.ok) throw new Error(parsed.detail);
  const { ethernet, ip, udp, bth } = parsed.packet;
  const frame = buildPacket({
    version: 2,
    ethernet: ethernet!,
    ip: { ...ip, totalLength: undefined, checksum: undefined } as typeof ip,
    udp: { ...udp!, length: undefined },
    bth: { ...bth, opcode: 4 },
    extensions: {},
    payload: new Uint8Array(512),
  });
  setU16(frame, 36, 9999);
  return frame;
}
