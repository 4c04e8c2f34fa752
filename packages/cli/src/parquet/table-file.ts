/** One Parquet file, a row group at a time. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { ByteWriter, ParquetWriter } from 'hyparquet-writer';
import { type Cells, cellsOf } from './cells.ts';
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
class Lists {
  #rows: unknown[] = [];

  set(_at: number, value: unknown): void {
    this.#rows.push(value);
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
  readonly #cells: (Cells | Lists)[];
  #rows = 0;

  /** @throws the system's error if the file exists, or cannot be made */
  constructor(path: string, columns: readonly Column<Row>[]) {
    this.#bytes = new FileBytes(path);
    this.#columns = columns;
    this.#cells = columns.map((column) =>
      column.type === 'INT64[]' ? new Lists() : cellsOf(column, GROUP_ROWS),
    );
    this.#writer = new ParquetWriter({
      writer: this.#bytes,
      schema: schemaOf(columns),
      createdBy: 'node-roce',
    });
  }

  add(row: Row): void {
    const columns = this.#columns;
    const cells = this.#cells;
    const at = this.#rows;
    for (let i = 0; i < columns.length; i++) cells[i].set(at, columns[i].value(row));
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
