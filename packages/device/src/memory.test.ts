/** The registered memory of a program, as the device maps it: also where the kernel's pages are those of arm64, of 64 KiB. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { MAX_BYTES, ProgramMemory } from './memory.ts';

const BASE = 0x7000_0000_0000n;

function openMemory(): ProgramMemory {
  const memory = new ProgramMemory().retain();
  onTestFinished(() => memory.release());
  return memory;
}

test.each([0n, 1n, 4096n, 0xfff_f000n, 0xffff_ffffn])(
  'a region at %i bytes past a page has its own bytes',
  (past) => {
    const memory = openMemory();
    const [one, two] = [memory.map(BASE + past, 5000n)!, memory.map(BASE + past + 1000n, 10n)!];
    expect(one.bytes.length).toBe(5000);
    one.bytes[1003] = 77;
    expect([...two.bytes]).toEqual([0, 0, 0, 77, 0, 0, 0, 0, 0, 0]);
    for (const { pages } of [one, two]) expect(pages.length % 65_536).toBe(0);
  },
);

test('the longest region may begin in the middle of 64 KiB', () => {
  const memory = openMemory();
  const { bytes, pages } = memory.map(BASE + 4096n, BigInt(MAX_BYTES))!;
  expect({ bytes: bytes.length, pages: pages.length }).toEqual({ bytes: MAX_BYTES, pages: MAX_BYTES });
  expect(memory.map(BASE + 1n, BigInt(MAX_BYTES))).toBeUndefined();
});

/** The addon sees pages of 64 KiB; V8 sees those that are there. */
const SYSCONF = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
long sysconf(int name) {
  long (*next)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  Dl_info from;
  if (name == _SC_PAGESIZE && dladdr(__builtin_return_address(0), &from) && strstr(from.dli_fname, "dgram_native"))
    return 65536;
  return next(name);
}`;

test.skipIf(spawnSync('gcc', ['--version']).status !== 0)('pages of 64 KiB: a region is mapped', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roce-pages-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const [source, shim] = ['c', 'so'].map((end) => join(folder, `pages.${end}`)) as [string, string];
  writeFileSync(source, SYSCONF);
  execFileSync('gcc', ['-shared', '-fPIC', '-o', shim, source, '-ldl']);
  const program = `
    import { createSharedFile, mapSharedFile } from '@node-roce/dgram-native';
    import { ProgramMemory } from './dist/memory.js';
    const { buffer } = new WebAssembly.Memory({ shared: true, initial: 1, maximum: 1 });
    try {
      mapSharedFile(new Uint8Array(buffer, 0, 4096), createSharedFile(65_536), 0);
    } catch (error) {
      console.log(error.message);
    }
    console.log(new ProgramMemory().map(0x7000_0000_1000n, 100n).bytes.length);`;
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', program], {
    cwd: join(import.meta.dirname, '..'),
    env: { ...process.env, LD_PRELOAD: [process.env.LD_PRELOAD, shim].filter(Boolean).join(' ') },
    encoding: 'utf8',
  });
  expect(output.trim().split('\n')).toEqual([
    'pages must be whole pages of a shared WebAssembly.Memory',
    '100',
  ]);
});
