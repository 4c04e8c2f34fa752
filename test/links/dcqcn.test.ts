/**
 * Marks on real sockets, set by a fault link: the receiver answers them with CNPs, and a sender under DCQCN becomes slow. Between two network
 * namespaces (root and iproute2; with ROCE_ROOT_TESTS set, as in .ci/run, it fails without them), and between two addresses of the loopback.
 */
// @module-tag slow
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Congestion } from '@node-roce/verbs-api';
import { afterAll, describe, expect, test } from 'vitest';
import { ShapedCable } from './shaped/network.ts';

const SECONDS = 1;
const INTERVAL = 50;
const DSCP = 104;
/** A receiver takes packets in by the batch, and on a busy machine a CNP comes each few milliseconds only: the sender's clocks go by that. */
const PATIENT = { alphaPeriod: 10_000, rpgTimeReset: 10_000 };

interface Place {
  namespace?: string;
  address: string;
  engine?: 'inline' | 'worker';
}

interface Result {
  mbits: number;
  /** Of the device, and of the queue pair. */
  mlx5: Record<string, number>;
  own: Record<string, number>;
  retransmittedPackets: number;
  sentPackets: number;
}

class Peer {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor({ namespace, ...place }: Place, options: object) {
    const program = [join(import.meta.dirname, 'dcqcn/peer.mjs'), JSON.stringify({ ...place, ...options })];
    const command = [process.execPath, ...program];
    const [file, ...args] =
      namespace === undefined ? command : ['ip', 'netns', 'exec', namespace, ...command];
    this.#child = spawn(file, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
  }

  tell(what: unknown): void {
    this.#child.stdin!.write(`${JSON.stringify(what)}\n`);
  }

  async hear<T>(type: string): Promise<T> {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`the peer ended before "${type}"`);
    const message = JSON.parse(value);
    if (message.type !== type) throw new Error(`in place of "${type}": ${value}`);
    return message;
  }

  end(): void {
    this.#child.kill();
  }
}

interface Setting {
  sender: Partial<Congestion>;
  receiver: Partial<Congestion>;
  trafficClass: number;
}

async function run(places: readonly Place[], { sender, receiver, trafficClass }: Setting): Promise<Result[]> {
  const common = { seconds: SECONDS, trafficClass };
  const peers = [
    new Peer(places[0], { ...common, isSender: true, congestion: sender }),
    new Peer(places[1], { ...common, isSender: false, congestion: receiver }),
  ];
  try {
    const data = await Promise.all(peers.map((peer) => peer.hear<{ data: unknown }>('data')));
    for (const [i, peer] of peers.entries()) peer.tell(data[1 - i].data);
    for (const peer of peers) peer.tell('begin');
    await peers[0].hear('done');
    // The receiver first: its last CNPs have reached the sender by the time that the sender counts.
    const results: Result[] = [];
    for (const peer of [...peers].reverse()) {
      peer.tell('end');
      results.unshift(await peer.hear<Result>('result'));
    }
    return results;
  } finally {
    for (const peer of peers) peer.end();
  }
}

const cables: ShapedCable[] = [];
afterAll(() => {
  for (const cable of cables) cable[Symbol.dispose]();
});

const LOOPBACK = ['127.0.0.71', '127.0.0.72'];
const PLACES: Record<string, () => Place[] | undefined> = {
  'two network namespaces': () => {
    const cable = ShapedCable.make(`roce-dcqcn-${process.pid}`, (why) => {
      if (process.env.ROCE_ROOT_TESTS) throw new Error(why);
      console.warn(`marks between namespaces are not tested: ${why}`);
    });
    if (cable) cables.push(cable);
    return cable?.ends;
  },
  'two addresses of the loopback': () => LOOPBACK.map((address) => ({ address })),
  'the same with worker engines': () => LOOPBACK.map((address) => ({ address, engine: 'worker' })),
};

describe.each(Object.keys(PLACES))('%s', (name) => {
  test('marks are answered, and slow a sender under DCQCN alone', async (context) => {
    const places = PLACES[name]();
    if (!places) return context.skip();
    const dcqcn: Partial<Congestion> = { controller: 'dcqcn' };
    const rows: Record<string, Setting> = {
      'without ECN': { sender: {}, receiver: dcqcn, trafficClass: DSCP },
      'aimd, ECT(0) by the program': { sender: {}, receiver: { notify: true }, trafficClass: DSCP | 2 },
      dcqcn: { sender: { ...dcqcn, ...PATIENT }, receiver: dcqcn, trafficClass: DSCP },
    };
    const results = new Map<string, Result[]>();
    for (const [what, setting] of Object.entries(rows)) {
      const both = await run(places, setting);
      results.set(what, both);
      const [a, b] = both;
      console.log(
        `${name}, ${what}: ${a.mbits.toFixed(0)} Mbit/s, ${b.mlx5.np_ecn_marked_roce_packets} marked, ${b.mlx5.np_cnp_sent} CNPs, ${a.mlx5.rp_cnp_handled} handled, ${a.mlx5.rp_cnp_ignored} ignored`,
      );
    }
    const [[plain, receiver], [ignoring, marking], [slowed, notifying]] = [...results.values()];
    expect(receiver.mlx5).toMatchObject({ np_ecn_marked_roce_packets: 0, np_cnp_sent: 0 });
    expect(marking.mlx5.np_ecn_marked_roce_packets).toBeGreaterThan(1000);
    expect(marking.mlx5.np_cnp_sent).toBeGreaterThan(20);
    expect(ignoring.mlx5).toMatchObject({ rp_cnp_handled: 0, rp_cnp_ignored: marking.mlx5.np_cnp_sent });
    expect(notifying.mlx5.np_ecn_marked_roce_packets).toBeGreaterThan(100);
    expect(notifying.mlx5.np_cnp_sent).toBeGreaterThan(20);
    expect(slowed.mlx5).toMatchObject({ rp_cnp_handled: notifying.mlx5.np_cnp_sent, rp_cnp_ignored: 0 });
    expect(slowed.own).toMatchObject({ rp_cnp_handled: notifying.mlx5.np_cnp_sent });
    // No more than one CNP in an interval, for as long as it took.
    for (const { mlx5 } of [marking, notifying]) {
      expect(mlx5.np_cnp_sent).toBeLessThan((3 * SECONDS * 1e6) / INTERVAL);
    }
    expect(slowed.mbits).toBeGreaterThan(0);
    expect(slowed.mbits).toBeLessThan(plain.mbits / 4);
    expect(slowed.mbits).toBeLessThan(ignoring.mbits / 4);
  });
});
