import { buildPacket, type Packet, parseFrame, verifyIcrc } from '@node-roce/wire';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ACK, WRITE_V1 } from '../../testing/frames.ts';
import { isIcrcRight } from './icrc-check.ts';

function parsed(frame: Uint8Array): Packet {
  const result = parseFrame(frame);
  if (!result.ok) throw new Error(result.detail);
  return result.packet;
}

/** A SEND MIDDLE with such a payload. */
function packetOf(kind: 'IPv4' | 'IPv6' | 'v1', payload: Uint8Array): Uint8Array {
  const { ethernet, ip, bth, ...rest } = parsed(kind === 'v1' ? WRITE_V1 : ACK);
  const { icrc: _, ...others } = rest;
  return buildPacket({
    ...others,
    ethernet: { ...ethernet!, etherType: kind === 'IPv6' ? 0x86dd : ethernet!.etherType },
    ip:
      kind === 'IPv6'
        ? {
            version: 6,
            trafficClass: 0xa5,
            flowLabel: 0x12345,
            nextHeader: 17,
            hopLimit: 3,
            source: new Uint8Array(16).fill(0x20),
            destination: new Uint8Array(16).fill(0x21),
          }
        : { ...ip, ...(kind === 'IPv4' ? { tos: 0x6b, ttl: 9 } : {}) },
    bth: { ...bth, opcode: 0x01, pad: -payload.length & 3 },
    extensions: {},
    payload,
  });
}

test.each(['IPv4', 'IPv6', 'v1'] as const)(
  '%s: as wire has it, whatever is flipped; the bytes stay',
  (kind) => {
    const version = kind === 'v1' ? 1 : 2;
    const ip = 14;
    const bth = ip + { IPv4: 28, IPv6: 48, v1: 40 }[kind];
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 1200 }),
        fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), { maxLength: 3 }),
        (payload, flips) => {
          const frame = packetOf(kind, payload);
          expect(isIcrcRight(frame, ip, version, frame, bth, frame.length)).toBe(true);
          // Not the first bytes: another IP version is another packet.
          for (const [at, mask] of flips) frame[ip + 1 + (at % (frame.length - ip - 1))] ^= mask;
          if (kind !== 'IPv4' && frame[ip + 6] !== (kind === 'v1' ? 0x1b : 17)) return;
          const before = frame.slice();
          expect(isIcrcRight(frame, ip, version, frame, bth, frame.length)).toBe(
            verifyIcrc(frame, ip, frame.length),
          );
          expect(isIcrcRight(frame.slice(), ip, version, frame, bth, frame.length)).toBe(
            verifyIcrc(frame, ip, frame.length),
          );
          expect(frame).toEqual(before);
        },
      ),
      { numRuns: 300 },
    );
  },
);
