/** ICRCs of packets where they stand in a capture, at the speed of zlib. */
import { crc32 as zlibCrc32 } from 'node:zlib';
import { crc32Byte, crc32Update, icrcFinish, icrcGrh, icrcIpUdp, readIcrc } from '@node-roce/wire';

/** CRC-32 of bytes, taken up at the CRC of what came before: the signature of zlib's and of our addon's. */
export type Crc32 = (bytes: Uint8Array, before: number) => number;

/** Below so many bytes the call and the view that it needs cost more than they save. */
const WORTH_A_CALL = 192;

/**
 * Whether the ICRC at `end` − 4 is right.
 *
 * @param headers where the IP and UDP headers (v1: the GRH) stand at `ip`, with the lengths and the
 *   Identification that the packet was sent with: `b`, or a copy where `b` holds a super-packet's
 * @param end after the ICRC
 */
export function isIcrcRight(
  headers: Uint8Array,
  ip: number,
  version: 1 | 2,
  b: Uint8Array,
  bth: number,
  end: number,
  crc32: Crc32 = zlibCrc32,
): boolean {
  const at = end - 4;
  // The fifth byte of the BTH is masked: IBTA vol 1 §7.8.1, as wire's icrc.ts has it.
  let register = version === 1 ? icrcGrh(headers, ip) : icrcIpUdp(headers, ip);
  register = crc32Byte(crc32Update(register, b, bth, bth + 4), 0xff);
  const rest = bth + 5;
  if (at - rest < WORTH_A_CALL) return icrcFinish(crc32Update(register, b, rest, at)) === readIcrc(b, at);
  return crc32(b.subarray(rest, at), ~register >>> 0) === readIcrc(b, at);
}
