import { gidFromText, IP_MAY_FRAGMENT, readIcrc, verifyIcrc } from '@node-roce/wire';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ipPacket } from './ip-packet.ts';

const v4 = fc.uint8Array({ minLength: 4, maxLength: 4 }).map((b) => gidFromText([...b].join('.')));
const v6 = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((b) => Uint8Array.of(0x20, ...b.slice(1)));
const pair = fc.oneof(fc.tuple(v4, v4), fc.tuple(v6, v6));

test('the ICRC is the one that wire computes, and a wrong one stays', () => {
  fc.assert(
    fc.property(
      pair,
      fc.uint8Array({ minLength: 12, maxLength: 4200 }),
      fc.nat(2 * IP_MAY_FRAGMENT - 1),
      fc.nat(0xffff),
      fc.nat(255),
      fc.nat(255),
      ([source, destination], payload, id, sourcePort, trafficClass, hopLimit) => {
        const parts = {
          source,
          destination,
          payload,
          id,
          sourcePort,
          trafficClass,
          hopLimit,
          destinationPort: 4791,
        };
        const bytes = ipPacket(parts);
        expect(verifyIcrc(bytes, 0, bytes.length)).toBe(true);
        if (bytes[0] === 0x45) expect(bytes[6]).toBe(id >= IP_MAY_FRAGMENT ? 0 : 0x40);
        const wrong = ipPacket({ ...parts, icrc: Uint8Array.of(1, 2, 3, 4) });
        expect(readIcrc(wrong, wrong.length - 4)).toBe(0x04030201);
      },
    ),
    { numRuns: 60 },
  );
});

test('an acknowledgement of a ConnectX-4 Lx, byte for byte', () => {
  // Seen on the wire: RC ACK, QP 0xd1e, Identification 0x3631, TOS 2.
  const wire =
    '450200303631400040118e50c0a8fa72c0a8fa75cf2112b7001c0000' +
    '1140ffff00000d1e00466f1e000e6f02' +
    '8d64383d';
  const expected = Uint8Array.from(Buffer.from(wire, 'hex'));
  const bytes = ipPacket({
    source: gidFromText('192.168.250.114'),
    destination: gidFromText('192.168.250.117'),
    payload: expected.subarray(28, 44),
    id: 0x3631,
    sourcePort: 0xcf21,
    destinationPort: 4791,
    trafficClass: 2,
    hopLimit: 64,
  });
  expect(Buffer.from(bytes).toString('hex')).toBe(wire);
});
