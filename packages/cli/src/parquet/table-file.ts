/** One Parquet file, a row group at a time. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { ByteWriter, type ColumnSource, ParquetWriter } from 'hyparquet-writer';
import { type Cells, cellsOf } from './cells.ts';
import { type Column, schemaOf } from './columns.ts';

/** Rows of a row group: enough for a reader to skip by, and a few MB of cells. */
const GROUP_ROWS = 32_768;
/** No limit of bytes: the cells of a row group and column are one page. */
const ONE_PAGE = 0;

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

/** Takes rows until it is finished. Only then a reader can open the file: the places of the row groups stand at its end. */
export class TableFile<Row> {
  readonly #bytes: FileBytes;
  readonly #writer: ParquetWriter;
  readonly #columns: readonly Column<Row>[];
  readonly #cells: Cells[];
  #rows = 0;

  /** @throws the system's error if the file exists, or cannot be made */
  constructor(path: string, columns: readonly Column<Row>[]) {
    this.#bytes = new FileBytes(path);
    this.#columns = columns;
    this.#cells = columns.map((column) => cellsOf(column, GROUP_ROWS));
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
    const columnData = this.#columns.map(({ name, type, isSought }, i): ColumnSource => {
      // Numbers stand as they are, and the compression finds what repeats: a dictionary of them takes longer.
      const encoding = /^(INT|TIMESTAMP)[^[]*$/.test(type) ? { encoding: 'PLAIN' as const } : {};
      return { name, data: this.#cells[i].take(rows), statistics: isSought === true, ...encoding };
    });
    this.#writer.write({ columnData, rowGroupSize: GROUP_ROWS, pageSize: ONE_PAGE });
    this.#rows = 0;
  }
}
