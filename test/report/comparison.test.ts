/** The page of `roce compare` in a real browser: what it shows, that it has no script, and that nothing leaves the file. */
// @module-tag slow
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { AxeBuilder } from '@axe-core/playwright';
import { type Comparison, compareCaptures, renderComparison } from '@node-roce/capture/node';
import { beforeAll, describe, expect, test } from 'vitest';
import { inChromium, opens, page, write } from './suite.ts';

const real = join(import.meta.dirname, '../capture/real/captures');

inChromium(() => {
  describe('both ends of a path that loses packets', () => {
    let found: Comparison;
    let file: string;
    beforeAll(async () => {
      const [a, b] = ['a', 'b'].map((end) => {
        const packed = readFileSync(join(real, `k61-loss5-pingpong-${end}.pcap.gz`));
        return write(`<b>${end}.pcap`, gunzipSync(packed) as unknown as string);
      });
      found = await compareCaptures(a, b);
      file = write('comparison.html', renderComparison(found, { title: '<b>a and <b>b' }));
    });
    opens(() => file);

    const cells = (section: string) =>
      page
        .locator(`#${section} tbody tr`)
        .evaluateAll((rows) =>
          rows.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent)),
        );

    test('begins with what was lost', async () => {
      const { aToB, bToA } = found;
      expect(aToB.lost).toBeGreaterThan(0);
      const [heading] = await page.locator('main h2').allTextContents();
      expect(heading).toContain(`A → B: ${aToB.lost} of ${aToB.sent} packets lost`);
      expect(heading).toContain(`B → A: ${bToA.lost} of ${bToA.sent} packets lost`);
      expect(await page.locator('h1').textContent()).toBe('<b>a.pcap and <b>b.pcap');
      expect(await page.title()).toBe('<b>a and <b>b – RoCE comparison');
    });

    test('has the counts of both directions, and all packets that did not pass', async () => {
      expect(await cells('packets')).toEqual(
        [found.aToB, found.bToA].map((transit) => [
          transit.from === 'a' ? 'A → B' : 'B → A',
          ...(['sent', 'arrived', 'lost', 'damaged', 'duplicated', 'reordered', 'unseen'] as const).map(
            (name) => transit[name].toLocaleString('en'),
          ),
        ]),
      );
      const events = await cells('events');
      expect(events.map(([, frameA, frameB, fate]) => [frameA, frameB, fate])).toEqual(
        found.events.map(({ frameA, frameB, fate }) => [`${frameA ?? '–'}`, `${frameB ?? '–'}`, fate]),
      );
    });

    test('has no script, and no barrier that axe finds', async () => {
      expect(await page.locator('script').count()).toBe(0);
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
    });

    test('fits a narrow window: the tables scroll, the page does not', async () => {
      await page.setViewportSize({ width: 380, height: 800 });
      const [width, content] = await page.evaluate(() => [
        document.documentElement.clientWidth,
        document.documentElement.scrollWidth,
      ]);
      expect(content).toBeLessThanOrEqual(width);
    });
  });
});
