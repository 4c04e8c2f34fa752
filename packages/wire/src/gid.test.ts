import { isIPv6 } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fromHex, toHex } from './bytes.ts';
import {
  formatIpAddress,
  formatMac,
  gidEquals,
  gidFromIpBytes,
  gidFromText,
  gidToIpBytes,
  gidToIpText,
  gidToText,
  isIpv4Mapped,
  isLinkLocal,
  isMulticast,
  linkLocalGidFromMac,
  macFromMulticastGid,
  multicastGid,
  parseIpAddress,
} from './gid.ts';

describe('addresses', () => {
  test.each([
    ['10.77.0.2', '0a4d0002'],
    ['255.255.255.255', 'ffffffff'],
    ['::', '00000000000000000000000000000000'],
    ['fd77::2', 'fd770000000000000000000000000002'],
    ['1:2:3:4:5:6:7:8', '00010002000300040005000600070008'],
    ['2001:DB8::A', '20010db800000000000000000000000a'],
    ['1::', '00010000000000000000000000000000'],
    ['::ffff:10.77.0.2', '00000000000000000000ffff0a4d0002'],
    ['1:2:3:4:5:6:1.2.3.4', '00010002000300040005000601020304'],
  ])('%s', (text, hex) => expect(toHex(parseIpAddress(text)!)).toBe(hex));

  test.each([
    '',
    '1.2.3',
    '1.2.3.256',
    '01.2.3.4',
    '1.2.3.4.5',
    ':',
    ':::',
    '1::2::3',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7::8',
    '12345::',
    'g::',
    'fe80::1%eth0',
    '1.2.3.4::',
    '::1.2.3',
  ])('rejects %j', (text) => expect(parseIpAddress(text)).toBeUndefined());

  // RFC 5952 §4 and §5.
  test.each([
    ['20010db8000000000000000000020001', '2001:db8::2:1'],
    ['20010db8000000010001000100010001', '2001:db8:0:1:1:1:1:1'],
    ['20010000000000010000000000000001', '2001:0:0:1::1'],
    ['20010db8000000000001000000000001', '2001:db8::1:0:0:1'],
    ['00000000000000000000000000000001', '::1'],
    ['00010000000000000000000000000000', '1::'],
    ['00000000000000000000ffff0a4d0002', '::ffff:10.77.0.2'],
  ])('%s is written %s', (hex, text) => expect(formatIpAddress(fromHex(hex))).toBe(text));

  test('any 16 bytes come back from their text', () => {
    // Few values, so that runs of zeros are common.
    const word = fc.constantFrom(0, 0, 0, 1, 0xffff, 0x0a4d);
    fc.assert(
      fc.property(fc.array(word, { minLength: 8, maxLength: 8 }), (words) => {
        const bytes = Uint8Array.from(words.flatMap((w) => [w >> 8, w & 0xff]));
        const text = formatIpAddress(bytes);
        expect(isIPv6(text)).toBe(true);
        expect(parseIpAddress(text)).toEqual(bytes);
      }),
    );
  });
});

describe('GIDs', () => {
  test('of IPv4 addresses are mapped, of IPv6 addresses the same bytes', () => {
    const v4 = gidFromText('10.77.0.2');
    expect(toHex(v4)).toBe('00000000000000000000ffff0a4d0002');
    expect(isIpv4Mapped(v4)).toBe(true);
    expect([gidToText(v4), gidToIpText(v4), toHex(gidToIpBytes(v4))]).toEqual([
      '::ffff:10.77.0.2',
      '10.77.0.2',
      '0a4d0002',
    ]);
    const v6 = gidFromText('fd77::2');
    expect([gidToText(v6), gidToIpText(v6), gidToIpBytes(v6).length]).toEqual(['fd77::2', 'fd77::2', 16]);
    expect(gidEquals(v4, gidFromIpBytes(Uint8Array.of(10, 77, 0, 2)))).toBe(true);
    expect(gidEquals(v4, v6)).toBe(false);
  });

  test('refuse texts that are no addresses', () => {
    expect(() => gidFromText('host.example')).toThrow(RangeError);
    expect(() => gidFromIpBytes(new Uint8Array(5))).toThrow('5 bytes');
    expect(() => multicastGid('10.0.0.1')).toThrow('not a multicast address');
    expect(() => macFromMulticastGid(gidFromText('fd77::2'))).toThrow('not a multicast GID');
  });

  test('of an interface follow from its MAC address', () => {
    const gid = linkLocalGidFromMac(fromHex('525400770002'));
    expect(gidToText(gid)).toBe('fe80::5054:ff:fe77:2');
    expect([isLinkLocal(gid), isLinkLocal(gidFromText('fec0::1'))]).toEqual([true, false]);
  });

  // The first MAC address is the one that rxe sent mckey's packets to (test/fixtures/captures/cm_mckey.pcap).
  test.each([
    ['239.77.0.5', '::ffff:239.77.0.5', '01:00:5e:4d:00:05'],
    ['239.205.0.5', '::ffff:239.205.0.5', '01:00:5e:4d:00:05'],
    ['ff0e::77', 'ff0e::77', '33:33:00:00:00:77'],
  ])('of the group %s', (address, text, mac) => {
    const gid = multicastGid(address);
    expect(isMulticast(gid)).toBe(true);
    expect(gidToText(gid)).toBe(text);
    expect(formatMac(macFromMulticastGid(gid))).toBe(mac);
  });

  test('of an IPv4 group on RoCE v1', () => {
    expect(toHex(multicastGid('239.77.0.5', 1))).toBe('ff0e0000000000000000ffffef4d0005');
  });
});
