/** Writes work requests into the entries of the rings. */
import {
  Access,
  FlushLevel,
  FlushType,
  invalid,
  RecvWqe,
  type Ring,
  RoceError,
  SendFlags,
  SendWqe,
  SGE_WORDS,
  type SrqOp,
  WR_OPCODES,
  WrOpcode,
} from '@node-roce/transport';
import { TWO_32 } from '@node-roce/wire';
import { accessBits, type MemoryRegion } from '../memory-region.ts';
import type { MemoryWindow } from '../memory-window.ts';
import { NullMemoryRegion } from '../null-region.ts';
import { BIND, checkAccess, checkCall, RANGE } from '../option-types.ts';
import { described, INTEGER, oneOf } from '../options.ts';
import {
  write64,
  writeDestination,
  writeElement,
  writeExtent,
  writeInlineBytes,
  writeOperation,
  writeReceive,
  writeRegionPart,
} from './entries.ts';
import type {
  AnySendWr,
  Datagram,
  FlushInit,
  MwRange,
  RawSge,
  RecvWr,
  SendWrCommon,
  SgElement,
  SgeInit,
  TagOp,
} from './send-wr.ts';
import {
  checkElementNames,
  checkNames,
  RECV_NAMES,
  REMOTE_SRQN,
  SEND_NAMES_BY_OPCODE,
  XRC_NAMES_BY_OPCODE,
} from './wr-names.ts';

/** Finds the region that a view lies in. */
export type FindRegion = (view: Uint8Array) => MemoryRegion;

const NO_LIST: readonly SgElement[] = [];

/**
 * Writes the first elements of the list; returns their bytes in all.
 *
 * @param count its length as it was read once: a getter may make it longer
 */
function writeList(
  words: Uint32Array,
  start: number,
  list: readonly SgElement[],
  count: number,
  max: number,
  find: FindRegion,
): number {
  if (!Array.isArray(list))
    throw invalid('sgList', described(list), 'a list of { mr, offset, length } or views');
  if (count > max) throw invalid('sgList', `${count} elements`, `${max} at most`);
  let total = 0;
  for (let i = 0, w = start; i < count; i++, w += SGE_WORDS) {
    const element = list[i];
    let mr: Pick<MemoryRegion, 'lkey' | 'length' | 'startHigh' | 'startLow'>;
    let offset: number;
    let length: number;
    if (element instanceof Uint8Array) {
      const found = find(element);
      mr = found;
      offset = element.byteOffset - found.bufferOffset;
      length = element.byteLength;
    } else if (typeof element !== 'object' || element === null) {
      throw invalidElement(i, '', described(element), '{ mr, offset, length } or a Uint8Array');
    } else if ('lkey' in element) {
      total += writeRaw(words, w, i, element);
      continue;
    } else {
      mr = element.mr;
      if (!(typeof mr === 'object' && mr !== null && 'lkey' in mr))
        throw invalidElement(i, '', `mr is ${described(mr)}`, '{ mr, offset, length } or a Uint8Array');
      // A misspelt name leaves one of them absent.
      if (element.offset === undefined || element.length === undefined) checkElementNames(element, i);
      offset = element.offset ?? 0;
      length = element.length ?? mr.length - offset;
      if (!Number.isSafeInteger(offset) || offset < 0)
        throw invalidElement(i, '.offset', offset, '0 or more');
      if (!Number.isInteger(length) || length < 0 || length > 0xffff_ffff) {
        throw invalidElement(i, '.length', length, '0 … 2^32 − 1');
      }
    }
    writeRegionPart(words, w, mr.startHigh, mr.startLow + offset, length, mr.lkey);
    total += length;
  }
  if (total > 0xffff_ffff) throw invalid('sgList', `${total} bytes`, '2^31 at most');
  return total;
}

/** An operation on a list of tags as the engine takes it. */
export function plainTagOp(op: TagOp, maxSge: number, find: FindRegion): SrqOp {
  const { wrId = 0, signaled = false, handled } = op;
  const common = {
    wrId: wide('wrId', wrId),
    signaled,
    handled: handled === undefined ? undefined : unsigned32('handled', handled),
  };
  if (op.opcode === 'TAG_SYNC') return { ...common, opcode: op.opcode };
  if (op.opcode === 'TAG_DEL')
    return { ...common, opcode: op.opcode, handle: unsigned32('handle', op.handle) };
  const { opcode, recvWrId = 0, tag, mask = 2n ** 64n - 1n, sgList } = op;
  if (opcode !== 'TAG_ADD') throw invalid('opcode', described(opcode), 'TAG_ADD, TAG_DEL or TAG_SYNC');
  if (sgList === undefined) throw invalid('sgList', described(sgList), 'a list, which may be empty');
  const words = new Uint32Array(maxSge * SGE_WORDS);
  const count = sgList.length;
  writeList(words, 0, sgList, count, maxSge, find);
  const list = Array.from({ length: count }, (_, i) => {
    const [high, low, length, lkey] = words.subarray(i * SGE_WORDS);
    return { addr: (BigInt(high) << 32n) | BigInt(low), length, lkey };
  });
  return {
    ...common,
    opcode,
    recvWrId: wide('recvWrId', recvWrId),
    tag: wide('tag', tag),
    mask: wide('mask', mask),
    list,
  };
}

function wide(name: string, value: number | bigint): bigint {
  const isRight = typeof value === 'bigint' || (Number.isSafeInteger(value) && value >= 0);
  if (!isRight) throw invalid(name, described(value), 'an integer of 0 … 2^53 − 1, or a bigint');
  return BigInt.asUintN(64, BigInt(value));
}

/** The error of an element's member. The number becomes a string here alone: V8 would do so before it looks, for each element. */
function invalidElement(i: number, member: string, found: unknown, expected: string): RoceError {
  return invalid(`sgList[${i}]${member}`, `${found}`, expected);
}

/** An element by address and key; returns its bytes. */
function writeRaw(words: Uint32Array, w: number, i: number, { addr, length, lkey }: RawSge): number {
  if (typeof addr !== 'bigint') throw invalidElement(i, '.addr', addr, 'a bigint');
  if (!isUnsigned32(length)) throw invalidElement(i, '.length', described(length), '0 … 2^32 − 1');
  if (!isUnsigned32(lkey)) throw invalidElement(i, '.lkey', described(lkey), '0 … 2^32 − 1');
  writeElement(words, w, addr, length, lkey);
  return length;
}

/** The bytes of an element that names a region. */
function regionBytes(element: SgeInit, i: number): Uint8Array {
  checkElementNames(element, i);
  if (typeof element.mr !== 'object' || element.mr instanceof NullMemoryRegion)
    throw invalid(`sgList[${i}].mr`, described(element.mr), 'a region of memory');
  return element.mr.bytes(element.offset, element.length);
}

/** Copies inline data behind the entry; returns its bytes. */
function writeInline(ring: Ring, w: number, list: readonly SgElement[], max: number): number {
  if (!Array.isArray(list)) throw invalid('sgList', described(list), 'a list of views, or regions');
  let total = 0;
  for (const [i, element] of list.entries()) {
    if (typeof element !== 'object' || element === null)
      throw invalid(`sgList[${i}]`, described(element), 'a Uint8Array, or { mr, offset, length }');
    if ('lkey' in element) throw invalid('sgList', 'an address can not be copied from', 'views, or regions');
    const bytes = element instanceof Uint8Array ? element : regionBytes(element, i);
    if (total + bytes.length > max)
      throw invalid('sgList', 'more inline data than the queue pair allows', `${max} bytes at most`);
    writeInlineBytes(ring, w, total, bytes);
    total += bytes.length;
  }
  return total;
}

/**
 * Writes a send request into entry `index`.
 *
 * @param datagram whether the queue pair is of type UD or GSI: each request names its destination
 * @param names bits of the members that requests may have, by opcode
 */
export function writeSend(
  ring: Ring,
  index: number,
  wr: AnySendWr,
  maxSge: number,
  maxInline: number,
  find: FindRegion,
  datagram = false,
  names = SEND_NAMES_BY_OPCODE,
): void {
  if (typeof wr !== 'object' || wr === null)
    throw invalid('wr', described(wr), 'a send request, or a list of them');
  const row = WR_OPCODES[WrOpcode[wr.opcode]];
  if (row === undefined) throw invalid('opcode', described(wr.opcode), Object.keys(WrOpcode).join(', '));
  checkNames(wr, names[row.opcode], row.name);
  const words = ring.words;
  const w = ring.wordOf(index);
  const list = wr.sgList ?? NO_LIST;
  let flags = 0;
  if (flag(wr.signaled, 'signaled')) flags |= SendFlags.SIGNALED;
  if (flag(wr.fence, 'fence')) flags |= SendFlags.FENCE;
  if (flag(wr.solicited, 'solicited')) flags |= SendFlags.SOLICITED;
  if (flag(wr.inline, 'inline')) {
    flags |= SendFlags.INLINE;
    writeExtent(words, w, 0, writeInline(ring, w, list, maxInline));
  } else {
    const count = list.length;
    writeExtent(words, w, count, writeList(words, w + SendWqe.SGE, list, count, maxSge, find));
  }
  writeOperation(words, w, row.opcode, flags, wr.wrId ?? 0);
  if (row.immediate) {
    words[w + SendWqe.IMMEDIATE] = unsigned32('immData', wr.immData);
  } else if (row.invalidate) {
    words[w + SendWqe.IMMEDIATE] = unsigned32('invalidateRkey', wr.invalidateRkey);
  } else if (row.opcode === WrOpcode.BIND_MW) {
    const { bind } = wr;
    if (!bind) throw invalid('bind', 'BIND_MW needs a window', '{ mw, mr, access }');
    checkCall(bind, BIND, 'bind');
    if (bind.mw?.type !== 2)
      throw invalid(
        'bind.mw',
        bind.mw ? 'a window of type 1' : 'none',
        'a window of type 2; type 1 is for bindMw',
      );
    writeBind(words, w, bind.mw, bind.rkey ?? bind.mw.nextRkey, bind);
    return;
  }
  if (datagram) {
    writeDatagram(words, w, wr.ud);
    return;
  }
  if (wr.ud) throw invalid('ud', 'a connected queue pair sends only to its peer', 'none');
  const { remote } = wr;
  if (remote) {
    if (typeof remote.addr !== 'bigint')
      throw invalid('remote.addr', described(remote.addr), 'a bigint, as mr.remote() gives it');
    write64(words, w + SendWqe.REMOTE_ADDRESS_HIGH, remote.addr);
    words[w + SendWqe.RKEY] = unsigned32('remote.rkey', remote.rkey);
  } else if (row.remote) throw invalid('remote', `${wr.opcode} needs an address`, '{ addr, rkey }');
  if (row.opcode === WrOpcode.FLUSH) writeFlush(words, w, wr.flush);
  if (row.operands > 0) writeOperand(words, w + SendWqe.COMPARE_ADD_HIGH, wr.compareAdd, 'compareAdd');
  if (row.operands > 1) writeOperand(words, w + SendWqe.SWAP_HIGH, wr.swap, 'swap');
}

/** Writes the number of the SRQ that a request of an XRC_INI queue pair is for; local operations have none. */
export function writeRemoteSrqn(ring: Ring, index: number, { opcode, remoteSrqn }: AnySendWr): void {
  if ((XRC_NAMES_BY_OPCODE[WrOpcode[opcode]] & REMOTE_SRQN) === 0) return;
  if (remoteSrqn === undefined || !Number.isInteger(remoteSrqn) || remoteSrqn < 0 || remoteSrqn > 0xff_ffff)
    throw invalid('remoteSrqn', described(remoteSrqn), '24 bits: srq.number of the peer');
  ring.words[ring.wordOf(index) + SendWqe.REMOTE_SRQN] = remoteSrqn;
}

function flag(value: boolean | undefined, name: string): boolean {
  if (value === true) return true;
  if (value === undefined || value === false) return false;
  throw invalid(name, described(value), 'true or false');
}

function writeOperand(words: Uint32Array, w: number, value: bigint | number | undefined, name: string): void {
  if (typeof value === 'bigint') write64(words, w, value);
  else if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) {
    words[w] = Math.floor(value / TWO_32);
    words[w + 1] = value;
  } else throw invalid(name, described(value), 'a bigint, or an integer of 0 … 2^53 − 1');
}

function unsigned32(attribute: string, value: number | undefined): number {
  if (value === undefined || !isUnsigned32(value)) throw invalid(attribute, described(value), '0 … 2^32 − 1');
  return value;
}

function isUnsigned32(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= 0xffff_ffff;
}

const FLUSH = { length: INTEGER, level: oneOf('RANGE', 'MR'), type: oneOf('GLOBAL', 'PERSISTENT') };

function writeFlush(words: Uint32Array, w: number, flush: FlushInit | undefined): void {
  if (!flush) throw invalid('flush', 'FLUSH needs an extent', '{ length, level, type }');
  checkCall(flush, FLUSH, 'flush');
  words[w + SendWqe.FLUSH_LENGTH] = unsigned32('flush.length', flush.length);
  words[w + SendWqe.FLUSH_LEVEL] = FlushLevel[flush.level ?? 'RANGE'];
  words[w + SendWqe.FLUSH_TYPE] = FlushType[flush.type ?? 'GLOBAL'];
}

function writeDatagram(words: Uint32Array, w: number, ud: Datagram | undefined): void {
  if (!ud?.ah) throw invalid('ud', 'a datagram needs a destination', '{ ah, remoteQpn, remoteQkey }');
  const { remoteQpn, remoteQkey } = ud;
  if (!Number.isInteger(remoteQpn) || remoteQpn < 0 || remoteQpn > 0xff_ffff)
    throw invalid('ud.remoteQpn', `${remoteQpn}`, '24 bits');
  const qkey = unsigned32('ud.remoteQkey', remoteQkey);
  const { handle } = ud.ah;
  if (handle === undefined) throw invalid('ud.ah', described(ud.ah), 'an address handle (pd.createAh)');
  writeDestination(words, w, handle, remoteQpn, qkey);
}

/** Writes the request of ibv_bind_mw(3) into entry `index`: a window of type 1, under its next key. */
export function writeBindRequest(
  ring: Ring,
  index: number,
  mw: MemoryWindow,
  range: MwRange | undefined,
  { wrId = 0, signaled = false, fence = false }: SendWrCommon,
): void {
  const { words } = ring;
  const w = ring.wordOf(index);
  if (range !== undefined) checkCall(range, RANGE, 'range');
  const flags = (signaled ? SendFlags.SIGNALED : 0) | (fence ? SendFlags.FENCE : 0);
  writeOperation(words, w, WrOpcode.BIND_MW, flags, wrId);
  writeBind(words, w, mw, mw.nextRkey, range);
}

/** Writes the parameters of a bind into the entry at word `w`; without a range, the window is to open nothing. */
function writeBind(
  words: Uint32Array,
  w: number,
  mw: MemoryWindow,
  rkey: number,
  range: MwRange | undefined,
): void {
  if (range !== undefined) {
    if (range.mr?.iova === undefined) throw invalid('mr', described(range.mr), 'a region with mwBind');
    checkAccess('access', range.access ?? null);
  }
  writeExtent(words, w, 0, 0);
  words[w + SendWqe.BIND_WINDOW] = mw.handle;
  words[w + SendWqe.RKEY] = unsigned32('rkey', rkey);
  const length = range ? (range.length ?? range.mr.length - (range.offset ?? 0)) : 0;
  const offset = range?.offset ?? 0;
  for (const [name, value] of [
    ['offset', offset],
    ['length', length],
  ] as const) {
    if (!Number.isSafeInteger(value) || value < 0) throw invalid(name, `${value}`, '0 or more bytes');
  }
  write64(words, w + SendWqe.REMOTE_ADDRESS_HIGH, (range?.mr.iova ?? 0n) + BigInt(offset));
  words[w + SendWqe.BIND_LENGTH_HIGH] = Math.floor(length / TWO_32);
  words[w + SendWqe.BIND_LENGTH_LOW] = length;
  words[w + SendWqe.BIND_LKEY] = range?.mr.lkey ?? 0;
  words[w + SendWqe.BIND_ACCESS] = range ? accessBits(range.access) & ~Access.LOCAL_WRITE : 0;
  mw.rkey = rkey;
}

/**
 * Posts one receive request or a list to a ring: of a list, the requests before a bad one are posted, and
 * the error's `index` is that of the bad one.
 *
 * @param queue names the queue in errors
 */
export function postReceives(
  ring: Ring,
  wr: RecvWr | readonly RecvWr[],
  capacity: number,
  maxSge: number,
  find: FindRegion,
  queue: string,
  number: number,
): void {
  const first = ring.producer;
  if (!Array.isArray(wr)) {
    checkRoom(ring, first, capacity, queue, number);
    writeRecv(ring, first, wr as RecvWr, maxSge, find);
    ring.publish((first + 1) | 0);
    return;
  }
  const count = wr.length;
  let done = 0;
  try {
    for (; done < count; done++) {
      const index = (first + done) | 0;
      checkRoom(ring, index, capacity, queue, number);
      writeRecv(ring, index, wr[done], maxSge, find);
    }
  } catch (error) {
    throw Object.assign(error as Error, { index: done });
  } finally {
    ring.publish((first + done) | 0);
  }
}

/** ENOMEM where the queue, of this kind and number, has no room for the entry. */
export function checkRoom(ring: Ring, index: number, capacity: number, queue: string, number: number): void {
  if (!ring.hasRoom(index, capacity)) throw fullError(capacity, queue, number);
}

/** The error of a queue without room. */
export function fullError(capacity: number, queue: string, number: number): RoceError {
  return new RoceError('ERR_ROCE_QUEUE_FULL', `the ${queue} ${number} holds ${capacity} requests`, {
    errno: 'ENOMEM',
  });
}

/** The error of a post in a getter of a request that is being posted to the same queue: both would have one entry. */
export function nestedPost(queue: string, number: number): RoceError {
  return new RoceError(
    'ERR_ROCE_WRONG_STATE',
    `can't post to the ${queue} ${number} in a getter of a request that is being posted to it`,
    { errno: 'EINVAL', expected: 'a post after that one' },
  );
}

/** Writes a receive request into entry `index`. */
export function writeRecv(ring: Ring, index: number, wr: RecvWr, maxSge: number, find: FindRegion): void {
  if (typeof wr !== 'object' || wr === null)
    throw invalid('wr', described(wr), 'a receive, or a list of them');
  checkNames(wr, RECV_NAMES, 'a receive');
  const words = ring.words;
  const w = ring.wordOf(index);
  const list = wr.sgList ?? NO_LIST;
  const count = list.length;
  const length = writeList(words, w + RecvWqe.SGE, list, count, maxSge, find);
  writeReceive(words, w, wr.wrId ?? 0, count, length);
}
