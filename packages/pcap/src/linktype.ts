/**
 * Link types: the kind of a packet's first byte. The numbers are the LINKTYPE_ registry's, which both formats share
 * (https://www.tcpdump.org/linktypes.html); here are the ones that can carry RoCE or that a capture
 * tool meets with it.
 */
export const LinkType = {
  /** BSD loopback: a 4-byte protocol family in the byte order of the capturing host. */
  NULL: 0,
  ETHERNET: 1,
  PPP: 9,
  /** Raw IP as BSD's and OpenBSD's tools wrote it, with their own numbers of the type. */
  RAW_BSD: 12,
  RAW_OPENBSD: 14,
  /** PPP behind HDLC's address and control bytes, and behind PPPoE's header. */
  PPP_HDLC: 50,
  PPP_ETHER: 51,
  /** An IPv4 or IPv6 header; the version nibble distinguishes them. */
  RAW: 101,
  /** Cisco HDLC: address, control, EtherType. */
  C_HDLC: 104,
  IEEE802_11: 105,
  /** OpenBSD loopback: as NULL, in network byte order. */
  LOOP: 108,
  /** Linux "cooked" capture, 16-byte pseudo header: what `-i any` gave for long. */
  LINUX_SLL: 113,
  IEEE802_11_RADIOTAP: 127,
  /** The first of 16 types for private use, 147 … 162. */
  USER0: 147,
  PPI: 192,
  ERF: 197,
  MPLS: 219,
  IPV4: 228,
  IPV6: 229,
  /** InfiniBand from the local route header on. */
  INFINIBAND: 247,
  /** Linux "cooked" capture, 20-byte pseudo header with the interface index. */
  LINUX_SLL2: 276,
} as const;

const names = new Map<number, string>(Object.entries(LinkType).map(([name, value]) => [value, name]));

/** `ETHERNET` for 1; a number that is not in `LinkType` comes back as `LINKTYPE 1234`. */
export function linkTypeName(linkType: number): string {
  return names.get(linkType) ?? `LINKTYPE ${linkType}`;
}
