/** The ICRC as a UDP socket can check it: Identifications solved, and what passes. */
import dgram from 'node:dgram';
import { once } from 'node:events';
import { crc32 } from 'node:zlib';
import { Icrc } from '@node-roce/transport';
import { createRandom, gidFromText } from '@node-roce/wire';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { hasIpv6, ownPort } from '../../packages/link/testing/loopback.ts';
import { type PortOptions, Socket, solveId } from '../index.js';
import { Station } from './support.ts';

/** Of an Identification: the IPv4 header has no "don't fragment". */
const MAY_FRAGMENT = 0x1_0000;

/** The bytes the ICRC covers, written from the rule and not from the code under test. */
function covered(
  source: string,
  sourcePort: number,
  target: string,
  port: number,
  id: number,
  packet: Uint8Array,
) {
  const udpLength = 8 + packet.length + 4;
  const bytes = new Uint8Array(8 + 20 + 8 + packet.length).fill(0xff, 0, 8);
  const view = new DataView(bytes.buffer);
  bytes[8] = 0x45;
  bytes[9] = 0xff;
  view.setUint16(10, 20 + udpLength);
  view.setUint16(12, id);
  view.setUint16(14, id & MAY_FRAGMENT ? 0 : 0x4000);
  bytes.set([0xff, 17, 0xff, 0xff], 16);
  bytes.set(gidFromText(source).subarray(12), 20);
  bytes.set(gidFromText(target).subarray(12), 24);
  view.setUint16(28, sourcePort);
  view.setUint16(30, port);
  view.setUint16(32, udpLength);
  view.setUint16(34, 0xffff);
  bytes.set(packet, 36);
  bytes[36 + 4] = 0xff;
  return bytes;
}

test.each([0, 1, 64, 1024, 4096, 65_507 - 16])(
  'every Identification is recovered behind %i bytes of payload',
  (length) => {
    const packet = new Uint8Array(12 + length).fill(0x5a);
    const bytes = covered('10.0.0.1', 0xc000, '10.0.0.2', 4791, 0, packet);
    const view = new DataView(bytes.buffer);
    const withZero = crc32(bytes);
    // The CRC is linear, so that 16 single bits give all of the 65,536 Identifications.
    const columns = Array.from({ length: 16 }, (_, bit) => {
      view.setUint16(12, 1 << bit);
      return (crc32(bytes) ^ withZero) >>> 0;
    });
    for (let id = 0; id < 65_536; id++) {
      let difference = 0;
      for (let bit = 0; bit < 16; bit++) if (id & (1 << bit)) difference ^= columns[bit];
      if (solveId(difference >>> 0, length + 16) !== id) expect.fail(`Identification ${id}`);
    }
    for (const id of [0x1234, 0xfffe, 0x8001, MAY_FRAGMENT, MAY_FRAGMENT | 0xabcd]) {
      view.setUint16(12, id);
      view.setUint16(14, id & MAY_FRAGMENT ? 0 : 0x4000);
      expect(solveId((crc32(bytes) ^ withZero) >>> 0, length + 16)).toBe(id);
    }
  },
);

test('one random difference in 32,768 has a solution', () => {
  const random = createRandom(99);
  let solved = 0;
  for (let i = 0; i < 1_000_000; i++) if (solveId(random.next(), 4112) >= 0) solved++;
  expect(solved).toBeGreaterThan(3);
  expect(solved).toBeLessThan(60);
});

describe('packets from elsewhere', () => {
  let station: Station;
  let sender: dgram.Socket;
  let lastOfQpn: number;
  const from = '127.0.0.9';
  const to = '127.0.0.2';

  beforeEach(async () => {
    station = new Station(to, ownPort);
    lastOfQpn = 35;
    sender = dgram.createSocket('udp4');
    sender.bind(0, from);
    await once(sender, 'listening');
  });
  afterEach(() => {
    station.close();
    sender.close();
  });

  /** Sends a packet as a NIC would that gives it that Identification, and returns the result. */
  async function arrive(id: number, corrupt = -1) {
    const packet = new Uint8Array(32).map((_, i) => i * 5);
    packet[7] = lastOfQpn;
    const bytes = covered(from, sender.address().port, to, ownPort, id, packet);
    const datagram = Buffer.alloc(packet.length + 4);
    datagram.set(packet);
    datagram.writeUInt32LE(crc32(bytes), packet.length);
    if (corrupt >= 0) datagram[corrupt >> 3] ^= 1 << (corrupt & 7);
    await new Promise((done) => sender.send(datagram, ownPort, to, done));
    const [received, ...more] = station.receive();
    expect(more).toEqual([]);
    return received;
  }

  test.each([['a stranger'], ['a peer']])('%s that counts is followed', async (who) => {
    if (who === 'a peer') station.peer(from, ownPort);
    for (let id = 65_500; id < 65_600; id += 7) {
      expect(await arrive(id & 0xffff)).toMatchObject({ verdict: Icrc.OK, ipId: id & 0xffff });
    }
    expect(await arrive(20_000)).toMatchObject({ verdict: Icrc.OUT_OF_WINDOW, ipId: 20_000 });
    expect(await arrive(20_001)).toMatchObject({ verdict: Icrc.OK, ipId: 20_001 });
    expect(station.port.stats()).toMatchObject({ icrcOutOfWindow: 1, icrcBad: 0 });
  });

  // The connection's peer goes with its queue pair, and the answer to our DREQ comes behind all of its data.
  test.each([['alone'], ['one of two']])(
    'a source is followed when its peer is removed: %s',
    async (which) => {
      const ok = async (id: number) => expect(await arrive(id)).toMatchObject({ verdict: Icrc.OK, ipId: id });
      await ok(100);
      const peer = station.peer(from, ownPort);
      if (which === 'one of two') station.peer(from, ownPort);
      for (let id = 160; id < 12_000; id += 60) await ok(id);
      station.port.removePeer(peer);
      await ok(12_001);
      expect(await arrive(40_000)).toMatchObject({ verdict: Icrc.OUT_OF_WINDOW });
      expect(station.port.stats()).toMatchObject({ icrcOutOfWindow: 1, icrcBad: 0 });
    },
  );

  // As adapters that share an address have it: queue pair 1 has a socket of its own.
  test('a source is followed over all sockets of an address', async () => {
    station.close();
    station = new Station(to, ownPort, {}, { reusePort: true });
    const management = new Socket({ family: 4, address: to, port: ownPort, reusePort: true });
    station.port.addLocal(management);
    station.peer(from, ownPort);
    // Byte 7 of a packet, the last of its destination QPN, is the index of its socket.
    station.socket.steer(Uint32Array.of(0x30, 7, 0x16, 0));
    const ok = async (id: number, local: number) => {
      lastOfQpn = local;
      expect(await arrive(id)).toMatchObject({ verdict: Icrc.OK, ipId: id, local });
    };
    await ok(100, 1);
    for (let id = 160; id < 12_000; id += 60) await ok(id, 0);
    await ok(12_001, 1);
    management.close();
  });

  // LiteEth's core sends Identification 0 without "don't fragment"; Linux counts with IP_PMTUDISC_DONT.
  test.each([['a stranger'], ['a peer']])('%s without "don’t fragment" is followed', async (who) => {
    if (who === 'a peer') station.peer(from, ownPort);
    const ok = async (id: number) => expect(await arrive(id)).toMatchObject({ verdict: Icrc.OK, ipId: id });
    for (let i = 0; i < 10; i++) await ok(MAY_FRAGMENT);
    expect(station.port.stats()).toMatchObject({
      mayFragment: 10,
      solved: 1,
      icrcBad: 0,
      icrcOutOfWindow: 0,
    });
    expect(await arrive(MAY_FRAGMENT | 500)).toMatchObject({ verdict: Icrc.OUT_OF_WINDOW });
    for (let id = 501; id < 600; id += 7) await ok(MAY_FRAGMENT | id);
    // The other flag is another counter.
    expect(await arrive(601)).toMatchObject({ verdict: Icrc.OUT_OF_WINDOW });
    await ok(602);
    await ok(MAY_FRAGMENT | 600);
  });

  test('a flow with "don’t fragment" costs no solving and counts nothing', async () => {
    for (let i = 0; i < 10; i++) expect(await arrive(i)).toMatchObject({ verdict: Icrc.OK, ipId: i });
    expect(station.port.stats()).toMatchObject({ mayFragment: 0, solved: 1 });
  });

  test('every single flipped bit is found, but for the masked byte of the BTH', async () => {
    expect(await arrive(0)).toMatchObject({ verdict: Icrc.OK });
    for (let bit = 0; bit < 36 * 8; bit++) {
      const { verdict } = await arrive(0, bit);
      const masked = bit >> 3 === 4;
      if ((verdict === Icrc.OK) !== masked) expect.fail(`bit ${bit}: ${verdict}`);
    }
  });

  test('packets that are like the one before them but for PSN and payload: every flipped bit is found', async () => {
    // The length changes in between, and comes back.
    const send = async (
      change: (packet: Uint8Array) => Uint8Array,
      id: number,
      psn: number,
      corrupt = -1,
    ) => {
      const packet = change(new Uint8Array(76).map((_, i) => (i * 7 + psn) & 0xff));
      packet.set([0x04, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, psn >> 16, psn >> 8, psn]);
      const bytes = covered(from, sender.address().port, to, ownPort, id, packet);
      const datagram = Buffer.alloc(packet.length + 4);
      datagram.set(packet);
      datagram.writeUInt32LE(crc32(bytes), packet.length);
      if (corrupt >= 0) datagram[corrupt >> 3] ^= 1 << (corrupt & 7);
      await new Promise((done) => sender.send(datagram, ownPort, to, done));
      return station.receive()[0].verdict;
    };
    const same = (packet: Uint8Array) => packet;
    const shorter = (packet: Uint8Array) => packet.subarray(0, 16);
    const psns = [0, 1, 0xff, 0x100, 0xff_ff, 0x1_0000, 0xab_cdef, 0xff_ffff];
    let id = 1;
    for (const psn of psns) {
      for (const change of [same, same, same, shorter, shorter, same])
        expect(await send(change, id++, psn)).toBe(Icrc.OK);
    }
    for (let bit = 0; bit < 80 * 8; bit++) {
      await send(same, id++, 5);
      const verdict = await send(same, id++, 6, bit);
      if ((verdict === Icrc.OK) !== (bit >> 3 === 4)) expect.fail(`bit ${bit}: ${verdict}`);
    }
  });

  test('idWindow: false takes every Identification', async () => {
    station.close();
    station = new Station(to, ownPort, { idWindow: false });
    for (const id of [7, 30_000, 9, 50_000, 128])
      expect(await arrive(id)).toMatchObject({ verdict: Icrc.OK, ipId: id });
  });

  describe('a FLUSH whose ICRC covers BTH to RETH twice, as rxe of Linux 6.12 sends it', () => {
    const flush = (opcode = 0x1c, length = 32) =>
      new Uint8Array(length).map((_, i) => (i === 0 ? opcode : i * 37));

    /** Sends it as a NIC would that gives it that Identification. */
    async function arriveTwice(id: number, packet: Uint8Array, corrupt = -1) {
      const bytes = covered(from, sender.address().port, to, ownPort, id, packet);
      const datagram = Buffer.alloc(packet.length + 4);
      datagram.set(packet);
      datagram.writeUInt32LE(crc32(packet, crc32(bytes)), packet.length);
      if (corrupt >= 0) datagram[corrupt >> 3] ^= 1 << (corrupt & 7);
      await new Promise((done) => sender.send(datagram, ownPort, to, done));
      return station.receive()[0];
    }
    const restart = (options: PortOptions) => {
      station.close();
      station = new Station(to, ownPort, options);
    };

    test('is taken with takeFlushTwice alone, at any Identification of its window, and counted', async () => {
      expect(await arriveTwice(0, flush())).toMatchObject({ verdict: Icrc.BAD });
      restart({ takeFlushTwice: true });
      for (const id of [65_000, 65_001, 65_060, 300]) {
        expect(await arriveTwice(id & 0xffff, flush())).toMatchObject({
          verdict: id === 300 ? Icrc.OUT_OF_WINDOW : Icrc.OK,
          ipId: id,
        });
      }
      expect(await arrive(65_061)).toMatchObject({ verdict: Icrc.OK });
      expect(station.port.stats()).toMatchObject({ flushTwice: 4, icrcBad: 0, icrcOutOfWindow: 1 });
    });

    test('no other opcode and no other length is taken so', async () => {
      restart({ takeFlushTwice: true });
      // A window: before the first good packet, one of 32,768 wrong ICRCs solves to an Identification that is taken.
      expect(await arrive(0)).toMatchObject({ verdict: Icrc.OK });
      for (let opcode = 0; opcode < 256; opcode++) {
        if (opcode === 0x1c) continue;
        expect((await arriveTwice(0, flush(opcode))).verdict, `opcode ${opcode}`).not.toBe(Icrc.OK);
      }
      for (const length of [28, 36])
        expect((await arriveTwice(0, flush(0x1c, length))).verdict).not.toBe(Icrc.OK);
      expect(station.port.stats()).toMatchObject({ flushTwice: 0 });
    });

    test('every single flipped bit is found, those of the masked byte too: the second time it counts', async () => {
      restart({ takeFlushTwice: true });
      expect(await arriveTwice(0, flush())).toMatchObject({ verdict: Icrc.OK });
      for (let bit = 0; bit < 36 * 8; bit++) {
        const { verdict } = await arriveTwice(0, flush(), bit);
        if (verdict === Icrc.OK) expect.fail(`bit ${bit}`);
      }
    });

    test.each(['127.0.0.1', ...(hasIpv6 ? ['::1'] : [])])(
      'is sent with sendFlushTwice, and no other packet so: %s',
      (address) => {
        const stations = [{ takeFlushTwice: true }, {}, { sendFlushTwice: true }].map(
          (options, i) => new Station(address, ownPort + 1 + i, options),
        );
        const [takes, strict, sends] = stations;
        for (const [receiver, verdict] of [
          [takes, Icrc.OK],
          [strict, Icrc.BAD],
        ] as const) {
          const peer = sends.peer(address, receiver.socket.port);
          for (const opcode of [0x1c, 0x1d, 0x04]) {
            sends.add({ peer, headerLength: 32 });
            sends.tx.headers[0] = opcode;
            expect(sends.flush()).toEqual({ taken: 1, status: [0] });
            expect(receiver.receive()).toMatchObject([{ verdict: opcode === 0x1c ? verdict : Icrc.OK }]);
          }
        }
        expect(takes.port.stats()).toMatchObject({ flushTwice: 1 });
        for (const one of stations) one.close();
      },
    );
  });

  test('runts and empty datagrams are counted', async () => {
    for (const length of [0, 1, 15]) {
      await new Promise((done) => sender.send(Buffer.alloc(length), ownPort, to, done));
    }
    expect(station.receive()).toEqual([]);
    expect(station.port.stats()).toMatchObject({ runts: 3, rxPackets: 0, rxDatagrams: 3 });
  });

  test('counts a datagram that is too long for its place in the slab', async () => {
    station.close();
    station = new Station(to, ownPort, {}, { gro: false });
    await new Promise((done) => sender.send(Buffer.alloc(9000), ownPort, to, done));
    expect(station.receive()).toEqual([]);
    expect(station.port.stats()).toMatchObject({ truncated: 1 });
  });
});

test('the real thing: frames of a ConnectX-4 Lx and a Huawei NIC', () => {
  // Their ICRCs are right for the Identification in their own IP headers (docs/icrc.md).
  const frames = [
    'e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a',
    '005056af39dc005056af0dec0800450200303631400040118e50c0a8fa72c0a8fa75cf2112b7001c00001140ffff00000d1e00466f1e000e6f028d64383d',
    '183d5ebf5192183d5ebf43710800450200300000400040112d60c0a84604c0a84606004512b7001c00001140ffff00000048000000000600000090d7755d',
  ];
  for (const frame of frames) {
    const ip = Buffer.from(frame, 'hex').subarray(14);
    const dotted = (at: number) => [...ip.subarray(at, at + 4)].join('.');
    const packet = ip.subarray(28, ip.length - 4);
    const zero = crc32(covered(dotted(12), ip.readUInt16BE(20), dotted(16), ip.readUInt16BE(22), 0, packet));
    const difference = (zero ^ ip.readUInt32LE(ip.length - 4)) >>> 0;
    expect(solveId(difference, packet.length + 4)).toBe(ip.readUInt16BE(4));
  }
});
