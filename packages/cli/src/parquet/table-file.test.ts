/** Every encoding of a column, over several row groups, as DuckDB reads it. */
import { join } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../../testing/folder.ts';
import type { Column } from './columns.ts';
import { TableFile } from './table-file.ts';

const folder = ownFolder();
removeFolders();

/** More than two row groups. */
const ROWS = 70_000;
const ORIGIN = 1_767_225_600_000_000_123n;

const COLUMNS: readonly (readonly [Column<number>, sql: string])[] = [
  [{ name: 'i', type: 'INT32', value: (i) => i }, 'i'],
  [{ name: 'same', type: 'INT32', value: () => -7 }, '-7'],
  [{ name: 'few', type: 'INT32', value: (i) => (i % 256) - 5 }, 'i % 256 - 5'],
  [
    { name: 'many', type: 'INT32?', value: (i) => (i % 3 === 0 ? null : i % 257) },
    'if(i % 3 = 0, NULL, i % 257)',
  ],
  [
    { name: 'far', type: 'INT32', value: (i) => (i % 2 === 0 ? i - 2 ** 31 : 2 ** 31 - 1 - i) },
    'if(i % 2 = 0, i - 2147483648, 2147483647 - i)',
  ],
  [{ name: 'none', type: 'INT32?', value: () => null }, 'NULL'],
  [{ name: 'wide_same', type: 'INT64', value: () => 2 ** 40 }, '1099511627776'],
  [
    { name: 'wide_near', type: 'INT64?', value: (i) => (i === 5 ? null : i * 1000 - 17) },
    'if(i = 5, NULL, i * 1000 - 17)',
  ],
  [{ name: 'wide_far', type: 'INT64', value: (i) => i * 3e9 }, 'i * 3000000000'],
  [{ name: 'wide_back', type: 'INT64', value: (i) => -i * 50_000 }, 'i * -50000'],
  [{ name: 'exact', type: 'INT64', value: (i) => i, origin: () => ORIGIN }, `i + ${ORIGIN}`],
  [
    { name: 'exact_far', type: 'INT64', value: (i) => i * 1e11, origin: () => ORIGIN },
    `i * 100000000000 + ${ORIGIN}`,
  ],
  [
    {
      name: 'late',
      type: 'INT32?',
      value: (i) => ({ i }),
      settle: (cell) => (cell as { i: number }).i % 9 || null,
    },
    'nullif(i % 9, 0)',
  ],
  [{ name: 'is_odd', type: 'BOOLEAN', value: (i) => i % 2 === 1 }, 'i % 2 = 1'],
  [
    { name: 'text', type: 'STRING?', value: (i) => (i % 4 === 0 ? null : `text ${i % 300}`) },
    `if(i % 4 = 0, NULL, 'text ' || i % 300)`,
  ],
  [{ name: 'list', type: 'INT64[]', value: (i) => [BigInt(i), 7n] }, '[i, 7]'],
];

test('DuckDB reads what was put in, whatever way its values are encoded', async () => {
  const path = join(folder, 'all.parquet');
  const file = new TableFile<number>(
    path,
    COLUMNS.map(([column]) => ({
      ...column,
      isSought: column.type.startsWith('INT') && column.type !== 'INT64[]',
    })),
  );
  for (let i = 0; i < ROWS; i++) file.add(i);
  file.finish();
  const connection = await (await DuckDBInstance.create()).connect();
  const query = async (sql: string) => (await connection.runAndReadAll(sql)).getRowObjectsJson();
  try {
    // Numbers in SQL are as wide as the columns of 64 bits.
    const rows = `(SELECT *, file_row_number::BIGINT AS i_ FROM read_parquet('${path}', file_row_number = true))`;
    const wrong = COLUMNS.map(
      ([{ name }, sql]) =>
        `count(*) FILTER (${name} IS DISTINCT FROM (${sql.replaceAll(/\bi\b/g, 'i_')})) AS ${name}`,
    );
    const none = Object.fromEntries(COLUMNS.map(([{ name }]) => [name, '0']));
    expect(await query(`SELECT ${wrong.join(', ')} FROM ${rows}`)).toEqual([none]);
    expect(await query(`SELECT count(*)::INTEGER AS n FROM '${path}'`)).toEqual([{ n: ROWS }]);
    // The least and greatest of a row group decide what a reader passes by.
    const last = `${BigInt(ROWS - 1) + ORIGIN}`;
    expect(await query(`SELECT i FROM '${path}' WHERE exact = ${last}`)).toEqual([{ i: ROWS - 1 }]);
    expect(
      await query(
        `SELECT max(stats_max_value::BIGINT)::VARCHAR AS most, min(stats_min_value::BIGINT)::VARCHAR AS least FROM parquet_metadata('${path}') WHERE path_in_schema = 'exact'`,
      ),
    ).toEqual([{ most: last, least: `${ORIGIN}` }]);
  } finally {
    connection.closeSync();
  }
});
