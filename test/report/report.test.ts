/**
 * The report as a reader meets it, in a real browser: what is there, what a click and a key do, and that nothing
 * leaves the file.
 */
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AxeBuilder } from '@axe-core/playwright';
import type { Analysis } from '@node-roce/capture';
import { analyzeCapture, renderLadder, renderReport } from '@node-roce/capture';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  analysis,
  connection,
  finding,
  ladderPacket,
  message,
} from '../../packages/capture/testing/analysis.ts';
import { launch, noBrowser, open, type Watched } from './browser.ts';
import { simulate } from './simulate.ts';

const captures = join(import.meta.dirname, '../fixtures/captures');
const folder = mkdtempSync(join(tmpdir(), 'roce-report-'));
const write = (name: string, text: string) => {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
};

let browser: Browser;
let watched: Watched;
let page: Page;

describe.skipIf(noBrowser !== undefined)('in Chromium', () => {
  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true });
  });

  const opens = (file: () => string, options = {}) => {
    beforeEach(async () => {
      watched = await open(browser, file(), options);
      page = watched.page;
    });
    afterEach(async () => {
      // Whatever the test was about: nothing was fetched, nothing went wrong.
      expect(watched).toMatchObject({ complaints: [], requests: [] });
      await page.context().close();
    });
  };

  describe('the report of loss5_both_rc_pingpong', () => {
    let found: Analysis;
    let file: string;
    beforeAll(async () => {
      found = await analyzeCapture(join(captures, 'loss5_both_rc_pingpong.pcap'));
      file = write('loss5.html', renderReport(found));
    });
    opens(() => file);

    test('is small', () => expect(statSync(file).size).toBeLessThan(3_000_000));

    test('has the findings first, each with its hint', async () => {
      const first = page.locator('main > section').first();
      expect(await first.getAttribute('id')).toBe('findings');
      expect(await page.locator('.finding .sentence').allTextContents()).toEqual(
        found.findings.map(({ text }) => text),
      );
      expect(await page.locator('.finding .hint').allTextContents()).toEqual(
        found.findings.map(({ hint }) => hint),
      );
    });

    test('has plots with something in them', async () => {
      const plots = page.locator('.chart canvas');
      expect(await plots.count()).toBe(3);
      for (let i = 0; i < 3; i++) expect(await inkOf(plots.nth(i))).toBeGreaterThan(500);
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
      const frame = found.findings.find(({ frames }) => frames.length > 0)!.frames[0]!;
      await page.locator('.frames button').first().click();
      await see(page.locator('.packet h4'), `Frame ${frame}`);
      expect(await chosenRow()).toBe(`packet-${frame}-0`);
      expect(await page.locator('.fields').textContent()).toContain('bth.PSN');
    });

    test('a click on a packet shows its fields and bytes', async () => {
      await page.locator('#packet-7-0').click();
      await see(page.locator('.packet h4'), 'Frame 7');
      const packet = found.connections[0]!.ladder.find((each) => each.frame === 7)!;
      expect(await fieldOf('bth.PSN')).toBe(String(packet.psn));
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
      const naks = found.connections[0]!.ladder.filter(({ aeth }) => aeth?.text.includes('NAK')).length;
      await poll(async () => (await rows.count()) >= naks && naks > 0).toBe(true);
      await search.fill('no such packet');
      await see(page.locator('#ladder .empty'), 'No packet that was kept matches.');
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
      await page.locator('.plots').scrollIntoViewIfNeeded();
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
      const within = found.connections[0]!.ladder.filter(({ time }) => time <= (start + 0.1) * 1e9).length;
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
      const slowest = found.connections[0]!.messages.toSorted(
        (a, b) => (b.latency ?? 0) - (a.latency ?? 0),
      )[0]!;
      const row = table.locator('tbody tr').first();
      await see(row.locator('button'), String(slowest.id));
      await row.locator('button').press('Enter');
      await see(page.locator('.packet h4'), `Frame ${slowest.firstFrame}`);
      await page.locator('#messages .segments label', { hasText: 'Sent again' }).click();
      const again = found.connections[0]!.messages.filter(({ retransmitted }) => retransmitted > 0).length;
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
      120_000,
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

  describe('the report of a simulated capture of 100,000 packets', () => {
    const PACKETS = 100_000;
    let found: Analysis;
    let file: string;
    beforeAll(async () => {
      const capture = join(folder, 'simulated.pcapng');
      writeFileSync(capture, simulate(PACKETS));
      found = await analyzeCapture(capture);
      expect(found.summary.rocePackets).toBe(PACKETS);
      file = write('simulated.html', renderReport(found));
    }, 120_000);
    opens(() => file);

    test('opens at once, whole', async () => {
      const { domInteractive, drawn } = await page.evaluate(() => ({
        domInteractive: (performance.getEntriesByType('navigation')[0] as PerformanceNavigationTiming)
          .domInteractive,
        drawn: performance.now(),
      }));
      // Generous: a busy machine is no fault of the page.
      expect(Math.max(domInteractive, drawn)).toBeLessThan(10_000);
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
      expect(first).toMatch(new RegExp(`^Frame ${connection.ladder[0]!.frame}\\b`));
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
      for (let i = 0; i < Math.min(5, await buttons.count()); i++) {
        const id = /\d+/.exec((await buttons.nth(i).textContent())!)![0];
        await buttons.nth(i).click();
        await poll(() => page.locator('#connection-title').textContent()).toMatch(
          new RegExp(`^Connection ${id}\\b`),
        );
      }
    });
  });

  describe('a report whose every text is an attack', () => {
    const EVIL = '<img src=x onerror="document.title=1"><script>document.title=1</script>';
    const hostile = analysis({
      summary: {
        ...analysis().summary,
        file: '<img src=x onerror=alert(1)>',
        damage: EVIL,
        damaged: { [EVIL]: 1 },
        linkTypes: [EVIL],
      },
      findings: [finding({ text: EVIL, hint: EVIL })],
      connections: [
        connection({
          a: { address: EVIL, qpn: 1 },
          pairingReason: EVIL,
          messages: [message({ operation: EVIL, failure: EVIL, outcome: 'failed' })],
          ladder: [ladderPacket({ opcodeName: EVIL, payloadLength: 3 })],
        }),
      ],
    });
    opens(() => write('hostile.html', renderReport(hostile, { title: 'as it was' })));

    test('shows them as they are, and does nothing of what they say', async () => {
      await page.getByRole('option').click();
      await see(page.locator('.packet .strong'), EVIL);
      await see(page.locator('.sentence'), EVIL);
      expect(await page.locator('h1').textContent()).toContain('<img');
      expect(await page.locator('img').count()).toBe(0);
      expect(await page.title()).toBe('as it was – RoCE report');
    });
  });

  describe('a report of nothing', () => {
    opens(() => write('nothing.html', renderReport(analysis())));

    test('says so', async () => {
      await see(page.locator('#findings .empty'), 'Nothing stood out in this capture.');
      await see(page.locator('main > .empty'), 'No RoCE connection was seen in this capture.');
    });
  });

  describe('a ladder by itself', () => {
    const file = () => write('ladder.svg', svg);
    let svg: string;
    beforeAll(async () => {
      const { connections } = await analyzeCapture(join(captures, 'err_rnr_then_ok.pcap'));
      svg = renderLadder(connections.find(({ ladder }) => ladder.length > 0)!);
    });
    opens(file);

    test('is a drawing that the browser takes, with all its text inside', async () => {
      const outside = await page.evaluate(() => {
        const { width, height } = document.documentElement.getBoundingClientRect();
        return [...document.querySelectorAll('text')]
          .map((text) => text.getBoundingClientRect())
          .filter((box) => box.left < 0 || box.right > width || box.top < 0 || box.bottom > height).length;
      });
      expect(await page.evaluate(() => document.documentElement.tagName)).toBe('svg');
      expect(await page.locator('text').count()).toBeGreaterThan(10);
      expect(outside).toBe(0);
    });
  });
});

/** Expects what will be there soon; how soon is the machine's affair. */
const poll = <T>(actual: () => T | Promise<T>) => expect.poll(actual, { timeout: 10_000 });

/** Waits for that text. */
const see = (place: Locator, text: string) => poll(() => place.textContent()).toBe(text);

const chosenRow = () => page.getByRole('listbox').getAttribute('aria-activedescendant');

const fieldOf = (name: string) =>
  page
    .locator('.fields tr', { has: page.getByRole('cell', { name, exact: true }) })
    .locator('td')
    .last()
    .textContent();

/** Pixels of a canvas that are not transparent. */
const inkOf = (canvas: Locator) =>
  canvas.evaluate((element: HTMLCanvasElement) => {
    const { data } = element.getContext('2d')!.getImageData(0, 0, element.width, element.height);
    let ink = 0;
    for (let i = 3; i < data.length; i += 4) if (data[i]! > 0) ink++;
    return ink;
  });
