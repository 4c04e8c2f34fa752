/** Pages that are out of the ordinary: hostile, empty, and a drawing without a page. */
// @module-tag slow
// @module-tag gate
import { join } from 'node:path';
import { analyzeCapture, renderLadder, renderReport } from '@node-roce/capture/node';
import { beforeAll, describe, expect, test } from 'vitest';
import {
  analysis,
  connection,
  finding,
  ladderPacket,
  message,
} from '../../packages/capture/testing/analysis.ts';
import { captures, inChromium, opens, page, see, write } from './suite.ts';

inChromium(() => {
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
          messages: [message({ operation: EVIL, failure: EVIL as never, outcome: 'failed' })],
          ladder: [ladderPacket({ opcodeName: EVIL, payloadLength: 3 })],
        }),
      ],
    });
    opens(() => write('hostile.html', renderReport(hostile, { title: 'as it was' })));

    test('shows them as text, and executes nothing in them', async () => {
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

    test('states that nothing was found, and no connection', async () => {
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
