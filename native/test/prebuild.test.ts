/** The addon for the registry: what it asks of a system, and that it loads and throws. Without a compiler it is skipped, in CI it fails. */
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildId } from '../build-id.mjs';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'prebuild-'));
const addon = join(folder, `prebuilds/linux-${process.arch}/dgram_native.napi.glibc.node`);
const hasCompiler = ['g++', 'make', 'objdump'].every(
  (program) => spawnSync(program, ['--version']).status === 0,
);
afterAll(() => rmSync(folder, { recursive: true }));

describe.skipIf(!hasCompiler && !process.env.CI)('the prebuilt addon', { tags: ['slow'] }, () => {
  beforeAll(async () => {
    const script = join(root, 'scripts/prebuild-native.mjs');
    await run(process.execPath, [script, '--out', join(folder, 'prebuilds'), process.arch]);
  }, 300_000);

  test('needs glibc 2.28 at most, also by weak references, and no other library of the compiler', async () => {
    const { stdout } = await run('objdump', ['-p', addon]);
    const libraries = [...stdout.matchAll(/NEEDED +(\S+)/g)].map(([, library]) => library);
    expect(libraries).toContain('libc.so.6');
    expect(libraries.filter((library) => /stdc\+\+|gcc/.test(library))).toEqual([]);
    // Of each version one line: hash, flags (2: all its references are weak), number, name.
    const versions = [...stdout.matchAll(/^ +0x[\da-f]+ 0x[\da-f]+ \d+ (\S+)$/gm)].map(([, name]) => name);
    expect(versions.length).toBeGreaterThan(0);
    const newer = versions.filter((name) => {
      const [, minor] = /^GLIBC_2\.(\d+)(?:\.\d+)?$/.exec(name) ?? [];
      return minor === undefined || Number(minor) > 28;
    });
    expect(newer).toEqual([]);
  });

  test('exports the entry points of Node-API only', async () => {
    const { stdout } = await run('objdump', ['-T', addon]);
    const exported = stdout
      .split('\n')
      .filter((line) => /^[\da-f]{16} /.test(line) && !line.includes('*UND*'));
    expect(exported.map((line) => line.split(/\s+/).at(-1)).sort()).toEqual([
      'napi_register_module_v1',
      'node_api_module_get_api_version_v1',
    ]);
  });

  test('loads, is that of the sources, and turns C++ exceptions into errors', async () => {
    const index = JSON.stringify(join(root, 'native/index.js'));
    const program = `const { build, Socket } = await import(${index});
      const { readFileSync } = await import('node:fs');
      const caught = [];
      for (let i = 0; i < 1000; i++) try { new Socket('no options'); } catch (error) { caught.push(error instanceof Error); }
      const isMapped = readFileSync('/proc/self/maps', 'utf8').includes(${JSON.stringify(addon)});
      console.log(JSON.stringify({ build, isMapped, errors: caught.filter(Boolean).length }));`;
    const env = { ...process.env, '@NODE_ROCE/DGRAM_NATIVE_PREBUILD': folder };
    const args = ['--input-type=module', '-e', program];
    const { stdout } = await run(process.execPath, args, { env });
    expect(JSON.parse(stdout)).toEqual({ build: buildId(), isMapped: true, errors: 1000 });
  });
});
