/**
 * The cells of a column until their row group is written. They stand in typed arrays: no object is made for a row.
 */
import type { Column } from './columns.ts';

/** The cells of a column in a row group. */
export interface Taken {
  count: number;
  /** 1: null; undefined: none is. */
  isNull: Uint8Array | undefined;
  /** The values without nulls; of texts, places in the dictionary. Of 64-bit columns, differences from their origin. */
  values: Uint8Array | Int32Array | Float64Array | Uint16Array;
  /** Of texts. */
  dictionary: readonly string[] | undefined;
}

/** What cells need of a column. */
export type CellColumn<Row> = Pick<Column<Row>, 'type' | 'value' | 'settle'>;

/** Room for the cells of a row group; used again for the next one. */
export interface Cells<Row> {
  add(at: number, row: Row): void;
  /** The first `count` of them, valid until the next `add`; those of the next row group follow. */
  take(count: number): Taken;
}

abstract class TypedCells<Row, Values extends Taken['values']> implements Cells<Row> {
  protected readonly value: (row: Row) => unknown;
  protected readonly values: Values;
  readonly #isNull: Uint8Array;
  #nulls = 0;

  constructor(value: (row: Row) => unknown, values: Values, rows: number) {
    this.value = value;
    this.values = values;
    this.#isNull = new Uint8Array(rows);
  }

  /** Each class has its own: one for all would call another method for each cell. */
  abstract add(at: number, row: Row): void;

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

  protected setNull(at: number): void {
    this.#isNull[at] = 1;
    this.#nulls++;
  }

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

/** Numbers of 32 bits. */
export class NumberCells<Row> extends TypedCells<Row, Int32Array> {
  override add(at: number, row: Row): void {
    const value = this.value(row) as number | null;
    if (value === null) this.setNull(at);
    else this.values[at] = value;
  }
}

/** Numbers of 64 bits, as far as a double is exact: a bigint for each would be garbage. */
export class WideCells<Row> extends TypedCells<Row, Float64Array> {
  override add(at: number, row: Row): void {
    const value = this.value(row) as number | null;
    if (value === null) this.setNull(at);
    else this.values[at] = value;
  }
}

/** None is null. */
export class BooleanCells<Row> extends TypedCells<Row, Uint8Array> {
  override add(at: number, row: Row): void {
    this.values[at] = Number(this.value(row));
  }
}

/** Most texts come again and again. */
export class TextCells<Row> extends TypedCells<Row, Uint16Array> {
  #places = new Map<string, number>();
  #last: string | undefined;
  #lastPlace = 0;

  override add(at: number, row: Row): void {
    const text = this.value(row) as string | null;
    if (text === null) {
      this.setNull(at);
      return;
    }
    if (text !== this.#last) {
      this.#last = text;
      this.#lastPlace = this.#placeOf(text);
    }
    this.values[at] = this.#lastPlace;
  }

  #placeOf(text: string): number {
    const place = this.#places.get(text) ?? this.#places.size;
    if (place === this.#places.size) this.#places.set(text, place);
    return place;
  }

  protected override names(): readonly string[] {
    const names = [...this.#places.keys()];
    this.#places = new Map();
    this.#last = undefined;
    return names;
  }
}

/** Cells whose value is known only when they are taken. */
class LateCells<Row> implements Cells<Row> {
  readonly #value: (row: Row) => unknown;
  readonly #values: unknown[];
  readonly #settled: Cells<unknown>;

  constructor(value: (row: Row) => unknown, rows: number, settled: Cells<unknown>) {
    this.#value = value;
    this.#values = new Array(rows).fill(null);
    this.#settled = settled;
  }

  add(at: number, row: Row): void {
    this.#values[at] = this.#value(row);
  }

  take(count: number): Taken {
    for (let i = 0; i < count; i++) this.#settled.add(i, this.#values[i]);
    return this.#settled.take(count);
  }
}

/** @param rows at most 65,536 */
export function cellsOf<Row>({ type, value, settle }: CellColumn<Row>, rows: number): Cells<Row> {
  if (settle !== undefined) return new LateCells(value, rows, cellsOf({ type, value: settle }, rows));
  if (type === 'INT32' || type === 'INT32?') return new NumberCells(value, new Int32Array(rows), rows);
  if (type === 'BOOLEAN') return new BooleanCells(value, new Uint8Array(rows), rows);
  if (type === 'STRING' || type === 'STRING?') return new TextCells(value, new Uint16Array(rows), rows);
  return new WideCells(value, new Float64Array(rows), rows);
}
