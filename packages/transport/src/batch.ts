/**
 * Packet batches: what the engine and a link hand each other.
 *
 * A batch is a set of fixed-size slots in typed arrays, made once and used for ever: nothing is
 * allocated per packet. The native addon reads and writes the same words (native/src/layout.h has the
 * same numbers; a test compares them), so a word is never moved without moving it there.
 */
import { TWO_32 } from '@node-roce/wire';
import { OpenBatches } from './open-batches.ts';
import { storePayload, type WordViews, wordViews } from './payload-stores.ts';
import { Fetched, reachOf } from './reach.ts';

/** Bytes of header room a slot has: BTH and the longest run of extension headers (12 + 8 + 28). */
export const TX_HEADER_STRIDE = 64;

/** Words of a transmit slot. All are unsigned 32-bit. */
export const Tx = {
  /** Offset of the BTH in `headers`. */
  HEADER_OFFSET: 0,
  /** Bytes of BTH and extension headers. */
  HEADER_LENGTH: 1,
  /** Index of the first fragment in `fragments`. */
  FRAGMENT_FIRST: 2,
  FRAGMENT_COUNT: 3,
  /** Sum of the fragments' lengths, bytes, without pad. */
  PAYLOAD_LENGTH: 4,
  /** Zero bytes to send after the payload, 0 … 3; the BTH has the same number. */
  PAD: 5,
  /** Index in the link's table of peers. */
  PEER: 6,
  /** DSCP and ECN, as in the IPv4 TOS or IPv6 traffic class. */
  TRAFFIC_CLASS: 7,
  /** UDP source port. */
  SOURCE_PORT: 8,
  /** Local QPN that the packet comes from, and above its 24 bits the engine's mark; the link gives it no meaning. */
  QPN: 9,
  /** Written by the link: 0 taken, else the errno for which the packet was not sent. */
  STATUS: 10,
  /** Send entry that a request is of; key of the memory that a READ response is read from. The link gives it no meaning. */
  ENTRY: 11,
  /**
   * Packets from this one on that differ in their PSNs alone, which rise by one: a run. Of these the first alone is written, with one fragment; each
   * has the next fragment, of the same length, and a STATUS. 0 or 1: no run. Only in batches for links that take them (`TxBatch.runs`).
   */
  RUN: 12,
} as const;
export const TX_SLOT_WORDS = 13;

/** Words of a fragment: `length` bytes at `offset` of a region's backing memory. */
export const Fragment = { REGION: 0, OFFSET_LOW: 1, OFFSET_HIGH: 2, LENGTH: 3 } as const;
export const FRAGMENT_WORDS = 4;

/** Words of a received slot. All are unsigned 32-bit. */
export const Rx = {
  /** Offset of the BTH in `slab`. */
  OFFSET: 0,
  /** Bytes from the BTH through the pad; the ICRC is not counted. */
  LENGTH: 1,
  /** Index in the link's table of peers, or `NO_PEER`. */
  PEER: 2,
  /** Index in the link's table of local addresses at which the packet arrived. */
  LOCAL: 3,
  TRAFFIC_CLASS: 4,
  HOP_LIMIT: 5,
  /** One of `Icrc`. */
  VERDICT: 6,
  /** IPv4 Identification as seen or solved, with `IP_MAY_FRAGMENT` (wire) where the header has no "don't fragment"; 0 on IPv6. */
  IP_ID: 7,
  SOURCE_PORT: 8,
  /** When the kernel took the packet in, ns of CLOCK_MONOTONIC, in two words; zeros where the link does not stamp. */
  STAMP_LOW: 9,
  STAMP_HIGH: 10,
  /**
   * Packets from this one on that are a run: of one datagram, in slots and in the slab one behind the other, of one length, with a right ICRC, their
   * BTHs equal but for PSNs that rise by one. 0 or 1: no run, or the link marks none; so it is for all but the first of a run.
   */
  RUN: 11,
} as const;
export const RX_SLOT_WORDS = 12;

/** `Rx.PEER` of a packet whose source address is nobody's that the link knows. */
export const NO_PEER = 0xffff_ffff;

/** The link's verdict on a received packet's ICRC. */
export const Icrc = {
  OK: 0,
  /** No IPv4 Identification makes it right, or, the header being visible, it is wrong. */
  BAD: 1,
  /** Right for an Identification outside the window of its flow (docs/icrc.md). */
  OUT_OF_WINDOW: 2,
} as const;

/** Zeros in memory that nobody can take away: a link looks up where it is once. */
const fixedBytes = (length: number): Uint8Array => new Uint8Array(new SharedArrayBuffer(length));
const fixedWords = (length: number): Uint32Array => new Uint32Array(new SharedArrayBuffer(4 * length));

/**
 * Backing memory by index: what a fragment's `REGION` names. The link reads payload from here, the
 * native addon fetches `views[i]` anew at each batch and keeps no pointer.
 */
export class RegionTable {
  /** One view over the whole of each backing buffer; `undefined` where an index is free. */
  readonly views: (Uint8Array | undefined)[] = [];
  /** 1 where another thread can write the memory (SharedArrayBuffer): it is copied on transmit. */
  shared = fixedBytes(16);
  /** By index, of the regions that were stored to. */
  readonly #words: (WordViews | undefined)[] = [];
  readonly #free: number[] = [];
  /** Batches whose packets may name regions. */
  readonly batches = new OpenBatches<TxBatch>();
  /** Of regions whose bytes are fetched. */
  readonly fetched = new Fetched(this.batches);

  /** Takes the next free index for a view over a whole backing buffer. */
  add(view: Uint8Array): number {
    const index = this.#free.pop() ?? this.views.length;
    this.views[index] = view;
    if (index >= this.shared.length) {
      const grown = fixedBytes(this.shared.length * 2);
      grown.set(this.shared);
      this.shared = grown;
    }
    this.shared[index] = view.buffer instanceof SharedArrayBuffer ? 1 : 0;
    return index;
  }

  /** The words of a region's buffer; the region is there. */
  words(index: number): WordViews {
    this.#words[index] ??= wordViews(this.views[index] as Uint8Array);
    return this.#words[index];
  }

  /** The memory is not read any more from now on. The index names nothing while a batch may still have it. */
  remove(index: number): void {
    const buffer = this.views[index]?.buffer;
    const reach = buffer && reachOf(buffer);
    if (reach) this.fetched.drop(reach);
    this.views[index] = this.#words[index] = undefined;
    this.batches.afterwards(() => this.#free.push(index));
  }

  /** The same, for memory that packets of open batches are still to be read from. */
  retire(index: number): void {
    this.batches.afterwards(() => this.remove(index));
  }
}

/** Fragments of a packet, with one to spare: a list has at most 32. */
const MOST_FRAGMENTS = 33;

/** Packets to send: filled by the engine's `transmit`, drained by a link's `send`. */
export class TxBatch {
  readonly capacity: number;
  readonly headers: Uint8Array;
  readonly slots: Uint32Array;
  readonly fragments: Uint32Array;
  readonly fragmentCapacity: number;
  readonly regions: RegionTable;
  count = 0;
  fragmentCount = 0;
  /** Whether the link takes run slots (`Tx.RUN`). */
  runs = false;
  /** The slot of the run that was added last; −1 if no packet is part of a run. */
  lastRun = -1;

  constructor(regions: RegionTable, capacity = 512, fragmentCapacity = capacity * 4) {
    this.regions = regions;
    this.capacity = capacity;
    this.fragmentCapacity = fragmentCapacity;
    this.headers = fixedBytes(capacity * TX_HEADER_STRIDE);
    this.slots = fixedWords(capacity * TX_SLOT_WORDS);
    this.fragments = fixedWords(fragmentCapacity * FRAGMENT_WORDS);
  }

  clear(): void {
    this.count = 0;
    this.fragmentCount = 0;
    this.lastRun = -1;
  }

  /** Packets with one fragment each that there is room for. */
  get room(): number {
    return Math.min(
      this.capacity - this.count,
      this.fragmentCapacity - MOST_FRAGMENTS - this.fragmentCount + 1,
    );
  }

  /** No room for one more packet, whatever its fragments. */
  get full(): boolean {
    return this.count >= this.capacity || this.fragmentCount + MOST_FRAGMENTS > this.fragmentCapacity;
  }
}

/** `Tx.STATUS` of a packet whose memory is gone. */
export const EFAULT = 14;

/** Whether a fragment of a slot names a region that is no longer there, or more of it than there is. */
export function isMemoryGone({ slots, fragments, regions }: TxBatch, index: number): boolean {
  const w = index * TX_SLOT_WORDS;
  for (let i = 0; i < slots[w + Tx.FRAGMENT_COUNT]; i++) {
    const f = (slots[w + Tx.FRAGMENT_FIRST] + i) * FRAGMENT_WORDS;
    const end =
      fragments[f + Fragment.OFFSET_HIGH] * TWO_32 +
      fragments[f + Fragment.OFFSET_LOW] +
      fragments[f + Fragment.LENGTH];
    const view = regions.views[fragments[f + Fragment.REGION]];
    if (!view || end > view.byteLength) return true;
  }
  return false;
}

/** The bytes of a slot from the BTH through the pad, and `room` zeros, in memory of their own. */
export function gatherSlot(batch: TxBatch, index: number, room = 0): Uint8Array<ArrayBuffer> {
  const { slots, headers, fragments, regions } = batch;
  const w = index * TX_SLOT_WORDS;
  const headerLength = slots[w + Tx.HEADER_LENGTH];
  const bytes = new Uint8Array(headerLength + slots[w + Tx.PAYLOAD_LENGTH] + slots[w + Tx.PAD] + room);
  const start = slots[w + Tx.HEADER_OFFSET];
  bytes.set(headers.subarray(start, start + headerLength));
  let at = headerLength;
  for (let i = 0; i < slots[w + Tx.FRAGMENT_COUNT]; i++) {
    const f = (slots[w + Tx.FRAGMENT_FIRST] + i) * FRAGMENT_WORDS;
    const offset = fragments[f + Fragment.OFFSET_HIGH] * TWO_32 + fragments[f + Fragment.OFFSET_LOW];
    const view = regions.views[fragments[f + Fragment.REGION]];
    if (view) bytes.set(view.subarray(offset, offset + fragments[f + Fragment.LENGTH]), at);
    at += fragments[f + Fragment.LENGTH];
  }
  return bytes;
}

/** Packets that arrived: filled by a link's `receive`, drained by the engine's `receive`. */
export class RxBatch {
  readonly capacity: number;
  /** The bytes of the packets; good until the next `receive`. */
  readonly slab: Uint8Array;
  readonly slots: Uint32Array;
  /** 16 bytes a slot: the source address as a GID (`::ffff:a.b.c.d` for IPv4). */
  readonly sources: Uint8Array;
  /** The same as words in the machine's byte order, for comparing. */
  readonly sourceWords: Uint32Array;
  count = 0;

  /**
   * @param capacity packets at most
   * @param slab room for their bytes, or the memory itself where a link receives into memory of its own; a native link
   *   wants 64 KiB for each datagram it may take
   */
  constructor(capacity = 2048, slab: number | Uint8Array = 2 * 1024 * 1024) {
    this.capacity = capacity;
    this.slab = typeof slab === 'number' ? fixedBytes(slab) : slab;
    this.slots = fixedWords(capacity * RX_SLOT_WORDS);
    this.sources = fixedBytes(capacity * 16);
    this.sourceWords = new Uint32Array(this.sources.buffer);
  }
}

/** Words of a copy: `length` bytes from the receive slab into a region. */
export const Copy = { SOURCE: 0, REGION: 1, OFFSET_LOW: 2, OFFSET_HIGH: 3, LENGTH: 4 } as const;
export const COPY_WORDS = 5;

/**
 * Copies payload from a slab into regions, in order: `count` entries of `COPY_WORDS` in `list`. A thread that finds the last byte of a
 * copy new finds all bytes of that copy and of those before it new. The engine has checked every range; the native version checks them again.
 */
export type CopyBatch = (slab: Uint8Array, regions: RegionTable, list: Uint32Array, count: number) => void;

/** `CopyBatch` in plain JavaScript, for links without the addon and for the simulator. */
export const copyBatch: CopyBatch = (slab, regions, list, count) => {
  for (let i = 0, w = 0; i < count; i++, w += COPY_WORDS) {
    const region = list[w + Copy.REGION];
    const view = regions.views[region];
    if (!view) continue;
    const offset = list[w + Copy.OFFSET_HIGH] * TWO_32 + list[w + Copy.OFFSET_LOW];
    storePayload(view, regions.words(region), offset, slab, list[w + Copy.SOURCE], list[w + Copy.LENGTH]);
  }
};
