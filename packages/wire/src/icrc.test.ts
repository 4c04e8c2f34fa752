import { crc32 as zlibCrc32 } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromHex } from './bytes.ts';
import { CRC32_START, crc32, crc32Finish, crc32Shift, crc32Update } from './crc32.ts';
import {
  ICRC_START,
  IP_MAY_FRAGMENT,
  icrcOfIpId,
  icrcScatter,
  icrcV1,
  icrcV2,
  readIcrc,
  solveIpId,
  verifyIcrc,
  writeIcrc,
} from './icrc.ts';
import { createRandom } from './random.ts';

// Frames of real adapters, Ethernet header first (a ConnectX-4 Lx, a Huawei NIC, a Mellanox OUI).
const CNP = fromHex(
  `e41d2dab2bc27cfe90643b320800 45c2003c718c4000401191610a0011010a001201 000012b700280000
   8100ffff4000011800000000 00000000000000000000000000000000 82fd002a`,
);
const RC_ACK = fromHex(
  `183d5ebf5192183d5ebf43710800 450200300000400040112d60c0a84604c0a84606 004512b7001c0000
   1140ffff0000004800000000 06000000 90d7755d`,
);
const UC_IPV4 = fromHex(
  `248a07a8fa22248a07a8fa220800 45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2
   2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3`,
);
const ROCE_V1 = fromHex(
  `7cfe90753cd87cfe90753cd88915 6020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f000002
   0a70ffff0000010a80a788bc 000055d4c0726000000047b300000005 0000000001000000 e3d856bb`,
);
const L2 = 14;

describe('CRC-32', () => {
  it('has the check value of the polynomial', () => {
    expect(crc32(new TextEncoder().encode('123456789'))).toBe(0xcbf4_3926);
    expect(ICRC_START).toBe(0xdebb_20e3);
  });

  it('agrees with zlib over any piece, in any split', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.nat(200), fc.nat(200), (bytes, i, j) => {
        const [start, end] = [Math.min(i, j, bytes.length), Math.min(Math.max(i, j), bytes.length)];
        let register = crc32Update(CRC32_START, bytes, 0, start);
        register = crc32Update(register, bytes, start, end);
        register = crc32Update(register, bytes, end);
        expect(crc32Finish(register)).toBe(zlibCrc32(bytes));
      }),
    );
  });

  it('shifts over zero bytes as if they had been read, and back', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 0xffff_ffff }), fc.nat(10_000), (register, count) => {
        const shifted = crc32Shift(register, count);
        expect(shifted).toBe(crc32Update(register, new Uint8Array(count)));
        expect(crc32Shift(shifted, -count)).toBe(register);
      }),
    );
  });
});

describe('ICRC', () => {
  it.each([
    ['CNP over IPv4', CNP],
    ['RC ACK over IPv4', RC_ACK],
    ['UC over IPv4 with a UDP checksum', UC_IPV4],
    ['RoCE v1', ROCE_V1],
  ])('is right in a frame of real hardware: %s', (_name, frame) => {
    expect(verifyIcrc(frame, L2, frame.length)).toBe(true);
  });

  it('is little-endian on the wire', () => {
    expect(readIcrc(CNP, CNP.length - 4)).toBe(0x2a00_fd82);
    expect(icrcV2(CNP, L2, CNP.length - 4)).toBe(0x2a00_fd82);
    expect(icrcV1(ROCE_V1, L2, ROCE_V1.length - 4)).toBe(0xbb56_d8e3);
    const b = new Uint8Array(4);
    writeIcrc(b, 0, 0x2a00_fd82);
    expect(b).toEqual(fromHex('82fd002a'));
  });

  // Byte offsets from the IP header. Every other byte of header and data is covered.
  const masked = { ipv4: [1, 8, 10, 11, 26, 27, 32], grh: [1, 2, 3, 7, 44] };
  it.each([
    ['IPv4', UC_IPV4, masked.ipv4],
    ['GRH', ROCE_V1, masked.grh],
  ])('masks the fields of %s that may change, and no others', (_name, frame, offsets) => {
    for (let i = L2; i < frame.length; i++) {
      const o = i - L2;
      // The version nibble and header lengths steer the computation itself.
      if (o === 0 || (frame === ROCE_V1 && o === 6)) continue;
      const changed = Uint8Array.from(frame);
      changed[i] ^= 0x55;
      expect({ o, ok: verifyIcrc(changed, L2, changed.length) }).toEqual({ o, ok: offsets.includes(o) });
    }
  });

  it('masks all of IPv6 traffic class, but not the version', () => {
    const changed = Uint8Array.from(ROCE_V1);
    changed[L2] = 0x6f;
    expect(verifyIcrc(changed, L2, changed.length)).toBe(true);
  });

  it('of pieces is that of the whole', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 5 }),
        fc.nat(3),
        (fragments, pad) => {
          const payload = Uint8Array.from(fragments.flatMap((f) => [...f]));
          const whole = new Uint8Array(28 + 16 + payload.length + pad);
          whole.set(RC_ACK.subarray(L2, L2 + 44));
          whole.set(payload, 44);
          expect(icrcScatter(whole.subarray(0, 28), whole.subarray(28, 44), fragments, pad)).toBe(
            icrcV2(whole, 0, whole.length),
          );
        },
      ),
    );
  });
});

describe('solveIpId', () => {
  it('finds the ID of a ConnectX-4 Lx packet from the ICRC alone', () => {
    const unseen = Uint8Array.from(CNP);
    unseen[L2 + 4] = 0;
    unseen[L2 + 5] = 0;
    const at = CNP.length - 4;
    const syndrome = (readIcrc(CNP, at) ^ icrcV2(unseen, L2, at)) >>> 0;
    expect(solveIpId(syndrome, at - (L2 + 6))).toBe(0x718c);
    expect(icrcOfIpId(0x718c, at - (L2 + 6))).toBe(syndrome);
  });

  it('finds every ID, at every length', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 0xffff }), fc.integer({ min: 34, max: 65_515 }), (id, after) => {
        expect(solveIpId(icrcOfIpId(id, after), after)).toBe(id);
      }),
    );
    for (let id = 0; id < 0x1_0000; id += 7) expect(solveIpId(icrcOfIpId(id, 46), 46)).toBe(id);
  });

  it('finds the ID of a packet that may be fragmented', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 0xffff }), fc.integer({ min: 12, max: 2000 }), (id, length) => {
        const packet = new Uint8Array(28 + length + 4);
        packet.set([0x45, 0, 0, packet.length, 0, 0, 0x40, 0, 64, 17]);
        const sent = packet.slice();
        sent.set([id >>> 8, id & 0xff, 0], 4);
        const at = packet.length - 4;
        const syndrome = (icrcV2(sent, 0, at) ^ icrcV2(packet, 0, at)) >>> 0;
        expect(solveIpId(syndrome, at - 6)).toBe(IP_MAY_FRAGMENT | id);
      }),
    );
  });

  it('takes a corrupt packet for one with another ID about once in 32,768', () => {
    let accepted = 0;
    const random = createRandom(1);
    for (let i = 0; i < 400_000; i++) if (solveIpId(random.next(), 46) >= 0) accepted++;
    expect(accepted).toBeGreaterThan(0);
    expect(accepted).toBeLessThan(35);
  });
});
