/** Files of a device under /sys/class/infiniband and /dev/infiniband, by every call of libc that takes a path. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Devices, whyMissing } from './programs.ts';

const missing = whyMissing();
const DEVICE = '/sys/class/infiniband/roce0';

describe.skipIf(missing !== undefined)('paths of a device', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roce-paths-'));
  let devices: Devices;
  beforeAll(async () => {
    devices = await Devices.open('127.0.0.79');
  });
  afterAll(async () => {
    await devices.close();
    rmSync(folder, { recursive: true });
  });
  const output = async (program: string, ...args: string[]) =>
    (await devices.start(0, program, args).ended).output;

  test.each([
    ['without checks', []],
    ['with _FORTIFY_SOURCE', ['-D_FORTIFY_SOURCE=2']],
  ])('every call of libc that takes a path, compiled %s', async (_what, options) => {
    const program = join(folder, 'paths');
    const source = fileURLToPath(new URL('paths.c', import.meta.url));
    const flags = ['-D_GNU_SOURCE', '-O2', '-U_FORTIFY_SOURCE', ...options];
    const compiled = spawnSync('cc', [...flags, source, '-o', program], { encoding: 'utf8' });
    expect(compiled.status, compiled.stderr).toBe(0);
    const gids = `${DEVICE}/ports/1/gids`;
    expect(await output(program, gids, '0', '0000:0000:0000:0000:0000:ffff:7f00:004f\n')).toBe('done\n');
  });

  test('a shell sees a device as the kernel would show it', async () => {
    const files = ['node_type', 'ports/1/state', 'ports/1/gid_attrs/types/0', 'ports/1/gid_attrs/ndevs/0'];
    const paths = [...files, 'ports/1/rate', 'ports/1/pkeys/0'].map((name) => `${DEVICE}/${name}`);
    const rows = (await output('cat', ...paths)).trimEnd().split('\n');
    expect(rows.slice(0, 4)).toEqual(['1: CA', '4: ACTIVE', 'RoCE v2', 'lo']);
    expect(rows[4]).toMatch(/^[\d.]+ Gb\/sec \(\d+X/);
    expect(rows[5]).toBe('0xffff');
    expect(await output('ls', '/sys/class/infiniband', `${DEVICE}/device/net`)).toBe(
      `/sys/class/infiniband:\nroce0\n\n${DEVICE}/device/net:\nlo\n`,
    );
    expect(await output('sh', '-c', 'ls -lL /dev/infiniband | tail -n 1')).toMatch(/^c.* uverbs0$/m);
  });

  test('the machine’s own /sys stays as it is', () => {
    expect(existsSync(DEVICE)).toBe(false);
  });
});
