/** An addon that is missing, and one that does not load: two codes, and the command that helps on the machine. */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { buildCommand, loadError, thisMachine } from '../load.js';

const INSTALLED = '/srv/app/node_modules/@node-roce/dgram-native';
const GLIBC = { platform: 'linux', arch: 'x64', version: 'v22.0.0', isMusl: false, folder: INSTALLED };
const MUSL = { ...GLIBC, isMusl: true };

/** As Node reports an error of dlopen(3). */
const refused = (why: string) => Object.assign(new Error(why), { code: 'ERR_DLOPEN_FAILED' });
const missing = new Error('no file');
const COMMAND = `npx --yes node-gyp@12 rebuild --directory=${INSTALLED}`;

describe('an installed package', () => {
  test.each([
    [
      'without a file for glibc',
      missing,
      GLIBC,
      'ERR_ROCE_NO_ADDON',
      /no addon for linux-x64 with glibc.*apt-get/,
    ],
    [
      'without a file for musl',
      missing,
      MUSL,
      'ERR_ROCE_NO_ADDON',
      /no addon for linux-x64 with musl.*apk add/,
    ],
    [
      'of glibc on musl',
      refused(
        `Error loading shared library ld-linux-x86-64.so.2: No such file or directory (needed by ${INSTALLED}/a.node)`,
      ),
      MUSL,
      'ERR_ROCE_ADDON_LOAD',
      /another C library than that of linux-x64 with musl.*apk add/,
    ],
    [
      'of glibc on musl with some of its library',
      refused(`Error relocating ${INSTALLED}/a.node: __memcpy_chk: symbol not found`),
      MUSL,
      'ERR_ROCE_ADDON_LOAD',
      /another C library.*apk add/,
    ],
    [
      'of a newer glibc',
      refused("/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.28' not found (required by a.node)"),
      GLIBC,
      'ERR_ROCE_ADDON_LOAD',
      /newer glibc than that of linux-x64/,
    ],
  ])('%s: the command that compiles it there', (_what, cause, machine, code, text) => {
    const error = loadError(cause, machine);
    expect(error).toMatchObject({ code, cause });
    expect(error.message).toMatch(text);
    expect(error.message).toContain(`\`${COMMAND}\``);
  });

  test('on a file system that executes nothing: names it, and asks for no build', () => {
    const error = loadError(refused('a.node: failed to map segment from shared object'), GLIBC);
    expect(error.code).toBe('ERR_ROCE_ADDON_LOAD');
    expect(error.message).toMatch(/noexec/);
    expect(error.message).not.toContain('node-gyp');
  });

  test('elsewhere than on Linux: no command, the dgram link', () => {
    const error = loadError(missing, { ...GLIBC, platform: 'darwin' });
    expect(error.code).toBe('ERR_ROCE_NO_ADDON');
    expect(error.message).toMatch(/darwin-x64.*Linux only.*dgram link/);
  });
});

test('a checkout has a command of its own', () => {
  expect(buildCommand(thisMachine())).toBe('npm run build:native');
  expect(buildCommand(GLIBC)).toBe(COMMAND);
});

// A library that asks for musl's, and one that is no library.
test.each([
  [
    'of musl on glibc',
    'gcc -shared -o libc.musl-x86_64.so.1 -Wl,-soname,libc.musl-x86_64.so.1 -x c /dev/null && gcc -shared -o $OUT -Wl,--no-as-needed -x c /dev/null -L. -l:libc.musl-x86_64.so.1',
    /another C library.*libc\.musl/,
  ],
  ['cut off', 'head -c 100 /dev/zero > $OUT', /could not be loaded.*(invalid ELF header|too short)/],
])('a file %s does not load, and the message quotes the loader', async (_what, make, text) => {
  const folder = mkdtempSync(join(tmpdir(), 'addon-'));
  try {
    mkdirSync(join(folder, 'build/Release'), { recursive: true });
    writeFileSync(join(folder, 'package.json'), '{}');
    const out = join(folder, 'build/Release/dgram_native.node');
    const run = promisify(execFile);
    await run('bash', ['-c', make], { cwd: folder, env: { ...process.env, OUT: out } });
    const index = JSON.stringify(join(import.meta.dirname, '../index.js'));
    const program = `import(${index}).catch(({ code, message }) => console.log(code, message))`;
    const env = { ...process.env, ROCE_ADDON_FOLDER: folder };
    const { stdout } = await run(process.execPath, ['-e', program], { env });
    expect(stdout).toMatch(/^ERR_ROCE_ADDON_LOAD /);
    expect(stdout).toMatch(text);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
