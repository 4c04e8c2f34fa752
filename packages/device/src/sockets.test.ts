import { chownSync, mkdtempSync, rmdirSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { networkNamespace, socketPath } from './sockets.ts';

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
