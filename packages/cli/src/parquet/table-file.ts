/** One Parquet file, a row group at a time. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { ByteWriter, ParquetWriter } from 'hyparquet-writer';
import { BooleanCells, type Cells, cellsOf, NumberCells, TextCells, WideCells } from './cells.ts';
import { writeChunk, writeListChunk } from './chunk.ts';
import { type Column, schemaOf } from './columns.ts';

/** Rows of a row group: enough for a reader to skip by, and a few MB of cells. */
const GROUP_ROWS = 32_768;

/** Bytes that go to a file whenever a row group is whole, so that memory holds one of them. */
class FileBytes extends ByteWriter {
  readonly #file: number;

  constructor(path: string) {
    super(1 << 20);
    this.#file = openSync(path, 'wx');
  }

  flush(): void {
    const bytes = this.getBytes();
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#file, bytes, at);
    this.index = 0;
  }

  override finish(): void {
    this.flush();
    this.close();
  }

  close(): void {
    closeSync(this.#file);
  }
}

/** Lists of numbers. */
class Lists<Row> {
  readonly #value: (row: Row) => unknown;
  #rows: unknown[] = [];

  constructor(value: (row: Row) => unknown) {
    this.#value = value;
  }

  add(_at: number, row: Row): void {
    this.#rows.push(this.#value(row));
  }

  take(): unknown[] {
    const rows = this.#rows;
    this.#rows = [];
    return rows;
  }
}

/** Takes rows until it is finished. Only then a reader can open the file: the places of the row groups stand at its end. */
export class TableFile<Row> {
  readonly #bytes: FileBytes;
  readonly #writer: ParquetWriter;
  readonly #columns: readonly Column<Row>[];
  readonly #cells: (Cells<Row> | Lists<Row>)[];
  /** The same by their classes: a loop that calls one class alone is several times as fast. */
  readonly #numbers: NumberCells<Row>[];
  readonly #wides: WideCells<Row>[];
  readonly #booleans: BooleanCells<Row>[];
  readonly #texts: TextCells<Row>[];
  readonly #others: (Cells<Row> | Lists<Row>)[];
  #rows = 0;

  /** @throws the system's error if the file exists, or cannot be made */
  constructor(path: string, columns: readonly Column<Row>[]) {
    this.#bytes = new FileBytes(path);
    this.#columns = columns;
    this.#cells = columns.map((column) =>
      column.type === 'INT64[]' ? new Lists(column.value) : cellsOf(column, GROUP_ROWS),
    );
    this.#numbers = this.#cells.filter((cells) => cells instanceof NumberCells);
    this.#wides = this.#cells.filter((cells) => cells instanceof WideCells);
    this.#booleans = this.#cells.filter((cells) => cells instanceof BooleanCells);
    this.#texts = this.#cells.filter((cells) => cells instanceof TextCells);
    const classed = new Set<unknown>([...this.#numbers, ...this.#wides, ...this.#booleans, ...this.#texts]);
    this.#others = this.#cells.filter((cells) => !classed.has(cells));
    this.#writer = new ParquetWriter({
      writer: this.#bytes,
      schema: schemaOf(columns),
      createdBy: 'node-roce',
    });
  }

  add(row: Row): void {
    const at = this.#rows;
    for (const cells of this.#numbers) cells.add(at, row);
    for (const cells of this.#wides) cells.add(at, row);
    for (const cells of this.#booleans) cells.add(at, row);
    for (const cells of this.#texts) cells.add(at, row);
    for (const cells of this.#others) cells.add(at, row);
    if (++this.#rows === GROUP_ROWS) this.#writeGroup();
  }

  /** Writes the rest, and the end that makes it a Parquet file. */
  finish(): void {
    if (this.#rows > 0) this.#writeGroup();
    this.#writer.finish();
  }

  /** Closes it unfinished. */
  abandon(): void {
    this.#bytes.close();
  }

  #writeGroup(): void {
    const rows = this.#rows;
    const bytes = this.#bytes;
    const begin = bytes.offset;
    const columns = this.#columns.map((column, i) => {
      const cells = this.#cells[i];
      return cells instanceof Lists
        ? writeListChunk(bytes, column, cells.take())
        : writeChunk(bytes, column, cells.take(rows));
    });
    const sizes = columns.map(({ meta_data }) => meta_data!.total_uncompressed_size);
    this.#writer.row_groups.push({
      columns,
      num_rows: BigInt(rows),
      total_byte_size: sizes.reduce((sum, size) => sum + size, 0n),
      total_compressed_size: BigInt(bytes.offset - begin),
    });
    this.#writer.num_rows += BigInt(rows);
    bytes.flush();
    this.#rows = 0;
  }
}
