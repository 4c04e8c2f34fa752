/**
 * Headers of tag matching: the payload of a SEND to a tag matching SRQ begins with them (infiniband/tm_types.h, and
 * Documentation/tag_matching.md of rdma-core).
 *
 *     TMH   0 operation   1 reserved, 3 bytes   4 the application's data   8 tag
 *     RVH  16 virtual address   24 rkey   28 length
 */
import { u32 } from '../bytes.ts';

/** `enum ibv_tmh_op`. */
export const TmhOpcode = { NO_TAG: 0, RENDEZVOUS: 1, FIN: 2, EAGER: 3 } as const;

export const TMH_BYTES = 16;
/** A rendezvous request: TMH, RVH. */
export const RENDEZVOUS_BYTES = 32;

export const tmhOpcode = (b: Uint8Array, o: number): number => b[o];
export const tmhData = (b: Uint8Array, o: number): number => u32(b, o + 4);
export const tmhTagHigh = (b: Uint8Array, o: number): number => u32(b, o + 8);
export const tmhTagLow = (b: Uint8Array, o: number): number => u32(b, o + 12);
export const rvhVaHigh = (b: Uint8Array, o: number): number => u32(b, o + 16);
export const rvhVaLow = (b: Uint8Array, o: number): number => u32(b, o + 20);
export const rvhRkey = (b: Uint8Array, o: number): number => u32(b, o + 24);
export const rvhLength = (b: Uint8Array, o: number): number => u32(b, o + 28);
