/** The site of the documentation, with the tools that its script installs: it builds, its links lead to pages and anchors, and a dead link fails it. */
// @module-tag slow
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = fileURLToPath(new URL('..', import.meta.url));
const out = join(root, '.cache/site-test');
const build = () => run('npm', ['run', '--silent', 'docs:site', '--', '--outDir', out], { cwd: root });

describe('npm run docs:site', { timeout: 600_000 }, () => {
  // Git ignores this folder, so that the test of links does not see it.
  const planted = join(root, 'test/interop/logs/planted-dead-link.md');
  afterAll(() => {
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
    for (const page of ['index.html', 'docs/api.html', 'docs/guide/index.html', 'packages/wire/index.html'])
      expect(texts.has(page), page).toBe(true);
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
