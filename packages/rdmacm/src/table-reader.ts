/** How a client finds the value of a key in the table of its server, by READs alone. */
import { setTimeout as sleep } from 'node:timers/promises';
import { RoceError } from '@node-roce/verbs-api';
import { firstRow, LAYOUT_VERSION, parseRow, ROW_HEADER, RowKind, sameBytes, type Table } from './table.ts';

const PLACE_BYTES = 24;
/** Rows that are read at a time, as far as they are short: most searches are one READ of one packet. */
const ROWS_AT_A_TIME = 8;
const BYTES_AT_A_TIME = 1024;
/** READs of a row that is being written, before the reader gives up. */
const TRIES = 12;
const LONGEST_PAUSE = 64;

/** Where the table is in the memory of a server, as the server has answered. */
export interface TablePlace {
  rows: number;
  rowSize: number;
  addr: bigint;
  rkey: number;
  /** Rows that a READ may have. */
  atATime: number;
}

/** The answer: version (1 byte), 3 bytes of 0, rows and bytes of a row (4 bytes each), R_Key (4 bytes), address (8 bytes). */
export function placeBytes(
  { rows, rowSize }: Pick<Table, 'rows' | 'rowSize'>,
  { addr, rkey }: { addr: bigint; rkey: number },
): Uint8Array {
  const bytes = new Uint8Array(PLACE_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, LAYOUT_VERSION);
  view.setUint32(4, rows);
  view.setUint32(8, rowSize);
  view.setUint32(12, rkey);
  view.setBigUint64(16, addr);
  return bytes;
}

/** The place that a server names, whose rows a READ of `longest` bytes can have. */
export function parsePlace(peer: string, bytes: Uint8Array, longest: number): TablePlace {
  if (bytes.length < PLACE_BYTES || bytes[0] !== LAYOUT_VERSION)
    throw unreadable(
      peer,
      `has a table of version ${bytes[0] ?? '(none)'}`,
      `version ${LAYOUT_VERSION}: the same node-roce on both sides`,
    );
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const [rows, rowSize, rkey] = [view.getUint32(4), view.getUint32(8), view.getUint32(12)];
  const addr = view.getBigUint64(16);
  if (rows === 0 || rowSize < ROW_HEADER || addr + BigInt(rows) * BigInt(rowSize) > 2n ** 64n)
    throw unreadable(peer, `names a table of ${rows} rows of ${rowSize} bytes`, 'a table that can be');
  if (rowSize > longest)
    throw unreadable(peer, `has a table with rows of ${rowSize} bytes`, `${longest} at most (maxMessage)`);
  const atATime = Math.min(ROWS_AT_A_TIME, Math.floor(Math.min(BYTES_AT_A_TIME, longest) / rowSize));
  return { rows, rowSize, rkey, addr, atATime: Math.max(1, atATime) };
}

const unreadable = (peer: string, what: string, expected: string): RoceError =>
  new RoceError('ERR_ROCE_REQUEST_FAILED', `${peer} ${what}`, { errno: 'EIO', expected });

/** READs bytes of the table into memory that is the caller's; undefined where the connection ended before. */
export type ReadTable = (offset: number, length: number) => Promise<Uint8Array | undefined>;

/**
 * The value of a key, undefined in it where the table has no such key; undefined where the connection has ended.
 *
 * A row that was read while it was written is read again, after pauses that grow.
 */
export async function lookUp(
  key: Uint8Array,
  { rows, rowSize, atATime }: Pick<TablePlace, 'rows' | 'rowSize' | 'atATime'>,
  peer: string,
  read: ReadTable,
  signal: AbortSignal,
): Promise<{ value: Uint8Array | undefined } | undefined> {
  let row = firstRow(key, rows);
  let tries = 0;
  for (let left = rows; left > 0; ) {
    const count = Math.min(atATime, left, rows - row);
    const bytes = await read(row * rowSize, count * rowSize);
    if (bytes === undefined) return undefined;
    let next = 0;
    for (; next < count; next++) {
      const found = parseRow(bytes.subarray(next * rowSize, (next + 1) * rowSize));
      if (found === undefined) break;
      if (found.kind === RowKind.EMPTY) return { value: undefined };
      if (found.kind === RowKind.ENTRY && sameBytes(found.key, key)) return { value: found.value.slice() };
    }
    left -= next;
    row = (row + next) % rows;
    if (next > 0) tries = 0;
    if (next === count) continue;
    if (++tries === TRIES) throw changingError(peer);
    if (tries > 1) await sleep(Math.min(2 ** tries, LONGEST_PAUSE), undefined, { signal }).catch(() => {});
    signal.throwIfAborted();
  }
  return { value: undefined };
}

const changingError = (peer: string): RoceError =>
  new RoceError(
    'ERR_ROCE_TABLE_CHANGING',
    `the entry in the table of ${peer} has changed during each of ${TRIES} READs`,
    { errno: 'EAGAIN', expected: 'an entry that is written less often, or a shorter one' },
  );
