/** Datagrams to port 4791 that are another protocol's, and opcodes of manufacturers, against damaged RoCE. */
import { LinkType } from '@node-roce/pcap';
import { fromHex, icrcV2, setU16, writeIcrc } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ACK } from '../../testing/frames.ts';
import { rawRecord } from '../../testing/records.ts';
import { nothingDecoded } from './nothing.ts';
import { PacketReader } from './reader.ts';

function read(...frames: Uint8Array[]) {
  const reader = new PacketReader();
  for (const frame of frames) reader.frame(rawRecord(frame, { linkType: LinkType.ETHERNET }));
  return reader.summary();
}

/** A UDP datagram from that port to 4791, with an IP header of the ACK's. */
function datagram(port: number, payload: Uint8Array): Uint8Array {
  const frame = Uint8Array.of(...ACK.subarray(0, 42), ...payload);
  setU16(frame, 16, 28 + payload.length);
  setU16(frame, 34, port);
  setU16(frame, 38, 8 + payload.length);
  return frame;
}

test('an answer of a name server to a client at port 4791 (RFC 1035)', () => {
  const answer = fromHex(
    '1234 8180 0001 0001 0000 0000 03777777 076578616d706c65 03636f6d 00 0001 0001 c00c 0001 0001 00000e10 0004 5db8d822'.replaceAll(
      ' ',
      '',
    ),
  );
  const summary = read(datagram(53, answer));
  expect(summary).toMatchObject({ rocePackets: 0, otherFrames: 1, damaged: {} });
  expect(nothingDecoded(summary)?.text).toContain('1 × UDP port of RoCE, another protocol');
  expect(nothingDecoded(summary)?.hint).toContain('Another program uses the UDP port');
});

test('a payload that is no multiple of four bytes can not be RoCE, whatever its opcode', () => {
  for (let length = 20; length < 40; length++) {
    const isPossible = length % 4 === 0;
    const payload = new Uint8Array(length).fill(0x11, 0, 1);
    payload.set([0x11, 0, 0xff, 0xff, 0, 0, 0, 9], 0);
    expect(read(datagram(50_000, payload)).otherFrames).toBe(isPossible ? 0 : 1);
  }
});

test('damage in one place stays a packet with a wrong ICRC', () => {
  for (let at = 42; at < ACK.length; at++) {
    const changed = ACK.slice();
    changed[at] ^= 0x01;
    const { rocePackets, damaged } = read(changed);
    expect(rocePackets + Object.values(damaged).reduce((sum, count) => sum + count, 0)).toBe(1);
  }
});

test('an opcode of a manufacturer is called that', () => {
  const vendor = ACK.slice();
  vendor[42] = 0xc5;
  writeIcrc(vendor, vendor.length - 4, icrcV2(vendor, 14, vendor.length - 4));
  setU16(vendor, 34, 50_000);
  const summary = read(vendor);
  expect(summary).toMatchObject({ rocePackets: 0, damaged: { 'vendor-opcode': 1 } });
  expect(nothingDecoded(summary)?.hint).toContain('left to manufacturers');
  const unknown = vendor.slice();
  unknown[42] = 0x7f;
  expect(read(unknown).damaged).toEqual({ 'unknown-opcode': 1 });
});
