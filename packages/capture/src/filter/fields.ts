/** Fields of packets and of connections, by the names that filters have for them. */
import { AethKind, aethKind, ECN_CE } from '@node-roce/wire';
import type { Connection, DirectionCounts } from '../flow/analysis.ts';
import type { AddressTable } from '../read/addresses.ts';
import { addressMatcher, addressPredicate } from '../read/filter.ts';
import { type RocePacket, verdictName } from '../read/packet.ts';
import { compileFilter, type Field, type Fields } from './language.ts';

type PacketFields = Fields<RocePacket>;

const number = <T>(of: (item: T) => number | readonly number[]): Field<T> => ({ kind: 'number', of });
const text = <T>(of: (item: T) => string | readonly string[]): Field<T> => ({ kind: 'text', of });
const flag = <T>(of: (item: T) => boolean): Field<T> => ({ kind: 'flag', of });

/** The kind of AETH, −1 for packets without one. */
function kindOf({ info, bytes, bth, end }: RocePacket): number {
  const at = info.offsets.aeth;
  return at < 0 || bth + at >= end ? -1 : aethKind(bytes[bth + at]);
}

function packetFields(addresses: AddressTable): PacketFields {
  const address = (...of: ((packet: RocePacket) => number)[]): Field<RocePacket> => ({
    kind: 'address',
    test: (given) => {
      const matches = addressMatcher(given, addresses);
      return (packet) => of.some((each) => matches(each(packet)));
    },
  });
  return {
    frame: number(({ frame }) => frame),
    time: number(({ time }) => time / 1e9),
    src: address(({ source }) => source),
    dst: address(({ destination }) => destination),
    addr: address(
      ({ source }) => source,
      ({ destination }) => destination,
    ),
    sport: number(({ sourcePort }) => sourcePort),
    dport: number(({ destinationPort }) => destinationPort),
    qp: number(({ destQp }) => destQp),
    psn: number(({ psn }) => psn),
    opcode: text(({ info }) => [info.name, info.fieldName]),
    transport: text(({ info }) => info.transportName),
    length: number(({ payloadLength }) => payloadLength),
    pkey: number(({ pkey }) => pkey),
    vlan: number(({ vlan }) => vlan),
    pcp: number(({ pcp }) => pcp),
    dscp: number(({ dscp }) => dscp),
    ecn: number(({ ecn }) => ecn),
    ttl: number(({ hopLimit }) => hopLimit),
    tunnel: text(({ tunnel }) => tunnel),
    vni: number(({ vni }) => vni),
    icrc: text(({ icrc }) => verdictName(icrc)),
    request: flag(({ info }) => info.isRequest),
    ack: flag((packet) => kindOf(packet) === AethKind.ACK),
    nak: flag((packet) => kindOf(packet) === AethKind.NAK || kindOf(packet) === AethKind.RNR_NAK),
    rnr: flag((packet) => kindOf(packet) === AethKind.RNR_NAK),
    ackreq: flag(({ ackReq }) => ackReq),
    solicited: flag(({ solicited }) => solicited),
    ce: flag(({ ecn }) => ecn === ECN_CE),
    cnp: flag(({ info }) => info.transportName === 'CNP'),
    sampled: flag(({ sampled }) => sampled),
  };
}

/** Of both directions together. */
const sum = (of: (counts: DirectionCounts) => number): Field<Connection> =>
  number(({ aToB, bToA }) => of(aToB) + of(bToA));

const address = (...of: ((connection: Connection) => string)[]): Field<Connection> => ({
  kind: 'address',
  test: (given) => {
    const matches = addressPredicate(given);
    return (connection) => of.some((each) => matches(each(connection)));
  },
});

const naks = ({ naks, rnrNaks }: DirectionCounts): number =>
  rnrNaks + Object.values(naks).reduce((total, count) => total + count, 0);

const CONNECTION_FIELDS: Fields<Connection> = {
  id: number(({ id }) => id),
  type: text(({ transport }) => transport),
  a: address(({ a }) => a.address),
  b: address(({ b }) => b.address),
  addr: address(
    ({ a }) => a.address,
    ({ b }) => b.address,
  ),
  qp: number(({ a, b }) => [a.qpn, b.qpn]),
  paired: text(({ pairing }) => pairing),
  mtu: number(({ pathMtu }) => pathMtu ?? 0),
  start: number(({ start }) => start / 1e9),
  end: number(({ end }) => end / 1e9),
  duration: number(({ start, end }) => (end - start) / 1e9),
  packets: sum(({ packets }) => packets),
  bytes: sum(({ bytes }) => bytes),
  messages: number(({ messagesFromA, messagesFromB }) => messagesFromA.total + messagesFromB.total),
  failed: number(({ messagesFromA, messagesFromB }) => messagesFromA.failed + messagesFromB.failed),
  retransmitted: sum(({ retransmitted }) => retransmitted),
  gobacks: sum(({ goBacks }) => goBacks),
  naks: sum(naks),
  rnr: sum(({ rnrNaks }) => rnrNaks),
  bad: sum(({ icrcBad }) => icrcBad),
  marked: sum(({ ecnMarked }) => ecnMarked),
  cnps: sum(({ cnps }) => cnps),
  p50: number(({ completion }) => (completion?.p50 ?? 0) / 1e9),
  p99: number(({ completion }) => (completion?.p99 ?? 0) / 1e9),
  vlan: number(({ paths: { aToB, bToA } }) => [aToB?.vlan ?? -1, bToA?.vlan ?? -1]),
  tunnel: text(({ paths: { aToB, bToA } }) => [aToB?.tunnel ?? 'none', bToA?.tunnel ?? 'none']),
  vni: number(({ paths: { aToB, bToA } }) => [aToB?.vni ?? -1, bToA?.vni ?? -1]),
};

/** Names of the fields that filters of packets and connections have, for documents and help. */
export const FILTER_FIELDS: Readonly<Record<'packet' | 'connection', readonly string[]>> = {
  packet: Object.keys(packetFields({} as AddressTable)),
  connection: Object.keys(CONNECTION_FIELDS),
};

/**
 * Compiles a filter of packets (docs/capture-export.md, "Filters").
 * @throws FilterError
 */
export const packetExpression = (given: string, addresses: AddressTable): ((packet: RocePacket) => boolean) =>
  compileFilter(given, packetFields(addresses));

/**
 * Compiles a filter of connections.
 * @throws FilterError
 */
export const connectionExpression = (given: string): ((connection: Connection) => boolean) =>
  compileFilter(given, CONNECTION_FIELDS);
