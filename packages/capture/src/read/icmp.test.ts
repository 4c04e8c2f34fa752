/** ICMP errors about RoCE packets, from literal headers of RFC 792 and RFC 4443. */
import { LinkType } from '@node-roce/pcap';
import { fromHex } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ACK } from '../../testing/frames.ts';
import { rawRecord } from '../../testing/records.ts';
import type { IcmpError } from './icmp.ts';
import { PacketReader } from './reader.ts';

/** The ACK's IP packet: 192.168.70.4 to 192.168.70.6. */
const QUOTED = ACK.subarray(14);

const ipv4 = (payload: Uint8Array) =>
  Uint8Array.of(...fromHex('4500000000004000400100000a0000010a000002'), ...payload);

const ipv6 = (payload: Uint8Array) =>
  Uint8Array.of(
    ...fromHex('6000000000003a40'),
    ...fromHex('20010db8000000000000000000000001'),
    ...fromHex('20010db8000000000000000000000002'),
    ...payload,
  );

/** An IPv6 packet with a BTH to QP 0x123 with PSN 0x456. */
const QUOTED_V6 = Uint8Array.of(
  ...fromHex('600000001010113f'),
  ...fromHex('20010db8000000000000000000000002'),
  ...fromHex('20010db8000000000000000000000003'),
  ...fromHex('c00012b710100000'),
  ...fromHex('0440ffff0000012300000456'),
);

interface Seen extends Partial<IcmpError> {
  from: string;
  to: string;
  quoted: [string, string];
}

function read(...packets: Uint8Array[]): { seen: Seen[]; reader: PacketReader } {
  const seen: Seen[] = [];
  const reader = new PacketReader({
    onIcmp: ({ meaning, mtu, frame, destQp, psn, quotedLength, ...error }, { addresses }) =>
      seen.push({
        ...{ meaning, mtu, frame, destQp, psn, quotedLength },
        from: addresses.text(error.source),
        to: addresses.text(error.destination),
        quoted: [addresses.text(error.quotedSource), addresses.text(error.quotedDestination)],
      }),
  });
  for (const packet of packets) reader.frame(rawRecord(packet, { linkType: LinkType.RAW }));
  return { seen, reader };
}

test('a router that needs to fragment: its MTU, and the packet that it quotes', () => {
  const { seen, reader } = read(ipv4(Uint8Array.of(...fromHex('03040000000005dc'), ...QUOTED)));
  expect(seen).toEqual([
    {
      ...{ meaning: 'too-big', mtu: 1500, frame: 1, destQp: 0x48, psn: 0, quotedLength: 48 },
      from: '10.0.0.1',
      to: '10.0.0.2',
      quoted: ['192.168.70.4', '192.168.70.6'],
    },
  ]);
  expect(reader.summary()).toMatchObject({ icmpErrors: 1, otherFrames: 0, rocePackets: 0 });
});

test('eight bytes behind the quoted IP header are enough, for all but the BTH', () => {
  const { seen } = read(ipv4(Uint8Array.of(...fromHex('0303000000000000'), ...QUOTED.subarray(0, 28))));
  expect(seen).toMatchObject([{ meaning: 'port-unreachable', mtu: 0, destQp: -1, psn: -1 }]);
});

test.each([
  ['0300', 'net-unreachable'],
  ['0301', 'host-unreachable'],
  ['030a', 'prohibited'],
  ['030d', 'prohibited'],
  ['030e', 'other'],
  ['0b00', 'ttl-exceeded'],
  ['0b01', 'other'],
  ['0c00', 'other'],
])('type and code %s: %s', (code, meaning) => {
  const { seen } = read(ipv4(Uint8Array.of(...fromHex(`${code}000000000000`), ...QUOTED)));
  expect(seen).toMatchObject([{ meaning }]);
});

test.each([
  ['02000000 00000514', 'too-big', 1300],
  ['01040000 00000000', 'port-unreachable', 0],
  ['01000000 00000000', 'net-unreachable', 0],
  ['01010000 00000000', 'prohibited', 0],
  ['01030000 00000000', 'host-unreachable', 0],
  ['03000000 00000000', 'ttl-exceeded', 0],
])('ICMPv6 %s: %s', (header, meaning, mtu) => {
  const { seen } = read(ipv6(Uint8Array.of(...fromHex(header.replace(' ', '')), ...QUOTED_V6)));
  expect(seen).toMatchObject([
    { meaning, mtu, destQp: 0x123, psn: 0x456, quoted: ['2001:db8::2', '2001:db8::3'] },
  ]);
});

test('echoes, quoted datagrams to other ports, later fragments and cut errors are other frames', () => {
  const other = QUOTED.slice();
  other[22] = 0;
  const later = QUOTED.slice();
  later[7] = 1;
  const error = ipv4(Uint8Array.of(...fromHex('0303000000000000'), ...QUOTED));
  const { seen, reader } = read(
    ipv4(Uint8Array.of(...fromHex('0800000000000000'), ...QUOTED)),
    ipv4(Uint8Array.of(...fromHex('0303000000000000'), ...other)),
    ipv4(Uint8Array.of(...fromHex('0303000000000000'), ...later)),
    error.slice(0, 20 + 8 + 27),
  );
  expect(seen).toEqual([]);
  expect(reader.summary().otherKinds).toEqual({ 'IP protocol 1': 4 });
});
