/** Tags between an Ethernet header and the EtherType that counts: VLANs, and what fabrics and switches add. */
import { EtherType, isVlan } from '@node-roce/wire';

/** EtherTypes of tags other than VLANs. */
const Tag = {
  /** Cisco VN-Tag: direction, virtual interfaces. */
  VN: 0x8926,
  /** E-TAG of IEEE 802.1BR. */
  E: 0x893f,
  /** Cisco Metadata: version, length, the security group (TrustSec). */
  CMD: 0x8909,
  /** HSR of IEC 62439-3. */
  HSR: 0x892f,
  /** MACsec (IEEE 802.1AE), where it authenticates and does not encrypt. */
  MACSEC: 0x88e5,
} as const;

/** EtherTypes below are lengths of LLC (IEEE 802.3). */
const FIRST_ETHER_TYPE = 0x600;

/** LLC and SNAP in front of an EtherType (IEEE 802.2), in the encapsulation of RFC 1042. */
export const SNAP_BYTES = 8;
export const PPPOE_BYTES = 6;
const VLAN_BYTES = 4;
const BYTES: ReadonlyMap<number, number> = new Map([
  [Tag.VN, 6],
  [Tag.E, 8],
  [Tag.HSR, 6],
]);

/** TAG control information of MACsec: an explicit SCI, encryption, changed text. */
const SCI = 0x20;
const ENCRYPTED = 0x08;
const CHANGED = 0x04;
const MACSEC_BYTES = 8;
const SCI_BYTES = 8;
/** Version and length of Cisco Metadata, and the EtherType behind it; its options are counted in words of four bytes. */
const CMD_BYTES = 4;
const WORD_BYTES = 4;

/** Whether the frame behind this EtherType needs no further tag; the usual case. */
export const isIp = (type: number): boolean => type === EtherType.IPV4 || type === EtherType.IPV6;

/**
 * Bytes of the tag at `o`, up to and with the next EtherType; 0: the EtherType is that of no tag, −1: what follows is
 * encrypted.
 */
export function tagBytes(b: Uint8Array, o: number, type: number): number {
  if (isVlan(type)) return VLAN_BYTES;
  if (type === Tag.MACSEC) {
    if ((b[o] & (ENCRYPTED | CHANGED)) !== 0) return -1;
    return MACSEC_BYTES + (b[o] & SCI ? SCI_BYTES : 0);
  }
  if (type === Tag.CMD) return CMD_BYTES + b[o + 1] * WORD_BYTES;
  return BYTES.get(type) ?? 0;
}

/** Whether LLC and SNAP follow, where the type is a length. */
export const isSnap = (b: Uint8Array, o: number, end: number, type: number): boolean =>
  type < FIRST_ETHER_TYPE &&
  o + SNAP_BYTES <= end &&
  b[o] === 0xaa &&
  b[o + 1] === 0xaa &&
  b[o + 2] === 0x03 &&
  (b[o + 3] | b[o + 4] | b[o + 5]) === 0;

/** EtherTypes by PPP's protocol numbers (IANA): IPv4, IPv6, MPLS. */
export const PPP_TYPES: ReadonlyMap<number, number> = new Map([
  [0x0021, EtherType.IPV4],
  [0x0057, EtherType.IPV6],
  [0x0281, 0x8847],
  [0x0283, 0x8848],
]);

/**
 * Where PPP's protocol number stands: behind address and control, which may be left out (RFC 1661 §6.6); −1: behind the frame's
 * end. A protocol of one byte is odd (§2): `pppProtocolBytes`.
 */
export function pppProtocolAt(b: Uint8Array, o: number, end: number): number {
  const at = o + 2 <= end && b[o] === 0xff && b[o + 1] === 0x03 ? o + 2 : o;
  return at + 2 > end ? -1 : at;
}

export const pppProtocolBytes = (b: Uint8Array, o: number): 1 | 2 => ((b[o] & 1) !== 0 ? 1 : 2);
