/**
 * Programs of another Debian release, in a chroot, on the library that was built here: rdma-core's Python tests, UCX, libfabric. Its
 * packages are downloaded; so the test runs where ROCE_PROGRAM_USERLAND names the suite, as a step of the long tier does. perftest and
 * the ping-pongs: test/interop/userland.test.ts.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { listening } from './programs.ts';
import { notPassing, outcomes, uncompress } from './rdma-core.ts';
import { Userland } from './userland.ts';

const suite = process.env.ROCE_PROGRAM_USERLAND;
const PACKAGES = [
  ...['dash', 'coreutils', 'iproute2', 'python3', 'python3-pyverbs', 'rdma-core'],
  ...['ibverbs-utils', 'perftest', 'ucx-utils', 'libfabric-bin'],
];

describe.skipIf(suite === undefined)(`the userland of ${suite}`, { timeout: 400_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'roce-userland-'));
  const root = join(folder, 'root');
  let userland: Userland;

  beforeAll(async () => {
    const script = fileURLToPath(new URL('userland.sh', import.meta.url));
    const cache = fileURLToPath(new URL('../../.cache/userland', import.meta.url));
    const built = spawnSync('bash', [script, suite ?? '', root, cache, ...PACKAGES], { encoding: 'utf8' });
    expect(built.status, built.stderr).toBe(0);
    // The address of lo: tests of librdmacm take it from the interface.
    userland = await Userland.open(root, 28_000, '127.0.0.1', '127.0.0.88');
  }, 400_000);
  afterAll(async () => {
    await userland?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  test('rdma-core’s tests pass but for those of the list', async () => {
    const tests = 'usr/share/doc/rdma-core/tests';
    uncompress(join(root, tests));
    // They ask iproute2's `rdma`, which asks the kernel's RDMA core, for the network interface.
    const link = { ifindex: 0, ifname: 'roce0', port: 1, state: 'ACTIVE', netdev: 'lo', netdev_index: 1 };
    mkdirSync(join(root, 'usr/local/sbin'), { recursive: true });
    const answer = `#!/bin/sh\necho '${JSON.stringify([link])}'\n`;
    writeFileSync(join(root, 'usr/local/sbin/rdma'), answer, { mode: 0o755 });
    const line = `python3 /${tests}/run_tests.py -v --dev roce0`;
    const { found, output } = await outcomes(
      56,
      async (...names) => (await userland.start(0, [line, ...names].join(' '), 380_000).ended).output,
    );
    expect(found.size, output).toBe(Number(/^Ran (\d+) tests/m.exec(output)?.[1]));
    const notPassed = [...found].flatMap(([name, outcome]) => (outcome === 'ok' ? [] : [name]));
    expect(notPassed.sort(), output).toEqual(notPassing(56));
  });

  test('fi_pingpong', async () => {
    const line = 'fi_pingpong -p "verbs;ofi_rxd" -e rdm -I 10 -S 4096 -c';
    const server = userland.start(0, `${line} -B 28100`);
    await Promise.race([listening(28_100), server.ended]);
    const client = userland.start(1, `${line} -P 28100 127.0.0.1`);
    for (const { code, output } of [await client.ended, await server.ended]) {
      expect(code, output).toBe(0);
      expect(output).toMatch(/^4k +10 /m);
    }
  });

  test.each(['-d roce0:1 -x rc_verbs -t am_lat', '-d roce0:1 -x ud_verbs -t am_lat', '-t tag_lat'])(
    'ucx_perftest %s',
    async (options) => {
      // Debian 13's waits for MPI unless -P is 0.
      const line = `env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -P 0 -n 20 -w 2 ${options}`;
      for (const { code, output } of await userland.pair(line)) expect(code, output).toBe(0);
    },
  );
});
