/** A device that fails to open leaves nothing open; the error when descriptors run out. */
import { execFile } from 'node:child_process';
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openDevice } from '@node-roce/verbs-api';
import { afterEach, describe, expect, test } from 'vitest';

const host = `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}`;
const real = os.networkInterfaces;

/** From the `n`th call on, asking for the interfaces fails. Returns how often it was asked. */
function failFrom(n: number): () => number {
  let calls = 0;
  os.networkInterfaces = () => {
    calls++;
    if (calls >= n) throw Object.assign(new Error('not now'), { code: 'EIO' });
    return real();
  };
  syncBuiltinESMExports();
  return () => calls;
}

afterEach(() => {
  os.networkInterfaces = real;
  syncBuiltinESMExports();
});

test('a device that fails to open late has closed its sockets', async () => {
  const address = `${host}.1`;
  const calls = failFrom(Number.POSITIVE_INFINITY);
  await (await openDevice({ address, link: 'udp' })).close();
  const looks = calls();
  expect(looks).toBeGreaterThan(1);
  for (let n = 1; n <= looks; n++) {
    failFrom(n);
    // Where the watch by netlink fails, polling is tried: it fails too.
    await expect(openDevice({ address, link: 'udp' })).rejects.toThrow('not now');
  }
  failFrom(Number.POSITIVE_INFINITY);
  await (await openDevice({ address, link: 'udp' })).close();
});

describe('without descriptors', () => {
  const run = async (...args: string[]) => {
    const program = join(import.meta.dirname, 'port/no-descriptors.mjs');
    const command = ['--nofile=128', process.execPath, program, ...args];
    const { stdout } = await promisify(execFile)('prlimit', command, { timeout: 240_000 });
    return JSON.parse(stdout);
  };

  test('openDevice rejects, and opens as soon as there are enough', async () => {
    const outcomes: string[] = await run('open', `${host}.2`, 'inline', '1');
    expect([...new Set(outcomes)]).toEqual(['ERR_ROCE_NO_DESCRIPTORS EMFILE', 'opened']);
  });

  test('the same where no thread can be started', async () => {
    const outcomes: string[] = await run('open', `${host}.2`, 'worker', '80');
    expect(outcomes).toEqual(['ERR_ROCE_NO_DESCRIPTORS EMFILE', 'opened']);
  });

  test('a first send leaves by the socket that there is', async () => {
    expect(await run('send', `${host}.3`, `${host}.4`)).toEqual({ status: 'SUCCESS', transmitSockets: 0 });
  });
});
