/** docs/api.md is what the docstrings say now, and nothing public is without one (`npm run docs:api`). */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('docs/api.md is current and complete', async () => {
  const script = fileURLToPath(new URL('../scripts/api-docs.mjs', import.meta.url));
  const { stderr } = await promisify(execFile)(process.execPath, [script, '--check']);
  expect(stderr).toBe('');
});
