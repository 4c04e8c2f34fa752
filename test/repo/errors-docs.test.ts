/** docs/errors.md has every code and status that a program can see, and no other. */
import { readdirSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { WcStatus } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const page = readFileSync(join(root, 'docs/errors.md'), 'utf8');
const sorted = (names: Iterable<string>) => [...new Set(names)].sort();

/** Source files of the packages and the addon, without tests. */
function* sources(folder: string): Generator<string> {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory() && !['node_modules', 'dist', 'build'].includes(entry.name)) yield* sources(path);
    else if (/\.(ts|js|cc|h)$/.test(entry.name) && !/\.test\.ts$|\.d\.ts$/.test(entry.name)) yield path;
  }
}

test('docs/errors.md lists the codes of the sources, and no others', () => {
  const files = [...sources(join(root, 'packages')), ...sources(join(root, 'native'))];
  expect(files.length).toBeGreaterThan(200);
  const used = files.flatMap((path) => readFileSync(path, 'utf8').match(/ERR_ROCE_[A-Z_]*[A-Z]/g) ?? []);
  expect(sorted(page.match(/ERR_ROCE_[A-Z_]*[A-Z]/g) ?? [])).toEqual(sorted(used));
});

test('each errno of the table is one that os.constants.errno knows', () => {
  const names = [...page.matchAll(/^\| `ERR_ROCE_[^|]*\| ([A-Z, ]+) \|/gm)].flatMap(([, cell]) =>
    cell.split(', '),
  );
  expect(names.length).toBeGreaterThan(20);
  for (const name of names) expect(constants.errno, name).toHaveProperty(name);
});

test('docs/errors.md lists the statuses that occur, and no others', () => {
  const rows = [...page.split('## Statuses')[1].matchAll(/^\| `([A-Z_]+)` \|/gm)].map(([, name]) => name!);
  // Of transports and operations that do not exist here.
  const absent = [
    'SUCCESS',
    'LOC_EEC_OP_ERR',
    'BAD_RESP_ERR',
    'LOC_ACCESS_ERR',
    'LOC_RDD_VIOL_ERR',
    'REM_INV_RD_REQ_ERR',
    'REM_ABORT_ERR',
    'INV_EECN_ERR',
    'INV_EEC_STATE_ERR',
    'FATAL_ERR',
    'RESP_TIMEOUT_ERR',
    'GENERAL_ERR',
    'TM_RNDV_INCOMPLETE',
  ];
  expect(sorted(rows)).toEqual(sorted(Object.keys(WcStatus).filter((name) => !absent.includes(name))));
});
