/** The layout of the entries of rings, for who writes requests: programs (work-request.ts) and the connection manager. */
import { invalid, RecvWqe, type Ring, SendWqe, Sge } from '@node-roce/transport';
import { TWO_32 } from '@node-roce/wire';
import { described } from '../options.ts';

// A bigint is taken apart by way of memory: shifts and masks would make three more of them.
const splitBigint = new BigUint64Array(1);
const splitWords = new Uint32Array(splitBigint.buffer);
splitBigint[0] = 1n;
/** Index of the low word: 0 on a little-endian machine. */
const LOW = splitWords[0] === 1 ? 0 : 1;

/** High word, low word. */
export function write64(words: Uint32Array, w: number, value: bigint): void {
  splitBigint[0] = value;
  words[w] = splitWords[1 - LOW];
  words[w + 1] = splitWords[LOW];
}

/** Low word, high word. */
function writeWrId(words: Uint32Array, w: number, wrId: number | bigint): void {
  // Nearly all have 31 bits. What the others need is a function of its own, so that this one is small enough to be inlined.
  if (typeof wrId === 'number' && (wrId | 0) === wrId && wrId >= 0) {
    words[w] = wrId;
    words[w + 1] = 0;
  } else writeWideWrId(words, w, wrId);
}

function writeWideWrId(words: Uint32Array, w: number, wrId: number | bigint): void {
  if (typeof wrId === 'number') {
    if (!Number.isSafeInteger(wrId) || wrId < 0)
      throw invalid('wrId', `${wrId}`, 'an integer of 0 … 2^53 − 1, or a bigint');
    words[w] = wrId;
    words[w + 1] = Math.floor(wrId / TWO_32);
  } else if (typeof wrId === 'bigint') {
    splitBigint[0] = wrId;
    words[w] = splitWords[LOW];
    words[w + 1] = splitWords[1 - LOW];
  } else throw invalid('wrId', described(wrId), 'an integer of 0 … 2^53 − 1, or a bigint');
}

/** The operation of the send request at word `w`. */
export function writeOperation(
  words: Uint32Array,
  w: number,
  opcode: number,
  flags: number,
  wrId: number | bigint,
): void {
  words[w + SendWqe.OPCODE_FLAGS] = opcode | (flags << 8);
  writeWrId(words, w + SendWqe.WR_ID_LOW, wrId);
}

/** The extent of its payload: elements, or none and inline bytes. */
export function writeExtent(words: Uint32Array, w: number, elements: number, length: number): void {
  words[w + SendWqe.SGE_COUNT] = elements;
  words[w + SendWqe.LENGTH] = length;
}

/** Bytes that are sent with it, `at` bytes behind the first. */
export function writeInlineBytes(ring: Ring, w: number, at: number, bytes: Uint8Array): void {
  ring.bytes.set(bytes, (w + SendWqe.SGE) * 4 + at);
}

/** The destination of a datagram. */
export function writeDestination(
  words: Uint32Array,
  w: number,
  handle: number,
  qpn: number,
  qkey: number,
): void {
  words[w + SendWqe.ADDRESS_HANDLE] = handle;
  words[w + SendWqe.REMOTE_QPN] = qpn;
  words[w + SendWqe.REMOTE_QKEY] = qkey;
}

/** The receive request at word `w`, but for its elements. */
export function writeReceive(
  words: Uint32Array,
  w: number,
  wrId: number | bigint,
  elements: number,
  length: number,
): void {
  words[w + RecvWqe.SGE_COUNT] = elements;
  words[w + RecvWqe.LENGTH] = length;
  writeWrId(words, w + RecvWqe.WR_ID_LOW, wrId);
}

/** The element at word `w`. */
export function writeElement(
  words: Uint32Array,
  w: number,
  address: bigint,
  length: number,
  lkey: number,
): void {
  write64(words, w + Sge.ADDRESS_HIGH, address);
  words[w + Sge.LENGTH] = length;
  words[w + Sge.LKEY] = lkey;
}

/**
 * An element that is a part of a region: its address in two words. The low word may be more than 32 bits: it carries. Whether the part lies in
 * the region is the engine's to check.
 */
export function writeRegionPart(
  words: Uint32Array,
  w: number,
  high: number,
  low: number,
  length: number,
  lkey: number,
): void {
  words[w + Sge.ADDRESS_HIGH] = low < TWO_32 ? high : high + Math.floor(low / TWO_32);
  words[w + Sge.ADDRESS_LOW] = low;
  words[w + Sge.LENGTH] = length;
  words[w + Sge.LKEY] = lkey;
}
