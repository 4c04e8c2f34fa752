/**
 * Traffic both ways over a cable that is slower than the two peers, whose send sockets are full all the time: it ends without
 * an error, and an idle adapter takes no CPU afterwards. ROCE_SHAPED_SECONDS is how long each takes (2); 600 in the long tier.
 * Needs root and iproute2; with ROCE_ROOT_TESTS set, as in .ci/run, it fails without them.
 */
// @module-tag slow
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, describe, expect, test } from 'vitest';
import { ShapedCable } from './shaped/network.ts';

const SECONDS = Number(process.env.ROCE_SHAPED_SECONDS ?? 2);
/** Of one core, over five seconds, or as long as the traffic was. Node with a timer takes some 0.1 %, a loop 100 %. */
const IDLE_PERCENT = 10;

interface Result {
  counts: Record<'SEND' | 'RDMA_WRITE' | 'RDMA_READ' | 'RECV' | 'wrong' | 'bytes', number>;
  events: string[];
  error?: string;
  idleCpuPercent: number;
  sendBlocked: number;
  retransmittedPackets: number;
}

class Peer {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor({ namespace, address }: { namespace: string; address: string }, engine: string) {
    const program = join(import.meta.dirname, 'shaped/peer.mjs');
    const command = ['netns', 'exec', namespace, process.execPath, program, address, engine, `${SECONDS}`];
    this.#child = spawn('ip', command, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
  }

  tell(what: unknown): void {
    this.#child.stdin!.write(`${JSON.stringify(what)}\n`);
  }

  /** The next line, which is of this type, or the result of a peer that failed. */
  async hear<T = Result>(type: string): Promise<T> {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`the peer ended before "${type}"`);
    const message = JSON.parse(value);
    if (message.error !== undefined || message.type !== type)
      throw new Error(`in place of "${type}": ${value}`);
    return message;
  }

  end(): void {
    this.#child.kill();
  }
}

async function run(cable: ShapedCable, engine: string): Promise<Result[]> {
  const peers = cable.ends.map((end) => new Peer(end, engine));
  try {
    const data = await Promise.all(peers.map((peer) => peer.hear<{ data: unknown }>('data')));
    for (const [i, peer] of peers.entries()) peer.tell(data[1 - i].data);
    for (const what of ['begin', 'measure']) {
      for (const peer of peers) peer.tell(what);
      if (what === 'begin') await Promise.all(peers.map((peer) => peer.hear('drained')));
    }
    return await Promise.all(peers.map((peer) => peer.hear('result')));
  } finally {
    for (const peer of peers) peer.end();
  }
}

const cables: ShapedCable[] = [];
function makeCable(name: string): ShapedCable | undefined {
  const cable = ShapedCable.make(`roce-${name}-${process.pid}`, (why) => {
    if (process.env.ROCE_ROOT_TESTS) throw new Error(why);
    console.warn(`shaped links are not tested: no network namespace: ${why}`);
  });
  if (cable) cables.push(cable);
  return cable;
}
afterAll(() => {
  for (const cable of cables) cable[Symbol.dispose]();
});

describe.each([
  ['100mbit', 'inline'],
  ['100mbit', 'worker'],
  ['1gbit', 'inline'],
  ['1gbit', 'worker'],
])('%s, engine: %s', (rate, engine) => {
  test('ends without an error, and is idle then', {
    timeout: 300_000 + SECONDS * 2000,
  }, async (context) => {
    const cable = makeCable(`${rate}-${engine}`);
    if (!cable) return context.skip();
    cable.speed(rate);
    const results = await run(cable, engine);
    const sum = (of: (result: Result) => number) => results.reduce((total, result) => total + of(result), 0);
    const mbits = (sum(({ counts }) => counts.bytes) * 8) / SECONDS / 1e6;
    const requests = sum(({ counts }) => counts.SEND + counts.RDMA_WRITE + counts.RDMA_READ);
    const idle = results.map(({ idleCpuPercent }) => `${idleCpuPercent.toFixed(2)} %`).join(' and ');
    const blocked = sum(({ sendBlocked }) => sendBlocked);
    const again = sum(({ retransmittedPackets }) => retransmittedPackets);
    console.log(
      `${rate} ${engine}: ${requests} requests in ${SECONDS} s, ${mbits.toFixed(0)} Mbit/s both ways, socket full ${blocked} times, ${again} packets again, idle ${idle} of a core`,
    );
    for (const { counts, events, idleCpuPercent } of results) {
      expect(counts.wrong).toBe(0);
      expect(events.filter((type) => type !== 'COMM_EST')).toEqual([]);
      for (const opcode of ['SEND', 'RDMA_WRITE', 'RDMA_READ'] as const)
        expect(counts[opcode]).toBeGreaterThan(0);
      expect(idleCpuPercent).toBeLessThan(IDLE_PERCENT);
    }
    expect(results[0].counts.RECV).toBe(results[1].counts.SEND);
    expect(results[1].counts.RECV).toBe(results[0].counts.SEND);
    expect(blocked).toBeGreaterThan(SECONDS);
  });
});
