/** The captures that readers are measured by: every packet is right, and their counts are those that the generator prints. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type RocePacket, readPackets } from '@node-roce/capture/node';
import { psnDiff, Transport } from '@node-roce/wire';
import { afterAll, describe, expect, test } from 'vitest';

const generator = join(import.meta.dirname, '../../bench/capture/generate.mjs');
const directory = mkdtempSync(join(tmpdir(), 'roce-generate-test-'));
afterAll(() => rmSync(directory, { recursive: true }));

interface Truth {
  path: string;
  packets: number;
  bytes: number;
  connections: {
    requester: { address: string; qpn: number };
    responder: { address: string; qpn: number };
    packets: number;
    retransmitted: Record<string, number>;
    cnps: number;
  }[];
}

async function generate(name: string, ...options: string[]): Promise<Truth> {
  const path = join(directory, name);
  const { stdout } = await promisify(execFile)(process.execPath, [generator, path, ...options]);
  return JSON.parse(stdout) as Truth;
}

const sum = (counts: Record<string, number>) => Object.values(counts).reduce((a, b) => a + b, 0);

/** Counts the packets to one QPN (each is used once in these captures), and the retransmitted ones among them. */
class Seen {
  packets = 0;
  behind = 0;
  cnps = 0;
  #top: number | undefined;

  add({ info, psn }: RocePacket): void {
    this.packets++;
    if (info.transport === Transport.CNP) this.cnps++;
    else if (info.isRequest) {
      if (this.#top !== undefined && psnDiff(psn, this.#top) <= 0) this.behind++;
      else this.#top = psn;
    }
  }
}

describe.each(['capture.pcap', 'capture.pcapng'])('%s', (name) => {
  const LOSSY = [
    '--packets',
    '30000',
    '--loss',
    '0.01',
    '--rnr',
    '0.05',
    '--marked',
    '0.005',
    '--rate',
    '1e9',
  ];

  test('a generated capture holds the packets that its truth lists', async () => {
    // One connection for each peer, so that no QPN occurs twice.
    const truth = await generate(name, ...LOSSY, '--connections', '3');
    const seen = new Map<string, Seen>();
    const { summary } = await readPackets(truth.path, {
      onPacket: (packet, { addresses }) => {
        const key = `${addresses.text(packet.destination)} ${packet.destQp}`;
        if (!seen.has(key)) seen.set(key, new Seen());
        seen.get(key)!.add(packet);
      },
    });
    expect(summary).toMatchObject({ frames: 30_000, rocePackets: 30_000, damaged: {} });
    expect(summary.icrc).toEqual({ ok: 30_000, bad: 0, none: 0 });
    expect(truth).toMatchObject({ packets: 30_000, bytes: statSync(truth.path).size });
    expect(truth.connections).toHaveLength(3);
    const causes = new Set<string>();
    for (const { requester, responder, packets, retransmitted, cnps } of truth.connections) {
      const requests = seen.get(`${responder.address} ${responder.qpn}`)!;
      const responses = seen.get(`${requester.address} ${requester.qpn}`)!;
      expect(requests.packets + responses.packets).toBe(packets);
      expect(responses.cnps).toBe(cnps);
      // At the responder the first retransmission may be the first that is seen of a packet.
      if (requester.address === '192.0.2.1')
        expect(sum(retransmitted)).toBeGreaterThanOrEqual(requests.behind);
      for (const cause of Object.keys(retransmitted)) causes.add(cause);
    }
    expect([...causes].sort()).toEqual(['implied-nak', 'rnr', 'sequence-nak', 'timeout']);
  });
});

test('the same options give the same file, another seed another', async () => {
  const files = await Promise.all(
    [1, 1, 2].map((seed, i) => generate(`${i}.pcap`, '--packets', '2000', '--seed', String(seed))),
  );
  const [first, again, other] = files.map(({ path }) => readFileSync(path));
  expect(first.equals(again)).toBe(true);
  expect(first.equals(other)).toBe(false);
});

test('as long as it was asked to be', async () => {
  const { bytes } = await generate('long.pcap', '--bytes', '3000000');
  expect(bytes).toBeGreaterThanOrEqual(3_000_000);
  expect(bytes).toBeLessThan(3_010_000);
});
