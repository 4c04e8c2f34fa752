/** The page that needs no installation: captures dropped on it become reports, in the browser alone. */
// @module-tag slow
// @module-tag gate
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { analyzeCapture, formatCount, readLadder, viewerPage } from '@node-roce/capture/node';
import { beforeAll, describe, expect, test } from 'vitest';
import { captures, folder, inChromium, opens, page, poll, write } from './suite.ts';

const generate = join(import.meta.dirname, '../../bench/capture/generate.mjs');
const loss5 = join(captures, 'loss5_both_rc_pingpong.pcap');
const verdict = () => page.locator('#verdict .verdict b').textContent();
const failure = () => page.locator('[role=alert]').textContent();
const choose = (...files: string[]) => page.locator('input[type=file]').setInputFiles(files);

/** A frame of Zstandard with raw blocks (RFC 8878 §3.1.1). */
function inZstd(content: Uint8Array): Uint8Array {
  const parts = [Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0])];
  parts[0].writeUInt32LE(content.length, 5);
  for (let at = 0; at < content.length; at += 100_000) {
    const block = content.subarray(at, at + 100_000);
    const head = Buffer.alloc(4);
    head.writeUInt32LE((block.length << 3) | (at + block.length === content.length ? 1 : 0));
    parts.push(head.subarray(0, 3), Buffer.from(block));
  }
  return Buffer.concat(parts);
}

inChromium(() => {
  describe('the page of captures', () => {
    let file: string;
    beforeAll(() => {
      file = write('viewer.html', viewerPage());
    });
    opens(() => file);

    test('a chosen capture: the verdict, findings and connections of roce flows, then another one', async () => {
      const expected = await analyzeCapture(loss5);
      await choose(loss5);
      await poll(verdict).toBe(expected.verdict.text);
      expect(await page.title()).toBe('loss5_both_rc_pingpong.pcap – RoCE report');
      expect(await page.locator('.finding').count()).toBe(expected.findings.length);
      await poll(() => page.locator('.plots canvas').count()).toBeGreaterThan(0);
      const other = join(captures, 'err_rnr_exhausted.pcap');
      await choose(other);
      await poll(verdict).toBe((await analyzeCapture(other)).verdict.text);
    });

    test('a dropped capture', async () => {
      const bytes = readFileSync(loss5).toString('base64');
      const dropped = await page.evaluateHandle((text) => {
        const transfer = new DataTransfer();
        const content = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
        transfer.items.add(new File([content], 'dropped.pcap'));
        return transfer;
      }, bytes);
      await page.locator('main').dispatchEvent('drop', { dataTransfer: dropped });
      await poll(verdict).toBe((await analyzeCapture(loss5)).verdict.text);
      expect(await page.locator('h1').textContent()).toBe('dropped.pcap');
    });

    test('compressed captures, and several as one', async () => {
      const packed = join(folder, 'loss.pcap.gz');
      writeFileSync(packed, gzipSync(readFileSync(loss5)));
      const { text } = (await analyzeCapture(loss5)).verdict;
      await choose(packed);
      await poll(verdict).toBe(text);
      const zstd = join(folder, 'loss.pcap.zst');
      writeFileSync(zstd, inZstd(readFileSync(loss5)));
      await choose(zstd);
      await poll(() => page.locator('h1').textContent()).toBe('loss.pcap.zst');
      expect(await verdict()).toBe(text);
      const two = [loss5, join(captures, 'err_rnr_exhausted.pcap')];
      const both = await analyzeCapture(two);
      await choose(...two);
      await poll(() => page.locator('h1').textContent()).toMatch(/^2 files/);
      expect(await verdict()).toBe(both.verdict.text);
    });

    test('packets that the report left out are read again for the time that is shown', async () => {
      const long = join(folder, 'long.pcap');
      await promisify(execFile)(process.execPath, [generate, long, '--packets', '20000']);
      const { connections } = await analyzeCapture(long);
      const [connection] = connections;
      await choose(long);
      await poll(() => page.locator('#connection-title').textContent()).toMatch(/^Connection /);
      await page.locator('#connections tbody').getByRole('button', { name: '1', exact: true }).click();
      await poll(() => page.locator('#connection-title').textContent()).toMatch(/^Connection 1 /);
      const middle = (connection.start + connection.end) / 2;
      await page.getByLabel('from, in seconds').fill(String(middle / 1e9));
      await page.getByLabel('from, in seconds').press('Enter');
      const shownFrom = Number(await page.getByLabel('from, in seconds').inputValue()) * 1e9;
      const all = await readLadder(long, connection, { most: 1e6, filter: { from: shownFrom } });
      const count = () => page.locator('#ladder-title .count').textContent();
      const before = Number(/^[\d,]+/.exec((await count()) ?? '')?.[0].replaceAll(',', ''));
      expect(before).toBeLessThan(all.length);
      await page.getByRole('button', { name: 'Load all packets of this time' }).click();
      await poll(count).toMatch(new RegExp(`^${formatCount(all.length)} of `));
      // The button stays: packets of other times are still left out.
      expect(await page.getByRole('button', { name: 'Load all packets of this time' }).isEnabled()).toBe(
        true,
      );
    });

    test('a cut capture: its report, and where the reading ended', async () => {
      const cut = join(folder, 'cut.pcap');
      writeFileSync(cut, readFileSync(loss5).subarray(0, 20_000));
      await choose(cut);
      await poll(() => page.locator('.troubles').textContent()).toContain(
        'Reading stopped before the end of the file',
      );
    });

    test.each([
      ['empty.pcap', new Uint8Array(0), /^empty\.pcap is empty: it has no bytes\.$/],
      [
        'notes.txt',
        Buffer.from('this is no capture at all\n'),
        /^notes\.txt is not a capture that can be read: /,
      ],
      ['short.pcap', readFileSync(loss5).subarray(0, 10), /^short\.pcap is not a capture that can be read: /],
      ['x.xz', Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0, 0, 0]), /decompress it with xz/],
      [
        'bad.gz',
        gzipSync(readFileSync(loss5)).fill(0xaa, 12, 40),
        /^bad\.gz is not a capture that can be read: the gzip stream is damaged/,
      ],
      [
        'parts.gz',
        Buffer.concat([
          gzipSync(readFileSync(loss5).subarray(0, 9)),
          gzipSync(readFileSync(loss5).subarray(9)),
        ]),
        /several parts/,
      ],
    ])('%s: a sentence', async (name, bytes, sentence) => {
      const bad = join(folder, name);
      writeFileSync(bad, bytes);
      await choose(bad);
      await poll(failure).toMatch(sentence);
      // The page goes on.
      await choose(loss5);
      await poll(verdict).not.toBe('');
    });

    test('no RoCE in it: the kinds of frames that are', async () => {
      const none = join(folder, 'none.pcap');
      // ARP.
      const bytes = readFileSync(loss5);
      const frame = Buffer.concat([bytes.subarray(24, 40), bytes.subarray(40, 100)]);
      frame.writeUInt32LE(60, 8);
      frame.writeUInt16BE(0x0806, 16 + 12);
      writeFileSync(none, Buffer.concat([bytes.subarray(0, 24), frame]));
      await choose(none);
      await poll(() => page.locator('main').textContent()).toContain('ARP');
    });
  });

  describe('its policy', () => {
    opens(() => write('policy.html', viewerPage()), { complaints: 3 });

    test('refuses connections, and other scripts', async () => {
      const refused = await page.evaluate(async () => {
        const violation = () =>
          new Promise<string>((resolve) =>
            addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective), {
              once: true,
            }),
          );
        const connection = violation();
        await fetch('https://127.0.0.1:1/').catch(() => {});
        const found = [await connection];
        const inserted = violation();
        const script = document.createElement('script');
        script.textContent = 'document.title = "evil"';
        document.body.append(script);
        return [...found, await inserted];
      });
      expect(refused).toEqual(['connect-src', 'script-src-elem']);
      expect(await page.title()).not.toBe('evil');
    });
  });
});
