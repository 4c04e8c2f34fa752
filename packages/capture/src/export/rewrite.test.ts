/** Frames with anonymized addresses and without payload, of every kind that fixtures don't have. */
import { LinkType } from '@node-roce/pcap';
import { buildPacket, internetChecksum, parseFrame, setU16, toHex, u16, udpChecksum } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ACK, ATOMIC_V6, CNP, under, WRITE_V1 } from '../../testing/frames.ts';
import { rawRecord } from '../../testing/records.ts';
import { type RocePacket, verdictName } from '../read/packet.ts';
import { PacketReader } from '../read/reader.ts';
import { Anonymizer } from './anonymize.ts';
import { rewrittenFrame } from './rewrite.ts';

const names = new Anonymizer('for tests');

/** The packets of a frame, each rewritten, with the fields that the reader finds before and after. */
function rewritten(frame: Uint8Array, linkType: number, originalLength = frame.length, zeroPayload = true) {
  const results: { before: Fields; after: Fields; frame: Uint8Array; linkType: number }[] = [];
  const reader = new PacketReader({
    onPacket: (packet) => {
      const made = rewrittenFrame(packet, { anonymizer: names, zeroPayload });
      const before = fieldsOf(packet, reader);
      const missing = Math.max(0, packet.bth + wholeOf(packet) - packet.end);
      const again = new PacketReader({
        onPacket: (other) => {
          results.push({ before, after: fieldsOf(other, again), frame: made, linkType: packet.linkType });
        },
      });
      again.frame(rawRecord(made, { linkType: packet.linkType, originalLength: made.length + missing }));
    },
  });
  reader.frame(rawRecord(frame, { linkType, originalLength }));
  return results;
}

const wholeOf = ({ info, payloadLength, padCount }: RocePacket) =>
  info.headerLength + payloadLength + padCount + 4;

type Fields = ReturnType<typeof fieldsOf>;

function fieldsOf(packet: RocePacket, { addresses }: PacketReader) {
  const { version, vlan, sourcePort, dscp, ecn, hopLimit, opcode, destQp, psn, ackReq, payloadLength } =
    packet;
  return {
    ...{ version, vlan, sourcePort, dscp, ecn, hopLimit, opcode, destQp, psn, ackReq, payloadLength },
    source: addresses.text(packet.source),
    destination: addresses.text(packet.destination),
    icrc: verdictName(packet.icrc),
    data: toHex(packet.bytes.slice(packet.payload, Math.min(packet.payload + payloadLength, packet.end))),
  };
}

function expectSame({ before, after }: { before: Fields; after: Fields }) {
  expect(after).toEqual({
    ...before,
    source: names.text(before.source),
    destination: names.text(before.destination),
    data: before.data.replaceAll(/./g, '0'),
  });
}

const linkTypes = [LinkType.ETHERNET, LinkType.LINUX_SLL, LinkType.LINUX_SLL2, LinkType.NULL, LinkType.RAW];
const frames = { CNP, ACK, WRITE_V1, ATOMIC_V6 };

describe.each(Object.entries(frames))('%s', (_, frame) => {
  test.each(linkTypes)('link type %i: the same packet of others, its ICRC right', (linkType) => {
    const results = rewritten(under(linkType, frame), linkType);
    // Only an EtherType identifies RoCE v1.
    const knowsV1 = linkType !== LinkType.RAW && linkType !== LinkType.NULL;
    expect(results).toHaveLength(frame === WRITE_V1 && !knowsV1 ? 0 : 1);
    for (const result of results) {
      expectSame(result);
      expect(result.after.icrc).toBe('ok');
    }
  });

  test('an ICRC that was wrong is wrong', () => {
    const wrong = frame.slice();
    wrong[wrong.length - 2] ^= 0x10;
    const [result] = rewritten(wrong, LinkType.ETHERNET);
    expectSame(result);
    expect(result.after.icrc).toBe('bad');
  });

  test('cut anywhere: the remaining bytes, no ICRC, no UDP checksum', () => {
    for (let length = 0; length < frame.length; length++) {
      for (const result of rewritten(frame.slice(0, length), LinkType.ETHERNET, frame.length)) {
        expectSame(result);
        expect(result.after.icrc).toBe('none');
        expect(result.frame.length).toBeLessThanOrEqual(length);
      }
    }
  });

  test('anonymizes MAC addresses', () => {
    const [{ frame: made }] = rewritten(frame, LinkType.ETHERNET);
    for (const at of [0, 6]) expect(made.slice(at, at + 6)).toEqual(names.mac(frame.slice(at, at + 6)));
  });
});

test('operands of atomics are zeroed, address and key are not', () => {
  const [{ frame: made }] = rewritten(ATOMIC_V6, LinkType.ETHERNET);
  const parsed = parseFrame(made);
  expect(parsed.ok && parsed.packet.extensions.atomicEth).toEqual({
    va: 8n,
    rkey: 1,
    swapAdd: 0n,
    compare: 0n,
  });
  const [kept] = rewritten(ATOMIC_V6, LinkType.ETHERNET, ATOMIC_V6.length, false);
  const other = parseFrame(kept.frame);
  expect(other.ok && other.packet.extensions.atomicEth).toEqual({
    va: 8n,
    rkey: 1,
    swapAdd: 2n,
    compare: 3n,
  });
});

test('checksums of IP and UDP fit; a UDP checksum of 0 stays', () => {
  const parsed = parseFrame(ACK);
  if (!parsed.ok) throw new Error(parsed.detail);
  const frame = buildPacket({ ...parsed.packet, icrc: undefined });
  for (const checksum of [0, udpChecksum(frame, 14, 34)]) {
    setU16(frame, 40, checksum);
    const [{ frame: made }] = rewritten(frame, LinkType.ETHERNET);
    expect(internetChecksum(made, 14, 34)).toBe(0);
    expect(u16(made, 40)).toBe(checksum === 0 ? 0 : udpChecksum(made, 14, 34));
  }
});
