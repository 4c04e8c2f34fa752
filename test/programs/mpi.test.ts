/** Open MPI over UCX, and over libfabric: two ranks, each with a device of its own. */
// @module-tag slow
import { execFile, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
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

/** An option and its value: `--mca pml=cm` is three words of mpirun's. */
const words = (setting: string) => {
  const [option, value] = setting.split(' ');
  return option === '--mca' ? [option, ...value.split('=')] : [option, value];
};

/** Messages by UCX alone, and it by verbs alone: else ranks on one machine would use shared memory. Its default names Mellanox devices. */
const UCX = [
  ...['pml=ucx', 'pml_ucx_tls=any', 'pml_ucx_devices=any', 'osc=ucx', 'btl=self'].map((at) => `--mca ${at}`),
  ...['UCX_TLS=rc_verbs,ud_verbs', 'UCX_NET_DEVICES=roce0:1'].map((at) => `-x ${at}`),
];
/** Messages by libfabric alone, whose connections librdmacm makes. */
const LIBFABRIC = ['pml=cm', 'mtl=ofi', 'mtl_ofi_provider_include=verbs;ofi_rxm', 'btl=self'].map(
  (at) => `--mca ${at}`,
);

describe.skipIf(missing !== undefined)('Open MPI', () => {
  /** Two ranks send messages of up to 1 MiB there and back, and add up arrays. */
  async function exchangeAt(settings: readonly string[], ...addresses: [string, string]): Promise<void> {
    const devices = await Devices.open(...addresses);
    onTestFinished(() => devices.close());
    const ranks = devices.servers.map(({ path }) => [
      ...['-np', '1', process.execPath, roce, 'run', '--socket', path],
      ...[PYTHON, exchange],
    ]);
    const args = ['--allow-run-as-root', '--oversubscribe', ...settings.flatMap(words), ...ranks[0], ':'];
    const { stdout } = await promisify(execFile)('mpirun', [...args, ...ranks[1]], { timeout: 280_000 });
    for (const rank of [0, 1]) expect(stdout).toContain(`rank ${rank}: all as sent`);
    // 100 messages, among them ten of a MiB in each direction.
    for (const server of devices.servers)
      expect((await server.report()).counters.sentPackets).toBeGreaterThan(1_000);
  }

  test('exchanges by UCX', { tags: ['gate'] }, () => exchangeAt(UCX, '127.0.0.87', '127.0.0.88'));

  // libfabric leaves lo out.
  test.skipIf(process.getuid?.() !== 0)(
    'exchanges by libfabric, whose connections librdmacm makes',
    async () => {
      const addresses = ['10.87.0.1', '10.87.0.2'] as const;
      const ip = (line: string) =>
        expect(spawnSync('ip', line.split(' '), { encoding: 'utf8' }).stderr).toBe('');
      onTestFinished(() => void spawnSync('ip', ['link', 'del', 'roce-a']));
      ip('link add roce-a type veth peer name roce-b');
      ip('link set roce-b up');
      for (const address of addresses) ip(`addr add ${address}/24 dev roce-a`);
      ip('link set roce-a up');
      await exchangeAt(LIBFABRIC, ...addresses);
    },
  );
});
