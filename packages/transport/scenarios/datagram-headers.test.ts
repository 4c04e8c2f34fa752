/** The GRH before a received datagram: an IPv6 header, or 20 zeros and an IPv4 header (IBTA annex A17.4.5.1, RFC 791, RFC 8200). */
import { IP_MAY_FRAGMENT, internetChecksum, Opcode, opcodeInfo } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { RX_SLOT_WORDS, Rx, RxBatch } from '../src/batch.ts';
import type { Context } from '../src/context.ts';
import { EMPTY_GID } from '../src/control.ts';
import { GRH_BYTES, writeGrh } from '../src/grh.ts';
import { InboundPacket } from '../src/inbound.ts';
import { gidOf } from '../testing/pair.ts';

const v6 = (last: number) => Uint8Array.from({ length: 16 }, (_, i) => (i === 15 ? last : 0xa0 + i));
const GROUP = Uint8Array.from(gidOf(3), (byte, i) => (i === 12 ? 239 : byte));

/** GRH of a packet of 100 bytes from `source` at a local index: 0 is 10.0.0.2, 1 an IPv6 address, 2 empty, 7 a group. */
function grhOf(source: Uint8Array, local: number, ipId = 0x1234): Uint8Array {
  const gids = [gidOf(2), v6(9)].map((gid) => ({ gid, address: '', type: 'RoCE v2' as const }));
  const addresses = { groupGid: (index: number) => (index === 7 ? GROUP : undefined) };
  const context = { gids: [...gids, EMPTY_GID], addresses } as unknown as Context;
  const batch = new RxBatch(4, 256);
  const w = 2 * RX_SLOT_WORDS;
  batch.slots.fill(0x77);
  batch.sources.fill(0x66);
  batch.slots[w + Rx.LENGTH] = 100;
  batch.slots[w + Rx.LOCAL] = local;
  batch.slots[w + Rx.TRAFFIC_CLASS] = 0x6a;
  batch.slots[w + Rx.HOP_LIMIT] = 61;
  batch.slots[w + Rx.IP_ID] = ipId;
  batch.sources.set(source, 2 * 16);
  const packet = new InboundPacket();
  packet.fill(batch, 2, 0, opcodeInfo(Opcode.UD_SEND_ONLY)!, 80);
  const grh = new Uint8Array(GRH_BYTES).fill(0xff);
  writeGrh(grh, context, packet);
  return grh;
}
const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
const ZEROS = '00'.repeat(20);
// Version, class, length (IP 20, UDP 8, 100, ICRC 4), identification, DF, TTL, UDP.
const IPV4 = '456a00841234' + '40003d11';

test.each([
  ['at an address', 0, '0a000002'],
  ['at a group', 7, 'ef000003'],
  ['at an index without an address', 2, '00000000'],
  ['at an index that there is not', 5, '00000000'],
])('IPv4, %s', (_what, local, destination) => {
  const grh = grhOf(gidOf(1), local);
  const ip = grh.subarray(20);
  expect(internetChecksum(ip)).toBe(0);
  const sum = text(ip.subarray(10, 12));
  expect(text(grh)).toBe(`${ZEROS}${IPV4}${sum}0a000001${destination}`);
});

test('IPv4 without "don’t fragment"', () => {
  const ip = grhOf(gidOf(1), 0, IP_MAY_FRAGMENT | 0x1234).subarray(20);
  expect(internetChecksum(ip)).toBe(0);
  expect(text(ip.subarray(4, 8))).toBe('12340000');
});

test.each([
  ['at an address', 1, text(v6(9))],
  ['at an index without an address', 2, '00'.repeat(16)],
])('IPv6, %s', (_what, local, destination) => {
  // Version, class, no flow label; length (UDP 8, 100, ICRC 4), UDP, hop limit.
  expect(text(grhOf(v6(1), local))).toBe(`66a000000070113d${text(v6(1))}${destination}`);
});

test.each([0, 5, 9, 10, 11])('a source that is not mapped in byte %i is IPv6', (index) => {
  const source = gidOf(1);
  source[index] ^= 1;
  const grh = grhOf(source, 1);
  expect(grh[0] >> 4).toBe(6);
  expect(grh.subarray(8, 24)).toEqual(source);
});
