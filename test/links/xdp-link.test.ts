/**
 * The AF_XDP link over a cable between two network namespaces. Needs root and iproute2; with ROCE_ROOT_TESTS set, as in
 * .ci/run, it fails without them. ROCE_XDP_REQUESTS is the number of requests of each exchange (90).
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openCapture } from '@node-roce/pcap/node';
import type { OpenOptions } from '@node-roce/verbs-api';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { exchange, makeCable, type PeerOpened, Program } from './xdp/cable.ts';

const REQUESTS = Number(process.env.ROCE_XDP_REQUESTS ?? 90);
const BYTES = 20_000;
const cable = makeCable('roce-xdp');
const [here, there] = cable?.ends ?? [];
const all = { SEND: REQUESTS / 3, RDMA_WRITE: REQUESTS / 3, RDMA_READ: REQUESTS / 3, RECV: REQUESTS / 3 };
const peer = (device: OpenOptions, requests = REQUESTS) => ({ device, requests, bytes: BYTES });

interface SelfResult {
  link: string;
  received: number;
  counts: Record<string, number>;
}

/** The XDP programs on the first end, as ip(8) lists them. */
const programs = () => {
  const [{ xdp }] = JSON.parse(cable!.ip(0, `-json -details link show ${here.interface}`));
  return xdp;
};

/** The hardware address of an end, as ip(8) writes it. */
const mac = (end: 0 | 1) => cable!.macOf(end).replaceAll(/..(?=.)/g, '$&:');

async function check(
  devices: readonly [OpenOptions, OpenOptions],
  requests?: number,
  meanwhile?: () => Promise<void>,
) {
  const { opened, results } = await exchange(
    cable!,
    [peer(devices[0], requests), peer(devices[1], requests)],
    meanwhile,
  );
  const expected = requests === undefined ? all : undefined;
  for (const { counts, wrong, icrcErrors } of results) {
    if (expected) expect(counts).toEqual(expected);
    expect(wrong).toBe(0);
    expect(icrcErrors).toBe(0);
  }
  return { opened, results };
}

afterAll(() => cable?.[Symbol.dispose]());

/** In `npm test`: a row of traffic in each mode. */
const slow = { tags: ['slow'] };

describe.skipIf(!cable)('traffic', () => {
  beforeAll(() => {
    for (const end of [0, 1] as const) {
      const nic = [here, there][end].interface;
      cable!.ip(end, `address add fd77::${end + 1}/64 dev ${nic} nodad`);
    }
  });

  describe.each([
    [1500, 1024, slow],
    [9000, 4096, {}],
  ] as const)('interface MTU %i', (mtu, pathMtu, tagged) => {
    beforeAll(() => cable!.mtu(mtu));

    test.each([
      ['native', 'udp'],
      ['generic', 'udp'],
      ['native', 'xdp'],
      ['generic', 'xdp'],
    ] as const)(`path MTU ${pathMtu} over IPv4, mode %s, to the %s link`, tagged, async (xdpMode, other) => {
      const { opened, results } = await check([
        { address: here.address, link: 'xdp', xdpMode },
        { address: there.address, link: other, ...(other === 'xdp' ? { xdpMode } : {}) },
      ]);
      expect(opened.map(({ link, activeMtu }) => [link, activeMtu])).toEqual([
        ['xdp', pathMtu],
        [other, pathMtu],
      ]);
      // Runs of the other side's come whole where the driver does not cut them.
      if (xdpMode === 'generic' && other === 'udp') expect(results[0].link.superPackets).toBeGreaterThan(0);
    });

    test.each(['native', 'generic'] as const)(
      `path MTU ${pathMtu} over IPv6, mode %s, to the udp link`,
      slow,
      async (xdpMode) => {
        const { opened } = await check([
          { address: 'fd77::1', link: 'xdp', xdpMode },
          { address: 'fd77::2', link: 'udp' },
        ]);
        expect(opened[0].link).toBe('xdp');
      },
    );
  });

  test('runs whose payload looks like headers at each word', slow, async () => {
    cable!.mtu(9000);
    const payload = [0x00, 0x00, 0xff, 0xff];
    const { results } = await exchange(cable!, [
      { ...peer({ address: here.address, link: 'xdp', xdpMode: 'generic' }), payload },
      { ...peer({ address: there.address, link: 'udp' }), payload },
    ]);
    for (const { counts, wrong, icrcErrors } of results)
      expect({ counts, wrong, icrcErrors }).toEqual({ counts: all, wrong: 0, icrcErrors: 0 });
    expect(results[0].link.superPackets).toBeGreaterThan(0);
  });

  test('engines in workers', async () => {
    const { opened } = await check([
      { address: here.address, link: 'xdp', engine: 'worker' },
      { address: there.address, link: 'udp', engine: 'worker' },
    ]);
    expect(opened[0].link).toBe('xdp');
  });

  test('packets that are lost, late and twice, and a trace of them all', slow, async () => {
    const trace = join(tmpdir(), `roce-xdp-${process.pid}.pcapng`);
    const { results } = await check([
      {
        address: here.address,
        link: 'xdp',
        trace,
        faults: { loss: 0.01, duplicate: 0.01, reorder: 0.01, seed: 3 },
      },
      { address: there.address, link: 'udp' },
    ]);
    let traced = 0;
    await using capture = openCapture(trace);
    for await (const packets of capture) traced += packets.length;
    await rm(trace);
    expect(traced).toBeGreaterThan(REQUESTS);
    expect(results[1].retransmittedPackets + results[0].retransmittedPackets).toBeGreaterThan(0);
  });

  test('a neighbour that is not known yet, and one that is known to the kernel alone', slow, async () => {
    for (const end of [0, 1] as const) cable!.ip(end, 'neighbour flush all');
    const { results } = await check([
      { address: here.address, link: 'xdp' },
      { address: there.address, link: 'xdp' },
    ]);
    expect(results[0].link.txPackets).toBeGreaterThan(results[0].link.txThroughKernel);
  });

  test(
    'a neighbour over IPv6 that is not known here, but there, without link-local addresses',
    slow,
    async () => {
      cable!.ip(0, `-6 neighbour flush dev ${here.interface}`);
      cable!.ip(1, `-6 neighbour replace fd77::1 lladdr ${mac(0)} nud reachable dev ${there.interface}`);
      const { results } = await check([
        { address: 'fd77::1', link: 'xdp' },
        { address: 'fd77::2', link: 'udp' },
      ]);
      expect(results[0].link.txThroughKernel).toBeGreaterThan(0);
      // A second without an answer is some 60 of them.
      expect(results[0].retransmittedPackets + results[1].retransmittedPackets).toBeLessThan(25);
    },
  );

  test('a permanent neighbour that answers nobody stays one', slow, async () => {
    onTestFinished(() => void cable!.ip(1, `link set ${there.interface} arp on`));
    cable!.ip(1, `link set ${there.interface} arp off`);
    cable!.ip(1, `neighbour replace 10.77.0.1 lladdr ${mac(0)} nud permanent dev ${there.interface}`);
    cable!.ip(0, `neighbour replace 10.77.0.2 lladdr ${mac(1)} nud permanent dev ${here.interface}`);
    onTestFinished(() => void cable!.ip(0, `neighbour delete 10.77.0.2 dev ${here.interface}`));
    for (const link of ['xdp', 'udp'] as const) {
      const { results } = await check([
        { address: here.address, link },
        { address: there.address, link: 'udp' },
      ]);
      // A packet now and then makes the kernel check a neighbour.
      if (link === 'xdp') expect(results[0].link.txThroughKernel).toBeGreaterThan(0);
      const [{ state }] = JSON.parse(cable!.ip(0, '-json neighbour show 10.77.0.2'));
      expect(state).toEqual(['PERMANENT']);
    }
  });

  test('a peer that gets another MAC address is followed', slow, async () => {
    const { results } = await check(
      [
        { address: here.address, link: 'xdp' },
        { address: there.address, link: 'xdp' },
      ],
      30 * REQUESTS,
      async () => {
        cable!.ip(1, `link set ${there.interface} address 02:00:00:00:77:02`);
        // The kernel there announces it at the next packet; here its neighbour is set, as an announcement would.
        cable!.ip(0, `neighbour replace 10.77.0.2 lladdr 02:00:00:00:77:02 dev ${here.interface}`);
      },
    );
    expect(results[0].counts.SEND).toBe(10 * REQUESTS);
  });
});

describe.skipIf(!cable)('a kernel that takes frames later', { tags: ['slow'] }, () => {
  test('an idle device sleeps afterwards', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'xdp-busy-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const library = join(folder, 'busy.so');
    const compile = [
      '-shared',
      '-fPIC',
      '-O1',
      '-o',
      library,
      join(import.meta.dirname, 'xdp/busy.c'),
      '-ldl',
    ];
    execFileSync(process.env.CC ?? 'cc', compile);
    const near = new Program(here.namespace, 'peer.mjs', peer({ address: here.address, link: 'xdp' }, 900), [
      'env',
      `LD_PRELOAD=${library}`,
    ]);
    const far = new Program(there.namespace, 'peer.mjs', peer({ address: there.address, link: 'udp' }, 900));
    const [{ data, link }, { data: farData }] = [
      await near.hear<PeerOpened>('data'),
      await far.hear<PeerOpened>('data'),
    ];
    expect(link).toBe('xdp');
    near.tell(farData);
    far.tell(data);
    for (const program of [near, far]) await program.hear('connected');
    for (const program of [near, far]) program.tell('begin');
    for (const program of [near, far]) await program.hear('done');
    // ip(8) and env(1) have become the program.
    const status = `/proc/${near.child.pid}/status`;
    const sleeps = () => Number(/^voluntary_ctxt_switches:\s*(\d+)/m.exec(readFileSync(status, 'utf8'))![1]);
    // ACKs and timers of the last requests come first.
    await sleep(500);
    const before = sleeps();
    await sleep(500);
    expect(sleeps() - before).toBeLessThan(50);
  });
});

/** As test/sockets/retry-count.test.ts for the other links. */
describe.skipIf(!cable)('a peer that never answers', { tags: ['slow', 'gate'] }, () => {
  test.each([{}, { probes: false }])('sees 1 + retry_cnt transmissions, recovery %o', async (recovery) => {
    const peer = new Program(there.namespace, 'mute.mjs', { listen: there.address });
    await peer.hear('listening');
    const counted = async () => {
      peer.tell('count');
      return (await peer.hear<{ counts: Record<string, number> }>('counted')).counts;
    };
    const retryCnts = [0, 1, 2, 3, 4, 5, 6, 7];
    const device = { address: here.address, link: 'xdp', recovery };
    const program = new Program(here.namespace, 'unanswered.mjs', { device, to: there.address, retryCnts });
    expect(await program.hear('ended')).toMatchObject({
      link: 'xdp',
      statuses: retryCnts.map(() => 'RETRY_EXC_ERR'),
      sentPackets: 36,
      probes: 0,
    });
    await program.end();
    const expected = Object.fromEntries(retryCnts.map((retryCnt) => [100 + retryCnt, 1 + retryCnt]));
    // Packets that were sent arrive, perhaps after the report.
    await expect.poll(counted, { timeout: 120_000 }).toEqual(expected);
    expect(await counted()).toEqual(expected);
    peer.child.stdin!.end();
    await peer.end();
  });
});

describe.skipIf(!cable)('with other programs on the interface', { tags: ['slow'] }, () => {
  test('another adapter at the same address works on', async () => {
    const other = new Program(here.namespace, 'peer.mjs', peer({ address: here.address, link: 'udp' }));
    const far = new Program(there.namespace, 'peer.mjs', peer({ address: there.address, link: 'udp' }));
    const { data } = await other.hear<PeerOpened>('data');
    const { data: farData } = await far.hear<PeerOpened>('data');
    other.tell(farData);
    far.tell(data);
    for (const program of [other, far]) await program.hear('connected');
    // Between them it is opened, and has traffic of its own with a third one.
    cable!.ip(1, `address add 10.77.0.3/24 dev ${there.interface}`);
    const { opened } = await check(
      [
        { address: here.address, link: 'xdp' },
        { address: '10.77.0.3', link: 'udp' },
      ],
      undefined,
      async () => {
        for (const program of [other, far]) program.tell('begin');
        for (const program of [other, far]) await program.hear('done');
      },
    );
    expect(opened[0].limitations.join()).toContain('Queue pair 1');
    for (const program of [other, far]) program.tell('end');
    for (const program of [other, far])
      expect(await program.hear('result')).toMatchObject({ counts: all, wrong: 0 });
  });

  test('a TCP connection at the same address works on', async () => {
    const bytes = 1 << 20;
    const server = new Program(here.namespace, 'tcp.mjs', { listen: here.address });
    const { port } = await server.hear<{ port: number }>('listening');
    await check(
      [
        { address: here.address, link: 'xdp' },
        { address: there.address, link: 'udp' },
      ],
      undefined,
      async () => {
        const client = new Program(there.namespace, 'tcp.mjs', { to: { host: here.address, port }, bytes });
        expect(await client.hear('echoed')).toMatchObject({ bytes });
      },
    );
    server.child.kill('SIGKILL');
  });

  test('two queue pairs of one device, at one address', async () => {
    const program = new Program(here.namespace, 'self.mjs', { address: here.address, link: 'xdp' });
    const { link, received, counts } = await program.hear<SelfResult>('result');
    expect({ link, received }).toEqual({ link: 'xdp', received: 20 });
    expect(counts.txLooped).toBeGreaterThan(0);
    expect(counts).toMatchObject({ icrcBad: 0, malformed: 0, badSources: 0, loopDrops: 0 });
  });

  test('over lo, to the udp link of another process', async () => {
    const devices = [
      { address: '127.0.0.1', link: 'xdp', xdpMode: 'any' },
      { address: '127.0.0.2', link: 'udp' },
    ] as const;
    const { opened, results } = await exchange(
      cable!,
      [peer(devices[0]), peer(devices[1])],
      undefined,
      [0, 0],
    );
    expect(opened[0].limitations.join(' ')).toContain('generic mode');
    expect(results).toMatchObject([
      { counts: all, wrong: 0 },
      { counts: all, wrong: 0 },
    ]);
  });

  test('a killed process leaves nothing behind', async () => {
    const killed = new Program(here.namespace, 'peer.mjs', peer({ address: here.address, link: 'xdp' }));
    expect((await killed.hear<PeerOpened>('data')).link).toBe('xdp');
    expect(programs()).toBeDefined();
    const gone = new Promise((resolve) => killed.child.once('exit', resolve));
    killed.child.kill('SIGKILL');
    await gone;
    expect(programs()).toBeUndefined();
    const next = new Program(here.namespace, 'peer.mjs', peer({ address: here.address, link: 'xdp' }));
    expect((await next.hear<PeerOpened>('data')).link).toBe('xdp');
    next.child.kill('SIGKILL');
  });

  test('a second program on the interface: the udp link, and why', async () => {
    const first = new Program(here.namespace, 'peer.mjs', peer({ address: here.address, link: 'xdp' }));
    await first.hear('data');
    cable!.ip(0, `address add 10.77.0.11/24 dev ${here.interface}`);
    const second = new Program(here.namespace, 'peer.mjs', peer({ address: '10.77.0.11', link: 'xdp' }));
    const { link, limitations } = await second.hear<PeerOpened>('data');
    expect(link).toBe('udp');
    expect(limitations[0]).toMatch(/^The udp link is used instead of xdp\. .*another/);
    for (const program of [first, second]) program.child.kill('SIGKILL');
  });

  test('with little memory to lock: fewer chunks, or the udp link, and what is missing', async () => {
    const limited = async (bytes: number) => {
      const before = ['prlimit', `--memlock=${bytes}`, 'setpriv', '--bounding-set=-ipc_lock'];
      const program = new Program(
        here.namespace,
        'peer.mjs',
        peer({ address: here.address, link: 'xdp' }),
        before,
      );
      const { link, limitations } = await program.hear<PeerOpened>('data');
      program.child.kill('SIGKILL');
      return { link, limitations: limitations.join(' ') };
    };
    cable!.mtu(1500);
    expect(await limited(8 << 20)).toMatchObject({
      link: 'xdp',
      limitations: expect.stringMatching(
        /The kernel locks [24] MiB to receive into, for want of CAP_IPC_LOCK/,
      ),
    });
    expect(await limited(0)).toMatchObject({
      link: 'udp',
      limitations: expect.stringContaining('RLIMIT_MEMLOCK is too low, and CAP_IPC_LOCK is missing'),
    });
  });

  test.each([
    ['doctor --xdp --bind 10.77.0.1', '-bpf,-sys_admin', 0, /xdp: link: no AF_XDP on roce0: .*needs CAP_BPF/],
    ['doctor --xdp --bind 10.77.0.1', '+all', 0, /xdp: AF_XDP runs in native mode/],
    ['pingpong --link xdp --bind 10.77.0.1', '-net_raw', 1, /no AF_XDP on roce0: .*needs CAP_NET_RAW/],
    ['ping --link xdp -I 10.77.0.1 10.77.0.2', '-net_admin,-sys_admin', 1, /needs CAP_NET_ADMIN/],
    ['rping -s -a 10.77.0.1 --link xdp', '-bpf,-sys_admin', 1, /needs CAP_BPF/],
    ['perf write bw --link xdp --bind 10.77.0.1 10.77.0.2', '-net_raw', 1, /needs CAP_NET_RAW/],
    ['device -a 10.77.0.1 --socket /tmp/roce-xdp-none/a.sock --link xdp', '-net_raw', 1, /needs CAP_NET_RAW/],
  ])('roce %s with the capabilities %s', (command, capabilities, status, expected) => {
    const roce = join(import.meta.dirname, '../../packages/cli/bin/roce.js');
    const before = ['netns', 'exec', here.namespace, 'setpriv', `--bounding-set=${capabilities}`];
    const ran = spawnSync('ip', [...before, process.execPath, roce, ...command.split(' ')], {
      encoding: 'utf8',
      timeout: 240_000,
    });
    expect(ran.status, ran.stderr).toBe(status);
    // Without the breaks of lines.
    expect(`${ran.stdout}${ran.stderr}`.replaceAll(/\s+/g, ' ')).toMatch(expected);
  });

  test.each([
    ['-net_raw', ['CAP_NET_RAW']],
    ['-net_admin,-sys_admin', ['CAP_NET_ADMIN']],
    ['-bpf,-sys_admin', ['CAP_BPF']],
    ['-all', ['CAP_NET_RAW', 'CAP_NET_ADMIN', 'CAP_BPF']],
  ])('with the capabilities %s: the udp link, and the missing requirements', async (dropped, missing) => {
    const program = new Program(here.namespace, 'peer.mjs', peer({ address: here.address, link: 'xdp' }), [
      'setpriv',
      `--bounding-set=${dropped}`,
    ]);
    const { link, limitations } = await program.hear<PeerOpened>('data');
    expect(link).toBe('udp');
    expect(limitations[0]).toContain(`needs ${missing.join(', ')}`);
    program.child.kill('SIGKILL');
  });
});
