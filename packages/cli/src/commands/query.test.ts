import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../../testing/folder.ts';
import { runRoce } from '../../testing/roce.ts';

const root = join(import.meta.dirname, '../../../..');
const captures = join(root, 'test/fixtures/captures');
const loss5 = join(captures, 'loss5_both_rc_pingpong.pcap');
const folder = ownFolder();
removeFolders();
const query = (...args: string[]) => runRoce(['query', ...args]);

const left = () => readdirSync(tmpdir()).filter((name) => name.startsWith('roce-query-'));

describe('the examples of docs/capture-export.md', () => {
  const page = readFileSync(join(root, 'docs/capture-export.md'), 'utf8');
  const examples = [...page.matchAll(/^\$ roce query "([^"]*)" (--json )?(\S+)\n((?:(?!\$|```).*\n)+)/gm)];

  test('there are some', () => {
    expect(examples.length).toBeGreaterThanOrEqual(3);
  });

  test.each(examples.map(([, sql, json, name, shown]) => ({ sql, json, name, shown })))(
    '$sql',
    async ({ sql, json, name, shown }) => {
      const args = json === undefined ? [] : ['--json'];
      expect(await query(sql, ...args, join(captures, name))).toEqual({ code: 0, out: shown, err: '' });
      expect(left()).toEqual([]);
    },
  );
});

test('a folder of exported tables, without exporting again', async () => {
  const tables = join(folder, "it's tables");
  await runRoce(['export', loss5, '--parquet', tables, '--host', 'a']);
  await runRoce(['export', join(captures, 'op_all.pcap'), '--parquet', tables, '--host', 'b']);
  const { code, out } = await query(
    'SELECT host, count(*) AS n FROM packets GROUP BY host ORDER BY host',
    tables,
  );
  expect([code, out]).toEqual([0, 'host    n\na     364\nb      42\n']);
  expect(await query('SELECT 1', tables, loss5)).toMatchObject({
    code: 2,
    err: expect.stringContaining('query it without other files'),
  });
});

test('cells: null, lists, 64 bits, times, line ends; no rows', async () => {
  const sql = `SELECT NULL AS a, [1, 2] AS b, 9007199254740993 AS c, e'x\\ny' AS d, true AS e`;
  const lines = (await query(sql, loss5)).out.trimEnd().split('\n');
  expect(lines.map((line) => line.split(/ {2,}/))).toEqual([
    ['a', 'b', 'c', 'd', 'e'],
    ['-', '[1,2]', '9007199254740993', 'x y', 'true'],
  ]);
  expect(JSON.parse((await query(sql, '--json', loss5)).out)).toEqual({
    a: null,
    b: [1, 2],
    c: '9007199254740993',
    d: 'x\ny',
    e: true,
  });
  expect(await query('SELECT frame FROM packets WHERE false', loss5)).toEqual({
    code: 0,
    out: 'frame\n',
    err: '',
  });
});

test.each([
  ['SELECT frame FORM packets', 'Parser Error'],
  ['SELECT nothing FROM packets', 'Binder Error'],
  ['SELECT * FROM frames', 'Catalog Error'],
])('a wrong statement is a usage error: %s', async (sql, text) => {
  expect(await query(sql, loss5)).toMatchObject({ code: 2, out: '', err: expect.stringContaining(text) });
  expect(left()).toEqual([]);
});

test('a statement that fails: the message, without a stack', async () => {
  const { code, err } = await query("SELECT CAST('x' AS INTEGER)", loss5);
  expect([code, err]).toEqual([1, expect.stringMatching(/^roce: Conversion Error: /)]);
  expect(err).not.toContain('    at ');
});

test('a file that is not there, no capture, or cut: as the other commands', async () => {
  const missing = await query('SELECT 1', join(folder, 'missing.pcap'));
  expect([missing.code, missing.err]).toEqual([1, expect.stringContaining('missing.pcap')]);
  const text = join(folder, 'text.pcap');
  writeFileSync(text, 'no capture');
  expect(await query('SELECT 1', text)).toMatchObject({ code: 1, out: '' });
  const cut = join(folder, 'cut.pcap');
  writeFileSync(cut, readFileSync(loss5).subarray(0, 30_001));
  const { code, out, err } = await query('SELECT count(*) > 10 AS some FROM packets', cut);
  expect([code, out, err]).toEqual([1, 'some\ntrue\n', expect.stringContaining('cut')]);
  expect(left()).toEqual([]);
});

test('without DuckDB: how to install it', () => {
  const hook = `export async function resolve(name, context, next) {
    if (name === '@duckdb/node-api') throw Object.assign(new Error('gone'), { code: 'ERR_MODULE_NOT_FOUND' });
    return next(name, context);
  }`;
  const dataUrl = (code: string) => `data:text/javascript,${encodeURIComponent(code)}`;
  const register = `import { register } from 'node:module'; register(${JSON.stringify(dataUrl(hook))});`;
  const roce = join(root, 'packages/cli/bin/roce.js');
  const args = ['--import', dataUrl(register), roce, 'query', 'SELECT 1', loss5];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  expect({ status, stdout, stderr }).toEqual({
    status: 1,
    stdout: '',
    stderr:
      'roce: roce query needs DuckDB, an optional package: npm install @duckdb/node-api, in the folder of node-roce\n',
  });
});
