/** Work requests as a program writes them, and their way into the rings. */
import {
  invalid,
  RecvWqe,
  type Ring,
  SendFlags,
  SendWqe,
  SGE_WORDS,
  Sge,
  WrOpcode,
  type WrOpcodeName,
} from '@node-roce/transport';
import type { MemoryRegion } from './memory-region.ts';

/** A part of a registered region (`struct ibv_sge`). */
export interface SgeInit {
  mr: MemoryRegion;
  /** Bytes from the start of the region; 0 unless given. */
  offset?: number;
  /** Bytes; to the end of the region unless given. */
  length?: number;
}

/** A remote address and the key that opens it. */
export interface Remote {
  addr: bigint;
  rkey: number;
}

/** `struct ibv_send_wr`. */
export interface SendWr {
  /** Comes back in the completion. 0 unless given. */
  wrId?: number | bigint;
  opcode: WrOpcodeName;
  /** The message's bytes in their order: regions' parts, or views that lie in a registered region. */
  sgList?: readonly (SgeInit | Uint8Array)[];
  /** Raise a completion on success too. Failures always complete. */
  signaled?: boolean;
  /** Wait until READs and atomics before it are done. */
  fence?: boolean;
  /** Raise the event of a completion queue that waits for solicited completions only. */
  solicited?: boolean;
  /** Copy the bytes now: any views do, registered or not, and they can be used again at once. */
  inline?: boolean;
  /** SEND_WITH_IMM, RDMA_WRITE_WITH_IMM: 32 bits. */
  immData?: number;
  /** SEND_WITH_INV: the peer's key to invalidate. */
  invalidateRkey?: number;
  /** RDMA and atomic operations. */
  remote?: Remote;
  /** ATOMIC_CMP_AND_SWP: the value compared with; ATOMIC_FETCH_AND_ADD: the value added. */
  compareAdd?: bigint;
  /** ATOMIC_CMP_AND_SWP: the value stored if they are equal. */
  swap?: bigint;
}

/** `struct ibv_recv_wr`. */
export interface RecvWr {
  wrId?: number | bigint;
  /** Where the message goes, in its order. */
  sgList?: readonly (SgeInit | Uint8Array)[];
}

/** Finds the region that a view lies in. */
export type FindRegion = (view: Uint8Array) => MemoryRegion;

const TWO_32 = 0x1_0000_0000;
// A bigint is taken apart by way of memory: shifts and masks would make three more of them.
const splitBigint = new BigUint64Array(1);
const splitWords = new Uint32Array(splitBigint.buffer);
splitBigint[0] = 1n;
/** Index of the low word: 0 on a little-endian machine. */
const LOW = splitWords[0] === 1 ? 0 : 1;
const NO_LIST: readonly (SgeInit | Uint8Array)[] = [];

function writeWrId(words: Uint32Array, w: number, wrId: number | bigint): void {
  if (typeof wrId === 'number') {
    if (!Number.isSafeInteger(wrId) || wrId < 0)
      throw invalid('wrId', `${wrId}`, 'an integer of 0 … 2^53 − 1, or a bigint');
    words[w] = wrId;
    words[w + 1] = Math.floor(wrId / TWO_32);
  } else {
    splitBigint[0] = wrId;
    words[w] = splitWords[LOW];
    words[w + 1] = splitWords[1 - LOW];
  }
}

/** Writes the list; returns its bytes in all. */
function writeList(
  words: Uint32Array,
  start: number,
  list: readonly (SgeInit | Uint8Array)[],
  max: number,
  find: FindRegion,
): number {
  if (list.length > max) throw invalid('sgList', `${list.length} elements`, `${max} at most`);
  let total = 0;
  for (let i = 0, w = start; i < list.length; i++, w += SGE_WORDS) {
    const element = list[i];
    let mr: MemoryRegion;
    let offset: number;
    let length: number;
    if (element instanceof Uint8Array) {
      mr = find(element);
      offset = element.byteOffset - mr.bufferOffset;
      length = element.byteLength;
    } else {
      mr = element.mr;
      if (!mr) throw invalid(`sgList[${i}]`, 'no region', '{ mr, offset, length } or a Uint8Array');
      offset = element.offset ?? 0;
      length = element.length ?? mr.length - offset;
      if (!Number.isSafeInteger(offset) || offset < 0)
        throw invalid(`sgList[${i}].offset`, `${offset}`, '0 or more');
      if (!Number.isInteger(length) || length < 0 || length > 0xffff_ffff) {
        throw invalid(`sgList[${i}].length`, `${length}`, '0 … 2^32 − 1');
      }
    }
    // The sum may carry into the high word; whether it lies in the region is the engine's to check.
    const low = mr.startLow + offset;
    words[w + Sge.ADDRESS_HIGH] = mr.startHigh + Math.floor(low / TWO_32);
    words[w + Sge.ADDRESS_LOW] = low;
    words[w + Sge.LENGTH] = length;
    words[w + Sge.LKEY] = mr.lkey;
    total += length;
  }
  if (total > 0xffff_ffff) throw invalid('sgList', `${total} bytes`, '2^31 at most');
  return total;
}

/** Copies inline data behind the entry; returns its bytes. */
function writeInline(
  ring: Ring,
  start: number,
  list: readonly (SgeInit | Uint8Array)[],
  max: number,
): number {
  let total = 0;
  for (const element of list) {
    const bytes = element instanceof Uint8Array ? element : element.mr.bytes(element.offset, element.length);
    if (total + bytes.length > max)
      throw invalid('sgList', 'more inline data than the queue pair takes', `${max} bytes at most`);
    ring.bytes.set(bytes, start * 4 + total);
    total += bytes.length;
  }
  return total;
}

/** Writes a send request into entry `index`. */
export function writeSend(
  ring: Ring,
  index: number,
  wr: SendWr,
  maxSge: number,
  maxInline: number,
  find: FindRegion,
): void {
  const opcode = WrOpcode[wr.opcode];
  if (opcode === undefined) throw invalid('opcode', `${wr.opcode}`, Object.keys(WrOpcode).join(', '));
  const words = ring.words;
  const w = ring.wordOf(index);
  const list = wr.sgList ?? NO_LIST;
  let flags = 0;
  if (wr.signaled) flags |= SendFlags.SIGNALED;
  if (wr.fence) flags |= SendFlags.FENCE;
  if (wr.solicited) flags |= SendFlags.SOLICITED;
  if (wr.inline) {
    if (opcode === WrOpcode.RDMA_READ || opcode >= WrOpcode.ATOMIC_CMP_AND_SWP) {
      if (opcode !== WrOpcode.SEND_WITH_INV) throw invalid('inline', `${wr.opcode} sends no data`, 'false');
    }
    flags |= SendFlags.INLINE;
    words[w + SendWqe.SGE_COUNT] = 0;
    words[w + SendWqe.LENGTH] = writeInline(ring, w + SendWqe.SGE, list, maxInline);
  } else {
    words[w + SendWqe.LENGTH] = writeList(words, w + SendWqe.SGE, list, maxSge, find);
    words[w + SendWqe.SGE_COUNT] = list.length;
  }
  words[w + SendWqe.OPCODE_FLAGS] = opcode | (flags << 8);
  writeWrId(words, w + SendWqe.WR_ID_LOW, wr.wrId ?? 0);
  if (opcode === WrOpcode.SEND_WITH_IMM || opcode === WrOpcode.RDMA_WRITE_WITH_IMM) {
    words[w + SendWqe.IMMEDIATE] = unsigned32('immData', wr.immData);
  } else if (opcode === WrOpcode.SEND_WITH_INV) {
    words[w + SendWqe.IMMEDIATE] = unsigned32('invalidateRkey', wr.invalidateRkey);
  }
  const { remote } = wr;
  if (remote) {
    if (typeof remote.addr !== 'bigint') throw invalid('remote.addr', `${remote.addr}`, 'a bigint');
    write64(words, w + SendWqe.REMOTE_ADDRESS_HIGH, remote.addr);
    words[w + SendWqe.RKEY] = unsigned32('remote.rkey', remote.rkey);
  } else if (needsRemote(opcode)) throw invalid('remote', `${wr.opcode} needs an address`, '{ addr, rkey }');
  if (wr.compareAdd !== undefined) write64(words, w + SendWqe.COMPARE_ADD_HIGH, wr.compareAdd);
  else if (opcode === WrOpcode.ATOMIC_CMP_AND_SWP || opcode === WrOpcode.ATOMIC_FETCH_AND_ADD) {
    throw invalid('compareAdd', `${wr.opcode} needs an operand`, 'a bigint');
  }
  if (wr.swap !== undefined) write64(words, w + SendWqe.SWAP_HIGH, wr.swap);
  else if (opcode === WrOpcode.ATOMIC_CMP_AND_SWP) throw invalid('swap', `${wr.opcode} needs it`, 'a bigint');
}

function unsigned32(attribute: string, value: number | undefined): number {
  if (value === undefined || !Number.isInteger(value) || value < 0 || value > 0xffff_ffff) {
    throw invalid(attribute, `${value}`, '0 … 2^32 − 1');
  }
  return value;
}

function needsRemote(opcode: number): boolean {
  return (
    opcode === WrOpcode.RDMA_WRITE ||
    opcode === WrOpcode.RDMA_WRITE_WITH_IMM ||
    opcode === WrOpcode.RDMA_READ ||
    opcode === WrOpcode.ATOMIC_CMP_AND_SWP ||
    opcode === WrOpcode.ATOMIC_FETCH_AND_ADD
  );
}

/** High word, low word. */
function write64(words: Uint32Array, w: number, value: bigint): void {
  splitBigint[0] = value;
  words[w] = splitWords[1 - LOW];
  words[w + 1] = splitWords[LOW];
}

/** Writes a receive request into entry `index`. */
export function writeRecv(ring: Ring, index: number, wr: RecvWr, maxSge: number, find: FindRegion): void {
  const words = ring.words;
  const w = ring.wordOf(index);
  const list = wr.sgList ?? NO_LIST;
  words[w + RecvWqe.LENGTH] = writeList(words, w + RecvWqe.SGE, list, maxSge, find);
  words[w + RecvWqe.SGE_COUNT] = list.length;
  writeWrId(words, w + RecvWqe.WR_ID_LOW, wr.wrId ?? 0);
}
