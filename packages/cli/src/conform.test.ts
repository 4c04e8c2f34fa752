/** `roce conform`: exit codes, which a CI server reads. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../testing/folder.ts';
import { run } from './cli.ts';

removeFolders();

async function conform(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const code = await run(['conform', '--via', 'model', ...args], {
    stdin: Readable.from([]),
    stdout: { write: (text) => (out += text) },
    stderr: { write: (text) => (err += text) },
    env: {},
    signal: new AbortController().signal,
  });
  return { code, out, err };
}

test('a list that cannot be read is no deviation', async () => {
  const file = join(ownFolder(), 'list.json');
  writeFileSync(file, '{ "device": ');
  for (const name of [file, join(ownFolder(), 'none'), 'toString'])
    expect(await conform('--rule', 'PSN-01', '--device', name)).toMatchObject({
      code: 2,
      err: expect.stringContaining(`--device ${name}: `),
    });
});

test('results that cannot be written are printed, and are no deviation', async () => {
  const { code, out } = await conform('--rule', 'PSN-01', '--junit', join(ownFolder(), 'no', 'file'));
  expect(code).toBe(2);
  expect(out).toContain('model: 1 rules: 1 pass');
});

test('a run without a rule is not passed', async () => {
  expect(await conform('--rule', 'ROB-01')).toMatchObject({
    code: 2,
    err: expect.stringContaining('--hostile'),
  });
  expect((await conform('--rule', 'PSN-01,')).code).toBe(2);
  expect((await conform('--rule', 'PSN-01, PSN-02')).out).toContain('2 rules: 2 pass');
});
