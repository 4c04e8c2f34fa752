/**
 * The AF_XDP link and hostile frames from the wire; several receive queues; more than there is room for. Needs root and
 * iproute2; with ROCE_ROOT_TESTS set, as in .ci/run, it fails without them. ROCE_XDP_FRAMES is the number of changed frames (2,000).
 */
import { spawnSync } from 'node:child_process';
import { cpus } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { OpenOptions } from '@node-roce/verbs-api';
import { createRandom } from '@node-roce/wire';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeCable, type PeerOpened, type PeerResult, Program } from './xdp/cable.ts';
import { type HostileFrame, hostileFrames, mutant, plainFrame, type Target } from './xdp/hostile-frames.ts';

const FRAMES = Number(process.env.ROCE_XDP_FRAMES ?? 2000);
const REQUESTS = 90;
/** Frames of each kind. */
const TIMES = 10;
/** No more at once than the smallest queue on the way holds (of veth, 256). */
const BURST = 64;
const cable = makeCable('roce-xdp-hostile');
const [here, there] = cable?.ends ?? [];
const all = { SEND: REQUESTS / 3, RDMA_WRITE: REQUESTS / 3, RDMA_READ: REQUESTS / 3, RECV: REQUESTS / 3 };
/** A second cable, with several queues. */
const MANY = { near: 'many0', far: 'many1', queues: 4 };

/** A peer over xdp and one over UDP, connected, and a program that sends frames to the first. */
class Scene {
  readonly #peers: readonly [Program, Program];
  readonly #sender: Program;
  readonly target: Target;

  private constructor(peers: readonly [Program, Program], sender: Program, target: Target) {
    this.#peers = peers;
    this.#sender = sender;
    this.target = target;
  }

  static async open(
    device: OpenOptions,
    nics = { near: here.interface, far: there.interface },
    net = 77,
    before: readonly string[] = [],
  ): Promise<Scene> {
    const peer = (namespace: string, options: OpenOptions, before: readonly string[] = []) =>
      new Program(namespace, 'peer.mjs', { device: options, requests: REQUESTS, bytes: 20_000 }, before);
    const peers = [
      peer(here.namespace, device, before),
      peer(there.namespace, { address: `10.${net}.0.2`, link: 'udp' }),
    ] as const;
    const data = await Promise.all(peers.map((program) => program.hear<PeerOpened>('data')));
    expect(data[0].link).toBe('xdp');
    for (const [i, program] of peers.entries()) program.tell(data[1 - i].data);
    for (const program of peers) await program.hear('connected');
    const sender = new Program(there.namespace, 'frames.mjs', { interface: nics.far });
    await sender.hear('ready');
    const macOf = (end: 0 | 1, nic: string) =>
      JSON.parse(cable!.ip(end, `-json link show ${nic}`))[0].address.replaceAll(':', '');
    return new Scene(peers, sender, {
      macs: { source: macOf(1, nics.far), destination: macOf(0, nics.near) },
      ip4: { source: `10.${net}.0.2`, destination: `10.${net}.0.1` },
      ip6: { source: `fd${net}::2`, destination: `fd${net}::1` },
      qpn: data[0].data.qpNum as number,
    });
  }

  get near(): Program {
    return this.#peers[0];
  }

  async send(frames: readonly Uint8Array[]): Promise<void> {
    this.#sender.tell({ frames: frames.map((frame) => Buffer.from(frame).toString('base64')) });
    await this.#sender.hear('sent');
  }

  /** Waits until the link has counted that. */
  async until(enough: (link: Record<string, number>) => boolean): Promise<void> {
    for (;;) {
      this.near.tell('counts');
      const { link } = await this.near.hear<{ link: Record<string, number> }>('counts');
      if (enough(link)) return;
      await sleep(5);
    }
  }

  /** The peers' own traffic: nothing of what was sent may show in it. Returns the link's counts. */
  async exchange(meanwhile?: () => Promise<void>): Promise<Record<string, number>> {
    for (const program of this.#peers) program.tell('begin');
    await meanwhile?.();
    for (const program of this.#peers) await program.hear('done');
    for (const program of this.#peers) program.tell('end');
    const results = await Promise.all(this.#peers.map((program) => program.hear<PeerResult>('result')));
    expect(results).toMatchObject([
      { counts: all, wrong: 0 },
      { counts: all, wrong: 0 },
    ]);
    return results[0].link;
  }
}

beforeAll(() => {
  for (const end of [0, 1] as const)
    cable?.ip(end, `address add fd77::${end + 1}/64 dev ${[here, there][end].interface} nodad`);
});
afterAll(() => cable?.[Symbol.dispose]());

describe.skipIf(!cable).each(['native', 'generic'] as const)('mode %s', (xdpMode) => {
  test('each kind of hostile frame is counted, or the kernel’s', async () => {
    const scene = await Scene.open({ interface: here.interface, link: 'xdp', xdpMode });
    const kinds = hostileFrames(scene.target);
    const expected: Partial<Record<NonNullable<HostileFrame['count']>, number>> = {};
    for (const { what, count, frame } of kinds) {
      await scene.send(Array.from({ length: TIMES }, () => frame));
      if (count === undefined) continue;
      const most = (expected[count] ?? 0) + TIMES;
      expected[count] = most;
      await scene.until((link) => {
        expect(link[count], what).toBeLessThanOrEqual(most);
        return link[count] === most;
      });
    }
    expect(Object.keys(expected)).toHaveLength(5);
    const counts = await scene.exchange();
    expect(counts).toMatchObject({ ...expected, kernelDrops: 0, badDescriptors: 0 });
  });

  test('changed frames meanwhile harm nothing', async () => {
    const scene = await Scene.open({ interface: here.interface, link: 'xdp', xdpMode });
    const random = createRandom(11);
    const counts = await scene.exchange(async () => {
      for (let sent = 0; sent < FRAMES; sent += BURST)
        await scene.send(Array.from({ length: BURST }, () => mutant(scene.target, random)));
    });
    for (const name of ['malformed', 'checksumErrors', 'icrcBad'])
      expect(counts[name], name).toBeGreaterThan(0);
  });
});

describe.skipIf(!cable)('rings', () => {
  test('frames for which there is no chunk are counted, and the traffic goes on', async () => {
    const scene = await Scene.open({ address: here.address, link: 'xdp', xdpMode: 'generic' });
    scene.near.child.kill('SIGSTOP');
    // Three times as many as there are chunks.
    const burst = Array.from({ length: BURST }, () => plainFrame(scene.target));
    for (let sent = 0; sent < 3 * 4096; sent += BURST) await scene.send(burst);
    scene.near.child.kill('SIGCONT');
    await scene.until(({ icrcBad, kernelDrops }) => icrcBad > 2000 && kernelDrops > 0);
    const counts = await scene.exchange();
    expect(counts.kernelFillEmpty).toBeGreaterThan(0);
  });

  test('all receive queues of the interface are taken from', async () => {
    const ends = ` numrxqueues ${MANY.queues} numtxqueues ${MANY.queues}`;
    cable!.ip(0, `link add ${MANY.near}${ends} type veth peer name ${MANY.far}${ends}`);
    cable!.ip(0, `link set ${MANY.far} netns ${there.namespace}`);
    for (const [end, nic] of [MANY.near, MANY.far].entries()) {
      cable!.ip(end as 0 | 1, `link set ${nic} addrgenmode none`);
      cable!.ip(end as 0 | 1, `link set ${nic} up`);
      cable!.ip(end as 0 | 1, `address add 10.78.0.${end + 1}/24 dev ${nic}`);
    }
    // In a container, and under `nsenter --net`, /sys shows another network namespace: none at all here.
    const withoutSys = ['sh', '-c', 'umount -l /sys && exec "$@"', 'sh'];
    const device = { address: '10.78.0.1', link: 'xdp', xdpMode: 'native' } as const;
    const scene = await Scene.open(device, MANY, 78, withoutSys);
    for (let queue = 0; queue < MANY.queues; queue++) {
      leaveBy(queue);
      await scene.send(Array.from({ length: TIMES }, () => plainFrame(scene.target)));
      await scene.until(({ icrcBad }) => icrcBad === TIMES * (queue + 1));
    }
    const counts = await scene.exchange();
    expect(counts.queuesUsed).toBe(MANY.queues);
  });
});

/** Has the far end send by one queue, whatever the processor: it arrives at the same queue of the near end. */
function leaveBy(queue: number): void {
  const everywhere = ((1n << BigInt(cpus().length)) - 1n).toString(16);
  for (let i = 0; i < MANY.queues; i++) {
    const file = `/sys/class/net/${MANY.far}/queues/tx-${i}/xps_cpus`;
    const write = `echo ${i === queue ? everywhere : 0} > ${file}`;
    const { status, stderr } = spawnSync('ip', ['netns', 'exec', there.namespace, 'sh', '-c', write]);
    expect(status, `${stderr}`).toBe(0);
  }
}
