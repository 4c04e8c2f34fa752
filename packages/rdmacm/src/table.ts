/**
 * A table that a server publishes in registered memory, and that its clients read by RDMA READ.
 *
 * Numbers are big-endian. A row is 12 bytes and an entry: the CRC-32 of all that follows, the layout's version (1 byte), what the row is
 * (1 byte), the key's length (2 bytes), the value's length (4 bytes), the key, the value. A key is in the first row from `crc32(key) % rows`
 * on that has it; after an empty row there is none. A row that is read while it is written has a wrong CRC-32. A sequence number would not
 * do: the packets of one READ may be fetched in another order than that of their bytes, after a loss.
 */
import { inspect } from 'node:util';
import { crc32 } from 'node:zlib';
import { RoceError } from '@node-roce/verbs-api';
import { invalid } from './errors.ts';
import { checkKey, checkTableOptions, checkValue } from './options.ts';

export const LAYOUT_VERSION = 1;
export const ROW_HEADER = 12;
const CRC_BYTES = 4;
/** Kinds of rows. A deleted one does not end the search for a key. */
export const RowKind = { EMPTY: 0, ENTRY: 1, DELETED: 2 } as const;
const NOTHING = new Uint8Array(0);

/** Options of a `Table`. */
export interface TableOptions {
  /** Entries at most. The table has two to four rows for each. */
  entries: number;
  /** Bytes of the longest key and its value together. Default 116: a row of 128 bytes. */
  entrySize?: number;
}

/** A row as it was read. */
export interface Row {
  kind: number;
  key: Uint8Array;
  value: Uint8Array;
}

export const bytesOf = (text: Uint8Array | string): Uint8Array =>
  typeof text === 'string' ? new TextEncoder().encode(text) : text;

/** The row where the search for a key begins. */
export const firstRow = (key: Uint8Array, rows: number): number => crc32(key) % rows;

export const sameBytes = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;

/** A row's parts, or undefined where it was read while it was written. */
export function parseRow(row: Uint8Array): Row | undefined {
  const view = new DataView(row.buffer, row.byteOffset, row.length);
  const keyLength = view.getUint16(6);
  const end = ROW_HEADER + keyLength + view.getUint32(8);
  if (end > row.length || crc32(row.subarray(CRC_BYTES, end)) !== view.getUint32(0)) return undefined;
  if (row[4] !== LAYOUT_VERSION) return undefined;
  const key = row.subarray(ROW_HEADER, ROW_HEADER + keyLength);
  return { kind: row[5], key, value: row.subarray(ROW_HEADER + keyLength, end) };
}

/**
 * Keys and values that clients read with `client.get`, without this program: give it to `answerRequests`. One table may be published to
 * any number of connections. Its memory has a fixed size.
 */
export class Table {
  /** Entries at most. */
  readonly entries: number;
  /** Bytes of the longest key and its value together. */
  readonly entrySize: number;
  /** @internal */
  readonly rows: number;
  /** @internal */
  readonly rowSize: number;
  /** @internal */
  readonly memory: Uint8Array;
  #size = 0;

  constructor(options: TableOptions) {
    checkTableOptions(options);
    const { entries, entrySize = 116 } = options;
    this.entries = entries;
    this.entrySize = entrySize;
    this.rowSize = Math.ceil((ROW_HEADER + entrySize) / 8) * 8;
    this.rows = 2 ** Math.ceil(Math.log2(2 * entries));
    this.memory = memoryOfRows(this.rows * this.rowSize);
    for (let row = 0; row < this.rows; row++) this.#write(row, RowKind.EMPTY);
  }

  /** Entries that it has. */
  get size(): number {
    return this.#size;
  }

  /**
   * Sets the value of a key: bytes, or text as UTF-8. Clients read the value before or this one, and nothing between.
   *
   * Throws ERR_ROCE_LIMIT where a new key finds `entries` others, and EMSGSIZE where key and value are longer than `entrySize`.
   */
  set(key: Uint8Array | string, value: Uint8Array | string): this {
    checkKey(key);
    checkValue(value);
    const [name, bytes] = [bytesOf(key), bytesOf(value)];
    if (name.length + bytes.length > this.entrySize) throw this.#tooLong(name.length + bytes.length);
    const { at, free } = this.#find(name);
    if (at === undefined && this.#size === this.entries) throw this.#full();
    this.#write(at ?? free, RowKind.ENTRY, name, bytes);
    if (at === undefined) this.#size++;
    return this;
  }

  /** A copy of the value of a key, or undefined where it has none. */
  get(key: Uint8Array | string): Uint8Array | undefined {
    checkKey(key);
    const { at } = this.#find(bytesOf(key));
    return at === undefined ? undefined : Uint8Array.from(this.#row(at).value);
  }

  /** Removes a key; returns whether it was there. */
  delete(key: Uint8Array | string): boolean {
    checkKey(key);
    const { at } = this.#find(bytesOf(key));
    if (at === undefined) return false;
    this.#write(at, RowKind.DELETED);
    this.#size--;
    // Before an empty row, deleted ones need not lead on. Rows never move: a client that searches meanwhile would miss them.
    if (this.#row(this.#after(at)).kind !== RowKind.EMPTY) return true;
    for (let row = at; this.#row(row).kind === RowKind.DELETED; row = (row + this.rows - 1) % this.rows)
      this.#write(row, RowKind.EMPTY);
    return true;
  }

  /** The row that has a key, and the one that a new key takes. Half of the rows at least have no entry, so there is one. */
  #find(key: Uint8Array): { at: number | undefined; free: number } {
    let free: number | undefined;
    let row = firstRow(key, this.rows);
    for (let tried = 0; tried < this.rows; tried++, row = this.#after(row)) {
      const { kind, key: other } = this.#row(row);
      if (kind === RowKind.ENTRY && sameBytes(other, key)) return { at: row, free: row };
      if (kind !== RowKind.ENTRY) free ??= row;
      if (kind === RowKind.EMPTY) break;
    }
    return { at: undefined, free: free! };
  }

  readonly #after = (row: number): number => (row + 1) % this.rows;

  /** Peers may not write to the memory, so each row is as it was written. */
  #row(row: number): Row {
    return parseRow(this.memory.subarray(row * this.rowSize, (row + 1) * this.rowSize))!;
  }

  #write(row: number, kind: number, key: Uint8Array = NOTHING, value: Uint8Array = NOTHING): void {
    const bytes = this.memory.subarray(row * this.rowSize, (row + 1) * this.rowSize);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    view.setUint8(4, LAYOUT_VERSION);
    view.setUint8(5, kind);
    view.setUint16(6, key.length);
    view.setUint32(8, value.length);
    bytes.set(key, ROW_HEADER);
    bytes.set(value, ROW_HEADER + key.length);
    const end = ROW_HEADER + key.length + value.length;
    // Peers can read it all: nothing is left of what was there before.
    bytes.fill(0, end);
    view.setUint32(0, crc32(bytes.subarray(CRC_BYTES, end)));
  }

  #tooLong(length: number): RoceError {
    return new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `value: it and its key have ${length} bytes`, {
      errno: 'EMSGSIZE',
      attribute: 'value',
      expected: `${this.entrySize} bytes at most (entrySize)`,
    });
  }

  #full(): RoceError {
    return new RoceError('ERR_ROCE_LIMIT', `the table has ${this.entries} entries`, {
      errno: 'ENOMEM',
      attribute: 'entries',
      expected: 'a larger table, or fewer keys',
    });
  }

  /** @internal */
  [inspect.custom](): string {
    return `Table { size: ${this.size}, entries: ${this.entries}, entrySize: ${this.entrySize} }`;
  }
}

/** Shared, so that an engine in a worker reads it in place. */
function memoryOfRows(bytes: number): Uint8Array {
  try {
    return new Uint8Array(new SharedArrayBuffer(bytes));
  } catch {
    throw invalid('entries', `no room for ${bytes} bytes`, 'fewer entries, or a smaller entrySize');
  }
}
