/** Which packets are wanted: what `roce dump` and `roce export` have in common. */
import { AethKind, aethKind, EXTENSION_BYTES, parseIpAddress, u24 } from '@node-roce/wire';
import type { ConnectionFacts, DirectionPath } from '../flow/facts.ts';
import type { AddressTable } from './addresses.ts';
import type { RocePacket } from './packet.ts';

/** The part of a connection that identifies its packets: frames distinguish it from others that had its queue pairs. */
export type ConnectionName = Pick<ConnectionFacts, 'a' | 'b'> &
  Partial<Pick<ConnectionFacts, 'paths' | 'firstFrame' | 'lastFrame'>>;

export interface PacketFilter {
  /** Destination queue pair. */
  qp?: number | undefined;
  /** Part of the opcode's name, in either way of Wireshark to write it, in letters of any case. */
  opcode?: string | undefined;
  /** Source or destination: an IPv4 or IPv6 address, or a prefix such as `10.0.0.0/8`. */
  address?: string | undefined;
  /** Only NAKs, RNR NAKs included. */
  nak?: boolean | undefined;
  /** Both directions of a connection (CNPs to its queue pairs included). */
  connection?: ConnectionName | undefined;
  /** Nanoseconds since the first frame, both included. */
  from?: number | undefined;
  to?: number | undefined;
}

/**
 * The filter as a function, quick enough for each packet of a long capture.
 * @throws RangeError for an address that is not valid
 */
export function packetFilter(filter: PacketFilter, addresses: AddressTable): (packet: RocePacket) => boolean {
  const { qp, nak, from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY } = filter;
  const opcode = filter.opcode?.toLowerCase();
  const senderOf = filter.connection === undefined ? undefined : senderFinder(filter.connection, addresses);
  const matches = filter.address === undefined ? undefined : addressMatcher(filter.address, addresses);
  return (packet) =>
    (qp === undefined || packet.destQp === qp) &&
    (!nak || isNak(packet)) &&
    (opcode === undefined || isNamed(packet, opcode)) &&
    packet.time >= from &&
    packet.time <= to &&
    (senderOf === undefined || senderOf(packet) !== undefined) &&
    (matches === undefined || matches(packet.source) || matches(packet.destination));
}

function isNamed({ info }: RocePacket, opcode: string): boolean {
  return info.name.toLowerCase().includes(opcode) || info.fieldName.toLowerCase().includes(opcode);
}

/** Whether it carries an AETH (uncut) with an RNR NAK or NAK (IBTA vol 1 §9.7.5.1.1). */
export function isNak({ info, bytes, bth, end }: RocePacket): boolean {
  const at = info.offsets.aeth;
  if (at < 0 || bth + at >= end) return false;
  const kind = aethKind(bytes[bth + at]);
  return kind === AethKind.NAK || kind === AethKind.RNR_NAK;
}

/** Returns the end that a packet of the connection comes from; undefined for packets of others. */
export function senderFinder(
  { a, b, paths, firstFrame = 0, lastFrame = Number.POSITIVE_INFINITY }: ConnectionName,
  addresses: AddressTable,
): (packet: RocePacket) => 'a' | 'b' | undefined {
  const way = (from: ConnectionName['a'], to: ConnectionName['a'], path: DirectionPath | undefined) => {
    const isSource = addressMatcher(from.address, addresses);
    const isDestination = addressMatcher(to.address, addresses);
    return (packet: RocePacket) =>
      packet.destQp === to.qpn &&
      isDestination(packet.destination) &&
      isSource(packet.source) &&
      (path === undefined || path.network === packet.network) &&
      isFrom(packet, from.qpn);
  };
  const isFromA = way(a, b, paths?.aToB);
  const isFromB = way(b, a, paths?.bToA);
  return (packet) => {
    if (packet.frame < firstFrame || packet.frame > lastFrame) return undefined;
    if (isFromA(packet)) return 'a';
    return isFromB(packet) ? 'b' : undefined;
  };
}

/** Whether the queue pair sent the packet, as far as that is known: only datagrams name it. */
function isFrom({ info, bytes, bth, end }: RocePacket, qpn: number): boolean {
  const deth = info.offsets.deth;
  if (qpn < 0 || deth < 0 || bth + deth + EXTENSION_BYTES.deth > end) return true;
  return u24(bytes, bth + deth + 5) === qpn;
}

/** An address or prefix as bytes, and how many bits count. */
function prefixOf(text: string): { wanted: Uint8Array; bits: number } {
  const [address = '', length, ...rest] = text.split('/');
  const wanted = parseIpAddress(address);
  const bits = length === undefined ? (wanted?.length ?? 0) * 8 : Number(length === '' ? Number.NaN : length);
  if (
    wanted === undefined ||
    rest.length > 0 ||
    !Number.isInteger(bits) ||
    bits < 0 ||
    bits > wanted.length * 8
  ) {
    throw new RangeError(`not an address or prefix: ${text}`);
  }
  return { wanted, bits };
}

/**
 * Whether an address, as text, is this one or within this prefix.
 * @throws RangeError for an address that is not valid
 */
export function addressPredicate(text: string): (address: string) => boolean {
  const { wanted, bits } = prefixOf(text);
  return (address) => {
    const bytes = parseIpAddress(address);
    return bytes !== undefined && hasPrefix(bytes, wanted, bits);
  };
}

/**
 * Whether an address, by its number, is this one or within this prefix.
 * @throws RangeError for an address that is not valid
 */
export function addressMatcher(text: string, addresses: AddressTable): (index: number) => boolean {
  const { wanted, bits } = prefixOf(text);
  // An address is compared once, whatever the number of its packets.
  const known: boolean[] = [];
  return (index) => {
    known[index] ??= hasPrefix(addresses.bytes(index), wanted, bits);
    return known[index];
  };
}

function hasPrefix(address: Uint8Array, wanted: Uint8Array, bits: number): boolean {
  if (address.length !== wanted.length) return false;
  for (let i = 0; i < bits; i += 8) {
    const mask = 0xff & (0xff << Math.max(0, 8 - (bits - i)));
    if (((address[i >> 3] ^ wanted[i >> 3]) & mask) !== 0) return false;
  }
  return true;
}
