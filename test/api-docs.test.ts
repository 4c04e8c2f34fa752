/** docs/api.md matches the present docstrings, and every public member has one (`npm run docs:api`). */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('docs/api.md is current and complete', async () => {
  const script = fileURLToPath(new URL('../scripts/api-docs.mjs', import.meta.url));
  const { stderr } = await promisify(execFile)(process.execPath, [script, '--check']);
  expect(stderr).toBe('');
});
