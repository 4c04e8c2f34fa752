import { formatIpAddress, formatMac, gidFromIpBytes, parseIpAddress } from '@node-roce/wire';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Anonymizer } from './anonymize.ts';

const names = new Anonymizer('a key');

function sharedBits(a: Uint8Array, b: Uint8Array): number {
  let bit = 0;
  while (bit < a.length * 8 && (((a[bit >> 3] ^ b[bit >> 3]) >> (7 - (bit & 7))) & 1) === 0) bit++;
  return bit;
}

describe.each([4, 16])('addresses of %i bytes', (length) => {
  const address = fc.uint8Array({ minLength: length, maxLength: length });

  test('two share as many bits as their anonymized forms: one to one, and subnets stay', () => {
    fc.assert(
      fc.property(address, fc.nat(length * 8 - 1), address, (a, bits, noise) => {
        // A second one that differs from some bit on.
        const b = a.slice();
        b[bits >> 3] ^= 0x80 >> (bits & 7);
        for (let i = (bits >> 3) + 1; i < length; i++) b[i] = noise[i];
        expect(sharedBits(names.address(a), names.address(b))).toBe(sharedBits(a, b));
      }),
      { numRuns: 100 },
    );
  });

  test('the same key gives the same address; another key, another', () => {
    fc.assert(
      fc.property(address, (a) => {
        expect(new Anonymizer('a key').address(a)).toEqual(names.address(a));
      }),
      { numRuns: 20 },
    );
    const one = Uint8Array.from({ length }, (_, i) => 0x21 + i);
    expect(new Anonymizer().address(one)).not.toEqual(new Anonymizer().address(one));
  });
});

test.each([
  ['10.1.2.3', /^10\./],
  ['192.168.1.77', /^192\.168\./],
  ['172.16.5.5', /^172\.(1[6-9]|2\d|3[01])\./],
  ['127.0.0.1', /^127\./],
  ['239.1.1.1', /^2(2[4-9]|3\d)\./],
  ['fe80::5054:ff:fe77:2', /^fe80::/],
  ['fd77::2', /^f[cd]/],
  ['ff0e::ffff:e001:1', /^ff0e:/],
  ['::ffff:10.1.2.3', /^::ffff:10\./],
])('%s stays in its range', (address, range) => {
  const made = names.text(address);
  expect(made).toMatch(range);
  expect(made).not.toBe(address);
});

test('a public address does not turn into a private one', () => {
  for (let i = 0; i < 300; i++) {
    const made = names.address(Uint8Array.of(11 + (i % 80), i & 255, 7, 9));
    expect(formatIpAddress(made)).not.toMatch(/^(10|127)\.|^192\.168\.|^172\.(1[6-9]|2\d|3[01])\./);
  }
});

test('an IPv4 address and its GID are anonymized alike', () => {
  const address = parseIpAddress('198.51.100.7')!;
  expect(names.address(gidFromIpBytes(address))).toEqual(gidFromIpBytes(names.address(address)));
});

test('MAC addresses: locally administered, groups as they are', () => {
  const mac = Uint8Array.of(0x52, 0x54, 0, 0x77, 0, 2);
  const made = names.mac(mac);
  expect(made).toHaveLength(6);
  expect(made[0] & 3).toBe(2);
  expect(made).not.toEqual(mac);
  expect(names.mac(mac)).toEqual(made);
  const group = Uint8Array.of(0x33, 0x33, 0, 0, 0, 1);
  expect(names.mac(group)).toEqual(group);
});

test('replaces the addresses in a sentence, and nothing else', () => {
  const sentence = 'At 1.240 s 10.77.0.2 → fd77::2: 3 of 7 (12:30:01.5), 0x11, 192.0.2.1.';
  const [a, b, c] = ['10.77.0.2', 'fd77::2', '192.0.2.1'].map((address) => names.text(address));
  expect(names.sentence(sentence)).toBe(`At 1.240 s ${a} → ${b}: 3 of 7 (12:30:01.5), 0x11, ${c}.`);
});

test('finds addresses before punctuation, and MAC addresses', () => {
  const [a, b] = ['2001:db8::', 'fd77::2'].map((address) => names.text(address));
  const mac = formatMac(names.mac(Uint8Array.of(0x52, 0x54, 0, 0x77, 0, 2)));
  expect(names.sentence('2001:db8:::, fd77::2: 52:54:00:77:00:02. 12:30:01.')).toBe(
    `${a}:, ${b}: ${mac}. 12:30:01.`,
  );
});

test('texts and bytes that are not addresses stay', () => {
  expect(names.text('host')).toBe('host');
  expect(names.address(Uint8Array.of(1, 2))).toEqual(Uint8Array.of(1, 2));
});
