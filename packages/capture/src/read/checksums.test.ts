/** Verdicts on checksums, on a packet of a real adapter whose sums are right. */
import { LinkType } from '@node-roce/pcap';
import { setU16 } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ACK, ATOMIC_V6, CNP, WRITE_V1 } from '../../testing/frames.ts';
import { AddressTable } from './addresses.ts';
import { ipChecksum, udpChecksum } from './checksums.ts';
import { FrameDecoder } from './decode.ts';
import { destinationMac, RocePacket, sourceMac } from './packet.ts';
import { macText } from './pause.ts';

function decoded(frame: Uint8Array): RocePacket {
  const packet = new RocePacket();
  const isRoce = new FrameDecoder(packet, new AddressTable()).decode(
    frame,
    0,
    frame.length,
    LinkType.ETHERNET,
  );
  expect(isRoce).toBe(true);
  return packet;
}

const with16 = (frame: Uint8Array, ...changes: [at: number, value: number][]) => {
  const changed = frame.slice();
  for (const [at, value] of changes) setU16(changed, at, value);
  return changed;
};

/** RFC 1071, over 16-bit words written out as the RFC has them: not the function of the product. */
const sumOf = (...words: number[]) => {
  let sum = words.reduce((x, y) => x + y, 0);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
};
const wordsOf = (b: Uint8Array, from: number, to: number) =>
  Array.from({ length: (to - from) / 2 }, (_, i) => (b[from + 2 * i] << 8) | b[from + 2 * i + 1]);

const IP = 14;
const UDP = 34;

test('the IPv4 header', () => {
  expect(ipChecksum(decoded(ACK))).toBe('ok');
  expect(ipChecksum(decoded(with16(ACK, [IP + 10, 0x1234])))).toBe('bad');
  expect(ipChecksum(decoded(with16(ACK, [IP + 10, 0])))).toBe('zero');
  expect(ipChecksum(decoded(ATOMIC_V6))).toBe('none');
  expect(ipChecksum(decoded(WRITE_V1))).toBe('none');
});

test('the UDP header: 0 as adapters send it, right, wrong, and left to the adapter', () => {
  expect(udpChecksum(decoded(CNP))).toBe('zero');
  expect(udpChecksum(decoded(WRITE_V1))).toBe('none');
  const length = ACK.length - UDP;
  const pseudo = sumOf(...wordsOf(ACK, IP + 12, IP + 20), 17, length);
  const right = ~sumOf(pseudo, ...wordsOf(with16(ACK, [UDP + 6, 0]), UDP, ACK.length)) & 0xffff;
  expect(udpChecksum(decoded(with16(ACK, [UDP + 6, right])))).toBe('ok');
  expect(udpChecksum(decoded(with16(ACK, [UDP + 6, pseudo])))).toBe('offloaded');
  expect(udpChecksum(decoded(with16(ACK, [UDP + 6, right ^ 1])))).toBe('bad');
  expect(udpChecksum(decoded(with16(ACK, [UDP + 6, right]).slice(0, -1)))).toBe('none');
});

test('MAC addresses of Ethernet', () => {
  const packet = decoded(ACK);
  expect(macText(sourceMac(packet))).toBe('18:3d:5e:bf:43:71');
  expect(macText(destinationMac(packet))).toBe('18:3d:5e:bf:51:92');
  packet.linkType = LinkType.RAW;
  expect(sourceMac(packet)).toBe(-1);
});
