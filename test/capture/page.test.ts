/** The pages about captures: their commands print what the pages show. */
// @module-tag slow
// @module-tag gate
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const captures = join(root, 'test/fixtures/captures');
const place = mkdtempSync(join(tmpdir(), 'roce-page-'));
afterAll(() => rmSync(place, { recursive: true }));

/** Commands that need an interface, a server, a terminal, or captures that are not in the repository. */
const NOT_RUN = /roce (capture|view\n|compare|flows pfc)|tshark/;

const PAGES = ['capture', 'capture-record', 'capture-causes', 'capture-report', 'capture-export'];

/** The commands of the pages, each with the output that its page shows. */
function examples(): [command: string, output: string][] {
  const pages = PAGES.map((name) => readFileSync(join(root, 'docs', `${name}.md`), 'utf8')).join('\n');
  return [...pages.matchAll(/```\n(\$ [\s\S]*?)```/g)]
    .flatMap(([, block = '']) => block.split(/^\$ /m).slice(1))
    .filter((text) => !NOT_RUN.test(text))
    .map((text) => {
      const end = text.indexOf('\n');
      return [text.slice(0, end), text.slice(end + 1)];
    });
}

/** In a folder with the captures, by name and by their path in a clone, as the page's commands name them; files that they write lie there, too. */
async function run(command: string): Promise<string> {
  const script = `roce() { '${process.execPath}' '${join(root, 'packages/cli/bin/roce.js')}' "$@"; }
    ln -sf '${captures}'/*.pcap .
    mkdir -p test/fixtures && ln -sfn '${captures}' test/fixtures/captures
    { ${command}; } 2>&1`;
  const { stdout } = await promisify(execFile)('bash', ['-c', `${script} || true`], { cwd: place });
  return stdout;
}

test('the pages have as many commands as are run here', () => expect(examples().length).toBeGreaterThan(20));

/** Sizes of pages and drawings change with each change of their looks. */
const withoutSizes = (text: string) => text.replaceAll(/"bytes":\d+|\d+\.\d+ MB/g, '#');

// One after the other: some read a file that the previous one wrote. The pages mark lines that it leaves out.
test.each(examples())('roce: %s', async (command, shown) => {
  const printed = withoutSizes(await run(command));
  const parts = withoutSizes(shown).split(/^ *…\n/m);
  if (parts.length === 1) expect(printed).toBe(parts[0]);
  else for (const part of parts) expect(printed).toContain(part);
});
