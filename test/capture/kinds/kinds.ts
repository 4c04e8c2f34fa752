/** The kinds of captures: how each holds the exchange, and which link type its file names. */
import {
  type Bytes,
  EXCHANGE,
  ethernet,
  type Fields,
  ipv4,
  ipv6,
  join,
  native,
  outer,
  roce4,
  roce6,
  u16,
  u32,
  udp,
} from './frames.ts';

export interface Kind {
  name: string;
  linkType: number;
  /** The frames of the capture; one frame may hold several packets. */
  frames: Bytes[];
  /** The tunnel that the packets are extracted from. */
  tunnel?: string;
  /** False: samples cut the ICRC off. */
  whole?: boolean;
  /** Why tshark 4.0 does not read it, and so can't be asked. */
  unknownToTshark?: string;
}

const LinkType = { PPP: 9, RAW_BSD: 12, RAW_OPENBSD: 14, PPP_HDLC: 50, PPP_ETHER: 51, C_HDLC: 104, ERF: 197 };
const ETHERNET = 1;
const MPLS = 219;
const INFINIBAND = 247;

const each = (make: (fields: Fields) => Bytes): Bytes[] => EXCHANGE.map(make);
const frame4 = (fields: Fields): Bytes => ethernet(fields, '0800', roce4(fields));
const frame6 = (fields: Fields): Bytes => ethernet(fields, '86dd', roce6(fields));

const SEGMENT = 'fd00000000000000000000000000000f';
/** Hop-by-hop and destination options of PadN; a fragment header of a whole packet; AH: each names what follows it. */
const options = (next: number) => join(Buffer.from([next]), '00 01 04 00000000');
const longOptions = (next: number) => join(Buffer.from([next]), '01 01 0c', Buffer.alloc(12));
const atomicFragment = (next: number) => join(Buffer.from([next]), '00 0000 00000001');
/** A segment routing header whose last segment was reached (RFC 8754 §2). */
const segments = (next: number, left = 0, last = SEGMENT) =>
  join(Buffer.from([next]), '04 04', Buffer.from([left]), '01 00 0000', last, SEGMENT);
const authentication = (next: number) =>
  join(Buffer.from([next]), '04 0000 00000001 00000001', Buffer.alloc(12));

const gre = (type: string, content: Bytes) => ipv4(47, join('0000', type, content));
const vxlan = (flags: string, content: Bytes, port = 4789, next = '00') =>
  outer('0800', ipv4(17, udp(port, join(flags, '0000', next, '00002a 00', content))));
const nsh = (next: number, content: Bytes) =>
  join('0fc6 01', Buffer.from([next]), '00002a ff', Buffer.alloc(16), content);

/** An ERF record (Endace): time, type, flags, lengths. */
const erf = (type: number, content: Bytes, extensions = 0) =>
  join(
    '0000000000f15365',
    Buffer.from([type | (extensions > 0 ? 0x80 : 0), 0x04]),
    u16(16 + 8 * extensions + content.length),
    '0000',
    u16(content.length),
    ...Array.from({ length: extensions }, (_, i) =>
      join(Buffer.from([0x05 | (i < extensions - 1 ? 0x80 : 0)]), Buffer.alloc(7)),
    ),
    content,
  );

const TZSP = { received: '01 00 0001', padding: '00', rssi: '0a 01 c8', end: '01' };

/** sFlow 5: an agent's datagram with samples of raw headers. */
function sflow(frames: Bytes[], { expanded = false, kept = 128, agent6 = false } = {}): Bytes {
  const samples = frames.map((frame) => {
    const header = frame.subarray(0, kept);
    const padded = join(header, Buffer.alloc(-header.length & 3));
    const record = join(
      u32(1),
      u32(16 + padded.length),
      u32(1),
      u32(frame.length),
      u32(0),
      u32(header.length),
      padded,
    );
    const source = expanded ? join(u32(0), u32(1)) : u32(1);
    const ports = expanded ? join(u32(0), u32(1), u32(0), u32(2)) : join(u32(1), u32(2));
    const body = join(u32(1), source, u32(1000), u32(1000), u32(0), ports, u32(1), record);
    return join(u32(expanded ? 3 : 1), u32(body.length), body);
  });
  // In front of them a counter sample, which holds no packet.
  const counters = join(u32(2), u32(12), u32(1), u32(1), u32(0));
  const agent = agent6 ? join(u32(2), '20010db8000000000000000000000009') : join(u32(1), 'c6336409');
  const datagram = join(
    u32(5),
    agent,
    u32(0),
    u32(1),
    u32(1000),
    u32(samples.length + 1),
    counters,
    ...samples,
  );
  return outer('0800', ipv4(17, udp(6343, datagram)));
}

const ib = (hasGrh: boolean) => each((fields) => native(fields, hasGrh));

export const KINDS: Kind[] = [
  // RFC 8200: on the RoCE packet itself.
  {
    name: 'ip6-hop-by-hop',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '86dd', roce6(f, 0, options(17), true))),
  },
  {
    name: 'ip6-inserted-destination-options',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '86dd', roce6(f, 60, longOptions(17)))),
  },
  {
    name: 'ip6-routing-reached',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '86dd', roce6(f, 43, segments(17)))),
  },
  {
    name: 'ip6-atomic-fragment',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '86dd', roce6(f, 44, atomicFragment(17)))),
  },
  {
    name: 'ip6-authentication',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '86dd', roce6(f, 51, authentication(17)))),
  },
  {
    name: 'ip6-all-extensions',
    linkType: ETHERNET,
    frames: each((f) =>
      ethernet(
        f,
        '86dd',
        roce6(f, 0, join(options(60), longOptions(43), segments(44), atomicFragment(60), options(17))),
      ),
    ),
  },
  // At the tunnel's level: what Linux and segment routing send.
  {
    name: 'srv6-ip4',
    linkType: ETHERNET,
    tunnel: 'ipip',
    frames: each((f) => outer('86dd', ipv6(43, join(segments(4, 1), roce4(f))))),
  },
  {
    name: 'srv6-ip6',
    linkType: ETHERNET,
    tunnel: 'ipip',
    frames: each((f) => outer('86dd', ipv6(43, join(segments(41, 1), roce6(f))))),
  },
  {
    name: 'srv6-ethernet',
    linkType: ETHERNET,
    tunnel: 'etherip',
    frames: each((f) => outer('86dd', ipv6(43, join(segments(143, 1), frame4(f))))),
    unknownToTshark: 'Ethernet as next header 143 is data to tshark 4.0',
  },
  {
    name: 'ip6tnl-encapsulation-limit',
    linkType: ETHERNET,
    tunnel: 'ipip',
    frames: each((f) => outer('86dd', ipv6(60, join('04 00 04 01 04 01 01 00', roce4(f))))),
  },
  {
    name: 'ip6gretap-encapsulation-limit',
    linkType: ETHERNET,
    tunnel: 'gre',
    frames: each((f) => outer('86dd', ipv6(60, join('2f 00 04 01 04 01 01 00', '0000 6558', frame4(f))))),
  },
  {
    name: 'erspan2-destination-options',
    linkType: ETHERNET,
    tunnel: 'erspan',
    frames: each((f) =>
      outer(
        '86dd',
        ipv6(60, join('2f 00 04 01 04 01 01 00', '1000 88be 00000001 1001 0064 00000000', frame4(f))),
      ),
    ),
  },
  {
    name: 'vxlan6-hop-by-hop',
    linkType: ETHERNET,
    tunnel: 'vxlan',
    frames: each((f) =>
      outer('86dd', ipv6(0, join(options(17), udp(4789, join('08000000 00002a00', frame6(f)))))),
    ),
  },
  // Link layers.
  { name: 'ppp', linkType: LinkType.PPP, frames: each((f) => join('ff03 0021', roce4(f))) },
  { name: 'ppp-compressed', linkType: LinkType.PPP, frames: each((f) => join('21', roce4(f))) },
  { name: 'ppp-ip6', linkType: LinkType.PPP, frames: each((f) => join('0057', roce6(f))) },
  {
    name: 'ppp-mpls',
    linkType: LinkType.PPP,
    tunnel: 'mpls',
    frames: each((f) => join('ff03 0281 0002a140', roce4(f))),
  },
  { name: 'ppp-hdlc', linkType: LinkType.PPP_HDLC, frames: each((f) => join('ff03 0021', roce4(f))) },
  {
    name: 'pppoe-link',
    linkType: LinkType.PPP_ETHER,
    frames: each((f) => join('1100 0001', u16(2 + roce4(f).length), '0021', roce4(f))),
    unknownToTshark: 'it has no dissector for link type 51',
  },
  {
    name: 'pppoe',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '8864', join('1100 0001', u16(2 + roce4(f).length), '0021', roce4(f)))),
  },
  { name: 'cisco-hdlc', linkType: LinkType.C_HDLC, frames: each((f) => join('0f00 0800', roce4(f))) },
  { name: 'raw-12', linkType: LinkType.RAW_BSD, frames: each(roce4) },
  { name: 'raw-12-ip6', linkType: LinkType.RAW_BSD, frames: each((f) => roce6(f)) },
  { name: 'raw-14', linkType: LinkType.RAW_OPENBSD, frames: each(roce4) },
  {
    name: 'mpls-link',
    linkType: MPLS,
    tunnel: 'mpls',
    unknownToTshark: 'link type 219',
    frames: each((f) => join('0002a140', roce4(f))),
  },
  { name: 'erf-ethernet', linkType: LinkType.ERF, frames: each((f) => erf(2, join('0000', frame4(f)))) },
  {
    name: 'erf-ethernet-extensions',
    linkType: LinkType.ERF,
    frames: each((f) => erf(2, join('0000', frame4(f)), 2)),
  },
  {
    name: 'erf-color-ethernet',
    linkType: LinkType.ERF,
    frames: each((f) => erf(11, join('0000', frame6(f)))),
  },
  { name: 'erf-ip4', linkType: LinkType.ERF, frames: each((f) => erf(22, roce4(f))) },
  { name: 'erf-ip6', linkType: LinkType.ERF, frames: each((f) => erf(23, roce6(f))) },
  { name: 'erf-infiniband', linkType: LinkType.ERF, frames: ib(false).map((packet) => erf(21, packet)) },
  { name: 'erf-infiniband-grh', linkType: LinkType.ERF, frames: ib(true).map((packet) => erf(21, packet)) },
  {
    name: 'erf-infiniband-link',
    linkType: LinkType.ERF,
    frames: ib(true).map((packet) => erf(25, packet)),
    unknownToTshark: 'it shows the link record only',
  },
  { name: 'infiniband', linkType: INFINIBAND, frames: ib(false), unknownToTshark: 'link type 247' },
  { name: 'infiniband-grh', linkType: INFINIBAND, frames: ib(true), unknownToTshark: 'link type 247' },
  // Tags.
  {
    name: 'vn-tag',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '8926', join('80010002 0800', roce4(f)))),
  },
  {
    name: 'vn-tag-vlan',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '8926', join('80010002 8100 600a 0800', roce4(f)))),
  },
  {
    name: '802.1br',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '893f', join('0001 1002 0000 0800', roce4(f)))),
  },
  {
    name: 'cisco-metadata',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '8909', join('01 01 0001 0010 0800', roce4(f)))),
  },
  {
    name: 'cisco-metadata-vlan-ip6',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '8100', join('0064 8909 01 01 0001 0010 86dd', roce6(f)))),
  },
  {
    name: 'hsr',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '892f', join(u16(roce4(f).length + 6), '0001 0800', roce4(f)))),
  },
  {
    name: 'macsec',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '88e5', join('00 00 00000001 0800', roce4(f), Buffer.alloc(16, 0xaa)))),
  },
  {
    name: 'macsec-sci',
    linkType: ETHERNET,
    frames: each((f) =>
      ethernet(
        f,
        '88e5',
        join('20 00 00000001 0200000000010001 8100 0064 0800', roce4(f), Buffer.alloc(16, 0xaa)),
      ),
    ),
  },
  {
    name: 'snap',
    linkType: ETHERNET,
    frames: each((f) => ethernet(f, '', join(u16(8 + roce4(f).length), 'aaaa03 000000 0800', roce4(f)))),
  },
  {
    name: 'pbb',
    linkType: ETHERNET,
    tunnel: 'pbb',
    frames: each((f) => outer('88e7', join('0000002a', frame4(f)))),
  },
  {
    name: 'pbb-b-tag',
    linkType: ETHERNET,
    tunnel: 'pbb',
    frames: each((f) => outer('88a8', join('0064 88e7 0000002a', frame6(f)))),
  },
  // Tunnels.
  {
    name: 'nsh-ethernet',
    linkType: ETHERNET,
    tunnel: 'nsh',
    frames: each((f) => outer('894f', nsh(3, frame4(f)))),
  },
  {
    name: 'nsh-ip4',
    linkType: ETHERNET,
    tunnel: 'nsh',
    frames: each((f) => outer('894f', nsh(1, roce4(f)))),
  },
  {
    name: 'nsh-ip6',
    linkType: ETHERNET,
    tunnel: 'nsh',
    frames: each((f) => outer('894f', nsh(2, roce6(f)))),
  },
  {
    name: 'vxlan-gpe-ethernet',
    linkType: ETHERNET,
    tunnel: 'vxlan',
    frames: each((f) => vxlan('0c', frame4(f), 4790, '03')),
  },
  {
    name: 'vxlan-gpe-ip4',
    linkType: ETHERNET,
    tunnel: 'vxlan',
    frames: each((f) => vxlan('0c', roce4(f), 4790, '01')),
  },
  {
    name: 'vxlan-gpe-ip6',
    linkType: ETHERNET,
    tunnel: 'vxlan',
    frames: each((f) => vxlan('0c', roce6(f), 4790, '02')),
  },
  {
    name: 'vxlan-gpe-nsh',
    linkType: ETHERNET,
    tunnel: 'nsh',
    frames: each((f) => vxlan('0c', nsh(3, frame4(f)), 4790, '04')),
  },
  {
    name: 'vxlan-without-i',
    linkType: ETHERNET,
    tunnel: 'vxlan',
    frames: each((f) => vxlan('00', frame4(f))),
  },
  {
    name: 'gre-ip6',
    linkType: ETHERNET,
    tunnel: 'gre',
    frames: each((f) => outer('0800', gre('86dd', roce6(f)))),
  },
  {
    name: 'etherip',
    linkType: ETHERNET,
    tunnel: 'etherip',
    frames: each((f) => outer('0800', ipv4(97, join('3000', frame4(f))))),
  },
  {
    name: 'tzsp',
    linkType: ETHERNET,
    tunnel: 'tzsp',
    frames: each((f) => outer('0800', ipv4(17, udp(37_008, join(TZSP.received, TZSP.end, frame4(f)))))),
  },
  {
    name: 'tzsp-tags',
    linkType: ETHERNET,
    tunnel: 'tzsp',
    frames: each((f) =>
      outer('0800', ipv4(17, udp(37_008, join(TZSP.received, TZSP.padding, TZSP.rssi, TZSP.end, frame6(f))))),
    ),
  },
  {
    name: 'sflow',
    linkType: ETHERNET,
    tunnel: 'sflow',
    whole: false,
    frames: [sflow(each(frame4).slice(0, 5)), sflow(each(frame4).slice(5))],
  },
  {
    name: 'sflow-expanded',
    linkType: ETHERNET,
    tunnel: 'sflow',
    whole: false,
    frames: [sflow(each(frame6), { expanded: true, agent6: true, kept: 100 })],
  },
];

/** A capture of the kind as a pcap file: little-endian, microseconds, a frame every 100 µs. */
export function pcapOf({ linkType, frames }: Pick<Kind, 'linkType' | 'frames'>): Bytes {
  const le = (value: number) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    return bytes;
  };
  return join(
    'd4c3b2a1 0200 0400 00000000 00000000 00000400',
    le(linkType),
    ...frames.map((frame, i) =>
      join(le(1_700_000_000), le(100 * i), le(frame.length), le(frame.length), frame),
    ),
  );
}
