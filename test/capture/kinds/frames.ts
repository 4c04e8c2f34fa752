/**
 * Frames of RoCE under everything that networks and capture tools put around it, written from the specifications that the rows name.
 * Nothing of the product is imported: these frames judge its decoder, next to tshark.
 */
import { crc32 } from 'node:zlib';

export type Bytes = Buffer;

const hex = (text: string): Bytes => Buffer.from(text.replaceAll(/\s/g, ''), 'hex');
export const join = (...parts: (Bytes | string)[]): Bytes =>
  Buffer.concat(parts.map((part) => (typeof part === 'string' ? hex(part) : part)));
export const u16 = (value: number): Bytes => Buffer.from([(value >> 8) & 0xff, value & 0xff]);
export const u32 = (value: number): Bytes => Buffer.concat([u16(value >>> 16), u16(value & 0xffff)]);

/** A packet of the exchange that every capture here holds. */
export interface Fields {
  opcode: number;
  destQp: number;
  psn: number;
}

const SEND_ONLY = 0x04;
const ACKNOWLEDGE = 0x11;
const MESSAGES = 4;

/** SENDs from A to B, each acknowledged. */
export const EXCHANGE: readonly Fields[] = Array.from({ length: 2 * MESSAGES }, (_, i) => ({
  opcode: i % 2 === 0 ? SEND_ONLY : ACKNOWLEDGE,
  destQp: i % 2 === 0 ? 0x12 : 0x11,
  psn: 100 + (i >> 1),
}));

const isFromA = ({ opcode }: Fields): boolean => opcode === SEND_ONLY;

/** BTH and what follows it, without the ICRC (IBTA vol 1 §9.2). */
function transport({ opcode, destQp, psn }: Fields): Bytes {
  const request = opcode === SEND_ONLY;
  const bth = join(Buffer.from([opcode, 0x40]), 'ffff', u32(destQp), u32(request ? psn + 2 ** 31 : psn));
  return join(bth, request ? Buffer.alloc(64, 0x5a) : join('1f', u32(psn - 99).subarray(1)));
}

/** The ICRC, least significant byte first (IBTA vol 1 §7.8.1): over what no router changes. */
const icrc = (covered: Bytes): Bytes => {
  const value = Buffer.alloc(4);
  value.writeUInt32LE(crc32(covered));
  return value;
};
const ONES = Buffer.alloc(8, 0xff);

/** The fifth byte of the BTH reads as ones. */
function masked(packet: Bytes): Bytes {
  const copy = Buffer.from(packet);
  copy[4] = 0xff;
  return copy;
}

/** RFC 1071. */
function checksum(bytes: Bytes): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += bytes[i] * 256 + (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

const V4 = [hex('c0000201'), hex('c0000202')];
const V6 = [hex('20010db8000000000000000000000001'), hex('20010db8000000000000000000000002')];

/** An IPv4 packet of that protocol (RFC 791). */
export function ipv4(
  protocol: number,
  content: Bytes,
  [from, to] = [hex('c6336409'), hex('c633640a')],
): Bytes {
  const header = join(
    '4500',
    u16(20 + content.length),
    '0001 4000 40',
    Buffer.from([protocol]),
    '0000',
    from,
    to,
  );
  u16(checksum(header)).copy(header, 10);
  return join(header, content);
}

/** An IPv6 packet (RFC 8200 §3). */
export const ipv6 = (next: number, content: Bytes, [from, to] = [V6[0], V6[1]]): Bytes =>
  join('60000000', u16(content.length), Buffer.from([next, 64]), from, to, content);

/** A UDP datagram without checksum (RFC 768). */
export const udp = (port: number, content: Bytes, source = 0xc000): Bytes =>
  join(u16(source), u16(port), u16(8 + content.length), '0000', content);

const ends = (fields: Fields, [a, b]: Bytes[]): [Bytes, Bytes] => (isFromA(fields) ? [a, b] : [b, a]);

/** RoCE v2 over IPv4, from the IP header on (IBTA annex A17). */
export function roce4(fields: Fields): Bytes {
  const packet = transport(fields);
  const whole = ipv4(17, udp(4791, join(packet, '00000000')), ends(fields, V4));
  const covered = Buffer.from(whole.subarray(0, 28));
  for (const at of [1, 8, 10, 11, 26, 27]) covered[at] = 0xff;
  icrc(join(ONES, covered, masked(packet))).copy(whole, whole.length - 4);
  return whole;
}

/**
 * RoCE v2 over IPv6 with extension headers between IP and UDP.
 * @param first the first next header, and the extension headers, which name UDP in the end
 * @param covers whether the sender's ICRC covers them, or they were inserted later
 */
export function roce6(
  fields: Fields,
  first = 17,
  extensions = Buffer.alloc(0) as Bytes,
  covers = false,
): Bytes {
  const packet = transport(fields);
  const [from, to] = ends(fields, V6);
  const datagram = udp(4791, join(packet, '00000000'));
  const whole = ipv6(first, join(extensions, datagram), [from, to]);
  const base = covers ? whole : ipv6(17, datagram, [from, to]);
  const headers = Buffer.from(base.subarray(0, base.length - packet.length - 4));
  headers[0] |= 0x0f;
  for (const at of [1, 2, 3, 7, headers.length - 2, headers.length - 1]) headers[at] = 0xff;
  icrc(join(ONES, headers, masked(packet))).copy(whole, whole.length - 4);
  return whole;
}

/** InfiniBand from the LRH on, with its ICRC and a VCRC of zeros (IBTA vol 1 §7.7, §8.3). */
export function native(fields: Fields, hasGrh: boolean): Bytes {
  const packet = transport(fields);
  const grh = hasGrh
    ? join('60000000', u16(packet.length + 4), '1b40', ...ends(fields, V6))
    : Buffer.alloc(0);
  const [from, to] = ends(fields, [u16(1), u16(2)]);
  const words = (8 + grh.length + packet.length + 4) / 4;
  const lrh = join('00', hasGrh ? '03' : '02', to, u16(words), from);
  const covered = Buffer.from(join(lrh, grh));
  covered[0] |= 0xf0;
  if (hasGrh) {
    covered[8] |= 0x0f;
    for (const at of [9, 10, 11, 15]) covered[at] = 0xff;
  }
  return join(lrh, grh, packet, icrc(join(covered, masked(packet))), '0000');
}

/** An Ethernet frame; the side that sends has the lower address. */
export const ethernet = (fields: Fields, type: string, content: Bytes): Bytes =>
  join(isFromA(fields) ? '020000000002 020000000001' : '020000000001 020000000002', type, content);

/** A frame between two switches. */
export const outer = (type: string, content: Bytes): Bytes =>
  join('0200000000aa 0200000000bb', type, content);
