import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { Icrc, RxBatch } from '@node-roce/transport';
import { gidFromText, IP_MAY_FRAGMENT, icrcV2, readIcrc } from '@node-roce/wire';
import { afterEach, describe, expect, test } from 'vitest';
import { hasIpv6, host, ownPort as PORT } from '../testing/loopback.ts';
import { batchOf, packetsOf, receivePackets as receive, sendPackets } from '../testing/packets.ts';
import { DgramLink } from './dgram.ts';
import { ipPacket } from './ip-packet.ts';
import type { Link } from './link.ts';
import { openSocketLink, type SocketLinkKind } from './open-sockets.ts';

const links: Link[] = [];
async function open(kind: SocketLinkKind, address: string): Promise<Link> {
  const link = await openSocketLink(kind, { address, port: PORT, receiveBuffer: 1024 * 1024 });
  links.push(link);
  return link;
}
afterEach(async () => {
  for (const link of links.splice(0)) await link.close();
});

/** A BTH that no queue pair would take, and bytes after it. */
const packet = (n: number, length = 64) => new Uint8Array(12 + length).fill(n);

/** Sends them as the pump does: when the link has no room, it waits to be woken. */
async function sendAll(link: Link, peer: number, packets: readonly Uint8Array[]): Promise<void> {
  const batch = batchOf(peer, packets);
  for (let from = link.send(batch, 0); from < batch.count; from = link.send(batch, from)) {
    await new Promise<void>((resolve) => {
      link.wantWrite(true);
      link.watch(resolve);
    });
    link.wantWrite(false);
    link.unwatch();
  }
}

/** A socket that stands where a link would, to see the packets on the wire and to send wrong ones. */
async function plainSocket(address: string) {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  socket.bind(PORT, address);
  await once(socket, 'listening');
  return socket;
}

describe.each<[SocketLinkKind, SocketLinkKind]>([
  ['dgram', 'dgram'],
  ['dgram', 'udp'],
  ['udp', 'dgram'],
])('%s to %s', (from, to) => {
  test('packets of every size arrive with a right ICRC, in order', async () => {
    const a = await open(from, host(1));
    const b = await open(to, host(2));
    const peer = a.add(b.gids[0].gid, 0, 64);
    const sent = [0, 4, 64, 1024, 4096, 4096, 4096, 8].map((length, i) => packet(i, length));
    expect(sendPackets(a, peer, sent)).toEqual(sent.map(() => 0));
    const found = await receive(b, sent.length);
    expect(found.map((p) => p.payload)).toEqual(sent.map((p) => [...p]));
    expect(found.every((p) => p.verdict === Icrc.OK)).toBe(true);
  });

  test('long runs of equal packets, again and again', async () => {
    const a = await open(from, host(1));
    const b = await open(to, host(2));
    const peer = a.add(b.gids[0].gid, 0, 64);
    for (let round = 0; round < 3; round++) {
      const sent = Array.from({ length: 100 }, (_, i) => packet(i, 256));
      await sendAll(a, peer, sent);
      const found = await receive(b, sent.length);
      expect(found.map((p) => p.payload)).toEqual(sent.map((p) => [...p]));
      expect(new Set(found.map((p) => p.verdict))).toEqual(new Set([Icrc.OK]));
    }
  });
});

describe.each([['IPv4', host(1), host(2)], ...(hasIpv6 ? [['IPv6', '::1', '::1']] : [])])(
  '%s',
  (_family, from, to) => {
    test('the ICRC on the wire is that of Identification 0, by the formula for whole packets', async () => {
      // Over IPv6 there is one loopback address: the link sends to itself, and its own receive shows the ICRC.
      const a = await open('dgram', from);
      const payload = packet(7, 100);
      const peer = a.add(gidFromText(to), 0, 64);
      let datagram: Uint8Array;
      if (from === to) {
        sendPackets(a, peer, [payload]);
        const rx = new RxBatch();
        while (a.receive(rx) === 0) await new Promise(setImmediate);
        expect(packetsOf(rx)[0].verdict).toBe(Icrc.OK);
        datagram = rx.slab.slice(0, payload.length + 4);
      } else {
        const socket = await plainSocket(to);
        sendPackets(a, peer, [payload]);
        [datagram] = (await once(socket, 'message')) as [Uint8Array];
        socket.close();
      }
      const whole = ipPacket({
        source: gidFromText(from),
        destination: gidFromText(to),
        trafficClass: 0,
        hopLimit: 64,
        id: 0,
        sourcePort: PORT,
        destinationPort: PORT,
        payload,
      });
      expect(readIcrc(datagram, payload.length)).toBe(icrcV2(whole, 0, whole.length - 4));
    });
  },
);

test.each([
  ['that of Identification 127, the end of a GSO run', 127, Icrc.OK],
  ['that of an Identification no node-roce link sends', 128, Icrc.OUT_OF_WINDOW],
  ['that of Identification 0 without "don’t fragment"', IP_MAY_FRAGMENT, Icrc.OK],
  ['that of another Identification without it', IP_MAY_FRAGMENT | 1, Icrc.OUT_OF_WINDOW],
])('an ICRC that is %s', async (_name, id, verdict) => {
  const b = await open('dgram', host(2));
  const socket = await plainSocket(host(1));
  const [source, destination] = [gidFromText(host(1)), gidFromText(host(2))];
  const whole = ipPacket({
    source,
    destination,
    trafficClass: 0,
    hopLimit: 64,
    id,
    sourcePort: PORT,
    destinationPort: PORT,
    payload: packet(3),
  });
  socket.send(whole.subarray(28), PORT, host(2));
  const [found] = await receive(b, 1);
  socket.close();
  expect(found).toMatchObject({ verdict, id, payload: [...packet(3)] });
});

test('corrupt packets are bad, runts are counted, and nothing throws', async () => {
  const b = await open('dgram', host(2));
  const socket = await plainSocket(host(1));
  for (const length of [0, 1, 15]) socket.send(new Uint8Array(length), PORT, host(2));
  socket.send(Uint8Array.of(...packet(9, 16), 0xde, 0xad, 0xbe, 0xef), PORT, host(2));
  const [found] = await receive(b, 1);
  socket.close();
  expect(found).toMatchObject({ payload: [...packet(9, 16)] });
  expect(found.verdict).not.toBe(Icrc.OK);
  expect(b.stats()).toMatchObject({ runts: 3, rxPackets: 1 });
});

test('an address that nobody can reach costs its packet only', async () => {
  const a = await open('dgram', host(1));
  const b = await open('dgram', host(2));
  const nowhere = a.add(gidFromText('240.0.0.1'), 0, 64);
  const peer = a.add(b.gids[0].gid, 0, 64);
  sendPackets(a, nowhere, [packet(1)]);
  sendPackets(a, peer, [packet(2)]);
  expect((await receive(b, 1)).length).toBe(1);
  expect(a.stats()).toMatchObject({ sendErrors: 1, txPackets: 1 });
});

test('takes a limited number of packets a turn of the event loop, and returns it', async () => {
  const a = await open('dgram', host(1));
  const b = await open('dgram', host(2));
  const batch = batchOf(
    a.add(b.gids[0].gid, 0, 64),
    Array.from({ length: 50 }, (_, i) => packet(i)),
  );
  const taken = a.send(batch, 0);
  expect(taken).toBeGreaterThan(0);
  expect(taken).toBeLessThan(50);
  expect(a.send(batch, taken)).toBe(taken);
  expect(a.stats().sendBlocked).toBe(2);
  await new Promise(setImmediate);
  expect(a.send(batch, taken)).toBe(50);
  expect((await receive(b, 50)).length).toBe(50);
});

test('a watched link wakes for packets and deadlines', async () => {
  const a = await open('dgram', host(1));
  const b = await open('dgram', host(2));
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

test('a deadline that is over wakes only after arrived packets were read', async () => {
  const a = await open('dgram', host(1));
  const b = await open('dgram', host(2));
  let waiting = -1;
  const woken = new Promise<void>((resolve) => {
    b.watch(() => {
      waiting = b.receive(new RxBatch());
      resolve();
    });
  });
  b.setDeadline(1000);
  sendPackets(a, a.add(b.gids[0].gid, 0, 64), [packet(1)]);
  // The thread is held up: the packet sits in the socket, and the timer is due.
  for (const start = performance.now(); performance.now() - start < 20; );
  await woken;
  expect(waiting).toBe(1);
});

describe('a port that is taken', () => {
  test('is reported with the program that has it', async () => {
    await open('dgram', host(1));
    await expect(open('dgram', host(1))).rejects.toMatchObject({
      name: 'RoceError',
      code: 'ERR_ROCE_PORT_IN_USE',
      errno: 'EADDRINUSE',
      message: expect.stringContaining('this process has it'),
    });
  });
});

test.each([
  ['no address of this machine', { address: '203.0.113.9' }, 'EADDRNOTAVAIL'],
  ['a checksum that it can not switch off', { address: host(1), zeroChecksum: true }, 'EINVAL'],
])('%s is refused', async (_name, options, errno) => {
  await expect(openSocketLink('dgram', options)).rejects.toMatchObject({ name: 'RoceError', errno });
});

test('rejects an unknown link kind', async () => {
  const kind = 'tcp' as SocketLinkKind;
  await expect(openSocketLink(kind, { address: host(1) })).rejects.toMatchObject({ attribute: 'link' });
});

test('auto is udp where the addon loads; dgram lists its limitations', async () => {
  expect((await open('auto', host(1))).kind).toBe('udp');
  const link = await DgramLink.open({ address: host(2), port: PORT, receiveBuffer: 65_536 });
  links.push(link);
  expect(link.kind).toBe('dgram');
  expect(link.needsEventLoop).toBe(true);
  expect(link.limitations.join(' ')).toMatch(/node-roce programs only.*receive buffer holds \d+ packets/);
});
