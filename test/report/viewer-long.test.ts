/** The page that needs no installation, given 1 GiB: all packets are read, and the browser stays below 1 GiB of memory. */
// @module-tag slow
import { execFile } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { viewerPage } from '@node-roce/capture/node';
import { beforeAll, describe, expect, test } from 'vitest';
import { formatCount } from '../../packages/capture/src/units.ts';
import { captures, folder, inChromium, opens, page, poll, write } from './suite.ts';

const generate = join(import.meta.dirname, '../../bench/capture/generate.mjs');

/** The most memory that the process of the page and its worker had, MiB. */
async function mostMemory(): Promise<number> {
  const session = await page.context().browser()!.newBrowserCDPSession();
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  const most = processInfo
    .filter(({ type }) => type === 'renderer')
    .map(({ id }) => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${id}/status`, 'utf8'))?.[1]));
  return Math.max(...most) / 1024;
}

inChromium(() => {
  describe('the page of captures', () => {
    let file: string;
    let big: string;
    let packets: number;
    beforeAll(async () => {
      file = write('viewer.html', viewerPage());
      big = join(folder, 'big.pcap');
      const { stdout } = await promisify(execFile)(process.execPath, [
        generate,
        big,
        '--bytes',
        String(2 ** 30),
      ]);
      ({ packets } = JSON.parse(stdout));
      return () => rmSync(big);
    });
    opens(() => file);

    test('1 GiB in less than 1 GiB', async () => {
      await page.locator('input[type=file]').setInputFiles(big);
      await expect.poll(() => page.locator('.figures').count(), { timeout: 280_000, interval: 500 }).toBe(1);
      expect(await page.locator('.figures').textContent()).toContain(formatCount(packets));
      const megabytes = await mostMemory();
      console.log(`result: ${megabytes.toFixed(0)} MiB`);
      expect(megabytes).toBeLessThan(1024);
    });

    test('a reading can be stopped, and another file read', async () => {
      await page.locator('input[type=file]').setInputFiles(big);
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.locator('input[type=file]').setInputFiles(join(captures, 'err_rnr_exhausted.pcap'));
      await poll(() => page.locator('h1').textContent()).toBe('err_rnr_exhausted.pcap');
    });
  });
});
