/** The examples run as they stand; the one in the README is examples/write.mjs. */
import { execFile, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const path = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
const read = (name: string) => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');

/** On addresses of its own, so that other tests may use the first ones of loopback. */
test('write.mjs', async () => {
  const { stdout } = await run(process.execPath, [path('write.mjs')]);
  expect(stdout).toBe('SUCCESS written from afar\n');
});

test('the README shows write.mjs', () => {
  expect(read('README.md')).toContain(`\`\`\`js\n${read('examples/write.mjs')}\`\`\``);
});

test('two-programs.mjs: server and client', async () => {
  const env = { ...process.env, PORT: '18677' };
  const server = spawn(process.execPath, [path('two-programs.mjs'), 'server', '127.0.7.1'], { env });
  let said = '';
  server.stdout.on('data', (data) => {
    said += data;
  });
  const ended = new Promise<number | null>((resolve) => server.on('exit', resolve));
  let client: { stdout: string } | undefined;
  for (let attempt = 0; client === undefined; attempt++) {
    client = await run(process.execPath, [path('two-programs.mjs'), 'client', '127.0.7.2', '127.0.7.1'], {
      env,
    }).catch(async (error: Error) => {
      if (!error.message.includes('ECONNREFUSED') || attempt > 50) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return undefined;
    });
  }
  expect(client.stdout).toBe('the server offers: the answer is 42\n');
  expect(await ended).toBe(0);
  expect(said).toBe('the client says: thank you\n');
});
