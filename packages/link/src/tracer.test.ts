import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { PacketRecord } from '@node-roce/pcap';
import { openCapture } from '@node-roce/pcap/node';
import { RxBatch } from '@node-roce/transport';
import { gidFromText, verifyIcrc } from '@node-roce/wire';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sendPackets } from '../testing/packets.ts';
import { FaultLink } from './faults.ts';
import { MemoryNetwork } from './memory.ts';
import { TracerLink } from './tracer.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tracer-'));
});
afterEach(() => rm(folder, { recursive: true }));

async function read(path: string): Promise<PacketRecord[]> {
  const packets: PacketRecord[] = [];
  await using capture = openCapture(path);
  for await (const found of capture) packets.push(...found);
  return packets;
}

const icrcIsRight = ({ data }: PacketRecord) => verifyIcrc(data, 0, data.length);
const payload = (n: number) => new Uint8Array(64 + n * 4).fill(n);

test('packets to a group are traced with its address', async () => {
  const network = new MemoryNetwork();
  const path = join(folder, 'group.pcapng');
  const a = network.link('10.0.0.1');
  const b = await TracerLink.open(network.link('10.0.0.2'), path);
  const group = gidFromText('239.1.2.3');
  b.join?.(group, 0);
  sendPackets(a, a.add(group, 0, 1), [payload(1)]);
  expect(b.receive(new RxBatch(8, 8192))).toBe(1);
  await b.close();
  const [packet] = await read(path);
  expect([...packet.data.subarray(16, 20)]).toEqual([239, 1, 2, 3]);
  expect(icrcIsRight(packet)).toBe(true);
});

test.each([
  ['10.0.0.1', '10.0.0.2', 28],
  ['fd00::1', 'fd00::2', 48],
])('packets from %s to %s are in both traces, with a right ICRC', async (left, right, headers) => {
  const network = new MemoryNetwork();
  const paths = [join(folder, 'a.pcapng'), join(folder, 'b.pcapng')];
  const a = await TracerLink.open(network.link(left), paths[0]);
  const b = await TracerLink.open(network.link(right), paths[1]);
  const peer = a.add(b.gids[0].gid, 0, 17);
  sendPackets(a, peer, [payload(1), payload(2), payload(3)], { trafficClass: 0x2a, sourcePort: 0xc123 });
  expect(b.receive(new RxBatch(8, 8192))).toBe(3);
  expect(a.stats().tracedPackets).toBe(3);
  await a.close();
  await b.close();
  for (const [i, direction] of [
    [0, 'outbound'],
    [1, 'inbound'],
  ] as const) {
    const packets = await read(paths[i]);
    expect(packets.map((p) => p.direction)).toEqual([direction, direction, direction]);
    expect(packets.map((p) => [...p.data.subarray(headers, -4)])).toEqual(
      [1, 2, 3].map((n) => [...payload(n)]),
    );
    expect(packets.every(icrcIsRight)).toBe(true);
    if (headers === 28 && direction === 'outbound')
      expect(packets.map(({ data }) => (data[4] << 8) | data[5])).toEqual([1, 2, 3]);
    const view = new DataView(packets[0].data.slice().buffer);
    expect(view.getUint16(headers - 8)).toBe(0xc123);
    expect(view.getUint16(headers - 6)).toBe(4791);
    expect(Math.abs(Date.now() - Number(packets[0].timestamp / 1_000_000n))).toBeLessThan(60_000);
  }
});

test('a corrupt packet is in the trace with its wrong ICRC and a comment', async () => {
  const network = new MemoryNetwork();
  const path = join(folder, 'bad.pcapng');
  const a = network.link('10.0.0.1');
  const b = await TracerLink.open(new FaultLink(network.link('10.0.0.2'), { corrupt: 1 }), path);
  sendPackets(a, a.add(b.gids[0].gid, 0, 64), [payload(1)]);
  b.receive(new RxBatch(8, 8192));
  await b.close();
  const [packet] = await read(path);
  expect(icrcIsRight(packet)).toBe(false);
  expect(packet.comments).toEqual(['ICRC wrong: dropped']);
});

test('a file that falls behind costs packets of the trace, counted, and never the sender’s time', async () => {
  const network = new MemoryNetwork();
  const path = join(folder, 'busy.pcapng');
  const a = await TracerLink.open(network.link('10.0.0.1'), path, 1024 * 1024);
  const peer = a.add(network.link('10.0.0.2').gids[0].gid, 0, 64);
  // All in one turn of the event loop, so that nothing can be written meanwhile.
  const packets = Array.from({ length: 100 }, () => new Uint8Array(4096));
  for (let i = 0; i < 10; i++) sendPackets(a, peer, packets);
  const { tracedPackets, traceDrops } = a.stats();
  expect(tracedPackets + traceDrops).toBe(1000);
  expect(traceDrops).toBeGreaterThan(0);
  // Until the file has caught up: on a busy machine a few more are dropped before.
  let dropped = traceDrops;
  while (a.stats().tracedPackets === tracedPackets) {
    dropped = a.stats().traceDrops;
    await new Promise((resolve) => setTimeout(resolve, 20));
    sendPackets(a, peer, [payload(5)]);
  }
  await a.close();
  const found = await read(path);
  expect(found.length).toBe(tracedPackets + 1);
  expect(found.at(-1)?.dropCount).toBe(dropped);
});

test('a file that can not be made rejects', async () => {
  const link = new MemoryNetwork().link('10.0.0.1');
  await expect(TracerLink.open(link, join(folder, 'no', 'such', 'folder'))).rejects.toMatchObject({
    code: 'ENOENT',
  });
});
