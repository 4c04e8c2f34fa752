/** `roce query`: SQL over the tables of captures, by DuckDB. */
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DuckDBConnection, DuckDBResult, Json } from '@duckdb/node-api';
import { DASH, UsageError } from '../options.ts';
import { exitCode, type ReadingChoices, readingOptions, sourcesOf } from '../reading.ts';
import { type Column, fitTable } from '../table.ts';
import type { Terminal } from '../terminal.ts';

const TABLES = ['packets', 'messages', 'connections', 'findings'] as const;
/** Errors of DuckDB, and those about the statement itself. */
const DUCKDB_ERROR = /^(?:Failed to [\w ]+: )?(?=[A-Z][\w ]* Error: )/;
const WRONG_STATEMENT = /^(Parser|Binder|Catalog) Error: /;
const NUMBER = /^(\w*INT\w*|DOUBLE|FLOAT|DECIMAL.*)$/;

interface Options extends ReadingChoices {
  json: boolean;
}

export async function run(
  [sql, ...files]: readonly string[],
  options: Options,
  terminal: Terminal,
): Promise<number> {
  const duckdb = await loadDuckDb();
  if (duckdb === undefined) {
    terminal.message(
      `${terminal.errColors.red('roce:')} roce query needs DuckDB, an optional package: npm install @duckdb/node-api, in the folder of node-roce`,
    );
    return 1;
  }
  const folder = files.find(isExported);
  if (folder !== undefined && files.length > 1)
    throw new UsageError(
      `${folder} is a folder of tables: query it without other files, or export the captures into it`,
    );
  const instance = await duckdb.DuckDBInstance.create();
  const connection = await instance.connect();
  const interrupt = () => connection.interrupt();
  terminal.signal.addEventListener('abort', interrupt);
  try {
    if (folder !== undefined) return await ask(sql, folder, connection, options, terminal);
    return await askCaptures(sql, files, connection, options, terminal);
  } finally {
    terminal.signal.removeEventListener('abort', interrupt);
    connection.closeSync();
    instance.closeSync();
  }
}

async function loadDuckDb() {
  try {
    return await import('@duckdb/node-api');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

const isExported = (file: string): boolean =>
  file !== DASH &&
  statSync(file, { throwIfNoEntry: false })?.isDirectory() === true &&
  TABLES.every((name) => existsSync(join(file, name)));

/** Exports the captures into a folder that lasts as long as the question. */
async function askCaptures(
  sql: string,
  files: readonly string[],
  connection: DuckDBConnection,
  options: Options,
  terminal: Terminal,
): Promise<number> {
  const { captureName } = await import('./export.ts');
  const { exportParquet } = await import('../parquet/export.ts');
  const own = mkdtempSync(join(tmpdir(), 'roce-query-'));
  try {
    const folder = join(own, 'tables');
    const reading = await readingOptions(terminal, options);
    const place = { folder, host: 'unknown', capture: captureName(files) };
    const { summary, files: written } = await exportParquet(sourcesOf(files, terminal), {
      ...reading,
      ...place,
    });
    const code = written === 0 ? 0 : await ask(sql, folder, connection, options, terminal);
    return Math.max(code, exitCode(summary, files, terminal));
  } finally {
    rmSync(own, { recursive: true, force: true });
  }
}

async function ask(
  sql: string,
  folder: string,
  connection: DuckDBConnection,
  { json }: Options,
  terminal: Terminal,
): Promise<number> {
  for (const name of TABLES) {
    const place = join(folder, name, '**', '*.parquet').replaceAll("'", "''");
    await connection.run(
      `CREATE VIEW ${name} AS SELECT * FROM read_parquet('${place}', hive_partitioning = true, hive_types_autocast = false)`,
    );
  }
  try {
    const result = await connection.stream(sql);
    if (json) await printJson(result, terminal);
    else await printTable(result, terminal);
    return 0;
  } catch (error) {
    terminal.signal.throwIfAborted();
    const { message } = error as Error;
    if (!DUCKDB_ERROR.test(message)) throw error;
    const said = message.replace(DUCKDB_ERROR, '').trim();
    if (WRONG_STATEMENT.test(said)) throw new UsageError(said);
    terminal.message(`${terminal.errColors.red('roce:')} ${said}`);
    return 1;
  }
}

async function printJson(result: DuckDBResult, terminal: Terminal): Promise<void> {
  for await (const rows of result.yieldRowObjectJson()) {
    terminal.signal.throwIfAborted();
    for (const row of rows) terminal.json(row);
  }
}

async function printTable(result: DuckDBResult, terminal: Terminal): Promise<void> {
  const columns = result.columnNames().map(
    (heading, i): Column<Json[]> => ({
      heading,
      value: (row) => cellText(row[i]),
      right: NUMBER.test(String(result.columnType(i))),
    }),
  );
  const rows: Json[][] = [];
  for await (const some of result.yieldRowsJson()) {
    terminal.signal.throwIfAborted();
    rows.push(...some);
  }
  const { heading, rows: lines } = fitTable(columns, rows, terminal.paragraphWidth);
  if (heading !== undefined) terminal.line(terminal.colors.bold(heading));
  for (const line of lines) terminal.line(line);
}

/** `-` is null; line ends in a text would break the table. */
const cellText = (value: Json): string => {
  if (value === null) return '-';
  const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
  return text.replaceAll(/\s*\n\s*/g, ' ');
};
