/** ICRCs of packets where they stand in a capture. */
import {
  CRC32_START,
  crc32Byte,
  crc32Finish,
  crc32Update,
  ICRC_START,
  IpProtocol,
  icrcFinish,
  icrcGrh,
  icrcIpUdp,
  icrcOfRxeFlush,
  readIcrc,
} from '@node-roce/wire';
import { LRH_BYTES } from './infiniband.ts';
import type { RocePacket } from './packet.ts';

/** CRC-32 of `bytes[start]` … `bytes[end - 1]`, continued from the CRC of the bytes before: what our addon's is. */
export type Crc32 = (bytes: Uint8Array, before: number, start: number, end: number) => number;

const crc32OfWire: Crc32 = (bytes, before, start, end) =>
  crc32Finish(crc32Update(~before >>> 0, bytes, start, end));

/** Below so many bytes the call costs more than it saves. */
const WORTH_A_CALL = 192;

/**
 * Whether the ICRC at `end` − 4 is right.
 *
 * @param headers where the IP and UDP headers (v1: the GRH) stand at `ip`, with the lengths and the
 *   Identification that the packet was sent with: `b`, or a copy where `b` holds a super-packet's.
 *   Written to, and put back.
 * @param end after the ICRC
 */
export function isIcrcRight(
  headers: Uint8Array,
  ip: number,
  version: 1 | 2,
  b: Uint8Array,
  bth: number,
  end: number,
  crc32: Crc32 = crc32OfWire,
): boolean {
  const at = end - 4;
  if (at - bth < WORTH_A_CALL) {
    const register = over(headers, ip, version, b, bth);
    return icrcFinish(crc32Update(register, b, bth + 5, at)) === readIcrc(b, at);
  }
  const icrc =
    headers === b && version === 2
      ? icrcInPlace(b, ip, bth, at, crc32)
      : crc32(b, ~over(headers, ip, version, b, bth) >>> 0, bth + 5, at);
  return icrc === readIcrc(b, at);
}

/** IPv6 and UDP headers as they are without extension headers. */
const plain = new Uint8Array(48);

/**
 * Whether the ICRC of a packet with IPv6 extension headers is right. The specification knows none: a sender that puts
 * them in itself may cover them; where a router inserted them, the ICRC is that of the packet without.
 */
export function isIcrcRightBehindExtensions({ bytes: b, ip, udp, bth, end, lastHop }: RocePacket): boolean {
  const at = end - 4;
  const stated = readIcrc(b, at);
  for (let i = 0; i < 40; i++) plain[i] = b[ip + i];
  for (let i = 0; i < 8; i++) plain[40 + i] = b[udp + i];
  plain[4] = b[udp + 4];
  plain[5] = b[udp + 5];
  plain[6] = IpProtocol.UDP;
  for (let i = 0; i < 16; i++) plain[24 + i] = b[lastHop + i];
  const without = bthAndRest(icrcIpUdp(plain, 0), b, bth, at);
  if (icrcFinish(without) === stated) return true;
  let covered = crc32Update(icrcGrh(b, ip), b, ip + 40, udp + 6);
  covered = crc32Byte(crc32Byte(covered, 0xff), 0xff);
  return icrcFinish(bthAndRest(covered, b, bth, at)) === stated;
}

/** Whether the ICRC of native InfiniBand is right: over LRH and GRH, without what changes on the way (IBTA vol 1 §7.8.1). */
export function isNativeIcrcRight({ bytes: b, link, bth, end }: RocePacket): boolean {
  const at = end - 4;
  let c = crc32Update(crc32Byte(CRC32_START, b[link] | 0xf0), b, link + 1, link + LRH_BYTES);
  const grh = link + LRH_BYTES;
  if (bth > grh) {
    c = crc32Byte(c, b[grh] | 0x0f);
    for (let i = 0; i < 3; i++) c = crc32Byte(c, 0xff);
    c = crc32Byte(crc32Update(c, b, grh + 4, grh + 7), 0xff);
    c = crc32Update(c, b, grh + 8, bth);
  }
  return icrcFinish(bthAndRest(c, b, bth, at)) === readIcrc(b, at);
}

/** The register after the BTH, of which the fifth byte is masked (IBTA vol 1 §7.8.1), and all that follows it. */
const bthAndRest = (register: number, b: Uint8Array, bth: number, at: number): number =>
  crc32Update(crc32Byte(crc32Update(register, b, bth, bth + 4), 0xff), b, bth + 5, at);

/** Whether the ICRC of a FLUSH that is not right is rxe's (Linux 6.12): over BTH to RETH twice. */
export function isIcrcOfRxe({ bytes, ip, version, bth, end }: RocePacket): boolean {
  if (version === 0) return false;
  const at = end - 4;
  const right = icrcFinish(crc32Update(over(bytes, ip, version, bytes, bth), bytes, bth + 5, at));
  return icrcOfRxeFlush(right, bytes, bth, at) === readIcrc(bytes, at);
}

/** The register after the first five bytes of the BTH; the fifth is masked (IBTA vol 1 §7.8.1). */
function over(headers: Uint8Array, ip: number, version: 1 | 2, b: Uint8Array, bth: number): number {
  const register = version === 1 ? icrcGrh(headers, ip) : icrcIpUdp(headers, ip);
  return crc32Byte(crc32Update(register, b, bth, bth + 4), 0xff);
}

/** The CRC of the eight bytes of ones that come first. */
const START = crc32Finish(ICRC_START);

/** The bytes that the ICRC leaves out, as in wire's icrc.ts: from the IP header on, and around the start of the BTH. */
const MASKED_IPV4 = [1, 8, 10, 11];
const MASKED_IPV6 = [1, 2, 3, 7];
const MASKED_UDP_BTH = [-2, -1, 4];
const saved = new Uint8Array(MASKED_IPV4.length + MASKED_UDP_BTH.length);

/** One call for a v2 packet as a whole, with ones in the places that are left out. */
function icrcInPlace(b: Uint8Array, ip: number, bth: number, at: number, crc32: Crc32): number {
  const first = b[ip];
  const isIpv4 = first >> 4 === 4;
  const masked = isIpv4 ? MASKED_IPV4 : MASKED_IPV6;
  const headers = masked.length;
  for (let i = 0; i < headers; i++) {
    saved[i] = b[ip + masked[i]];
    b[ip + masked[i]] = 0xff;
  }
  for (let i = 0; i < MASKED_UDP_BTH.length; i++) {
    saved[headers + i] = b[bth + MASKED_UDP_BTH[i]];
    b[bth + MASKED_UDP_BTH[i]] = 0xff;
  }
  if (!isIpv4) b[ip] |= 0x0f;
  const icrc = crc32(b, START, ip, at);
  b[ip] = first;
  for (let i = 0; i < headers; i++) b[ip + masked[i]] = saved[i];
  for (let i = 0; i < MASKED_UDP_BTH.length; i++) b[bth + MASKED_UDP_BTH[i]] = saved[headers + i];
  return icrc;
}
