/** The programs of the guide run as they stand, and its pages quote them as they are. */
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { guidePages, quotedIn, withQuotes } from '../../scripts/guide-quotes.mjs';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
const path = (name: string) => `${root}examples/guide/${name}`;
const pages: { path: string; text: string }[] = guidePages();
const quoted = (text: string): string[] => quotedIn(text);

test('the pages quote the programs as they are (node scripts/guide-quotes.mjs)', () => {
  for (const page of pages) expect(withQuotes(page.text), page.path).toBe(page.text);
});

test('each program of examples/guide is quoted, and each quoted program exists', () => {
  const all = pages.flatMap(({ text }) => quoted(text));
  expect(all.filter((file) => file.startsWith('examples/guide/')).sort()).toEqual(
    ['chat', 'client', 'failures', 'grants', 'lifetimes', 'one-sided', 'server', 'stream', 'vanished'].map(
      (name) => `examples/guide/${name}.mjs`,
    ),
  );
  for (const file of all) expect(existsSync(`${root}${file}`), file).toBe(true);
});

/** Waits until a program has printed a line that contains the text. */
const printed = (child: ReturnType<typeof spawn>, text: string) =>
  new Promise<void>((resolve, reject) => {
    let all = '';
    child.stdout?.on('data', (data) => {
      all += data;
      if (all.includes(text)) resolve();
    });
    child.on('exit', () => reject(new Error(`ended without "${text}": ${all}`)));
  });
const ended = (child: ReturnType<typeof spawn>) =>
  new Promise<number | null>((resolve) => child.on('exit', resolve));

describe('the programs print the output in the guide', { tags: ['slow', 'gate'] }, () => {
  const said: Record<string, string[]> = {
    'one-sided.mjs': ['the counter was 0', 'read: hello', 'the text is hello'],
    'stream.mjs': ['sent 3276800 bytes, received 3276800'],
    'grants.mjs': ['200 messages, 0 times not ready'],
    'lifetimes.mjs': ['completion queue: ERR_ROCE_BUSY', 'protection domain: ERR_ROCE_BUSY', 'closed'],
    'failures.mjs': [
      'read',
      'ERR_ROCE_COMPLETION REM_ACCESS_ERR, the queue pair is in ERR',
      'read',
      'ERR_ROCE_INVALID_ATTRIBUTE slotz - slots',
      'ERR_ROCE_CM_REFUSED INVALID_SERVICE_ID',
    ],
    'vanished.mjs': ['ARE YOU THERE?', 'gone: RETRY_EXC_ERR', 'ARE YOU THERE?'],
  };
  test.each(Object.keys(said))('%s', async (name) => {
    const { stdout } = await run(process.execPath, [path(name)]);
    expect(stdout.trim().split('\n')).toEqual(said[name]);
  });

  test('server.mjs and client.mjs', async () => {
    const server = spawn(process.execPath, [path('server.mjs')]);
    await printed(server, 'listening at 127.0.51.1:7471');
    const { stdout } = await run(process.execPath, [path('client.mjs')]);
    expect(stdout).toBe('hello → HELLO\nworld → WORLD\n');
    const end = ended(server);
    server.kill('SIGTERM');
    expect(await end).toBe(0);
  });

  test('chat.mjs: two programs hear each other, and not themselves', async () => {
    const [ann, bob] = ['127.0.58.1 ann', '127.0.58.2 bob'].map((args) =>
      spawn(process.execPath, [path('chat.mjs'), ...args.split(' ')]),
    ) as [ReturnType<typeof spawn>, ReturnType<typeof spawn>];
    let own = '';
    ann.stdout?.on('data', (data) => {
      own += data;
    });
    // Datagrams to a program that has not joined yet are lost: ann repeats hers until bob has one.
    const heard = printed(bob, 'ann: hello');
    const repeat = setInterval(() => ann.stdin?.write('hello\n'), 200);
    await heard;
    clearInterval(repeat);
    const answered = printed(ann, 'bob: hi');
    bob.stdin?.write('hi\n');
    await answered;
    const ends = [ended(ann), ended(bob)];
    for (const member of [ann, bob]) member.stdin?.end();
    expect(await Promise.all(ends)).toEqual([0, 0]);
    expect(own).not.toContain('ann: hello');
  });
});
