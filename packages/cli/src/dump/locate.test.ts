import { LinkType } from '@node-roce/pcap';
import { fromHex } from '@node-roce/wire';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { locate } from './locate.ts';
import { readPacket } from './packet.ts';
import { SuperPacketSplitter } from './super-packet.ts';

// Frames of real adapters, Ethernet without FCS (public captures).
const cnp = fromHex(
  'e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a',
);
const roceV1 = fromHex(
  '7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb',
);

const insert = (frame: Uint8Array, at: number, hex: string) =>
  Uint8Array.from([...frame.subarray(0, at), ...fromHex(hex), ...frame.subarray(at)]);

test('RoCE v2 over IPv4, from Ethernet', () => {
  const located = locate(cnp, LinkType.ETHERNET, 4791);
  expect(located).toEqual({ version: 2, ip: 14, udp: 34, bth: 42, end: 74 });
  expect(readPacket(cnp, located!)).toMatchObject({
    src: '10.0.17.1',
    dst: '10.0.18.1',
    srcPort: 0,
    bth: { opcode: 0x81, destQp: 0x118, becn: true },
    payloadLength: 0,
    icrc: 'ok',
  });
});

test('RoCE v1', () => {
  const located = locate(roceV1, LinkType.ETHERNET, 4791);
  expect(located).toEqual({ version: 1, ip: 14, udp: -1, bth: 54, end: 94 });
  expect(readPacket(roceV1, located!)).toMatchObject({
    src: '::ffff:15.0.0.2',
    srcPort: undefined,
    bth: { opcode: 10, destQp: 0x10a, psn: 0xa788bc, pad: 3 },
    extensions: { reth: { va: 0x55d4c0726000n, rkey: 0x47b3, length: 5 } },
    payloadLength: 5,
    icrc: 'ok',
  });
});

test('other link types and VLAN tags', () => {
  const ip = cnp.subarray(14);
  const at = (frame: Uint8Array, type: number) => locate(frame, type, 4791)?.ip;
  expect(at(insert(cnp, 12, '81000005'), LinkType.ETHERNET)).toBe(18);
  expect(at(insert(cnp, 12, '88a8000581000006'), LinkType.ETHERNET)).toBe(22);
  expect(at(ip, LinkType.RAW)).toBe(0);
  expect(at(insert(ip, 0, '02000000'), LinkType.NULL)).toBe(4);
  expect(at(insert(ip, 0, `${'00'.repeat(14)}0800`), LinkType.LINUX_SLL)).toBe(16);
  expect(at(insert(ip, 0, `0800${'00'.repeat(18)}`), LinkType.LINUX_SLL2)).toBe(20);
  expect(at(cnp, LinkType.PPP)).toBeUndefined();
});

test('not RoCE: another port, protocol, a fragment, a datagram too short', () => {
  const changed = (o: number, value: number) => {
    const frame = cnp.slice();
    frame[o] = value;
    return locate(frame, LinkType.ETHERNET, 4791);
  };
  expect(changed(36, 0x13)).toBeUndefined();
  expect(changed(23, 6)).toBeUndefined();
  expect(changed(20, 0x20)).toBeUndefined();
  expect(changed(39, 8 + 15)).toBeUndefined();
  expect(locate(cnp, LinkType.ETHERNET, 4792)).toBeUndefined();
});

test('a cut capture has lengths but no verdict; without a whole BTH there is nothing to tell', () => {
  const frame = roceV1.subarray(0, 14 + 40 + 12 + 3);
  expect(readPacket(frame, locate(frame, LinkType.ETHERNET, 4791)!)).toMatchObject({
    payloadLength: 5,
    icrc: 'none',
    extensions: {},
  });
  expect(locate(roceV1.subarray(0, 14 + 40 + 11), LinkType.ETHERNET, 4791)).toBeUndefined();
});

test('no input makes it throw', () => {
  const splitter = new SuperPacketSplitter();
  const look = (frame: Uint8Array, type: number) => {
    const located = locate(frame, type, 4791);
    if (located === undefined) return;
    for (const piece of splitter.split(frame, located)) {
      const at = locate(piece, type, 4791);
      if (at !== undefined) readPacket(piece, at);
    }
  };
  const types = fc.constantFrom(...Object.values(LinkType));
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), types, look));
  // Most random bytes end at the first check; changed good frames go further.
  const flips = fc.array(fc.tuple(fc.nat(93), fc.integer({ min: 0, max: 255 })), { maxLength: 4 });
  fc.assert(
    fc.property(fc.constantFrom(cnp, roceV1), flips, fc.nat(94), (frame, changes, length) => {
      const changed = frame.slice(0, length);
      for (const [o, value] of changes) if (o < changed.length) changed[o] = value;
      look(changed, LinkType.ETHERNET);
    }),
    { numRuns: 2000 },
  );
});
