/**
 * The pseudo headers that Linux puts before IP where a capture has no Ethernet header (`-i any`):
 * LINKTYPE_LINUX_SLL and LINKTYPE_LINUX_SLL2 (tcpdump.org/linktypes). No packet carries them on a wire.
 */

import { checked, setU16, setU32, u16, u32 } from '../bytes.ts';

export const SLL_BYTES = 16;
export const SLL2_BYTES = 20;

/** A cooked header for people. */
export interface CookedValue {
  kind: 'sll' | 'sll2';
  /** 0 to us, 1 broadcast, 2 multicast, 3 to another host, 4 sent by us. */
  packetType: number;
  /** ARPHRD_ number of the interface. */
  arpHardware: number;
  /** Valid bytes of `address`. */
  addressLength: number;
  /** Link address of the sender, always 8 bytes. */
  address: Uint8Array;
  /** An EtherType. */
  protocol: number;
  /** SLL2 only. */
  interfaceIndex?: number;
  /** SLL2 only. */
  reserved?: number;
}

export const cookedBytes = (value: CookedValue): number => (value.kind === 'sll' ? SLL_BYTES : SLL2_BYTES);

/** Reads a header at `o`; the caller has checked that its bytes are there. */
export function decodeCooked(b: Uint8Array, o: number, kind: 'sll' | 'sll2'): CookedValue {
  if (kind === 'sll') {
    return {
      kind,
      packetType: u16(b, o),
      arpHardware: u16(b, o + 2),
      addressLength: u16(b, o + 4),
      address: b.subarray(o + 6, o + 14),
      protocol: u16(b, o + 14),
    };
  }
  return {
    kind,
    protocol: u16(b, o),
    reserved: u16(b, o + 2),
    interfaceIndex: u32(b, o + 4),
    arpHardware: u16(b, o + 8),
    packetType: b[o + 10],
    addressLength: b[o + 11],
    address: b.subarray(o + 12, o + 20),
  };
}

export function encodeCooked(b: Uint8Array, o: number, value: CookedValue): void {
  if (value.address.length !== 8)
    throw new RangeError(`cooked address of ${value.address.length} bytes, not 8`);
  const protocol = checked('SLL protocol', value.protocol, 16);
  if (value.kind === 'sll') {
    setU16(b, o, checked('SLL packetType', value.packetType, 16));
    setU16(b, o + 2, checked('SLL arpHardware', value.arpHardware, 16));
    setU16(b, o + 4, checked('SLL addressLength', value.addressLength, 16));
    b.set(value.address, o + 6);
    setU16(b, o + 14, protocol);
    return;
  }
  setU16(b, o, protocol);
  setU16(b, o + 2, checked('SLL2 reserved', value.reserved ?? 0, 16));
  setU32(b, o + 4, checked('SLL2 interfaceIndex', value.interfaceIndex ?? 0, 32));
  setU16(b, o + 8, checked('SLL2 arpHardware', value.arpHardware, 16));
  b[o + 10] = checked('SLL2 packetType', value.packetType, 8);
  b[o + 11] = checked('SLL2 addressLength', value.addressLength, 8);
  b.set(value.address, o + 12);
}
