import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../testing/folder.ts';
import { runRoce } from '../testing/roce.ts';

const captures = join(import.meta.dirname, '../../../test/fixtures/captures');
const loss5 = join(captures, 'loss5_both_rc_pingpong.pcap');
const folder = ownFolder();
removeFolders();
const roce = (...args: string[]) => runRoce(args);

test('a capture and a part of it: packets that are missing there', async () => {
  const part = join(folder, 'part.pcapng');
  // The responder's packets: of the requester's, every one is missing.
  expect(await roce('export', loss5, '-o', part, '--qp', '0x74')).toMatchObject({ code: 0 });
  const { code, out } = await roce('compare', loss5, part, '-c', '2');
  expect(code).toBe(0);
  expect(out).toMatch(/^Clock B agrees with A \(\d+ packets; packets of one direction only/);
  expect(out).toMatch(/A → B +\d+ +\d+ +0 /);
  expect(out).toMatch(/\d+ packets of senders that only one capture shows/);
});

test('a capture and itself, as JSON', async () => {
  const copy = join(folder, 'copy.pcap');
  copyFileSync(loss5, copy);
  const { code, out } = await roce('compare', '--json', loss5, copy);
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({
    clock: { offset: 0, drift: 0, uncertainty: 0, samples: 364 },
    aToB: { lost: 0, damaged: 0, duplicated: 0, reordered: 0, unseen: 0 },
    bToA: { lost: 0, damaged: 0, duplicated: 0, reordered: 0, unseen: 0 },
    eventCount: 0,
  });
});

test('captures without a packet in common', async () => {
  const { code, err } = await roce('compare', loss5, join(captures, 'op_all.pcap'));
  expect(code).toBe(1);
  expect(err).toMatch(/loss5.*op_all\.pcap: no packet is in both captures/);
});

test('standard input is refused', async () => {
  expect(await roce('compare', '-', loss5)).toMatchObject({ code: 2 });
});

test('as a page: to a file with the table, to standard output in place of it', async () => {
  const copy = join(folder, 'same.pcap');
  copyFileSync(loss5, copy);
  const html = join(folder, 'page.html');
  const { code, out, err } = await roce('compare', loss5, copy, '--html', html);
  expect(code).toBe(0);
  expect(out).toMatch(/^Clock B agrees with A/);
  expect(err).toMatch(
    /page\.html: A → B: none of \d+ packets lost; B → A: none of \d+ packets lost, 0\.\d\d MB\n$/,
  );
  const page = readFileSync(html, 'utf8');
  expect(page).toContain('<title>loss5_both_rc_pingpong.pcap and same.pcap – RoCE comparison</title>');
  expect(await roce('compare', loss5, copy, '--html', '-')).toEqual({ code: 0, out: page, err: '' });
  expect(await roce('compare', loss5, copy, '--html', '-', '--json')).toMatchObject({ code: 2 });
  expect(await roce('compare', loss5, copy, '--html', copy)).toMatchObject({ code: 2 });
});
