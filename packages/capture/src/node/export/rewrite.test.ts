/** Frames with anonymized addresses and without payload, of every kind that fixtures don't have. */
import { LinkType } from '@node-roce/pcap';
import {
  buildPacket,
  CM_LAYOUTS,
  type CmMessage,
  type CmName,
  CmRejReason,
  decodeCm,
  encodeCm,
  fromHex,
  GSI_QPN,
  icrcV2,
  internetChecksum,
  MAD_BYTES,
  MAD_HEADER_BYTES,
  Opcode,
  parseFrame,
  setU16,
  toHex,
  u16,
  udpChecksum,
  writeIcrc,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ACK, ATOMIC_V6, CNP, under, WRITE_V1 } from '../../../testing/frames.ts';
import { rawRecord } from '../../../testing/records.ts';
import { type RocePacket, verdictName } from '../../read/packet.ts';
import { PacketReader } from '../../read/reader.ts';
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

test('IPv4 options, which can hold addresses, are zeroed', () => {
  const options = Uint8Array.of(7, 7, 8, 192, 0, 2, 33, 0);
  const frame = Uint8Array.of(...ACK.slice(0, 34), ...options, ...ACK.slice(34));
  frame[14] = 0x47;
  setU16(frame, 16, u16(ACK, 16) + options.length);
  writeIcrc(frame, frame.length - 4, icrcV2(frame, 14, frame.length - 4));
  const [result] = rewritten(frame, LinkType.ETHERNET);
  expectSame(result);
  expect(result.after.icrc).toBe('ok');
  expect(result.frame.slice(34, 42)).toEqual(new Uint8Array(8));
  expect(internetChecksum(result.frame, 14, 42)).toBe(0);
});

test.each([LinkType.LINUX_SLL, LinkType.LINUX_SLL2])(
  'link type %i: of an address that is no MAC nothing stays',
  (linkType) => {
    const frame = under(linkType, ACK);
    // The interface of an IPv4 tunnel; an odd first byte is a group's in a MAC address only.
    const [lengthAt, at] = linkType === LinkType.LINUX_SLL ? [5, 6] : [11, 12];
    frame[lengthAt] = 4;
    frame.set([185, 0, 2, 33], at);
    const [{ frame: made }] = rewritten(frame, linkType);
    expect(made.slice(at, at + 8)).toEqual(new Uint8Array(8));
  },
);

describe('messages of the connection manager', () => {
  const gid = fromHex('20010db8000000000000000000000021');
  const guid = fromHex('505400fffe770002');

  /** A frame with the message, rewritten; its MAD. */
  function renamed(message: Partial<CmMessage> & { name: CmName }, captured = MAD_BYTES): Uint8Array {
    const parsed = parseFrame(ACK);
    if (!parsed.ok) throw new Error(parsed.detail);
    const frame = buildPacket({
      ...parsed.packet,
      ip: { ...parsed.packet.ip, totalLength: undefined } as typeof parsed.packet.ip,
      udp: undefined,
      bth: { ...parsed.packet.bth, opcode: Opcode.UD_SEND_ONLY, destQp: GSI_QPN },
      extensions: { deth: { qkey: 0, srcQp: GSI_QPN } },
      payload: encodeCm({ transactionId: 1n, ...message } as CmMessage),
      icrc: undefined,
    });
    const start = 42 + 12 + 8;
    const [{ frame: made }] = rewritten(
      frame.slice(0, start + captured),
      LinkType.ETHERNET,
      frame.length,
      false,
    );
    return made.slice(start, start + captured);
  }

  test.each([
    ['a timeout: the GUID', CmRejReason.TIMEOUT, guid, names.identifier(guid)],
    ['a refused GID', CmRejReason.INVALID_GID, gid, names.address(gid)],
    ['redirection: nothing of a ClassPortInfo', CmRejReason.PORT_CM_REDIRECT, gid, new Uint8Array(16)],
  ])('additional information of a REJ: %s', (_, reason, additionalInfo, expected) => {
    const mad = renamed({ name: 'REJ', reason, additionalInfo });
    const decoded = decodeCm(mad);
    expect(decoded.ok && decoded.message).toMatchObject({ name: 'REJ', reason });
    const at = MAD_HEADER_BYTES + CM_LAYOUTS.REJ.additionalInfo.at;
    expect(mad.slice(at, at + expected.length)).toEqual(expected);
  });

  test('cut anywhere: the bytes that the whole message has', () => {
    const message = { name: 'REQ', primaryLocalGid: gid, primaryRemoteGid: gid } as const;
    const whole = renamed(message);
    expect(toHex(whole)).toContain(toHex(names.address(gid)));
    for (let captured = MAD_HEADER_BYTES; captured < MAD_BYTES; captured++)
      expect(toHex(renamed(message, captured))).toBe(toHex(whole.slice(0, captured)));
  });
});
