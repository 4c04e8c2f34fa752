/** Statements of pages about defaults: their first programs run on one machine, without an option, and pages agree about times. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const page = (path: string) => readFileSync(join(root, path), 'utf8');
const programsOf = (path: string) =>
  [...page(path).matchAll(/```js\n([\s\S]*?)```/g)].map(([, code]) => code as string);

/** Runs the first two programs of a page at one address: a server that serves for ever, and its client. Resolves with the client's output. */
async function firstPair(path: string, address: string): Promise<string> {
  const [serverFile, clientFile] = [1, 2].map((i) =>
    join(root, `examples/.pages-${process.pid}-${i}.mjs`),
  ) as [string, string];
  const [server = '', client = ''] = programsOf(path).map((code) => code.replaceAll('10.0.0.1', address));
  const ready = "console.log('listening');\nfor await (const ";
  expect(server).toContain('for await (const ');
  writeFileSync(serverFile, server.replace('for await (const ', ready));
  writeFileSync(clientFile, client);
  const serving = spawn(process.execPath, [serverFile], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    await once(createInterface(serving.stdout), 'line');
    return (await promisify(execFile)(process.execPath, [clientFile])).stdout;
  } finally {
    serving.kill('SIGKILL');
    for (const file of [serverFile, clientFile]) rmSync(file);
  }
}

test.each([
  ['docs/connect.md', '127.0.61.1'],
  ['docs/rsocket.md', '127.0.0.1'],
])('the first two programs of %s run on one machine, at one address', async (path, address) => {
  expect(await firstPair(path, address)).toBe('hello\n');
});

test('`require` loads each entry that users import, as first-program.md states', async () => {
  expect(page('docs/guide/first-program.md')).toContain('or with `require` from a CommonJS');
  const { exports } = JSON.parse(page('package.json'));
  const names = Object.keys(exports).filter((path) => !path.endsWith('.json') && path !== './worker');
  const program = names.map((path) => `require('${path.replace('.', 'node-roce')}');`).join('\n');
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['-e', `${program}\nconsole.log('loaded')`],
    {
      cwd: root,
    },
  );
  expect(stdout).toBe('loaded\n');
});

test('tarballs that pages name have the version of the packages', () => {
  const { version } = JSON.parse(page('package.json'));
  const names = ['docs/guide/first-program.md', 'docs/run.md'].flatMap((path) =>
    [...page(path).matchAll(/\bnode-roce(?:-\w+)?-(\d[\w.-]*)\.tgz/g)].map(([, found]) => found),
  );
  expect(new Set(names)).toEqual(new Set([version]));
});

test('pages agree about the time that `close` waits for a peer', () => {
  const seconds = ['docs/connect.md', 'docs/rsocket.md'].map(
    (path) => Number(/\| `closeTimeout` \| (\d+) \|/.exec(page(path))![1]) / 1000,
  );
  expect(seconds).toEqual([5, 5]);
  expect(page('docs/guide/lifetimes.md')).toContain('at most 5 s (`closeTimeout`)');
});
