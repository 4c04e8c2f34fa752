import { chownSync, mkdtempSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { networkNamespace, prepareFolder, socketPath } from './sockets.ts';

const uid = process.getuid?.();

test('sockets are in XDG_RUNTIME_DIR where it is the folder of this user', () => {
  const own = mkdtempSync(join(tmpdir(), 'roce-runtime-'));
  onTestFinished(() => rmdirSync(own));
  const suffix = `-${networkNamespace()}.sock`;
  expect(suffix).toMatch(/^-[1-9]\d+\.sock$/);
  const path = (folder: string) => socketPath('10.0.0.1', { XDG_RUNTIME_DIR: folder });
  expect(path(own)).toBe(`${own}/roce/10.0.0.1${suffix}`);
  if (uid === 0) chownSync(own, 54_321, 54_321);
  const others = uid === 0 ? own : '/';
  // In a user namespace, root's files are those of the user with the number of nobody.
  if (statSync(others).uid !== uid) expect(path(others)).toBe(`/tmp/roce-${uid}/10.0.0.1${suffix}`);
  expect(path(join(own, 'none'))).toBe(`/tmp/roce-${uid}/10.0.0.1${suffix}`);
});

test('the folder of sockets is made with those above it, all of this user alone', () => {
  const above = mkdtempSync(join(tmpdir(), 'roce-runtime-'));
  onTestFinished(() => rmSync(above, { recursive: true }));
  const folder = join(above, 'a', 'b');
  prepareFolder(folder);
  prepareFolder(folder);
  for (const path of [folder, join(above, 'a')]) expect(statSync(path).mode & 0o777).toBe(0o700);
});

test('a file in the place of the folder is an error', () => {
  const above = mkdtempSync(join(tmpdir(), 'roce-runtime-'));
  onTestFinished(() => rmSync(above, { recursive: true }));
  const file = join(above, 'file');
  writeFileSync(file, '', { mode: 0o600 });
  expect(() => prepareFolder(file)).toThrow(/EEXIST/);
});

test('a folder that cannot be made is an error, below /proc too', () => {
  expect(() => prepareFolder('/proc/self/none/below')).toThrow(/ENOENT.*\/proc\/self\/none/);
  expect(() => prepareFolder('/proc/version/below')).toThrow(/ENOTDIR|EEXIST|ENOENT/);
});
