/** The browser of the report's tests: Debian's Chromium, or whichever else is there, driven by Playwright. */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/** `CHROMIUM_PATH`, one that Playwright has installed, or one in the `PATH`; undefined where there is none. */
function findChromium(): string | undefined {
  const folders = (process.env.PATH ?? '').split(delimiter);
  const candidates = [
    process.env.CHROMIUM_PATH,
    chromium.executablePath(),
    ...NAMES.flatMap((name) => folders.map((folder) => join(folder, name))),
  ];
  return candidates.find((path) => path !== undefined && path !== '' && existsSync(path));
}

const executablePath = findChromium();

/** Why the tests can't run here; undefined where they can. */
export const noBrowser =
  executablePath === undefined
    ? 'no Chromium found: install it (Debian: chromium) or set CHROMIUM_PATH'
    : undefined;

// On a developer's machine the tests are skipped; where everything is meant to run that would be a hole.
if (noBrowser !== undefined && process.env.CI) throw new Error(noBrowser);
if (noBrowser !== undefined) console.warn(`The report's tests are skipped: ${noBrowser}`);

/** ms of an action: Playwright's own deadline is 30 s, which a busy machine may need. */
const DEADLINE = 240_000;

export const launch = (): Promise<Browser> =>
  // Root (CI, containers) has no sandbox; the pages are our own.
  chromium.launch({ executablePath: executablePath!, args: ['--no-sandbox'] });

/** A page, its errors, and its network requests. */
export interface Watched {
  page: Page;
  /** Console errors and warnings, exceptions, violations of the page's policy. */
  complaints: string[];
  /** Every request but that for the file itself. */
  requests: string[];
}

/** Opens a local file. */
export async function open(
  browser: Browser,
  file: string,
  options: BrowserContextOptions = {},
): Promise<Watched> {
  const context = await browser.newContext({
    viewport: { width: 1440, height: 900 },
    reducedMotion: 'reduce',
    ...options,
  });
  context.setDefaultTimeout(DEADLINE);
  const page = await context.newPage();
  const url = `file://${file}`;
  const complaints: string[] = [];
  const requests: string[] = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => {
    // Neither leaves the browser.
    const isOwn = /^(data|blob):/.test(request.url());
    if (request.url() !== url && !isOwn) requests.push(request.url());
  });
  await page.goto(url);
  return { page, complaints, requests };
}
