import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { Icrc, RxBatch } from '@node-roce/transport';
import { gidFromText } from '@node-roce/wire';
import { afterEach, describe, expect, test } from 'vitest';
import { hasIpv6, host, ownPort as PORT } from '../testing/loopback.ts';
import { packetsOf, receivePackets as receive, sendPackets } from '../testing/packets.ts';
import { FaultLink } from './faults.ts';
import { openUdpLink } from './open-sockets.ts';
import type { UdpLink, UdpLinkOptions } from './udp.ts';

const links: UdpLink[] = [];
async function open(options: UdpLinkOptions): Promise<UdpLink> {
  const link = await openUdpLink({ port: PORT, receiveBuffer: 1024 * 1024, ...options });
  links.push(link);
  return link;
}
afterEach(async () => {
  for (const link of links.splice(0)) await link.close();
});

/** A BTH that no queue pair would take, and bytes after it. */
const packet = (n: number, length = 64) => new Uint8Array(12 + length).fill(n);

describe.each([
  ['runs of packets', {}],
  ['one by one, UDP checksum 0', { zeroChecksum: true, offload: false }],
])('%s', (_name, options) => {
  test('packets of every size arrive with a right ICRC, in order', async () => {
    const a = await open({ address: host(1), ...options });
    const b = await open({ address: host(2), ...options });
    const peer = a.add(b.gids[0].gid, 0, 64);
    const sent = [0, 4, 64, 1024, 4096, 4096, 4096, 8].map((length, i) => packet(i, length));
    expect(sendPackets(a, peer, sent)).toEqual(sent.map(() => 0));
    const found = await receive(b, sent.length);
    expect(found.map((p) => p.payload)).toEqual(sent.map((p) => [...p]));
    expect(found.every((p) => p.verdict === Icrc.OK)).toBe(true);
  });
});

test('several addresses of an interface are several GIDs', async () => {
  const a = await open({ address: [host(1), host(3)] });
  expect(a.gids.map((g) => g.address)).toEqual([host(1), host(3)]);
  expect(a.gids[1].gid).toEqual(gidFromText(host(3)));
  expect(a.activeMtu).toBe(4096);
  const b = await open({ address: host(2) });
  const rx = new RxBatch();
  sendPackets(a, a.add(b.gids[0].gid, 1, 64), [packet(1)]);
  while (b.receive(rx) === 0) await new Promise(setImmediate);
  expect([...rx.sources.subarray(0, 16)]).toEqual([...gidFromText(host(3))]);
});

test('a corrupt packet keeps its ICRC behind it, and is marked', async () => {
  const b = await open({ address: host(2) });
  const socket = createSocket('udp4');
  const bytes = Uint8Array.of(...packet(9, 16), 0xde, 0xad, 0xbe, 0xef);
  socket.send(bytes, PORT, host(2));
  const rx = new RxBatch();
  while (b.receive(rx) === 0) await new Promise(setImmediate);
  socket.close();
  expect(packetsOf(rx)[0]).toMatchObject({ payload: [...packet(9, 16)] });
  expect(packetsOf(rx)[0].verdict).not.toBe(Icrc.OK);
  expect([...rx.slab.subarray(rx.slots[0] + 28, rx.slots[0] + 32)]).toEqual([0xde, 0xad, 0xbe, 0xef]);
});

test('an address that nobody can reach costs its packet only', async () => {
  const a = await open({ address: host(1) });
  const b = await open({ address: host(2) });
  const nowhere = a.add(gidFromText('240.0.0.1'), 0, 64);
  const peer = a.add(b.gids[0].gid, 0, 64);
  const statuses = [...sendPackets(a, nowhere, [packet(1)]), ...sendPackets(a, peer, [packet(2)])];
  expect(statuses[0]).toBeGreaterThan(0);
  expect(statuses[1]).toBe(0);
  expect((await receive(b, 1)).length).toBe(1);
});

describe('a group', () => {
  const group = gidFromText('239.77.1.2');
  test.each([
    ['as it is', (link: UdpLink) => link],
    ['behind a wrapper', (link: UdpLink) => new FaultLink(link, {})],
  ])('%s: all members receive its packets, with a right ICRC, until they leave', async (_what, wrap) => {
    const a = await open({ address: host(1) });
    // On one machine the members have the same address and port.
    const b = wrap(await open({ address: host(2) }));
    const c = wrap(await open({ address: host(3) }));
    const [atB, atC] = [b.join!(group, 0), c.join!(group, 0)];
    expect(b.join!(group, 0)).toBe(atB);
    expect(b.join!(gidFromText('239.77.1.3'), 0)).not.toBe(atB);
    const peer = a.add(group, 0, 1);
    const sent = [packet(1, 4096), packet(2, 4096), packet(3, 4096), packet(4, 8)];
    expect(sendPackets(a, peer, sent)).toEqual([0, 0, 0, 0]);
    for (const [link, local] of [
      [b, atB],
      [c, atC],
    ] as const) {
      const found = await receive(link, 4);
      expect(found.map((p) => p.payload)).toEqual(sent.map((p) => [...p]));
      expect(found.every((p) => p.verdict === Icrc.OK && p.local === local)).toBe(true);
    }
    b.leave!(atB);
    expect(sendPackets(a, peer, [packet(5)])).toEqual([0]);
    expect(await receive(c, 1)).toHaveLength(1);
    // The first that the one that left receives is what is sent to its own address after that.
    sendPackets(a, a.add(b.gids[0].gid, 0, 64), [packet(7)]);
    expect(await receive(b, 1)).toMatchObject([{ local: 0, payload: [...packet(7)] }]);
    // An index that was left can be another's.
    const again = b.join!(group, 0);
    sendPackets(a, peer, [packet(6)]);
    expect(await receive(b, 1)).toMatchObject([{ local: again, payload: [...packet(6)] }]);
  });

  test('an address that is no group', async () => {
    const a = await open({ address: host(1) });
    expect(() => a.join(gidFromText(host(9)), 0)).toThrow(RangeError);
  });
});

test('a watched link wakes for packets and deadlines', async () => {
  const a = await open({ address: host(1) });
  const b = await open({ address: host(2) });
  const woken = () => new Promise<void>((resolve) => b.watch(resolve));
  const packetCame = woken();
  sendPackets(a, a.add(b.gids[0].gid, 0, 64), [packet(1)]);
  await packetCame;
  expect((await receive(b, 1)).length).toBe(1);
  b.unwatch();
  const start = performance.now();
  b.setDeadline(20_000);
  await woken();
  expect(performance.now() - start).toBeGreaterThan(15);
  b.unwatch();
});

describe('a port that is taken', () => {
  test('by this process: names it', async () => {
    await open({ address: host(1) });
    await expect(open({ address: host(1) })).rejects.toMatchObject({
      name: 'RoceError',
      code: 'ERR_ROCE_PORT_IN_USE',
      errno: 'EADDRINUSE',
      attribute: 'port',
      message: expect.stringContaining('this process has it'),
    });
  });

  test.skipIf(!hasIpv6)('by a wildcard socket of IPv6: is found too', async () => {
    const socket = createSocket({ type: 'udp6', ipv6Only: false });
    socket.bind(PORT);
    await once(socket, 'listening');
    await expect(open({ address: host(1) })).rejects.toMatchObject({
      errno: 'EADDRINUSE',
      message: expect.stringContaining('this process has it'),
    });
    socket.close();
  });
});

test.each([
  ['neither address nor interface', {}, 'EINVAL'],
  ['no address at all', { address: [] }, 'EINVAL'],
  ['no address of this machine', { address: '203.0.113.9' }, 'EADDRNOTAVAIL'],
  ['a name', { address: 'localhost' }, 'EINVAL'],
  ['an interface that is not there', { interface: 'roce-none0' }, 'ENOENT'],
])('%s is refused', async (_name, options, errno) => {
  await expect(open(options)).rejects.toMatchObject({ name: 'RoceError', errno });
});

test('lists its limitations, among them a small receive buffer', async () => {
  const a = await open({ address: host(1), receiveBuffer: 4096 });
  expect(a.limitations.join(' ')).toMatch(/Identification.*receive buffer holds \d+ packets/);
});
