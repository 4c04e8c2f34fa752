/** An addon that was built from other sources than this checkout's is refused. */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { buildId, buildModule } from '../build-id.mjs';
import { build } from '../index.js';

test('the addon is that of the sources', () => {
  expect(build).toBe(buildId());
});

test('a package has the number without its sources', async () => {
  const { BUILD } = await import(`data:text/javascript,${encodeURIComponent(buildModule())}`);
  expect(BUILD).toBe(buildId());
});

test('an addon of another build does not load; the error has the remedy', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'stale-'));
  const addon = readFileSync(join(import.meta.dirname, '../build/Release/dgram_native.node'));
  const at = addon.indexOf(build);
  addon.write('0123456789abcdef', at);
  mkdirSync(join(folder, 'build/Release'), { recursive: true });
  writeFileSync(join(folder, 'build/Release/dgram_native.node'), addon);
  const index = join(import.meta.dirname, '../index.js');
  const program = `import(${JSON.stringify(index)}).catch(({ code, message }) => console.log(JSON.stringify({ code, message })))`;
  const env = { ...process.env, ROCE_ADDON_FOLDER: folder };
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', program], { env });
  rmSync(folder, { recursive: true });
  expect(JSON.parse(stdout)).toEqual({
    code: 'ERR_ROCE_STALE_ADDON',
    message: expect.stringMatching(/other sources.*0123456789abcdef.*npm run build:native/),
  });
});
