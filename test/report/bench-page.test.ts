/** The page of the bench: its data by numbers, and in a browser. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { pageData } from '../../bench/page/data.mjs';
import { launch, noBrowser, open } from './browser.ts';

const bench = join(import.meta.dirname, '../../bench/run.mjs');
const EVIL = '</script><img src=x onerror="document.title=1">';
const machine = { cpu: 'CPU', processors: 2, kernel: '6.18', arch: 'x64', node: 'v20' };
const of = (median: number) => ({ median, min: median - 1, max: median + 1, rounds: [] });

function report(date: string, commit: string, gbps: number, names = ['WRITE', EVIL]) {
  const results = [
    { contender: 'node-roce', figure: of(gbps), samples: [] },
    { contender: 'C limit', figure: of(20), ratio: of(gbps / 20), samples: [] },
  ];
  const rows = names.map((name) => ({ name, unit: 'Gb/s', lessIsBetter: false, results }));
  return { date, commit, machine, load: 0.5, pinning: 'pinned', rounds: 5, quick: false, rows };
}

const newer = report('2026-11-25T12:00:00Z', 'bbbbbbb', 12, ['WRITE']);
const older = report('2026-11-24T12:00:00Z', 'aaaaaaa', 10);

describe('data of the page', () => {
  test('has runs by date, and the points of all runs by row', () => {
    const { runs, rows } = pageData([newer, older]);
    expect(runs.map(({ label }: { label: string }) => label)).toEqual([
      '2026-11-24 aaaaaaa',
      '2026-11-25 bbbbbbb',
    ]);
    expect(runs[0].conditions).toContain('load 0.5 at the start');
    expect(rows.map(({ name }: { name: string }) => name)).toEqual(['WRITE', EVIL]);
    expect(rows[0].points).toMatchObject([
      { run: 0, contender: 'node-roce', median: 10, min: 9, max: 11, ratio: undefined },
      { run: 0, contender: 'C limit', median: 20, ratio: { median: 0.5 } },
      { run: 1, contender: 'node-roce', median: 12 },
      { run: 1, contender: 'C limit', ratio: { median: 0.6 } },
    ]);
  });

  test('labels two runs of a commit on one day by time', () => {
    const { runs } = pageData([newer, { ...newer, date: '2026-11-25T13:30:00Z' }]);
    expect(runs[1].label).toBe('2026-11-25 13:30 bbbbbbb');
  });

  test('rejects what --compare wrote', () => {
    expect(() => pageData([{ ...newer, rows: [{ name: 'WRITE', ratios: [1] }] }])).toThrow(/--compare/);
  });
});

describe.skipIf(noBrowser !== undefined)('the page in Chromium', { tags: ['slow'] }, () => {
  let browser: Browser;
  let folder: string;
  let page: string;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'roce-bench-page-'));
    page = join(folder, 'page.html');
    const files = [newer, older].map((content, i) => {
      const file = join(folder, `${i}.json`);
      writeFileSync(file, JSON.stringify(content));
      return file;
    });
    await promisify(execFile)(process.execPath, [bench, '--page', page, ...files]);
    browser = await launch();
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true });
  });

  test.each([
    [1280, 'light'],
    [1280, 'dark'],
    [400, 'light'],
    [400, 'dark'],
  ] as const)('%i pixels wide, %s', async (width, colorScheme) => {
    const { page: shown, ...watched } = await open(browser, page, {
      viewport: { width, height: 900 },
      colorScheme,
    });
    expect(await shown.locator('h2').allTextContents()).toEqual(['WRITE', EVIL]);
    const first = shown.locator('section').first();
    // Bars; history of figures, and of ratios.
    expect(await first.locator('figure svg').count()).toBe(3);
    expect(await first.locator('svg g[aria-label="bar"] rect').count()).toBe(2);
    expect(await first.locator('tbody tr').last().textContent()).toBe(
      'C limit20.019.0 … 21.00.60 ×-0.40 … 1.60',
    );
    expect(await shown.locator('section').last().locator('figure svg').count()).toBe(1);
    expect(await shown.title()).toBe('node-roce: measurements');
    expect(await shown.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
    const background = await shown.evaluate(() => getComputedStyle(document.body).backgroundColor);
    expect(background).toBe(colorScheme === 'light' ? 'rgb(255, 255, 255)' : 'rgb(22, 24, 28)');
    expect(watched).toEqual({ complaints: [], requests: [] });
    await shown.context().close();
  });
});
