/** `roce view`: the page is served to this machine, or written. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { viewerPage } from '@node-roce/capture/node';
import { expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../testing/folder.ts';
import { run } from './cli.ts';

const folder = ownFolder();
removeFolders();

/** A promise of the address, and what fulfils it. */
function awaited() {
  let print!: (text: string) => void;
  const address = new Promise<string>((resolve) => {
    print = resolve;
  });
  return { address, print };
}

/** Runs the command; `printed` gets the first text on stdout. */
function roce(args: readonly string[], signal: AbortSignal, printed: (text: string) => void = () => {}) {
  const err: string[] = [];
  const code = run(['view', ...args], {
    stdin: Readable.from([]),
    stdout: { write: (text) => printed(String(text)) },
    stderr: { write: (text) => err.push(String(text)) },
    env: {},
    signal,
  });
  return { code, err };
}

test('serves the page on 127.0.0.1 until Ctrl-C', async () => {
  const end = new AbortController();
  const { address, print } = awaited();
  const { code } = roce([], end.signal, print);
  const url = (await address).trim();
  expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/$/);
  const response = await fetch(url);
  expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8');
  expect(await response.text()).toBe(viewerPage());
  expect((await fetch(`${url}../etc/passwd`)).status).toBe(404);
  expect((await fetch(url, { method: 'POST' })).status).toBe(404);
  end.abort();
  expect(await code).toBe(0);
  await expect(fetch(url)).rejects.toThrow();
});

test('a port that is taken: an error that names it', async () => {
  const end = new AbortController();
  const { address, print } = awaited();
  const first = roce([], end.signal, print);
  const { port } = new URL(await address);
  const { code, err } = roce(['--port', port], new AbortController().signal);
  expect(await code).toBe(1);
  expect(err.join('')).toContain(port);
  end.abort();
  await first.code;
});

test('writes the page', async () => {
  const file = join(folder, 'page.html');
  const { code, err } = roce(['-o', file], new AbortController().signal);
  expect(await code).toBe(0);
  expect(readFileSync(file, 'utf8')).toBe(viewerPage());
  expect(err.join('')).toContain(`${file}: a page that analyzes captures`);
  expect(await roce(['-o', file, '--port', '9'], new AbortController().signal).code).toBe(2);
});
