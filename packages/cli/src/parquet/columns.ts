/** Columns of a Parquet table: their types, and the schema that readers see. */
import type { SchemaElement } from 'hyparquet-writer';

/** `?`: null where the value is not known. Times are UTC in microseconds, the finest that Spark and Trino read. */
export type ColumnType =
  | 'STRING'
  | 'STRING?'
  | 'BOOLEAN'
  | 'INT32'
  | 'INT32?'
  | 'INT64'
  | 'INT64?'
  | 'TIMESTAMP?'
  | 'INT64[]';

export interface Column<Row> {
  name: string;
  type: ColumnType;
  /** The cell of a row: a text, a boolean or a number; of a list, bigints; null where the type allows it. */
  value: (row: Row) => unknown;
  /** Turns the cell into its value when the row group is written, for what is not known before. */
  settle?: (cell: unknown) => unknown;
  /** Of a column of 64 bits: what is added to each cell, so that the cell itself is a number that is exact. */
  origin?: () => bigint;
  /** Readers look for its values: its least and greatest stand in each row group, so that they pass by groups. */
  isSought?: boolean;
}

export interface Table<Row> {
  name: string;
  columns: readonly Column<Row>[];
  /** Nanoseconds since the first frame: decides the hour. */
  time: (row: Row) => number;
}

/** The elements of the schema, in depth-first order as the format wants them. */
export function schemaOf(columns: readonly { name: string; type: ColumnType }[]): SchemaElement[] {
  return [
    { name: 'root', num_children: columns.length },
    ...columns.flatMap(({ name, type }): SchemaElement[] => {
      if (type === 'INT64[]')
        return [
          { name, repetition_type: 'REQUIRED', converted_type: 'LIST', num_children: 1 },
          { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
          { name: 'element', type: 'INT64', repetition_type: 'REQUIRED' },
        ];
      const repetition_type = type.endsWith('?') ? 'OPTIONAL' : 'REQUIRED';
      const plain = type.replace('?', '');
      if (plain === 'STRING') return [{ name, type: 'BYTE_ARRAY', converted_type: 'UTF8', repetition_type }];
      if (plain === 'TIMESTAMP')
        return [{ name, type: 'INT64', converted_type: 'TIMESTAMP_MICROS', repetition_type }];
      return [{ name, type: plain as 'BOOLEAN' | 'INT32' | 'INT64', repetition_type }];
    }),
  ];
}
