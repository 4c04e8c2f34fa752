/** docs/ibverbs.md's table of rdma-core's pages: every installed page is in it, and the package has the functions that it promises. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import * as v from './index.ts';

const PAGES = '/usr/share/man/man3';
/** The page of the posting calls as a whole. */
const OVERVIEW = 'ibv_wr_post';

const text = readFileSync(new URL('../../../docs/ibverbs.md', import.meta.url), 'utf8');
const [, table] = /## Each page of rdma-core([\s\S]*?)\n## /.exec(text) as RegExpExecArray;

/** The texts of the second column, by page. */
const texts = new Map<string, string>();
for (const [, names, here] of table.matchAll(/^\| (`ibv_.*?) \| (.*) \|$/gm)) {
  for (const [, name] of names.matchAll(/`(?:ibv)?_([a-z_0-9]+)`/g)) {
    expect(texts.has(`ibv_${name}`), `ibv_${name} is listed once`).toBe(false);
    texts.set(`ibv_${name}`, here);
  }
}

const installed = existsSync(PAGES)
  ? readdirSync(PAGES).flatMap(
      (file) => /^((?:ibv_|mbps_to_|mult_to_)\w+)\.3(?:\.gz)?$/.exec(file)?.[1] ?? [],
    )
  : [];

test('the table has the pages of rdma-core 56', () => {
  expect(texts.size).toBe(126);
});

test.skipIf(!installed.includes('ibv_create_qp'))('every page that is installed is in the table', () => {
  const listed = [...texts.keys(), 'mbps_to_ibv_rate', 'mult_to_ibv_rate'];
  expect(installed.filter((page) => !listed.includes(page))).toEqual([]);
});

test('the package exports exactly the functions that the table promises', () => {
  const exported = Object.entries(v).flatMap(([name, value]) => (typeof value === 'function' ? name : []));
  const pages = [...texts].filter(([page]) => page !== OVERVIEW);
  for (const [page, here] of pages) {
    expect(here, page).toMatch(/^(yes|no: )/);
    expect(exported.includes(page), `${page} is exported`).toBe(here.startsWith('yes'));
  }
  expect(exported).toEqual(expect.arrayContaining(['mbps_to_ibv_rate', 'mult_to_ibv_rate']));
});

test('the reason for each missing page is hardware or the kernel', () => {
  const reasons = [...texts.values()].filter((here) => here.startsWith('no: '));
  for (const reason of reasons) expect(reason).toMatch(/hardware|kernel/);
});
