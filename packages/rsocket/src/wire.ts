/**
 * The wire format of rsockets, protocol version 1 (rdma-core librdmacm/rsocket.c, docs/rsocket): the connection data in the private data of
 * REQ and REP, the immediates of WRITEs, and the entries that announce buffers.
 */

export const VERSION = 1;
const CONNECTION_DATA_BYTES = 40;
/**
 * Behind its connection data, a socket of node-roce has 8 bytes of its own, which librdmacm leaves 0 and does not read: the version of what they
 * promise (`announcesEnds`), three zeros, and MAGIC. Later versions keep that promise.
 */
const OWN_BYTES = 8;
const OWN_VERSION = 1;
/** "nRrs". */
const MAGIC = 0x6e527273;
/** Of an entry of the list of target buffers. */
export const SGE_BYTES = 16;
/** Entries of that list: the peer writes each of the two halves of our ring in turn. */
export const SGL_ENTRIES = 2;

/** Of an entry of the list behind it, which names memory that the peer may write to by offset. */
export const MAPPING_BYTES = 24;

/** `flags`: the sender's numbers in memory are big-endian; it has that list, which may be empty. */
const NET = 1;
const IOMAP = 2;
/** Numbers of entries up to this one stand for themselves; of larger ones, only multiples of 256 can be named. */
export const MAX_MAPPINGS = 128;

/** A buffer of the peer, or of ours for it. */
export interface Target {
  addr: bigint;
  key: number;
  length: number;
}

/** Private data of one side. */
export interface ConnectionData {
  version: number;
  isBigEndian: boolean;
  /** Messages that the sender of this data has receives for. */
  credits: number;
  /** Where its peer announces buffers; `length` counts entries. */
  sgl: Target;
  /** The first buffer that its peer may write to. */
  buffer: Target;
  /** Entries behind the list, for memory that its peer offers. */
  mappings: number;
  /**
   * The sender ends no stream in order without SHUTDOWN or DISCONNECT, and sends DISCONNECT only once it has received the end of its peer's
   * stream. librdmacm does neither.
   */
  announcesEnds: boolean;
}

/** What a message may leave out. */
type Defaults = 'mappings' | 'announcesEnds';

export function encodeConnectionData({
  credits,
  sgl,
  buffer,
  mappings = 0,
  announcesEnds = false,
}: Omit<ConnectionData, 'version' | Defaults> & Partial<Pick<ConnectionData, Defaults>>): Uint8Array {
  const bytes = new Uint8Array(CONNECTION_DATA_BYTES + (announcesEnds ? OWN_BYTES : 0));
  const view = new DataView(bytes.buffer);
  // Our lists are read little-endian on any machine: no NET.
  view.setUint8(0, VERSION);
  view.setUint8(1, IOMAP);
  view.setUint16(2, credits);
  view.setUint8(7, mappings);
  encodeTarget(view, 8, sgl, false);
  encodeTarget(view, 24, buffer, false);
  if (announcesEnds) {
    view.setUint8(CONNECTION_DATA_BYTES, OWN_VERSION);
    view.setUint32(CONNECTION_DATA_BYTES + 4, MAGIC);
  }
  return bytes;
}

function isOfNodeRoce(bytes: Uint8Array): boolean {
  if (bytes.length < CONNECTION_DATA_BYTES + OWN_BYTES) return false;
  const view = new DataView(bytes.buffer, bytes.byteOffset + CONNECTION_DATA_BYTES, OWN_BYTES);
  return view.getUint8(0) >= OWN_VERSION && view.getUint32(4) === MAGIC;
}

/** Undefined where the bytes are too few. The version is the caller's to check. */
export function decodeConnectionData(bytes: Uint8Array): ConnectionData | undefined {
  if (bytes.length < CONNECTION_DATA_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, CONNECTION_DATA_BYTES);
  const flags = view.getUint8(1);
  const scaled = view.getUint8(7);
  return {
    version: view.getUint8(0),
    isBigEndian: (flags & NET) !== 0,
    credits: view.getUint16(2),
    sgl: decodeTarget(view, 8, false),
    buffer: decodeTarget(view, 24, false),
    mappings: (flags & IOMAP) === 0 ? 0 : scaled <= MAX_MAPPINGS ? scaled : (scaled - MAX_MAPPINGS) * 256,
    announcesEnds: isOfNodeRoce(bytes),
  };
}

export function encodeTarget(
  view: DataView,
  at: number,
  { addr, key, length }: Target,
  little: boolean,
): void {
  view.setBigUint64(at, addr, little);
  view.setUint32(at + 8, key, little);
  view.setUint32(at + 12, length, little);
}

export const decodeTarget = (view: DataView, at: number, little: boolean): Target => ({
  addr: view.getBigUint64(at, little),
  key: view.getUint32(at + 8, little),
  length: view.getUint32(at + 12, little),
});

/** Memory that a side offers: the offset that its first byte has for the peer, and where it is. */
export interface MappingEntry extends Target {
  offset: bigint;
}

export function encodeMapping(entry: MappingEntry, little: boolean): Uint8Array {
  const bytes = new Uint8Array(MAPPING_BYTES);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, entry.offset, little);
  encodeTarget(view, 8, entry, little);
  return bytes;
}

export const decodeMapping = (view: DataView, at: number, little: boolean): MappingEntry => ({
  offset: view.getBigUint64(at, little),
  ...decodeTarget(view, at + 8, little),
});

/** The upper three bits of an immediate; all others are data, too. */
export const Op = { DATA: 0, SGL: 4, IOMAP: 6, CTRL: 7 } as const;
/** The data of `Op.CTRL`. */
export const Ctrl = { DISCONNECT: 0, KEEPALIVE: 1, SHUTDOWN: 2 } as const;

const DATA_BITS = 29;
const DATA_MASK = 2 ** DATA_BITS - 1;

export const immediate = (op: number, data: number): number => op * 2 ** DATA_BITS + (data & DATA_MASK);
export const opOf = (imm: number): number => imm >>> DATA_BITS;
export const dataOf = (imm: number): number => imm & DATA_MASK;
