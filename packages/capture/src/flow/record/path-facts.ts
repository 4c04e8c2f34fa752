/** Facts about the path of one direction, from the headers of its packets: addresses, P_Key, traffic classes, and whether checksums are right. */
import { LinkType } from '@node-roce/pcap';
import { ipChecksum, udpChecksum } from '../../read/checksums.ts';
import type { RocePacket } from '../../read/packet.ts';
import { macAt } from '../../read/pause.ts';

/** Checksums are looked at in the first packets of a direction, and in one of so many of the others. */
const FIRST_CHECKED = 64;
const CHECKED_OF = 256;

export type AddressKind = 'RoCE v1' | 'IPv4' | 'IPv6' | 'link-local IPv6' | 'IPv4-mapped RoCE v1';

/** DSCP and priority as one number; −1: no packet, −2: several. */
const NONE = -1;
const SEVERAL = -2;

/** The class of a kind of packets after one with another class. */
const changed = (known: number, value: number): number => (known === NONE ? value : SEVERAL);

/** Facts of one direction; its size does not grow. */
export class PathFacts {
  readonly version: RocePacket['version'];
  readonly addressKind: AddressKind;
  /** Destination MAC address of the first packet as a number; −1: none. */
  readonly toMac: number;
  /** Of all packets; −1: they have several. */
  pkey: number;
  /** Checksums that were looked at, and those that are wrong. */
  checked = 0;
  badIp = 0;
  badUdp = 0;
  /** IPv4 header checksums of 0. */
  zeroIp = 0;
  firstBad = 0;
  #data = NONE;
  #ack = NONE;
  #cnp = NONE;
  /** The first packet of each class. */
  #dataFrame = 0;
  #ackFrame = 0;
  #cnpFrame = 0;
  #left = 0;

  constructor(packet: RocePacket) {
    this.version = packet.version;
    this.addressKind = kindOf(packet);
    this.toMac = packet.linkType === LinkType.ETHERNET ? macAt(packet.bytes, packet.link) : -1;
    this.pkey = packet.pkey;
  }

  add(packet: RocePacket): void {
    const { info } = packet;
    const value = packet.dscp * 16 + packet.pcp + 1;
    if (info.isRequest) {
      if (this.#data !== value) this.#data = changed(this.#data, value);
      this.#dataFrame ||= packet.frame;
    } else if (info.isResponse) {
      if (this.#ack !== value) this.#ack = changed(this.#ack, value);
      this.#ackFrame ||= packet.frame;
    } else {
      if (this.#cnp !== value) this.#cnp = changed(this.#cnp, value);
      this.#cnpFrame ||= packet.frame;
    }
    if (packet.pkey !== this.pkey) this.pkey = -1;
    if (packet.version === 2 && this.#left-- <= 0) this.#check(packet);
  }

  /** DSCP and priority of all packets of a kind; undefined: there are none, or they differ. */
  classOf(kind: 'data' | 'ack' | 'cnp'): { dscp: number; pcp: number; frame: number } | undefined {
    const value = kind === 'data' ? this.#data : kind === 'ack' ? this.#ack : this.#cnp;
    if (value < 0) return undefined;
    const frame = kind === 'data' ? this.#dataFrame : kind === 'ack' ? this.#ackFrame : this.#cnpFrame;
    return { dscp: value >> 4, pcp: (value & 15) - 1, frame };
  }

  #check(packet: RocePacket): void {
    this.#left = this.checked < FIRST_CHECKED ? 0 : CHECKED_OF;
    // The parts of a super-packet have no headers of their own.
    if (packet.parts !== 1) return;
    this.checked++;
    const ip = ipChecksum(packet);
    if (ip === 'zero') this.zeroIp++;
    if (ip === 'bad') this.badIp++;
    const isBadUdp = udpChecksum(packet) === 'bad';
    if (isBadUdp) this.badUdp++;
    if ((ip === 'bad' || ip === 'zero' || isBadUdp) && this.firstBad === 0) this.firstBad = packet.frame;
  }
}

function kindOf({ version, bytes, ip }: RocePacket): AddressKind {
  if (bytes[ip] >> 4 === 4) return 'IPv4';
  const isLocal = bytes[ip + 8] === 0xfe && (bytes[ip + 9] & 0xc0) === 0x80;
  if (version === 2) return isLocal ? 'link-local IPv6' : 'IPv6';
  const isMapped =
    bytes[ip + 18] === 0xff &&
    bytes[ip + 19] === 0xff &&
    bytes.subarray(ip + 8, ip + 18).every((byte) => byte === 0);
  return isMapped ? 'IPv4-mapped RoCE v1' : 'RoCE v1';
}
