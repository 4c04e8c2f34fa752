// Draws docs/report.png, the picture of README.md and docs/capture-report.md: the verdict and the first plot of a report, as a browser shows them. The
// parts between them are left out.
//
//   node scripts/report-picture.mjs [FILE]    # after npm run build; CHROMIUM_PATH names a browser that is not in the PATH
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('..', import.meta.url));
const capture = 'test/fixtures/captures/loss5_both_rc_pingpong.pcap';
const WIDTH = 1000;
const MARGIN = 12;
/** What stays of the page: the selector of each group of siblings. */
const KEPT = ['main', '#verdict, #connection', '.plots', '.plots > figure:first-of-type'];

function browserPath() {
  const folders = (process.env.PATH ?? '').split(delimiter);
  const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];
  const places = names.flatMap((name) => folders.map((folder) => join(folder, name)));
  const found = [process.env.CHROMIUM_PATH, chromium.executablePath(), ...places].find(
    (path) => path !== undefined && path !== '' && existsSync(path),
  );
  if (found === undefined)
    throw new Error('no Chromium found: install it (Debian: chromium) or set CHROMIUM_PATH');
  return found;
}

/** Writes the picture of a report. */
export async function drawReport(file) {
  const folder = mkdtempSync(join(tmpdir(), 'roce-picture-'));
  // Root has no sandbox; the page is our own.
  const browser = await chromium.launch({ executablePath: browserPath(), args: ['--no-sandbox'] });
  try {
    const report = join(folder, 'report.html');
    const roce = join(root, 'packages/cli/bin/roce.js');
    execFileSync(process.execPath, [roce, 'report', join(root, capture), '-o', report], { stdio: 'ignore' });
    const page = await browser.newPage({
      viewport: { width: WIDTH, height: 800 },
      colorScheme: 'light',
      reducedMotion: 'reduce',
    });
    await page.goto(`file://${report}`);
    // The plots are drawn when they come into view.
    await page.locator('svg').last().waitFor();
    await page.evaluate(() => document.fonts.ready);
    const height = await page.evaluate((kept) => {
      for (const selector of kept)
        for (const { parentElement } of document.querySelectorAll(selector))
          for (const sibling of parentElement.children)
            if (!sibling.matches(selector)) sibling.style.display = 'none';
      return document.querySelector('.plots').getBoundingClientRect().bottom + scrollY;
    }, KEPT);
    await page.screenshot({
      path: file,
      fullPage: true,
      clip: { x: 0, y: 0, width: WIDTH, height: height + MARGIN },
    });
  } finally {
    await browser.close();
    rmSync(folder, { recursive: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  await drawReport(process.argv[2] ?? join(root, 'docs/report.png'));
