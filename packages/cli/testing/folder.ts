/** Folders of a test's own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';

const made: string[] = [];

/** A new folder, which goes after the file's tests. */
export function ownFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'roce-cli-'));
  made.push(folder);
  return folder;
}

/** For the file of tests that makes folders, at its top. */
export function removeFolders(): void {
  afterAll(() => {
    for (const folder of made.splice(0)) rmSync(folder, { recursive: true });
  });
}
