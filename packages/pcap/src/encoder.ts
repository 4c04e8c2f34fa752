import type { CaptureFormat, Direction } from './record.ts';

/** When a packet was seen. The numbers are the cheap form; with both given, they win. */
export type PacketTime =
  | {
      /** Whole seconds since 1970. */
      readonly seconds: number;
      /** 0 … 999,999,999 */
      readonly nanoseconds: number;
    }
  | {
      /** Nanoseconds since 1970. */
      readonly timestamp: bigint;
    };

/** A packet to write. A `PacketRecord` is one, so a capture can be copied record by record. */
export type PacketInput = PacketTime & {
  readonly data: Uint8Array;
  /** Bytes the packet had on the wire; `data.length` unless given. */
  readonly originalLength?: number;
  /** pcapng: which interface of the section; 0 unless given. Classic pcap has only 0. */
  readonly interfaceId?: number;
  /** pcapng only; classic pcap has no place for these and leaves them out. */
  readonly comments?: readonly string[];
  /** pcapng only: the link-layer flags word (epb_flags). */
  readonly flags?: number | undefined;
  /** pcapng only: overrides bits 0 and 1 of `flags`. */
  readonly direction?: Direction | undefined;
  /** pcapng only: packets lost before this one. */
  readonly dropCount?: number | undefined;
};

/** Turns packets into the bytes of a capture, without I/O. */
export interface CaptureEncoder {
  readonly format: CaptureFormat;
  /** Bytes that `take` would give. */
  readonly pending: number;
  /**
   * Encodes a packet, cut to the snapshot length.
   *
   * @throws RangeError for a time, length or interface that the format cannot hold; nothing is
   * encoded then
   */
  packet(packet: PacketInput): void;
  /**
   * All bytes encoded since the last call, file or section header included. A view of a buffer that
   * is used again: it holds until the next call of any other method.
   */
  take(): Uint8Array;
}

export function packetSeconds(time: PacketTime): number {
  return 'seconds' in time ? time.seconds : Number(time.timestamp / 1_000_000_000n);
}

export function packetNanoseconds(time: PacketTime): number {
  return 'seconds' in time ? time.nanoseconds : Number(time.timestamp % 1_000_000_000n);
}

/** @throws RangeError unless `value` is an integer from `least` to `most` */
export function checkInteger(name: string, value: number, least: number, most: number): void {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new RangeError(`${name} must be an integer from ${least} to ${most}, got ${value}`);
  }
}

export const UINT32_MAX = 0xffff_ffff;

/**
 * The encoders' output: memory that grows to the most bytes ever pending and is then used again.
 *
 * `reserve`, then write at `length` of `view` and `bytes`, then advance `length`.
 */
export class OutputBuffer {
  bytes: Uint8Array = new Uint8Array(4096);
  view: DataView = new DataView(this.bytes.buffer);
  length = 0;

  /** Makes room for n bytes after `length`. */
  reserve(n: number): void {
    const needed = this.length + n;
    if (needed <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(needed, 2 * this.bytes.length));
    grown.set(this.bytes.subarray(0, this.length));
    this.bytes = grown;
    this.view = new DataView(grown.buffer);
  }

  /** Appends `data`, for which room has been reserved, then zeros up to `paddedLength` bytes. */
  append(data: Uint8Array, paddedLength: number): void {
    this.bytes.set(data, this.length);
    // The buffer is used again, so the pad has to be cleared.
    this.bytes.fill(0, this.length + data.length, this.length + paddedLength);
    this.length += paddedLength;
  }

  take(): Uint8Array {
    const taken = this.bytes.subarray(0, this.length);
    this.length = 0;
    return taken;
  }
}
