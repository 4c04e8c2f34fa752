/** The report of a long capture of many connections: a selection, marked as one, that opens quickly. */
// @module-tag slow
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Analysis, analyzeCapture, renderReport } from '@node-roce/capture/node';
import { beforeAll, describe, expect, test } from 'vitest';
import { simulate } from './simulate.ts';
import { folder, inChromium, inkOf, opens, page, poll, see, write } from './suite.ts';

inChromium(() => {
  describe('the report of a simulated capture of 100,000 packets', () => {
    const PACKETS = 100_000;
    let found: Analysis;
    let file: string;
    beforeAll(async () => {
      const capture = join(folder, 'simulated.pcapng');
      writeFileSync(capture, simulate(PACKETS));
      found = await analyzeCapture(capture);
      expect(found.summary.frames).toBe(PACKETS);
      // The network corrupts packets: of a few the header is not one of RoCE any more.
      expect(found.summary.rocePackets).toBeGreaterThan(PACKETS - 100);
      file = write('simulated.html', renderReport(found));
    });
    opens(() => file);

    test('has every connection, and plots and a ladder of the first one', async () => {
      expect(await page.locator('#connections tbody tr').count()).toBe(found.connections.length);
      expect(await inkOf(page.locator('.chart canvas').first())).toBeGreaterThan(500);
      expect(await page.getByRole('option').count()).toBeGreaterThan(10);
    });

    test('another connection shows its own plots, ladder and messages', async () => {
      const last = found.connections.at(-1)!;
      await page
        .locator('#connections')
        .getByPlaceholder('address, QP or type')
        .fill(`0x${last.a.qpn.toString(16)}`);
      await page
        .locator(`#connections tbody tr`, { hasText: `QP 0x${last.b.qpn.toString(16)}` })
        .last()
        .click();
      const shown = Number(
        /Connection (\d+)/.exec((await page.locator('#connection-title').textContent())!)![1],
      );
      const connection = found.connections.find(({ id }) => id === shown)!;
      expect(connection.b.qpn).toBe(last.b.qpn);
      const first = await page.getByRole('option').first().getAttribute('aria-label');
      expect(first).toMatch(new RegExp(`^Frame ${connection.ladder[0].frame}\\b`));
      expect(await inkOf(page.locator('.chart canvas').first())).toBeGreaterThan(500);
    });

    test('a packet that the report does not hold is named, with the way to it', async () => {
      const held = new Map(
        found.connections.map(({ id, ladder }) => [id, new Set(ladder.map(({ frame }) => frame))]),
      );
      const connection = found.connections.find(({ id, plot }) =>
        plot.some(({ frame }) => !held.get(id)!.has(frame)),
      )!;
      const buttons = page.locator('#connections tbody button');
      await buttons.filter({ hasText: new RegExp(`^${connection.id}$`) }).click();
      await page.getByPlaceholder('write, psn 123, #frame').fill('no such packet');
      const over = page.locator('.u-over').first();
      const box = (await over.boundingBox())!;
      // From the end of the connection, which no ladder has whole.
      for (let x = box.width - 2; x > 0; x -= 3) {
        for (let y = 2; y < box.height; y += 10) {
          await over.hover({ position: { x, y }, force: true });
          if ((await page.locator('.tip').count()) === 0) continue;
          const frame = Number(/frame (\d+)/.exec((await page.locator('.tip').textContent())!)![1]);
          if (held.get(connection.id)!.has(frame)) continue;
          await page.mouse.down();
          await page.mouse.up();
          await see(page.locator('.packet h4'), `Frame ${frame}`);
          expect(await page.locator('.packet').textContent()).toContain('roce dump -x');
          return;
        }
      }
      throw new Error('no such point found');
    });

    test('every finding’s connection can be shown', async () => {
      const buttons = page.locator('.finding').getByRole('button', { name: /^Show in connection/ });
      expect(await buttons.count()).toBeGreaterThan(0);
      await page.locator('.explained').evaluateAll((all) => {
        for (const folded of all) (folded as HTMLDetailsElement).open = true;
      });
      for (let i = 0; i < Math.min(5, await buttons.count()); i++) {
        const id = /\d+/.exec((await buttons.nth(i).textContent())!)![0];
        await buttons.nth(i).click();
        await poll(() => page.locator('#connection-title').textContent()).toMatch(
          new RegExp(`^Connection ${id}\\b`),
        );
      }
    });
  });
});
