/**
 * The site of the documentation, with the tools that its script installs: it builds, its links lead to pages and anchors, and a dead link
 * fails it. Chromium shows it with contrast, headings in order, and a search.
 */
// @module-tag slow
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { AxeBuilder } from '@axe-core/playwright';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launch, noBrowser } from '../report/browser.ts';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
const out = join(root, '.cache/site-test');
const TYPES: Record<string, string> = {
  '.css': 'text/css',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.svg': 'image/svg+xml',
};
/** A page of each kind: start, guide, topic with tables and code, tool, inside, reference, the page that analyzes captures. */
const LOOKED_AT = [
  'index.html',
  'docs/index.html',
  'docs/guide/index.html',
  'docs/guide/first-program.html',
  'docs/connect.html',
  'docs/run.html',
  'docs/capture-export.html',
  'docs/quirks.html',
  'docs/reference.html',
  'docs/api/rsocket.html',
  'captures.html',
];
const build = () => run('npm', ['run', '--silent', 'docs:site', '--', '--outDir', out], { cwd: root });

describe('npm run docs:site', { timeout: 600_000 }, () => {
  // Git ignores this folder, so that the test of links does not see it.
  const planted = join(root, 'test/interop/logs/planted-dead-link.md');
  let browser: Browser | undefined;
  let server: Server | undefined;
  afterAll(async () => {
    await browser?.close();
    server?.closeAllConnections();
    server?.close();
    rmSync(out, { recursive: true, force: true });
    rmSync(planted, { force: true });
  });

  test('makes a page of each Markdown file, and each link leads to a page or file, and to an anchor in it', async () => {
    await build();
    const names = readdirSync(out, { recursive: true, encoding: 'utf8' });
    const texts = new Map(
      names
        .filter((name) => name.endsWith('.html'))
        .map((name) => [name, readFileSync(join(out, name), 'utf8')]),
    );
    for (const page of ['index.html', 'docs/api/index.html', 'docs/guide/index.html', 'captures.html'])
      expect(texts.has(page), page).toBe(true);
    for (const [name, text] of texts) {
      if (['404.html', 'captures.html'].includes(name)) continue;
      expect(text.match(/<h1[ >]/g) ?? [], name).toHaveLength(1);
    }
    const anchors = new Map(
      [...texts].map(([name, text]) => [
        name,
        new Set([...text.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id)),
      ]),
    );
    const dead: string[] = [];
    for (const [name, text] of texts) {
      for (const [, href = ''] of text.matchAll(/<a [^>]*?href="([^"]*)"/g)) {
        if (/^[a-z]+:/.test(href)) continue;
        const [file = '', anchor] = href.split('#');
        const target = file === '' ? name : normalize(join(file.startsWith('/') ? '' : dirname(name), file));
        const path = target.replace(/^\//, '').replace(/(^|\/)$/, '$1index.html');
        if (!existsSync(join(out, path)) || statSync(join(out, path)).isDirectory())
          dead.push(`${name}: ${href}`);
        else if (anchor && !anchors.get(path)?.has(decodeURIComponent(anchor))) dead.push(`${name}: ${href}`);
      }
    }
    expect(dead).toEqual([]);
  });

  describe.skipIf(noBrowser !== undefined)('in a browser', () => {
    let origin: string;
    beforeAll(async () => {
      server = createServer((request, response) => {
        const path = join(out, decodeURIComponent(new URL(request.url!, 'http://x').pathname));
        if (!path.startsWith(out) || !existsSync(path) || statSync(path).isDirectory()) {
          response.writeHead(404).end();
          return;
        }
        const type = TYPES[extname(path)] ?? 'text/plain; charset=utf-8';
        response.writeHead(200, { 'content-type': type }).end(readFileSync(path));
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      browser = await launch();
    });
    test.each(['light', 'dark'] as const)(
      'text has contrast, and headings are in order: %s',
      async (colorScheme) => {
        const context = await browser!.newContext({ colorScheme });
        const page = await context.newPage();
        const broken: string[] = [];
        page.on('pageerror', (error) => broken.push(`${page.url()}: ${error.message}`));
        page.on('response', (response) => {
          if (response.status() >= 400) broken.push(`${response.url()}: ${response.status()}`);
        });
        for (const path of LOOKED_AT) {
          await page.goto(`${origin}/${path}`, { waitUntil: 'networkidle' });
          const { violations } = await new AxeBuilder({ page })
            .withRules([
              'color-contrast',
              'heading-order',
              'page-has-heading-one',
              'document-title',
              'link-name',
            ])
            .analyze();
          for (const { id, nodes } of violations)
            broken.push(...nodes.slice(0, 3).map(({ html }) => `${path}: ${id}: ${html.slice(0, 200)}`));
        }
        expect(broken).toEqual([]);
        await context.close();
      },
    );

    test('search finds a page of the guide and a name of the reference', async () => {
      const page = await browser!.newPage();
      await page.goto(`${origin}/docs/guide/index.html`, { waitUntil: 'networkidle' });
      for (const [words, target] of [
        ['vanished peers', '/docs/guide/vanished-peers.html'],
        ['pollInto', '/docs/api/'],
      ] as const) {
        await page.keyboard.press('Control+k');
        await page.locator('.VPLocalSearchBox input').fill(words);
        const found = page.locator(`.VPLocalSearchBox .result[href*="${target}"]`);
        await found.first().waitFor({ timeout: 120_000 });
        await page.keyboard.press('Escape');
      }
      await page.close();
    });
  });

  test('fails at a link that leads nowhere', async () => {
    mkdirSync(dirname(planted), { recursive: true });
    writeFileSync(planted, '# Planted\n\n[Nowhere](no-such-page.md)\n');
    await expect(build()).rejects.toMatchObject({
      stderr: expect.stringContaining(
        'test/interop/logs/planted-dead-link.md: no-such-page.md: no such file',
      ),
    });
  });
});
