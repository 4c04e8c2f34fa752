/** Open MPI over UCX: two ranks, each with a device of its own. */
// @module-tag slow
// @module-tag gate
import { execFile, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Devices, roce, whyMissing } from './programs.ts';

const PYTHON = '/usr/bin/python3';
const exchange = fileURLToPath(new URL('exchange.py', import.meta.url));
const isThere = (program: string, ...args: string[]) => spawnSync(program, args).status === 0;
const missing =
  whyMissing() ??
  (isThere('mpirun', '--version') && isThere(PYTHON, '-c', 'import mpi4py')
    ? undefined
    : 'openmpi-bin or python3-mpi4py is not installed');
if (missing) console.log(`Open MPI is not run: ${missing}`);

/** Messages by UCX alone, and it by verbs alone: else ranks on one machine would use shared memory. Its default names Mellanox devices. */
const MCA = ['pml=ucx', 'pml_ucx_tls=any', 'pml_ucx_devices=any', 'osc=ucx', 'btl=self'];
const UCX = ['UCX_TLS=rc_verbs,ud_verbs', 'UCX_NET_DEVICES=roce0:1'];

describe.skipIf(missing !== undefined)('Open MPI', () => {
  let devices: Devices;
  beforeAll(async () => {
    devices = await Devices.open('127.0.0.87', '127.0.0.88');
  });
  afterAll(async () => {
    await devices.close();
  });

  test('two ranks send messages of up to 1 MiB there and back, and add up arrays', async () => {
    const ranks = devices.servers.map(({ path }) => [
      '-np',
      '1',
      process.execPath,
      roce,
      'run',
      '--socket',
      path,
      PYTHON,
      exchange,
    ]);
    const settings = [
      ...MCA.flatMap((setting) => ['--mca', ...setting.split('=')]),
      ...UCX.flatMap((setting) => ['-x', setting]),
    ];
    const args = ['--allow-run-as-root', '--oversubscribe', ...settings, ...ranks[0], ':', ...ranks[1]];
    const { stdout } = await promisify(execFile)('mpirun', args, { timeout: 240_000 });
    for (const rank of [0, 1]) expect(stdout).toContain(`rank ${rank}: all as sent`);
    // 100 messages, among them ten of a MiB in each direction.
    for (const server of devices.servers)
      expect((await server.report()).counters.sentPackets).toBeGreaterThan(1_000);
  });
});
