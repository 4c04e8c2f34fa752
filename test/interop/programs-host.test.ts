/** Programs that the guest's image does not have: this machine's, on rxe in the guest, and on `roce run` here. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, test } from 'vitest';
import { Guest } from './harness/guest.ts';
import { bothEndWell, MINUTES, ready, type Side, twoSides } from './harness/two-sides.ts';

const guest = new Guest(inject('guest9000'));
const { HERE, THERE, folder, gone, carried } = twoSides(guest);

const sourceOf = (name: string) => fileURLToPath(new URL(`../programs/${name}`, import.meta.url));

/** A program of test/programs that both sides can start. */
function compiled(compiler: string, source: string, ...libraries: string[]): string {
  const program = join(folder, source.split('.')[0]);
  const args = ['-O1', '-pthread', sourceOf(source), '-o', program, ...libraries.map((name) => `-l${name}`)];
  const { status, stderr } = spawnSync(compiler, args, { encoding: 'utf8' });
  expect(status, stderr).toBe(0);
  return program;
}

const ROLES = [
  ['here', HERE, THERE],
  ['in the guest', THERE, HERE],
] as const;

// Not over ofi_rxm with its server in the guest: the client of libfabric 1.17 crashes at the end (docs/run.md).
test.each([
  ['-p verbs -e msg', 'here', HERE, THERE],
  ['-p verbs -e msg', 'in the guest', THERE, HERE],
  ["-p 'verbs;ofi_rxm' -e rdm", 'here', HERE, THERE],
  ["-p 'verbs;ofi_rxd' -e rdm", 'here', HERE, THERE],
  ["-p 'verbs;ofi_rxd' -e rdm", 'in the guest', THERE, HERE],
])('fi_pingpong %s, its server %s', { timeout: 10 * MINUTES }, async (kind, _, server, client) => {
  // By default, ofi_rxm creates a completion queue for 256 peers, which is too large for rxe. The index of a GID is for datagrams.
  const line = ({ gidIndex }: Side) =>
    `env FI_UNIVERSE_SIZE=2 FI_VERBS_GID_IDX=${gidIndex} fi_pingpong ${kind} -I 10 -S 4096 -c`;
  const serving = server.start(line(server));
  // The port of its control connection.
  await ready(serving, server.listensTcp(47_592));
  await bothEndWell(serving, client.start(`${line(client)} ${server.address}`), /^4k +10 /m);
  await gone();
});

/**
 * UCX by verbs alone: it would take TCP. It finds out by the service level of a completion, as Mellanox devices set it, whether a datagram has
 * an IPv4 header; rxe's is 0, and UCX drops the datagram. A busy guest is silent for longer than the 30 s after which UCX gives up.
 */
const ucx = ({ name }: Side) =>
  `UCX_TLS=rc_verbs,ud_verbs UCX_NET_DEVICES=${name}:1 UCX_UD_ETH_DGID_CHECK=n UCX_UD_TIMEOUT=10m`;

describe.each(ROLES)('UCX, its server %s', (_, server, client) => {
  /** A port of its own for each run. */
  let port = 27_400;

  // UD connects, RC carries. Tests of UCT need devices of the same name on both sides.
  test.each(['tag_lat', 'tag_bw -s 65536', 'ucp_put_bw -s 65536', 'ucp_get -s 65536', 'ucp_fadd'])(
    'ucx_perftest -t %s',
    { timeout: 10 * MINUTES },
    async (kind) => {
      port++;
      const line = (side: Side) => `env ${ucx(side)} ucx_perftest -p ${port} -n 20 -w 2 -t ${kind}`;
      await carried(20, async () => {
        const serving = server.start(line(server));
        await ready(serving, server.listensTcp(port));
        // The last row of its table has the iterations.
        await bothEndWell(serving, client.start(`${line(client)} ${server.address}`), /^Final: +20 /m);
      });
      await gone();
    },
  );

  test('endpoints by rdma_cm carry the right bytes', { timeout: 10 * MINUTES }, async () => {
    const program = compiled('cc', 'sockaddr.c', 'ucp', 'ucs');
    const start = (side: Side, role: string) =>
      side.start(`env ${ucx(side)} UCX_SOCKADDR_TLS_PRIORITY=rdmacm ${program} ${role} ${server.address}`);
    // 4 MiB from the client. One ACK stands for many packets.
    await carried(10, async () => {
      const serving = start(server, 'server');
      await ready(serving, server.listensRdma());
      await bothEndWell(serving, start(client, 'client'), /^ok$/m);
    });
    await gone();
  });
});

describe.each(ROLES)('Open MPI, its rank 0 %s', (_, first, second) => {
  // Its default are UCX's Mellanox devices, TCP and shared memory.
  const UCX = {
    mca: ['pml ucx', 'pml_ucx_tls any', 'pml_ucx_devices any', 'osc ucx', 'btl self'],
    env: ucx,
  };
  // Its connections librdmacm makes. The completion queue is as for fi_pingpong.
  const LIBFABRIC = {
    mca: ['pml cm', 'mtl ofi', "mtl_ofi_provider_include 'verbs;ofi_rxm'", 'btl self'],
    env: () => 'FI_UNIVERSE_SIZE=2',
  };

  test.each([
    ['UCX', UCX],
    ['libfabric', LIBFABRIC],
  ])('exchanges by %s', { timeout: 10 * MINUTES }, async (_name, { mca, env }) => {
    // mpirun starts its daemon on another machine by a remote shell. This one leaves the command to us.
    const [agent, daemon] = [join(folder, 'agent'), join(folder, 'daemon')];
    rmSync(daemon, { force: true });
    writeFileSync(agent, `#!/bin/sh\nshift\necho "$*" > ${daemon}.part\nmv ${daemon}.part ${daemon}\n`, {
      mode: 0o755,
    });
    const rank = (side: Side) =>
      `-np 1 -H ${side === HERE ? 'localhost' : side.address} env ${env(side)} /usr/bin/python3 ${sourceOf('exchange.py')}`;
    const options = [
      '--allow-run-as-root --leave-session-attached',
      ...[`plm_rsh_agent ${agent}`, ...mca].map((setting) => `--mca ${setting}`),
    ].join(' ');
    // 100 messages, among them ten of a MiB in each direction.
    await carried(1000, async () => {
      const run = HERE.start(`mpirun ${options} ${rank(first)} : ${rank(second)}`);
      await ready(run, expect.poll(() => existsSync(daemon), { timeout: 2 * MINUTES }).toBe(true));
      const serving = THERE.start(`sh ${daemon}`);
      await bothEndWell(serving, run, /(?=.*rank 0: all as sent)(?=.*rank 1: all as sent)/s);
    });
    await gone();
  });
});

test.each([
  ['here', 0, 1],
  ['in the guest', 1, 0],
])('Gloo sums and broadcasts, its rank 0 %s', { timeout: 10 * MINUTES }, async (_, here, there) => {
  const program = compiled('c++', 'collective.cc', 'gloo', 'ibverbs');
  const store = mkdtempSync(join(folder, 'gloo-'));
  const start = (side: Side, rank: number) =>
    side.start(`${program} ${rank} 2 ${store} ${side.name} ${side.gidIndex}`);
  // Sums of 4 MiB: each side sends both halves once.
  await carried(1000, async () => {
    const ours = start(HERE, here);
    // Each waits 30 s for what the other one writes there.
    const wrote = expect.poll(() => readdirSync(store).length, { timeout: 2 * MINUTES });
    await ready(ours, wrote.toBeGreaterThan(0));
    await bothEndWell(ours, start(THERE, there), /^ok$/m);
    expect((await ours.ended).output).toMatch(/^ok$/m);
  });
  await gone();
});
