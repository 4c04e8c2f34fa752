/**
 * Whole Ethernet frames: what a raw packet queue pair and a link hand each other. The native addon reads and writes the same
 * words (native/src/layout.h).
 */
import type { TxBatch } from '../batch.ts';

/** Words of a received frame. */
export const Frame = {
  /** Offset of the frame in the slab. */
  OFFSET: 0,
  /** Bytes, with a VLAN tag and without the FCS; 0: it was too long for the link, and is lost. */
  LENGTH: 1,
} as const;
export const FRAME_SLOT_WORDS = 2;

/** Frames that arrived. */
export interface FrameBatch {
  /** The bytes of the frames; good until the next `receive`. */
  readonly slab: Uint8Array;
  /** Words of `Frame`. */
  readonly slots: Uint32Array;
}

/** Bytes that a frame has to have: `value` under `mask`, at `offset` of the frame. */
export interface FrameMatch {
  /** 0: the destination address; 12: the EtherType or a VLAN tag. */
  offset: number;
  /** Bytes. */
  value: Uint8Array;
  /** As long as `value`; without it every bit counts. */
  mask?: Uint8Array;
}

/** A frame passes where all matches of one rule hold. An empty rule lets all pass. */
export type FrameRule = readonly FrameMatch[];

/** Frames that a rule let pass, and their bytes. */
export interface FrameCount {
  /** How many. */
  frames: number;
  /** Of all of them, with their headers. */
  bytes: number;
}

/** Whether a rule lets a frame pass: `length` bytes at `start` of a slab. */
export function passesRule(rule: FrameRule, slab: Uint8Array, start: number, length: number): boolean {
  for (const { offset, value, mask } of rule) {
    if (offset + value.length > length) return false;
    for (let i = 0; i < value.length; i++) {
      const bits = mask === undefined ? 0xff : mask[i];
      if (((slab[start + offset + i] ^ value[i]) & bits) !== 0) return false;
    }
  }
  return true;
}

/** One queue pair's way to the interface. */
export interface FramePort {
  /** Takes in the frames that match one of these rules, from now on; without rules, nothing. */
  setFilter(rules: readonly FrameRule[]): void;
  /** Throws where `setFilter` would. */
  checkFilter(rules: readonly FrameRule[]): void;
  /**
   * Sends slots `from` … `batch.count` − 1, whose fragments are the frames; STATUS becomes 0 or an errno.
   * @returns the first slot that was not looked at, if there is no room now: the host looks again when there is
   */
  send(batch: TxBatch, from: number): number;
  /** Fills the batch; at most so many frames. @returns how many */
  receive(batch: FrameBatch, most: number): number;
  /** Whether the host is to wake up for frames. */
  wantRead(on: boolean): void;
  stats(): { received: number; dropped: number };
  close(): void;
}

/** The frames of a link, for raw packet queue pairs. */
export interface FrameHost {
  /** Frames for `receive`, one batch for all ports. */
  readonly batch: FrameBatch;
  /** Throws RoceError: EPERM without CAP_NET_RAW, … */
  open(): FramePort;
}
