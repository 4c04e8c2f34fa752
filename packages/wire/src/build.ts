/** Builds whole packets: from as little as an opcode, and exactly from all that `parseFrame` gives. */
import { checked, fromHex, setU16 } from './bytes.ts';
import { completeExtensions, defined, encodeExtension, type PartialExtensions } from './extensions.ts';
import { parseIpAddress } from './gid.ts';
import { type BthValue, encodeBth } from './headers/bth.ts';
import { ICRC_BYTES, icrcV1, icrcV2, writeIcrc } from './icrc.ts';
import {
  type EthernetValue,
  EtherType,
  encodeEthernet,
  encodeIpv4,
  encodeIpv6,
  encodeUdp,
  IpProtocol,
  type Ipv4Value,
  type Ipv6Value,
  UDP_BYTES,
  type UdpValue,
  udpChecksum,
} from './network.ts';
import { Opcode, type OpcodeName, opcodeInfo } from './opcodes.ts';
import type { Packet } from './packet.ts';
import { ROCE_UDP_PORT, SOURCE_PORT_MIN } from './port.ts';

/** Addresses as bytes or as text: `10.0.0.1`, `fd00::1`, `02:00:00:00:00:01`. */
type Addressed<T> = Partial<Omit<T, 'version' | 'source' | 'destination'>> & {
  source?: Uint8Array | string;
  destination?: Uint8Array | string;
};

/**
 * A packet to build. Only the opcode is needed. Absent members are computed (lengths, pad, checksums, ICRC) or have
 * these values:
 *
 *     ip         127.0.0.1 to 127.0.0.1, or ::1 to ::1; DF, TTL or hop limit 64, the rest 0
 *     udp        from port 49152 to 4791, checksum 0
 *     bth        P_Key 0xffff, the rest 0
 *     extension  zeros; RETH length: bytes of the payload
 *     ethernet   none; of a given one the addresses and tags are 0 and none, the type follows from `ip`
 */
export interface PacketInput {
  /** RoCE v2 (the default) or v1. */
  version?: 1 | 2;
  ethernet?: Addressed<EthernetValue>;
  /** Bytes before IP in the place of an Ethernet header. */
  linkHeader?: Uint8Array;
  /** The version follows from the addresses, where it is absent; of RoCE v1 it is 6. */
  ip?: ({ version?: 4 } & Addressed<Ipv4Value>) | ({ version?: 6 } & Addressed<Ipv6Value>);
  /** `'compute'` gives a real checksum, as a burst that the kernel segments has. */
  udp?: Partial<Omit<UdpValue, 'checksum'>> & { checksum?: number | 'compute' };
  /** The opcode by its number, or by its name: `RC_SEND_ONLY`. */
  bth: Partial<Omit<BthValue, 'opcode'>> & { opcode: number | OpcodeName };
  extensions?: PartialExtensions;
  payload?: Uint8Array;
  pad?: Uint8Array;
  icrc?: number;
  trailer?: Uint8Array;
  /** Bytes of the payload in a packet that is cut, with `icrcStatus: 'none'`. */
  payloadLength?: number;
  /** `'none'` leaves out the ICRC and absent parts before it; other values change nothing. */
  icrcStatus?: Packet['icrcStatus'];
}

const EMPTY = new Uint8Array(0);

/**
 * Builds the bytes of a frame. A parsed packet gives the same bytes again, with its mistakes, and cut where it was
 * cut.
 *
 * @throws TypeError for an unknown opcode, an extension header that the opcode does not have, or text that is no address
 * @throws RangeError for a value that does not fit its field
 */
export function buildPacket(packet: PacketInput): Uint8Array<ArrayBuffer> {
  const { version = 2, payload = EMPTY, trailer = EMPTY } = packet;
  const opcode = opcodeOf(packet.bth.opcode);
  const info = opcodeInfo(opcode);
  if (!info) throw new TypeError(`no opcode 0x${opcode.toString(16)}`);
  const extensions = completeExtensions(packet.extensions ?? {}, info, payload.length);
  const bth = { ...BTH_DEFAULTS, pad: -payload.length & 3, ...defined(packet.bth), opcode };
  const cut = packet.icrcStatus === 'none';
  const pad = packet.pad ?? (cut ? EMPTY : new Uint8Array(bth.pad));

  // Length fields count the packet as it was sent; a cut packet has fewer bytes.
  const wholePayload = cut ? (packet.payloadLength ?? payload.length) : payload.length;
  const sent = info.headerLength + wholePayload + (cut ? bth.pad : pad.length) + ICRC_BYTES;
  const udp = version === 2 ? encodeUdp(udpOf(packet.udp), sent) : EMPTY;
  const following = udp.length + sent;
  const ipValue = ipOf(packet.ip ?? {}, version);
  const ip = ipValue.version === 4 ? encodeIpv4(ipValue, following) : encodeIpv6(ipValue, following);
  const link = packet.ethernet
    ? encodeEthernet(ethernetOf(packet.ethernet, version, ipValue))
    : (packet.linkHeader ?? EMPTY);

  const bthAt = link.length + ip.length + udp.length;
  const padAt = bthAt + info.headerLength + payload.length;
  const icrcAt = padAt + pad.length;
  const end = icrcAt + (cut ? 0 : ICRC_BYTES);
  const bytes = new Uint8Array(end + trailer.length);
  bytes.set(link);
  bytes.set(ip, link.length);
  bytes.set(udp, link.length + ip.length);
  encodeBth(bytes, bthAt, bth);
  for (const name of info.extensions) encodeExtension(extensions, name, bytes, bthAt + info.offsets[name]);
  bytes.set(payload, bthAt + info.headerLength);
  bytes.set(pad, padAt);
  bytes.set(trailer, end);
  if (cut) return bytes;

  // The UDP checksum covers the ICRC, which does not cover the checksum.
  const compute = version === 1 ? icrcV1 : icrcV2;
  writeIcrc(bytes, icrcAt, checked('ICRC', packet.icrc ?? compute(bytes, link.length, icrcAt), 32));
  if (packet.udp?.checksum === 'compute' && udp.length > 0) {
    setU16(bytes, bthAt - 2, udpChecksum(bytes.subarray(0, end), link.length, bthAt - UDP_BYTES));
  }
  return bytes;
}

function opcodeOf(given: number | OpcodeName): number {
  if (typeof given === 'number') return given;
  const opcode = Opcode[given];
  if (opcode === undefined) throw new TypeError(`no opcode ${given}: expected a name such as RC_SEND_ONLY`);
  return opcode;
}

const BTH_DEFAULTS: Omit<BthValue, 'opcode' | 'pad'> = {
  solicited: false,
  migReq: false,
  tver: 0,
  pkey: 0xffff,
  fecn: false,
  becn: false,
  reserved6: 0,
  destQp: 0,
  ackReq: false,
  reserved7: 0,
  psn: 0,
};

function udpOf({ checksum, ...rest }: NonNullable<PacketInput['udp']> = {}): UdpValue {
  return {
    sourcePort: SOURCE_PORT_MIN,
    destinationPort: ROCE_UDP_PORT,
    ...defined(rest),
    checksum: typeof checksum === 'number' ? checksum : 0,
  };
}

function ipOf(given: NonNullable<PacketInput['ip']>, roce: 1 | 2): Ipv4Value | Ipv6Value {
  const [source, destination] = [
    addressOf('source', given.source),
    addressOf('destination', given.destination),
  ];
  const known = source ?? destination;
  const isV6 = given.version === undefined ? roce === 1 || known?.length === 16 : given.version === 6;
  const addresses = {
    source: source ?? LOOPBACK[isV6 ? 6 : 4],
    destination: destination ?? LOOPBACK[isV6 ? 6 : 4],
  };
  if (isV6) {
    const nextHeader = roce === 1 ? IpProtocol.IBA : IpProtocol.UDP;
    const base = { trafficClass: 0, flowLabel: 0, nextHeader, hopLimit: 64 };
    return { ...base, ...(defined(given) as Partial<Ipv6Value>), ...addresses, version: 6 };
  }
  const base = { tos: 0, id: 0, flagsAndOffset: 0x4000, ttl: 64, protocol: IpProtocol.UDP, options: EMPTY };
  return { ...base, ...(defined(given) as Partial<Ipv4Value>), ...addresses, version: 4 };
}

const LOOPBACK = { 4: Uint8Array.of(127, 0, 0, 1), 6: Uint8Array.of(...new Array<number>(15).fill(0), 1) };

function addressOf(field: string, given: Uint8Array | string | undefined): Uint8Array | undefined {
  if (typeof given !== 'string') return given;
  const bytes = parseIpAddress(given);
  if (!bytes) throw new TypeError(`IP ${field} ${given}: expected an IPv4 or IPv6 address`);
  return bytes;
}

function ethernetOf(
  given: Addressed<EthernetValue>,
  roce: 1 | 2,
  { version }: Ipv4Value | Ipv6Value,
): EthernetValue {
  const { source = NO_MAC, destination = NO_MAC, vlans = [], etherType } = given;
  const mac = (address: Uint8Array | string) => (typeof address === 'string' ? fromHex(address) : address);
  const type = roce === 1 ? EtherType.ROCE_V1 : version === 4 ? EtherType.IPV4 : EtherType.IPV6;
  return { source: mac(source), destination: mac(destination), vlans, etherType: etherType ?? type };
}

const NO_MAC = new Uint8Array(6);
