/**
 * The report as a reader meets it, in a real browser: what is there, what a click and a key do, and that nothing
 * leaves the file.
 */
// @module-tag slow
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { AxeBuilder } from '@axe-core/playwright';
import { type Analysis, analyzeCapture, renderReport } from '@node-roce/capture/node';
import { beforeAll, describe, expect, test } from 'vitest';
import { captures, inChromium, inkOf, opens, page, poll, see, write } from './suite.ts';

inChromium(() => {
  describe('the report of loss5_both_rc_pingpong', () => {
    let found: Analysis;
    let file: string;
    beforeAll(async () => {
      found = await analyzeCapture(join(captures, 'loss5_both_rc_pingpong.pcap'));
      file = write('loss5.html', renderReport(found));
    });
    opens(() => file);

    test('is smaller than 3 MB', () => expect(statSync(file).size).toBeLessThan(3_000_000));

    test('has the verdict first, then the summary and the findings, each with its hint', async () => {
      const sections = page.locator('main > section');
      expect(await sections.nth(0).getAttribute('id')).toBe('verdict');
      expect(await page.locator('.verdict').textContent()).toContain(found.verdict.text);
      expect(await sections.nth(1).getAttribute('id')).toBe('summary');
      expect(await page.locator('.finding .sentence').allTextContents()).toEqual(
        found.findings.map(({ text }) => text),
      );
      expect(await page.locator('.finding .hint').allTextContents()).toEqual(
        found.findings.map(({ hint }) => hint),
      );
    });

    test('has plots with something in them', async () => {
      const plots = page.locator('.chart canvas');
      expect(await plots.count()).toBe(4);
      for (let i = 0; i < 4; i++) expect(await inkOf(plots.nth(i))).toBeGreaterThan(500);
    });

    test('has the packets of the capture in its ladder', async () => {
      const rows = page.getByRole('option');
      expect(await rows.count()).toBe(250);
      expect(await rows.first().getAttribute('aria-label')).toMatch(/^Frame 1 0\.000000 /);
      await page.locator('#ladder').getByRole('button', { name: 'Later' }).click();
      expect(await rows.count()).toBe(114);
      expect(await rows.last().getAttribute('aria-label')).toMatch(/^Frame 364 /);
    });

    test('a frame behind a finding leads to its packet', async () => {
      const frame = found.findings.find(({ frames }) => frames.length > 0)!.frames[0];
      // The verdict explains all findings of this capture.
      await page.locator('.explained summary').click();
      await page.locator('.frames button').first().click();
      await see(page.locator('.packet h4'), `Frame ${frame}`);
      expect(await chosenRow()).toBe(`packet-${frame}-0`);
      expect(await page.locator('.fields').textContent()).toContain('bth.PSN');
    });

    test('a click on a packet shows its fields and bytes', async () => {
      await page.locator('#packet-7-0').click();
      await see(page.locator('.packet h4'), 'Frame 7');
      const packet = found.connections[0].ladder.find((each) => each.frame === 7)!;
      expect(await fieldOf('bth.PSN')).toBe(`${packet.psn} (0x${packet.psn.toString(16).padStart(6, '0')})`);
      const hex = (await page.locator('.hex pre > div > span:not(.faint)').allTextContents())
        .join('')
        .replaceAll(' ', '');
      expect(hex).toBe(packet.bytes);
      await page.locator('.fields tr', { hasText: 'bth.PSN' }).hover();
      expect(await page.locator('.hex .lit').allTextContents()).toHaveLength(3);
    });

    test('the keys go through the packets, and leave them', async () => {
      const box = page.getByRole('listbox');
      await box.focus();
      await page.keyboard.press('ArrowDown');
      await see(page.locator('.packet h4'), 'Frame 1');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowUp');
      await see(page.locator('.packet h4'), 'Frame 2');
      expect(await box.getAttribute('aria-activedescendant')).toBe('packet-2-0');
      await page.keyboard.press('End');
      await see(page.locator('.packet h4'), 'Frame 250');
      await page.keyboard.press('ArrowDown');
      await see(page.locator('.packet h4'), 'Frame 251');
      expect(await page.locator('#packet-251-0').count()).toBe(1);
      await page.keyboard.press('Escape');
      expect(await page.locator('.packet').count()).toBe(0);
    });

    test('the ladder filters by kind, by text and by frame', async () => {
      const rows = page.getByRole('option');
      const search = page.getByPlaceholder('write, psn 123, #frame');
      await search.fill('#40');
      await poll(() => rows.count()).toBe(1);
      await search.fill('nak');
      const naks = found.connections[0].ladder.filter(({ aeth }) => aeth?.text.includes('NAK')).length;
      await poll(async () => (await rows.count()) >= naks && naks > 0).toBe(true);
      await search.fill('no such packet');
      await see(page.locator('#ladder .empty'), 'No packet in this report matches.');
      await search.fill('');
      for (const kind of ['Request', 'ACK', 'Retransmission']) {
        await page.locator('#ladder .key', { hasText: kind }).getByRole('checkbox').uncheck();
      }
      await poll(() => rows.count()).toBe(naks);
    });

    test('the ladder zooms', async () => {
      const height = async () => (await page.locator('#packet-1-0').boundingBox())!.height;
      const before = await height();
      await page.getByRole('slider').press('ArrowRight');
      await poll(height).toBeGreaterThan(before);
      await page.getByRole('slider').press('Home');
      await poll(height).toBeLessThan(before);
    });

    test('time zooms by drag, by button, by key and by figures, for plots and ladder alike', async () => {
      const [from, to] = [page.getByLabel('from, in seconds'), page.getByLabel('to, in seconds')];
      const whole = [await from.inputValue(), await to.inputValue()];
      const first = page.getByRole('option').first();
      await page.locator('.u-over').first().scrollIntoViewIfNeeded();
      const over = (await page.locator('.u-over').first().boundingBox())!;
      await page.mouse.move(over.x + over.width * 0.5, over.y + 50);
      await page.mouse.down();
      await page.mouse.move(over.x + over.width * 0.75, over.y + 60, { steps: 5 });
      await page.mouse.up();
      const [start, end] = whole.map(Number) as [number, number];
      await poll(async () => Number(await from.inputValue())).toBeCloseTo(start + (end - start) / 2, 1);
      await poll(async () => Number(await to.inputValue())).toBeCloseTo(start + (end - start) * 0.75, 1);
      expect(await first.getAttribute('id')).not.toBe('packet-1-0');

      await page.getByRole('button', { name: 'Zoom in' }).click();
      await poll(async () => Number(await to.inputValue()) - Number(await from.inputValue())).toBeCloseTo(
        (end - start) / 8,
        1,
      );
      await page.locator('.plots').focus();
      await page.keyboard.press('0');
      await poll(() => from.inputValue()).toBe(whole[0]);
      await page.keyboard.press('+');
      await page.keyboard.press('ArrowLeft');
      await poll(async () => Number(await from.inputValue())).toBeCloseTo(start + (end - start) / 8, 1);

      await page.getByRole('button', { name: 'Show all of the time' }).click();
      await to.fill(String(start + 0.1));
      await to.press('Enter');
      const within = found.connections[0].ladder.filter(({ time }) => time <= (start + 0.1) * 1e9).length;
      await poll(() => page.getByRole('option').count()).toBe(within);
    });

    test('a click on a point of the PSN plot shows its packet', async () => {
      const over = page.locator('.u-over').first();
      const box = (await over.boundingBox())!;
      // The points are nowhere near a grid: look for one.
      for (let x = 4; x < box.width; x += 12) {
        for (let y = 4; y < box.height; y += 12) {
          await over.hover({ position: { x, y }, force: true });
          if ((await page.locator('.tip').count()) === 0) continue;
          const frame = /frame (\d+)/.exec((await page.locator('.tip').textContent()) ?? '')?.[1];
          await page.mouse.down();
          await page.mouse.up();
          await see(page.locator('.packet h4'), `Frame ${frame}`);
          return;
        }
      }
      throw new Error('no point found');
    });

    test('the table of messages sorts, filters and leads to packets', async () => {
      const table = page.locator('#messages table');
      await table.getByRole('button', { name: 'Latency' }).click();
      await table.getByRole('button', { name: 'Latency' }).click();
      expect(await table.locator('th[aria-sort=descending]').textContent()).toContain('Latency');
      const slowest = found.connections[0].messages.toSorted(
        (a, b) => (b.latency ?? 0) - (a.latency ?? 0),
      )[0];
      const row = table.locator('tbody tr').first();
      await see(row.locator('button'), String(slowest.id));
      await row.locator('button').press('Enter');
      await see(page.locator('.packet h4'), `Frame ${slowest.firstFrame}`);
      await page.locator('#messages .segments label', { hasText: 'Retransmitted' }).click();
      const again = found.connections[0].messages.filter(({ retransmitted }) => retransmitted > 0).length;
      await poll(() => table.locator('tbody tr').count()).toBe(again);
    });

    test('light, dark, and back to the system’s', async () => {
      const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const light = await ground();
      await page.locator('.theme label', { hasText: 'Dark' }).click();
      await poll(ground).not.toBe(light);
      const dark = await ground();
      await page.reload();
      expect(await ground()).toBe(dark);
      await page.locator('.theme label', { hasText: 'Auto' }).click();
      await poll(ground).toBe(light);
      await page.emulateMedia({ colorScheme: 'dark' });
      await poll(ground).toBe(dark);
      // Paper is white, whatever the screen was.
      await page.emulateMedia({ colorScheme: 'dark', media: 'print' });
      expect(
        await page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue('--paper')),
      ).toBe('#ffffff');
    });

    test('on paper nothing is cut off, and nothing waits for a click', async () => {
      await page.emulateMedia({ media: 'print' });
      await page.setViewportSize({ width: 720, height: 1000 });
      const box = page.locator('.ladder-box');
      await poll(() => box.evaluate(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight)).toBe(0);
      await poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(720);
      for (const control of ['.time-bar', '.theme', '.pager', 'input']) {
        expect(await page.locator(control).first().isVisible()).toBe(false);
      }
      expect(await inkOf(page.locator('.chart canvas').first())).toBeGreaterThan(500);
    });

    test('all that acts can be reached by Tab, and has a name', async () => {
      const nameless = await page.evaluate(() =>
        [...document.querySelectorAll<HTMLElement>('button, input, [tabindex="0"]')]
          .filter(
            (element) =>
              !(element.getAttribute('aria-label') ?? '') &&
              !element.textContent?.trim() &&
              !(element as HTMLInputElement).labels?.[0]?.textContent?.trim(),
          )
          .map((element) => element.outerHTML.slice(0, 80)),
      );
      expect(nameless).toEqual([]);
      const seen = new Set<string>();
      for (let i = 0; i < 200 && !seen.has('messages'); i++) {
        await page.keyboard.press('Tab');
        const place = await page.evaluate(
          () => document.activeElement?.closest('section[id], header')?.id || 'header',
        );
        seen.add(place);
      }
      for (const id of ['findings', 'connections', 'connection', 'ladder', 'messages'])
        expect(seen).toContain(id);
    });

    test.each(['light', 'dark'] as const)(
      'breaks no rule of accessibility, %s (axe)',
      async (colorScheme) => {
        await page.emulateMedia({ colorScheme });
        // Rows are like each other, and axe takes its time for each.
        await page.getByPlaceholder('write, psn 123, #frame').fill('nak');
        await page.getByRole('option').first().click();
        await page.locator('.packet').waitFor();
        const { violations, passes } = await new AxeBuilder({ page }).analyze();
        const broken = violations.map(
          ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join('\n')}`,
        );
        expect(broken).toEqual([]);
        expect(passes.length).toBeGreaterThan(20);
      },
    );

    test('nothing runs over the edge of a narrow window', async () => {
      for (const width of [360, 420, 800]) {
        await page.setViewportSize({ width, height: 800 });
        await poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(
          width,
        );
      }
    });
  });
});

const chosenRow = () => page.getByRole('listbox').getAttribute('aria-activedescendant');

const fieldOf = (name: string) =>
  page
    .locator('.fields tr', { has: page.getByRole('cell', { name, exact: true }) })
    .locator('td')
    .last()
    .textContent();
