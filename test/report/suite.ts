/** Shared by the tests of pages: a browser, a page of it for each test, and ways to look at it. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from 'vitest';
import { launch, noBrowser, open, type Watched } from './browser.ts';

export const captures = join(import.meta.dirname, '../fixtures/captures');

let browser: Browser;
/** The page of the test at hand. */
export let page: Page;
/** Where pages are written; there as long as the tests run. */
export let folder: string;

/** Tests that need a browser. */
export function inChromium(tests: () => void): void {
  describe.skipIf(noBrowser !== undefined)('in Chromium', () => {
    beforeAll(async () => {
      folder = mkdtempSync(join(tmpdir(), 'roce-report-'));
      browser = await launch();
    });
    afterAll(async () => {
      await browser?.close();
      rmSync(folder, { recursive: true });
    });
    tests();
  });
}

/** Writes a page, and gives its path. */
export function write(name: string, text: string): string {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
}

/**
 * Each test begins with this file, opened anew; nothing may be fetched or go wrong in it.
 * @param complaints how many; 0 unless given
 */
export function opens(file: () => string, { complaints = 0 } = {}): void {
  let watched: Watched;
  beforeEach(async () => {
    watched = await open(browser, file());
    page = watched.page;
  });
  afterEach(async () => {
    expect(watched.complaints).toHaveLength(complaints);
    expect(watched.requests).toEqual([]);
    await page.context().close();
  });
}

/** Waits for a condition; the time depends on the machine. */
export const poll = <T>(actual: () => T | Promise<T>) => expect.poll(actual);

/** Waits for that text. */
export const see = (place: Locator, text: string) => poll(() => place.textContent()).toBe(text);

/** Pixels of a canvas that are not transparent. */
export const inkOf = (canvas: Locator): Promise<number> =>
  canvas.evaluate((element: HTMLCanvasElement) => {
    const { data } = element.getContext('2d')!.getImageData(0, 0, element.width, element.height);
    let ink = 0;
    for (let i = 3; i < data.length; i += 4) if (data[i] > 0) ink++;
    return ink;
  });
