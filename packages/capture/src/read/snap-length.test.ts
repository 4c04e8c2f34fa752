/** The snap length that is advised follows from what was seen. */
import { LinkType } from '@node-roce/pcap';
import { expect, test } from 'vitest';
import { ACK, WRITE_V1 } from '../../testing/frames.ts';
import { rawRecord } from '../../testing/records.ts';
import { PacketReader } from './reader.ts';
import { SnapLength, snapAdvice } from './snap-length.ts';

function needed(...frames: [bytes: Uint8Array, kept: number][]): number {
  const reader = new PacketReader();
  for (const [bytes, kept] of frames)
    reader.frame(
      rawRecord(bytes.subarray(0, kept), { linkType: LinkType.ETHERNET, originalLength: bytes.length }),
    );
  return reader.summary().neededSnapLength;
}

test('the end of the longest headers, in steps of 16', () => {
  // Ethernet, IPv4, UDP, BTH and AETH are 58 bytes; with a GRH, BTH and RETH 82.
  expect(needed([ACK, ACK.length])).toBe(64);
  expect(needed([ACK, 60], [WRITE_V1, 70])).toBe(96);
});

test('frames that end in an outer header need what can follow there', () => {
  const [cut] = [50];
  expect(needed([ACK, cut])).toBeGreaterThanOrEqual(cut + 12);
  expect(needed([ACK, cut])).toBeLessThan(192);
});

test('super-packets need all bytes', () => {
  const snap = new SnapLength();
  snap.cut(100);
  snap.superPacket();
  expect(snap.needed).toBe(0);
  expect(snapAdvice(snap.needed)).toContain('-s 0');
  expect(snapAdvice(160)).toContain('-s 160');
});
