/** `send` on a kernel that is made to refuse (refuse.c). */
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ownPort } from '../../packages/link/testing/loopback.ts';
import { features } from '../index.js';
import { DEADLINE_MS } from './support.ts';

const { EIO, EINVAL, EMSGSIZE, EPERM, EINTR, ENOBUFS, EAGAIN } = constants.errno;
const all = [...Array(40).keys()];
const compiler = spawnSync('cc', ['--version']).status === 0;

describe.skipIf(!compiler || !features().gso).each([
  ['packets with slots of their own', '0'],
  ['run slots', '1'],
])('a kernel that refuses %s', (_slots, runs) => {
  let folder: string;
  let library: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'refuse-'));
    library = join(folder, 'refuse.so');
    execFileSync('cc', [
      '-shared',
      '-fPIC',
      '-O1',
      '-o',
      library,
      join(import.meta.dirname, 'refuse.c'),
      '-ldl',
    ]);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  async function under(refuse: string) {
    // A sanitizer's library has to come first.
    const preload = [process.env.LD_PRELOAD, library].filter(Boolean).join(' ');
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [join(import.meta.dirname, 'refusing-kernel.mjs'), `${ownPort}`],
      { env: { ...process.env, LD_PRELOAD: preload, REFUSE: refuse, RUNS: runs }, timeout: DEADLINE_MS },
    );
    return JSON.parse(stdout);
  }

  test('nothing refused: two runs', async () => {
    const { returned, psns, bad, status, stats } = await under('nothing');
    expect({ returned, psns, bad }).toEqual({ returned: [40], psns: all, bad: 0 });
    expect(status.every((s: number) => s === 0)).toBe(true);
    expect(stats).toMatchObject({ gsoRuns: 2, gsoFallbacks: 0, txPackets: 40 });
  });

  test.each([
    ['EIO', EIO],
    ['EINVAL', EINVAL],
  ])('%s on runs: one by one, with the right ICRC, and no more runs to that peer', async (_name, errno) => {
    const { returned, psns, bad, status, stats } = await under(`run:${errno}`);
    expect({ returned, psns, bad }).toEqual({ returned: [40], psns: all, bad: 0 });
    expect(status.every((s: number) => s === 0)).toBe(true);
    expect(stats).toMatchObject({
      gsoRuns: 0,
      gsoFallbacks: 1,
      txMessages: 40,
      txPackets: 40,
      sendErrors: 0,
    });
  });

  test('EMSGSIZE on a run: its packets one by one, the next run is tried again', async () => {
    const { psns, bad, stats } = await under(`run:${EMSGSIZE}`);
    expect({ psns, bad }).toEqual({ psns: all, bad: 0 });
    expect(stats).toMatchObject({ gsoFallbacks: 2, txMessages: 40, sendErrors: 0 });
  });

  test('EPERM concerns its message only', async () => {
    // Two runs, 0 … 20 and 21 … 39, in two calls; the second one fails.
    const { returned, psns, bad, status, stats } = await under(`odd:${EPERM}`);
    expect({ returned, psns, bad }).toEqual({ returned: [40], psns: all.slice(0, 21), bad: 0 });
    expect(status).toEqual(all.map((i) => (i <= 20 ? 0 : EPERM)));
    expect(stats).toMatchObject({ sendErrors: 19, txPackets: 21 });
  });

  test('EINTR is tried again', async () => {
    expect((await under(`odd:${EINTR}`)).psns).toEqual(all);
  });

  test.each([
    ['ENOBUFS', ENOBUFS],
    ['EAGAIN', EAGAIN],
  ])('%s ends the batch at a packet that was not sent', async (_name, errno) => {
    const { returned, psns, bad, stats } = await under(`run:${errno}`);
    // Never a packet gets through here: all of the runs are refused.
    expect(returned.length).toBe(100);
    expect(new Set(returned)).toEqual(new Set([0]));
    expect({ psns, bad }).toEqual({ psns: [], bad: 0 });
    expect(stats).toMatchObject({ sendBlocked: 100, txPackets: 0, sendErrors: 0 });
  });
});
