/** The cells of a column until their row group is written. */
import type { ColumnSource } from 'hyparquet-writer';
import type { ColumnType } from './columns.ts';

/** Room for the cells of a row group; used again for the next one. */
export interface Cells {
  set(at: number, value: unknown): void;
  /** The first `count` of them, for the writer; those of the next row group follow. */
  take(count: number): ColumnSource['data'];
}

/** Numbers stand in a typed array, where they cost no collection; a mark stands for each null. */
class NumberCells implements Cells {
  readonly #values: Int32Array | BigInt64Array;
  readonly #isNull: Uint8Array;
  #nulls = 0;

  constructor(values: Int32Array | BigInt64Array) {
    this.#values = values;
    this.#isNull = new Uint8Array(values.length);
  }

  set(at: number, value: unknown): void {
    if (value === null) {
      this.#isNull[at] = 1;
      this.#nulls++;
    } else this.#values[at] = value as never;
  }

  take(count: number): ColumnSource['data'] {
    const values = this.#values.slice(0, count);
    if (this.#nulls === 0) return values;
    const cells = new Array(count).fill(null);
    if (this.#nulls < count) for (let i = 0; i < count; i++) if (this.#isNull[i] === 0) cells[i] = values[i];
    this.#isNull.fill(0);
    this.#nulls = 0;
    return cells;
  }
}

/** Texts, booleans, lists, and cells whose value is known only when they are taken. */
class PlainCells implements Cells {
  readonly #values: unknown[];
  readonly #settle: ((cell: unknown) => unknown) | undefined;

  constructor(rows: number, settle: ((cell: unknown) => unknown) | undefined) {
    this.#values = new Array(rows).fill(null);
    this.#settle = settle;
  }

  set(at: number, value: unknown): void {
    this.#values[at] = value;
  }

  take(count: number): ColumnSource['data'] {
    const cells = this.#values.slice(0, count);
    return this.#settle === undefined ? cells : cells.map(this.#settle);
  }
}

export function cellsOf(
  { type, settle }: { type: ColumnType; settle?: ((cell: unknown) => unknown) | undefined },
  rows: number,
): Cells {
  if (settle !== undefined) return new PlainCells(rows, settle);
  if (type === 'INT32' || type === 'INT32?') return new NumberCells(new Int32Array(rows));
  if (type === 'INT64' || type === 'INT64?' || type === 'TIMESTAMP?')
    return new NumberCells(new BigInt64Array(rows));
  return new PlainCells(rows, settle);
}
