/**
 * Memory that a peer may reach: regions and windows by R_Key, and the one check every remote access
 * passes (IBTA vol 1 §9.7.4.1.5, §10.6.3).
 */
import { ModelAccess } from './verbs.ts';

/** A registered region, or a window on one: a window's `bytes` are a part of the region's. */
export interface ModelRegion {
  rkey: number;
  /** Address of the first byte as the peer names it. */
  base: bigint;
  bytes: Uint8Array;
  /** `Access` bits. */
  access: number;
  /** A type 2 window: a SEND with invalidate or a LOCAL_INV takes it away. */
  invalidatable: boolean;
  /** A type 2B window: the one queue pair that may use and invalidate it (§10.6.7.2.3). */
  qpn?: number;
}

/** Everything one protection domain lets a peer reach. */
export interface ModelMemory {
  regions: ModelRegion[];
}

/** Why a remote access was refused. */
export type AccessFault = 'key' | 'right' | 'range';

/** The owner of the remote right that an operation needs. */
export const RemoteRight = {
  WRITE: ModelAccess.REMOTE_WRITE,
  READ: ModelAccess.REMOTE_READ,
  ATOMIC: ModelAccess.REMOTE_ATOMIC,
} as const;

/**
 * The one check: the key is known, the region gives the right, and all bytes lie inside. A key of another
 * protection domain is not in this memory; one of a window bound through another queue pair is as good as unknown.
 * The order of the three does not show on the wire: each is the same NAK.
 *
 * @param qpn the queue pair that got the request
 */
export function checkAccess(
  memory: ModelMemory,
  rkey: number,
  va: bigint,
  length: number,
  right: number,
  qpn: number,
): AccessFault | undefined {
  const region = memory.regions.find((r) => r.rkey === rkey);
  if (region === undefined || !servesQp(region, qpn)) return 'key';
  if ((region.access & right) === 0) return 'right';
  const start = va - region.base;
  if (start < 0n || start + BigInt(length) > BigInt(region.bytes.length)) return 'range';
  return undefined;
}

/** Guarantees that a FLUSH asks for (annex A19), bits of `placement`. */
const Placement = { GLOBAL_VISIBILITY: 1, PERSISTENCE: 2 } as const;

/** The rights that the guarantees of a FLUSH need, on the queue pair and on the region alike; none, if it asks for none. */
export function flushRights(placement: number): number {
  return (
    (placement & Placement.GLOBAL_VISIBILITY ? ModelAccess.FLUSH_GLOBAL : 0) |
    (placement & Placement.PERSISTENCE ? ModelAccess.FLUSH_PERSISTENT : 0)
  );
}

/** A FLUSH of what `checkAccess` would let through, with every right of `rights`: a range, of no bytes too, or the whole region. */
export function checkFlush(
  memory: ModelMemory,
  { va, rkey, length }: { va: bigint; rkey: number; length: number },
  whole: boolean,
  rights: number,
  qpn: number,
): AccessFault | undefined {
  const region = memory.regions.find((r) => r.rkey === rkey);
  if (region === undefined || !servesQp(region, qpn)) return 'key';
  if ((region.access & rights) !== rights) return 'right';
  if (whole) return undefined;
  const start = va - region.base;
  return start < 0n || start + BigInt(length) > BigInt(region.bytes.length) ? 'range' : undefined;
}

/** Regions and type 1 windows serve every queue pair of the domain, a type 2B window one. */
export function servesQp(region: ModelRegion, qpn: number): boolean {
  return region.qpn === undefined || region.qpn === qpn;
}

/** The bytes of a range that `checkAccess` allowed; no bytes for a length of 0, whatever the key. */
export function bytesAt(memory: ModelMemory, rkey: number, va: bigint, length: number): Uint8Array {
  if (length === 0) return new Uint8Array(0);
  const region = memory.regions.find((r) => r.rkey === rkey);
  if (region === undefined) throw new Error(`no region has the key 0x${rkey.toString(16)}`);
  const start = Number(va - region.base);
  return region.bytes.subarray(start, start + length);
}

/** The 64-bit value at an address; values of atomics are little-endian in memory, as on the host of a peer. */
export function readU64(bytes: Uint8Array): bigint {
  return new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true);
}

export function writeU64(bytes: Uint8Array, value: bigint): void {
  new DataView(bytes.buffer, bytes.byteOffset, 8).setBigUint64(0, value, true);
}
