/** Refusals of the release script, in a repository of its own that holds a copy of it. */
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const COPIED = [
  'native/build-id.mjs',
  ...['main', 'assemble', 'join', 'products'].map((name) => `scripts/release/${name}.mjs`),
];

let clone: string;
const write = (path: string, text: string) => {
  mkdirSync(dirname(join(clone, path)), { recursive: true });
  writeFileSync(join(clone, path), text);
};
const git = (...args: string[]) =>
  execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], { cwd: clone });
const commit = () => {
  git('add', '--all');
  git('commit', '--quiet', '--message', 'state');
};

beforeEach(() => {
  clone = realpathSync(mkdtempSync(join(tmpdir(), 'roce-release-')));
  for (const path of COPIED) {
    write(path, '');
    copyFileSync(join(import.meta.dirname, '../..', path), join(clone, path));
  }
  write('native/binding.gyp', '{}');
  write('native/src/addon.cc', 'int one;');
  for (const folder of ['.', 'packages/wire', 'native'])
    write(join(folder, 'package.json'), '{ "version": "1.2.3" }');
  write('CHANGELOG.md', '# Changes\n\n## 1.2.3 (2027-01-31)\n');
  git('init', '--quiet');
  commit();
});
afterEach(() => rmSync(clone, { recursive: true }));

/** The script's first line of complaint. */
function refusal(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['scripts/release/main.mjs', ...args], {
    cwd: clone,
    encoding: 'utf8',
  });
  expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
  return stderr.slice(stderr.indexOf('release: ')).trimEnd();
}

test('refuses a tree with changes, tracked or not', () => {
  write('packages/wire/new.ts', '');
  expect(refusal()).toBe('release: there are changes that are not committed:\n?? packages/wire/new.ts');
});

test.each([
  ['no section', '# Changes\n\n## 1.2.2 (2027-01-30)\n'],
  ['a section without its day', '# Changes\n\n## 1.2.3 (unreleased)\n'],
])('refuses a version that has %s in CHANGELOG.md', (_, text) => {
  write('CHANGELOG.md', text);
  commit();
  expect(refusal()).toBe('release: CHANGELOG.md has no section "## 1.2.3 (YYYY-MM-DD)"');
});

test('refuses packages of another version, in a snapshot too', () => {
  write('packages/wire/package.json', '{ "version": "1.2.2" }');
  commit();
  for (const args of [[], ['--snapshot']])
    expect(refusal(...args)).toBe('release: not of version 1.2.3: packages/wire');
});

describe('--add', () => {
  const ADDON = 'musl/linux-x64/dgram_native.napi.musl.node';
  const add = () => refusal('--snapshot', '--add', 'musl').replace(clone, '');

  test('refuses a folder that is not there', () => {
    expect(add()).toBe(
      'release: --add /musl holds no file (expected linux-ARCH/dgram_native.napi.LIBC.node)',
    );
  });

  test('refuses a name that native/load.js does not look for', () => {
    write('musl/dgram_native.node', '');
    expect(add()).toBe(
      'release: --add /musl holds dgram_native.node (expected linux-ARCH/dgram_native.napi.LIBC.node)',
    );
  });

  test('refuses an addon of other sources, and takes one of these', () => {
    const id = execFileSync(process.execPath, ['native/build-id.mjs'], { cwd: clone, encoding: 'utf8' });
    write(ADDON, `elf ${id}`);
    expect(add()).toMatch(/^release: npm run --silent build:ts failed/);
    write('native/src/addon.cc', 'int two;');
    expect(add()).toBe(
      'release: --add /musl: linux-x64/dgram_native.napi.musl.node was built from other sources than native/src',
    );
  });
});

test('a clean tree with its section passes the checks: the build is what fails here', () => {
  expect(refusal()).toMatch(/^release: npm run --silent build:ts failed/);
});
