import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { Icrc, RxBatch } from '@node-roce/transport';
import { encodeCm, gidFromText, gidToText, Opcode } from '@node-roce/wire';
import { afterEach, expect, test } from 'vitest';
import { hasIpv6, host, ownPort as PORT } from '../../testing/loopback.ts';
import { packetsOf, sendPackets } from '../../testing/packets.ts';
import { ipPacket } from '../ip-packet.ts';
import { openSocketLink, openUdpLink } from '../open-sockets.ts';
import type { UdpLink, UdpLinkOptions } from '../udp.ts';
import { joinAddresses, PLACES } from './shared-address.ts';

type Packets = ReturnType<typeof packetsOf>;

/** Open links, which turn all the time as under a run loop, and what they have received. */
const links = new Map<UdpLink, Packets>();
const rx = new RxBatch();
const takeTurns = () => {
  for (const [link, packets] of links) if (link.receive(rx) > 0) packets.push(...packetsOf(rx));
};
setInterval(takeTurns, 1);

async function open(n: number, options: UdpLinkOptions = {}): Promise<UdpLink> {
  const link = await openUdpLink({
    address: host(n),
    port: PORT,
    receiveBuffer: 1 << 20,
    shared: true,
    ...options,
  });
  links.set(link, []);
  return link;
}
async function close(link: UdpLink): Promise<void> {
  links.delete(link);
  await link.close();
}
afterEach(async () => {
  for (const link of links.keys()) await close(link);
});

const placeOf = (link: UdpLink) => link.sharing!.numbers.remainder;

/** A packet to a QPN of a device, which is also its content. */
function packetTo(qpn: number): Uint8Array {
  const bytes = new Uint8Array(32);
  new DataView(bytes.buffer).setUint32(4, qpn);
  return bytes;
}

/** A MAD to queue pair 1, after BTH and DETH. */
function madPacket(mad: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(20 + mad.length);
  bytes[0] = Opcode.UD_SEND_ONLY;
  bytes[7] = 1;
  bytes.set(mad, 20);
  return bytes;
}

/** The packets that each link has received, once there are `count`, and all links had turns enough to pass on more. */
async function received(count: number, some: readonly UdpLink[]): Promise<Packets[]> {
  const total = () => some.reduce((sum, link) => sum + (links.get(link)?.length ?? 0), 0);
  for (let more = 0; more < 20; more += total() < count ? 0 : 1) {
    takeTurns();
    await new Promise(setImmediate);
  }
  return some.map((link) => links.get(link)?.splice(0) ?? []);
}
const qpnsOf = (packets: Packets) =>
  packets.map(({ payload }) => (payload[5] << 16) | (payload[6] << 8) | payload[7]);

test('gives each device its packets, whichever others come and go', async () => {
  const sender = await open(1);
  const peer = sender.add(gidFromText(host(2)), 0, 64);
  const [a, b, c] = [await open(2), await open(2), await open(2)];
  expect([a, b, c].map(placeOf)).toEqual([0, 1, 2]);
  const qpns = [0, 1, 2].map((place) => 0x80_4560 + place);

  sendPackets(sender, peer, qpns.map(packetTo));
  expect((await received(3, [a, b, c])).map(qpnsOf)).toEqual([[qpns[0]], [qpns[1]], [qpns[2]]]);

  await close(a); // The socket of its place is the first of the group.
  sendPackets(sender, peer, qpns.map(packetTo));
  expect((await received(2, [b, c])).map(qpnsOf)).toEqual([[qpns[1]], [qpns[2]]]);

  const d = await open(2);
  expect(placeOf(d)).toBe(0);
  sendPackets(sender, peer, qpns.map(packetTo));
  expect((await received(3, [d, b, c])).map(qpnsOf)).toEqual([[qpns[0]], [qpns[1]], [qpns[2]]]);
  for (const link of [b, c, d]) expect(link.stats()).toMatchObject({ passedOn: 0, takenOver: 0 });
});

test.skipIf(!hasIpv6)('shares an address of IPv6', async () => {
  const three: UdpLink[] = [];
  for (let place = 0; place < 3; place++) three.push(await open(0, { address: '::1' }));
  const peer = three[0].add(gidFromText('::1'), 0, 64);
  sendPackets(three[0], peer, [0x4561, 0x4562].map(packetTo));
  expect((await received(2, three)).map(qpnsOf)).toEqual([[], [0x4561], [0x4562]]);
});

test('checks Identifications as long as no other device has had the address', async () => {
  const [source, destination] = [gidFromText(host(1)), gidFromText(host(2))];
  const sender = createSocket('udp4').bind(PORT, host(1));
  await once(sender, 'listening');
  let qpn = 0;
  /** Verdict of a device on an Identification that was sent to its place. */
  const verdictOf = async (link: UdpLink, id: number) => {
    const [to, ports] = [
      { source, destination },
      { sourcePort: PORT, destinationPort: PORT },
    ];
    qpn += PLACES;
    const payload = packetTo(qpn + placeOf(link));
    const whole = ipPacket({ ...to, ...ports, trafficClass: 0, hopLimit: 64, id, payload });
    sender.send(whole.subarray(28), PORT, host(2));
    const [[packet]] = await received(1, [link]);
    return packet.verdict;
  };
  const first = await open(2);
  expect([await verdictOf(first, 1000), await verdictOf(first, 1001)]).toEqual([Icrc.OK, Icrc.OK]);
  expect(await verdictOf(first, 30_000)).toBe(Icrc.OUT_OF_WINDOW);
  const second = await open(2);
  for (const link of [first, second])
    expect([await verdictOf(link, 45_000), await verdictOf(link, 9000)]).toEqual([Icrc.OK, Icrc.OK]);
  expect([first, second].map(({ limitations }) => limitations.join().includes('in 32,768'))).toEqual([
    true,
    true,
  ]);
  sender.close();
});

test('passes on packets that the kernel gave to the wrong device, with source and ICRC', async () => {
  const sender = await open(1);
  const peer = sender.add(gidFromText(host(2)), 0, 64);
  const [a, b] = [await open(2), await open(2)];
  const binding = { family: 4 as const, address: host(2), port: PORT, multicastInterface: 'lo' };
  const [third] = await joinAddresses([{ ...binding, gid: gidToText(gidFromText(host(2))) }]);
  third.own.steer(Uint32Array.of(0x06, 0)); // Classic BPF: return 0. All packets are the first device's.

  const sent = Array.from({ length: 40 }, (_, i) => packetTo(PLACES * (i + 1) + placeOf(b)));
  sendPackets(sender, peer, [...sent, packetTo(placeOf(a) + 64)]);
  const [own, passed] = await received(41, [a, b]);
  expect(qpnsOf(own)).toEqual([placeOf(a) + 64]);
  expect(passed.map(({ payload }) => payload)).toEqual(sent.map((bytes) => [...bytes]));
  expect(passed.every(({ verdict, local }) => verdict === Icrc.OK && local === 0)).toBe(true);
  expect(new Set(passed.map(({ source }) => source))).toEqual(new Set(own.map(({ source }) => source)));
  expect(a.stats()).toMatchObject({ passedOn: 40 });
  expect(b.stats()).toMatchObject({ takenOver: 40 });

  // For a place that nobody has, and one whose device is gone: the first device has it as one that is alone.
  await close(b);
  sendPackets(sender, peer, [packetTo(PLACES + placeOf(b)), packetTo(5 + PLACES)]);
  expect(qpnsOf((await received(2, [a]))[0])).toEqual([PLACES + placeOf(b), 5 + PLACES]);
  third.close();
});

test('gives MADs to the device that listens, or drew the communication id', async () => {
  const sender = await open(1);
  const peer = sender.add(gidFromText(host(2)), 0, 64);
  const [a, b] = [await open(2), await open(2)];
  const names = (packets: Packets) => packets.map(({ payload }) => payload[20 + 17]);
  const mads = [
    encodeCm({ name: 'REQ', serviceId: 100n }),
    encodeCm({ name: 'REP', remoteCommId: 0x1000 + placeOf(b) }),
    encodeCm({ name: 'DREQ', remoteCommId: 0x1000 + placeOf(a) }),
  ].map(madPacket);

  b.sharing?.claim(100n);
  expect(() => a.sharing?.claim(100n)).toThrow(expect.objectContaining({ errno: 'EADDRINUSE' }));
  sendPackets(sender, peer, mads);
  const [forA, forB] = await received(3, [a, b]);
  expect(names(forA)).toEqual([0x15]);
  expect(names(forB).sort()).toEqual([0x10, 0x13]);
  expect([...forA, ...forB].every(({ local }) => local === 0)).toBe(true);

  // Nobody listens: the device that has it answers, once.
  b.sharing?.release(100n);
  sendPackets(sender, peer, mads.slice(0, 1));
  expect((await received(1, [a, b])).flatMap(names)).toEqual([0x10]);
  a.sharing?.claim(100n);
  sendPackets(sender, peer, mads.slice(0, 1));
  expect((await received(1, [b, a])).map(names)).toEqual([[], [0x10]]);
});

test('an address is shared by all or by nobody, and free after the last', async () => {
  const shared = await open(2);
  await expect(open(2, { shared: false })).rejects.toMatchObject({
    code: 'ERR_ROCE_PORT_IN_USE',
    message: expect.stringContaining('shared: true'),
  });
  await close(shared);
  const alone = await open(2, { shared: false });
  await expect(open(2)).rejects.toMatchObject({ code: 'ERR_ROCE_PORT_IN_USE' });
  await close(alone);
  await close(await open(2));
});

test('a device has the same place at all of its addresses', async () => {
  const first = await open(2);
  const both = await open(3, { address: [host(3), host(2)] });
  expect(placeOf(first)).toBe(0);
  expect(placeOf(both)).toBe(1);
  expect(both.gids.map(({ address }) => address)).toEqual([host(3), host(2)]);
  const sender = await open(1);
  for (const n of [3, 2]) {
    sendPackets(sender, sender.add(gidFromText(host(n)), 0, 64), [packetTo(PLACES + 1)]);
  }
  const [packets] = await received(2, [both]);
  expect(packets.map(({ local }) => local).sort()).toEqual([0, 1]);
});

test('newcomers at the same time take different places', async () => {
  const some = await Promise.all(Array.from({ length: 6 }, () => open(2)));
  expect(some.map(placeOf).sort()).toEqual([0, 1, 2, 3, 4, 5]);
});

test('the dgram link shares nothing', async () => {
  const opening = openSocketLink('dgram', { address: host(2), port: PORT, shared: true });
  await expect(opening).rejects.toMatchObject({ attribute: 'shared' });
});
