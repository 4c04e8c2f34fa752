import {
  FRAGMENT_WORDS,
  Fragment,
  RegionTable,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from '@node-roce/transport';
import { gidFromText } from '@node-roce/wire';
import { afterEach, expect, test, vi } from 'vitest';
import { packetsOf, sendPackets } from '../testing/packets.ts';
import { FaultLink } from './faults.ts';
import { MemoryNetwork } from './memory.ts';

afterEach(() => vi.useRealTimers());

test('packets to an address arrive at the link that has it, and nowhere else', () => {
  const network = new MemoryNetwork();
  const a = network.link('10.0.0.1');
  const b = network.link('10.0.0.2');
  const c = network.link('fd00::3');
  const peer = a.add(b.gids[0].gid, 0, 64);
  sendPackets(a, peer, [Uint8Array.of(1, 2, 3, 4), Uint8Array.of(5, 6, 7, 8)], { trafficClass: 0x28 });
  const rx = new RxBatch(16, 4096);
  expect(c.receive(rx)).toBe(0);
  expect(b.receive(rx)).toBe(2);
  expect(packetsOf(rx).map((p) => p.payload)).toEqual([
    [1, 2, 3, 4],
    [5, 6, 7, 8],
  ]);
  expect(rx.slots[RX_SLOT_WORDS + Rx.TRAFFIC_CLASS]).toBe(0x28);
  expect([...rx.sources.subarray(0, 16)]).toEqual([...a.gids[0].gid]);
  expect(b.receive(rx)).toBe(0);
});

test('a batch that is too small leaves the rest for the next', () => {
  const network = new MemoryNetwork();
  const a = network.link('10.0.0.1');
  const b = network.link('10.0.0.2');
  sendPackets(
    a,
    a.add(b.gids[0].gid, 0, 64),
    Array.from({ length: 5 }, (_, i) => new Uint8Array(8).fill(i)),
  );
  const rx = new RxBatch(2, 4096);
  const seen: number[] = [];
  while (b.receive(rx) > 0) seen.push(...packetsOf(rx).map((p) => p.payload[0]));
  expect(seen).toEqual([0, 1, 2, 3, 4]);
});

test('a removed peer, or an address that nobody has, is a packet lost', () => {
  const network = new MemoryNetwork();
  const a = network.link('10.0.0.1');
  const b = network.link('10.0.0.2');
  const nobody = a.add(network.link('10.0.0.9').gids[0].gid, 0, 64);
  const peer = a.add(b.gids[0].gid, 0, 64);
  a.remove(peer);
  sendPackets(a, peer, [new Uint8Array(4)]);
  sendPackets(a, nobody, [new Uint8Array(4)]);
  expect(b.receive(new RxBatch(4, 4096))).toBe(0);
  expect(a.stats().txPackets).toBe(2);
});

test('a group: all who joined it, until they leave', () => {
  const network = new MemoryNetwork();
  const group = gidFromText('239.1.2.3');
  const [a, b, c] = ['10.0.0.1', '10.0.0.2', '10.0.0.3'].map((address) => network.link(address));
  const local = b.join(group);
  expect(b.join(group)).toBe(local);
  expect(b.join(gidFromText('ff12::1'))).not.toBe(local);
  a.join(group);
  const peer = a.add(group, 0, 64);
  const rx = new RxBatch(16, 4096);
  sendPackets(a, peer, [Uint8Array.of(1, 2, 3, 4)]);
  expect(c.receive(rx)).toBe(0);
  expect(a.receive(rx)).toBe(1);
  expect(b.receive(rx)).toBe(1);
  expect(rx.slots[Rx.LOCAL]).toBe(local);
  b.leave(local);
  sendPackets(a, peer, [Uint8Array.of(1, 2, 3, 4)]);
  expect(b.receive(rx)).toBe(0);
});

test('a watched link wakes for a packet and for its deadline, each on its own', async () => {
  vi.useFakeTimers();
  const network = new MemoryNetwork();
  const a = network.link('10.0.0.1');
  const b = network.link('10.0.0.2');
  const peer = a.add(b.gids[0].gid, 0, 64);
  let woken = 0;
  b.watch(() => woken++);
  b.setDeadline(5000);
  sendPackets(a, peer, [new Uint8Array(4)]);
  await vi.advanceTimersByTimeAsync(1);
  expect(woken).toBe(1);
  await vi.advanceTimersByTimeAsync(3);
  expect(woken).toBe(1);
  await vi.advanceTimersByTimeAsync(2);
  expect(woken).toBe(2);
  b.setDeadline(1000);
  b.unwatch();
  await vi.advanceTimersByTimeAsync(10);
  expect(woken).toBe(2);
});

test.each(['memory', 'faults'])(
  '%s: a packet whose memory is gone is refused with EFAULT, the others leave',
  (kind) => {
    const network = new MemoryNetwork();
    const plain = network.link('10.0.0.1');
    const a = kind === 'memory' ? plain : new FaultLink(plain, { seed: 1 });
    const b = network.link('10.0.0.2');
    const tx = new TxBatch(new RegionTable(), 16);
    const { regions, slots, fragments } = tx;
    const there = regions.add(Uint8Array.of(1, 2, 3, 4));
    const gone = regions.add(new Uint8Array(8));
    const short = regions.add(new Uint8Array(2));
    for (const region of [gone, there, short]) {
      const w = tx.count * TX_SLOT_WORDS;
      const f = tx.fragmentCount * FRAGMENT_WORDS;
      slots[w + Tx.PEER] = a.add(b.gids[0].gid, 0, 64);
      slots[w + Tx.FRAGMENT_FIRST] = tx.fragmentCount++;
      slots[w + Tx.FRAGMENT_COUNT] = 1;
      slots[w + Tx.PAYLOAD_LENGTH] = 4;
      fragments[f + Fragment.REGION] = region;
      fragments[f + Fragment.LENGTH] = 4;
      tx.count++;
    }
    regions.remove(gone);
    expect(a.send(tx, 0)).toBe(3);
    expect([0, 1, 2].map((i) => slots[i * TX_SLOT_WORDS + Tx.STATUS])).toEqual([14, 0, 14]);
    const rx = new RxBatch(16, 4096);
    expect(b.receive(rx)).toBe(1);
    expect(packetsOf(rx).map(({ payload }) => payload)).toEqual([[1, 2, 3, 4]]);
  },
);
