/**
 * The cells of a column until their row group is written. They stand in typed arrays: no object is made for a row, and numbers are
 * written as they lie in memory, which is how Parquet wants them (little-endian; so is every machine that Node runs on, but s390x).
 */
import type { ColumnType } from './columns.ts';

/** The cells of a column in a row group. */
export interface Taken {
  count: number;
  /** 1: null; undefined: none is. */
  isNull: Uint8Array | undefined;
  /** The values without nulls, as a plain page holds them; or, if there is a dictionary, places in it. */
  values: Uint8Array | Int32Array | BigInt64Array | Uint16Array;
  /** Of texts. */
  dictionary: readonly string[] | undefined;
}

/** Room for the cells of a row group; used again for the next one. */
export interface Cells {
  set(at: number, value: unknown): void;
  /** The first `count` of them, valid until the next `set`; those of the next row group follow. */
  take(count: number): Taken;
}

const TWO_32 = 2 ** 32;

abstract class TypedCells<Values extends Taken['values']> implements Cells {
  protected readonly values: Values;
  readonly #isNull: Uint8Array;
  #nulls = 0;

  constructor(values: Values, rows: number) {
    this.values = values;
    this.#isNull = new Uint8Array(rows);
  }

  set(at: number, value: unknown): void {
    if (value === null) {
      this.#isNull[at] = 1;
      this.#nulls++;
    } else this.put(at, value);
  }

  take(count: number): Taken {
    const isNull = this.#nulls === 0 ? undefined : this.#isNull.slice(0, count);
    const values = this.values.subarray(0, count) as Values;
    if (isNull !== undefined) {
      this.#isNull.fill(0);
      this.#nulls = 0;
    }
    const kept = isNull === undefined ? values : (values.subarray(0, compact(values, isNull)) as Values);
    return { count, isNull, values: kept, dictionary: this.names() };
  }

  protected abstract put(at: number, value: unknown): void;

  protected names(): readonly string[] | undefined {
    return undefined;
  }
}

/** Moves the values that are not null to the front. @returns how many there are */
function compact(values: Taken['values'], isNull: Uint8Array): number {
  let kept = 0;
  for (let i = 0; i < isNull.length; i++) if (isNull[i] === 0) values[kept++] = values[i];
  return kept;
}

class NumberCells extends TypedCells<Int32Array> {
  protected override put(at: number, value: unknown): void {
    this.values[at] = value as number;
  }
}

/** Numbers are put as two words: a bigint for each would be garbage. */
class WideCells extends TypedCells<BigInt64Array> {
  readonly #words: Int32Array;

  constructor(rows: number) {
    const values = new BigInt64Array(rows);
    super(values, rows);
    this.#words = new Int32Array(values.buffer);
  }

  protected override put(at: number, value: unknown): void {
    if (typeof value === 'bigint') this.values[at] = value;
    else {
      this.#words[2 * at] = value as number;
      this.#words[2 * at + 1] = Math.floor((value as number) / TWO_32);
    }
  }
}

class BooleanCells extends TypedCells<Uint8Array> {
  protected override put(at: number, value: unknown): void {
    this.values[at] = Number(value);
  }
}

/** Most texts come again and again. */
class TextCells extends TypedCells<Uint16Array> {
  #places = new Map<string, number>();

  protected override put(at: number, value: unknown): void {
    const text = value as string;
    let place = this.#places.get(text);
    if (place === undefined) {
      place = this.#places.size;
      this.#places.set(text, place);
    }
    this.values[at] = place;
  }

  protected override names(): readonly string[] {
    const names = [...this.#places.keys()];
    this.#places = new Map();
    return names;
  }
}

/** Cells whose value is known only when they are taken. */
class LateCells implements Cells {
  readonly #values: unknown[];
  readonly #settle: (cell: unknown) => unknown;
  readonly #cells: Cells;

  constructor(rows: number, settle: (cell: unknown) => unknown, cells: Cells) {
    this.#values = new Array(rows).fill(null);
    this.#settle = settle;
    this.#cells = cells;
  }

  set(at: number, value: unknown): void {
    this.#values[at] = value;
  }

  take(count: number): Taken {
    for (let i = 0; i < count; i++) this.#cells.set(i, this.#settle(this.#values[i]));
    return this.#cells.take(count);
  }
}

/** @param rows at most 65,536 */
export function cellsOf(
  { type, settle }: { type: ColumnType; settle?: ((cell: unknown) => unknown) | undefined },
  rows: number,
): Cells {
  if (settle !== undefined) return new LateCells(rows, settle, cellsOf({ type }, rows));
  if (type === 'INT32' || type === 'INT32?') return new NumberCells(new Int32Array(rows), rows);
  if (type === 'BOOLEAN') return new BooleanCells(new Uint8Array(rows), rows);
  if (type === 'STRING' || type === 'STRING?') return new TextCells(new Uint16Array(rows), rows);
  return new WideCells(rows);
}
