/** Every public member has a docstring, and the reference can be written from them (`npm run docs:api`). */
import { execFile, execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

test('each export of the packages for programs has a docstring', async () => {
  const args = ['scripts/api-docs.mjs', '--check'];
  const { stderr } = await promisify(execFile)(process.execPath, args, { cwd: root });
  expect(stderr).toBe('');
});

test('git has no page of the generated reference', () => {
  const tracked = execFileSync('git', ['ls-files', 'docs/api', 'docs/api*.md'], {
    cwd: root,
    encoding: 'utf8',
  });
  expect(tracked).toBe('');
  const ignored = execFileSync('git', ['check-ignore', 'docs/api/README.md'], {
    cwd: root,
    encoding: 'utf8',
  });
  expect(ignored.trim()).toBe('docs/api/README.md');
});
