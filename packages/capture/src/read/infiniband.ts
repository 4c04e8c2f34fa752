/** Headers around InfiniBand's own packets: the local route header (IBTA vol 1 §7.7), and ERF records that hold frames. */
import { u16 } from '@node-roce/wire';

export const LRH_BYTES = 8;

/** Link next header, the last two bits of the LRH's second byte (IBTA vol 1 §7.7.5). */
export const LinkNext = { BTH: 2, GRH: 3 } as const;

/** Bytes of the packet by its LRH, ICRC included: a count of words, without the variant CRC. */
export const nativeBytes = (b: Uint8Array, lrh: number): number => (u16(b, lrh + 4) & 0x7ff) * 4;

/** Record types of ERF that hold frames with RoCE or InfiniBand (Endace, "ERF types"). */
export const ErfType: Readonly<Record<'ETHERNET' | 'INFINIBAND' | 'IP', readonly number[]>> = {
  ETHERNET: [2, 11, 16, 20],
  INFINIBAND: [21, 25],
  IP: [22, 23],
};

const ERF_BYTES = 16;
const ERF_EXTENSION_BYTES = 8;

/** The record type. */
export const erfType = (b: Uint8Array, o: number): number => b[o + 8] & 0x7f;

/** Where the record's content starts: behind the header and its extension headers; −1: behind the frame's end. */
export function erfContent(b: Uint8Array, o: number, end: number): number {
  if (o + ERF_BYTES > end) return -1;
  let more = (b[o + 8] & 0x80) !== 0;
  let at = o + ERF_BYTES;
  while (more) {
    if (at + ERF_EXTENSION_BYTES > end) return -1;
    more = (b[at] & 0x80) !== 0;
    at += ERF_EXTENSION_BYTES;
  }
  return at;
}
