/**
 * The guest's programs on this machine, in a chroot, with the library that was built here, maybe for another release. The guest's
 * kernel has no part in it.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Userland } from '../programs/userland.ts';

const root = mkdtempSync(join(tmpdir(), 'roce-userland-'));
let userland: Userland;

beforeAll(async () => {
  const archive = openSync(join(process.env.ROCE_GUEST_IMAGE ?? '', 'initramfs.cpio'), 'r');
  const unpacked = spawnSync('cpio', ['--extract', '--make-directories', '--quiet'], {
    cwd: root,
    stdio: [archive, 'ignore', 'pipe'],
  });
  expect(unpacked.status, String(unpacked.stderr)).toBe(0);
  userland = await Userland.open(root, 26_000, '127.0.0.83', '127.0.0.84');
}, 60_000);
afterAll(async () => {
  await userland.close();
  rmSync(root, { recursive: true });
});

async function play(line: string): Promise<string[]> {
  const both = await userland.pair(line);
  for (const { code, output } of both) expect(code, output).toBe(0);
  return both.map(({ output }) => output);
}

describe('the guest’s userland, on our library', { timeout: 60_000 }, () => {
  test('ibv_devinfo', async () => {
    const { code, output } = await userland.start(0, 'ibv_devinfo -v').ended;
    expect(code, output).toBe(0);
    expect(output).toMatch(/GID\[ *0\]:\s+::ffff:127\.0\.0\.83, RoCE v2/);
  });

  // Nothing is retransmitted for UC and UD: once more where a machine that was busy lost a packet.
  test.each([
    'ibv_rc_pingpong -g 0 -n 100 -c',
    'ibv_rc_pingpong -g 0 -n 100 -e -N',
    'ibv_uc_pingpong -g 0 -n 100',
    'ibv_ud_pingpong -g 0 -n 100 -e',
    'ibv_srq_pingpong -g 0 -n 100',
  ])('%s', { retry: 1 }, async (line) => {
    for (const output of await play(line)) expect(output).toMatch(/100 iters in/);
  });

  test.each([
    'ib_write_bw -x 0 -F -a -n 5',
    'ib_write_lat -x 0 -F -n 50',
    'ib_send_bw -x 0 -F -e -n 50',
    'ib_send_lat -x 0 -F -c UD -n 50',
    'ib_read_bw -x 0 -F -q 4 -n 50',
    'ib_atomic_lat -x 0 -F -n 50',
  ])('%s', { retry: 1 }, async (line) => {
    const [, client] = await play(line);
    expect(client).toMatch(/^ \d+ +\d+ +[\d.]+/m);
  });
});
