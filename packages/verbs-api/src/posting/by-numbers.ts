/**
 * Requests of one part of a region, posted by numbers: no object is read or made. Whatever is unusual, or wrong, is left to the object
 * form, so that both forms accept the same and throw the same errors.
 */
import { invalid, RecvWqe, type Ring, SendFlags, SendWqe, WrOpcode } from '@node-roce/transport';
import { MemoryRegion } from '../memory-region.ts';
import { described } from '../options.ts';
import { writeExtent, writeOperation, writeReceive, writeRegionPart } from './entries.ts';
import type { RecvWr, SendWrSend } from './send-wr.ts';

const ALL_FLAGS = SendFlags.FENCE | SendFlags.SIGNALED | SendFlags.SOLICITED | SendFlags.INLINE;
/** Inline bytes are copied by the object form. */
const PLAIN_FLAGS = ALL_FLAGS & ~SendFlags.INLINE;

/**
 * Bytes of a part of a region, given in numbers of 31 bits, as nearly all are: V8 compares those without a conversion. Without a length, to
 * the end of the region. Negative where the object form has to decide.
 */
function plainBytes(mr: unknown, offset: number, length: number | undefined): number {
  if (!(mr instanceof MemoryRegion) || !isSmall(offset)) return -1;
  // Not one test for both: what is given and what is computed have different representations.
  if (length !== undefined) return isSmall(length) ? length | 0 : -1;
  const rest = mr.length - offset;
  return isSmall(rest) ? rest | 0 : -1;
}

function isSmall(value: number): boolean {
  return typeof value === 'number' && (value | 0) === value && value >= 0;
}

function areBitsOf(all: number, flags: number): boolean {
  return typeof flags === 'number' && (flags & all) === flags;
}

/**
 * Posts a SEND to a queue that takes one.
 *
 * @param capacity requests that the queue holds
 * @returns false where the object form has to decide; then nothing was posted
 */
export function writeSendNumbers(
  ring: Ring,
  mr: unknown,
  offset: number,
  length: number | undefined,
  flags: number,
  wrId: number | bigint,
  capacity: number,
): boolean {
  const bytes = plainBytes(mr, offset, length);
  if (bytes < 0 || !areBitsOf(PLAIN_FLAGS, flags)) return false;
  // Before the place in the queue is taken: a program's proxy of a region may post, too.
  const { startHigh, startLow, lkey } = mr as MemoryRegion;
  const w = ring.claim(capacity);
  if (w < 0) return false;
  const { words } = ring;
  writeOperation(words, w, WrOpcode.SEND, flags, wrId ?? 0);
  writeExtent(words, w, 1, bytes);
  writeRegionPart(words, w + SendWqe.SGE, startHigh, startLow + offset, bytes, lkey);
  return true;
}

/** The same request for the object form; throws EINVAL for flags that are none. */
export function sendOf(
  mr: MemoryRegion,
  offset: number,
  length: number | undefined,
  flags: number,
  wrId: number | bigint,
): SendWrSend {
  if (!areBitsOf(ALL_FLAGS, flags)) throw invalid('flags', described(flags), 'bits of SendFlags');
  return {
    opcode: 'SEND',
    wrId,
    fence: (flags & SendFlags.FENCE) !== 0,
    signaled: (flags & SendFlags.SIGNALED) !== 0,
    solicited: (flags & SendFlags.SOLICITED) !== 0,
    inline: (flags & SendFlags.INLINE) !== 0,
    sgList: [{ mr, offset, length }],
  };
}

/** As `writeSendNumbers`, of a receive. @param maxSge elements that a receive of the queue may have */
export function writeRecvNumbers(
  ring: Ring,
  mr: unknown,
  offset: number,
  length: number | undefined,
  wrId: number | bigint,
  capacity: number,
  maxSge: number,
): boolean {
  const bytes = plainBytes(mr, offset, length);
  if (bytes < 0 || maxSge === 0) return false;
  const { startHigh, startLow, lkey } = mr as MemoryRegion;
  const w = ring.claim(capacity);
  if (w < 0) return false;
  const { words } = ring;
  writeReceive(words, w, wrId ?? 0, 1, bytes);
  writeRegionPart(words, w + RecvWqe.SGE, startHigh, startLow + offset, bytes, lkey);
  return true;
}

/** The same request for the object form. */
export function recvOf(
  mr: MemoryRegion,
  offset: number,
  length: number | undefined,
  wrId: number | bigint,
): RecvWr {
  return { wrId, sgList: [{ mr, offset, length }] };
}
