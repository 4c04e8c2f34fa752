/** Ethernet II with VLAN tags (IEEE 802.3 §3.2, 802.1Q §9: one tag, or two as in QinQ). */

import { checked, fromHex, setU16, u16 } from '../bytes.ts';
import { formatMac } from '../gid.ts';

export const ETHERNET_BYTES = 14;
export const VLAN_TAG_BYTES = 4;

export const EtherType = {
  IPV4: 0x0800,
  IPV6: 0x86dd,
  /** A GRH follows: RoCE v1 (IBTA annex A16). */
  ROCE_V1: 0x8915,
  VLAN: 0x8100,
  /** The outer tag of QinQ (802.1ad). */
  QINQ: 0x88a8,
  /** The outer tag of QinQ before 802.1ad. */
  QINQ_OLD: 0x9100,
} as const;

/** Whether a VLAN tag begins with this type. */
export const isVlanType = (type: number): boolean =>
  type === EtherType.VLAN || type === EtherType.QINQ || type === EtherType.QINQ_OLD;

/** One VLAN tag for people. */
export interface VlanValue {
  /** Tag protocol identifier, one of `EtherType`. */
  tpid: number;
  /** Priority code point, 0 … 7: what priority flow control goes by. */
  pcp: number;
  /** Drop eligible indicator. */
  dei: boolean;
  /** VLAN identifier, 0 … 4095. */
  vid: number;
}

/** An Ethernet header for people; addresses are `xx:xx:xx:xx:xx:xx`. */
export interface EthernetValue {
  kind: 'ethernet';
  destination: string;
  source: string;
  /** Outermost first. */
  vlans: VlanValue[];
  etherType: number;
}

export const ethernetBytes = (value: EthernetValue): number =>
  ETHERNET_BYTES + VLAN_TAG_BYTES * value.vlans.length;

/**
 * Reads a header at `o` and all its tags.
 * @returns `undefined` when the frame ends before its EtherType
 */
export function decodeEthernet(b: Uint8Array, o: number): EthernetValue | undefined {
  const vlans: VlanValue[] = [];
  let at = o + 12;
  for (; at + 6 <= b.length && isVlanType(u16(b, at)); at += VLAN_TAG_BYTES) {
    const tci = u16(b, at + 2);
    vlans.push({ tpid: u16(b, at), pcp: tci >> 13, dei: (tci & 0x1000) !== 0, vid: tci & 0xfff });
  }
  if (at + 2 > b.length || isVlanType(u16(b, at))) return undefined;
  return {
    kind: 'ethernet',
    destination: formatMac(b.subarray(o, o + 6)),
    source: formatMac(b.subarray(o + 6, o + 12)),
    vlans,
    etherType: u16(b, at),
  };
}

export function encodeEthernet(b: Uint8Array, o: number, value: EthernetValue): void {
  b.set(parseMac(value.destination), o);
  b.set(parseMac(value.source), o + 6);
  let at = o + 12;
  for (const { tpid, pcp, dei, vid } of value.vlans) {
    setU16(b, at, checked('VLAN tpid', tpid, 16));
    setU16(
      b,
      at + 2,
      (checked('VLAN pcp', pcp, 3) << 13) | (dei ? 0x1000 : 0) | checked('VLAN vid', vid, 12),
    );
    at += VLAN_TAG_BYTES;
  }
  setU16(b, at, checked('EtherType', value.etherType, 16));
}

/**
 * A MAC address in text to six bytes.
 * @throws RangeError when the text is none
 */
export function parseMac(text: string): Uint8Array<ArrayBuffer> {
  if (!/^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$/.test(text)) throw new RangeError(`not a MAC address: ${text}`);
  return fromHex(text);
}
