/** The tables of an analysis, column by column; docs/capture-export.md describes them. */
import {
  type Addresses,
  type Connection,
  type DirectionCounts,
  type Finding,
  type Message,
  type MessageQps,
  type PacketFlow,
  type PacketVerdict,
  type RocePacket,
  verdictName,
} from '@node-roce/capture';
import { aethMsn, aethSyndrome } from '@node-roce/wire';
import type { TableClock } from './clock.ts';
import type { Column, ColumnType, Table } from './columns.ts';

/** A packet with the verdict of the analysis, valid until the next one. */
export interface PacketRow {
  packet: RocePacket;
  /** Undefined: a sample, which belongs to no connection. */
  verdict: PacketVerdict | undefined;
}

export interface MessageRow {
  message: Message;
  qps: MessageQps;
}

export interface FindingRow {
  finding: Finding;
  /** Of the finding that `roce flows` shows, which may be a group of these; from 1. */
  number: number;
}

/** Shared by all rows of a capture. */
export interface Surroundings {
  /** Its name. */
  capture: string;
  clock: TableClock;
  addresses: Addresses;
}

const orNull = <T>(value: T | undefined): T | null => value ?? null;
const positive = (value: number): number | null => (value > 0 ? value : null);
const natural = (value: number): number | null => (value < 0 ? null : value);

type Columns<Row> = readonly (readonly [
  name: string,
  type: ColumnType,
  value: (row: Row) => unknown,
  more?: Pick<Column<Row>, 'settle' | 'origin'>,
])[];

const SOUGHT: ReadonlySet<string> = new Set([
  'frame',
  'time',
  'time_ns',
  'start',
  'start_ns',
  'connection',
  'latency_ns',
]);

const named = <Row>(columns: Columns<Row>): Column<Row>[] =>
  columns.map(([name, type, value, more]) => ({ name, type, value, ...more, isSought: SOUGHT.has(name) }));

/** Of times in nanoseconds, which no number holds exactly since 1970. */
const since = (clock: TableClock) => ({ origin: () => clock.origin });

/** Where the AETH of a packet stands; −1: it has none, or the capture cut it off. */
const aethOf = ({ info, bth, end }: RocePacket): number => {
  const at = info.offsets.aeth;
  return at >= 0 && bth + at + 4 <= end ? bth + at : -1;
};

export function packetTable({ capture, clock, addresses }: Surroundings): Table<PacketRow> {
  return {
    name: 'packets',
    time: ({ packet }) => packet.time,
    columns: named<PacketRow>([
      ['capture', 'STRING', () => capture],
      ['frame', 'INT64', ({ packet }) => packet.frame],
      ['part', 'INT32', ({ packet }) => packet.part],
      ['time', 'TIMESTAMP?', ({ packet }) => clock.micros(packet.time)],
      ['time_ns', 'INT64?', ({ packet }) => clock.ns(packet.time), since(clock)],
      // The number is often known only later.
      [
        'connection',
        'INT32?',
        ({ verdict }) => verdict?.flow,
        { settle: (flow) => positive((flow as PacketFlow | undefined)?.connection.id ?? 0) },
      ],
      ['source', 'STRING', ({ packet }) => addresses.text(packet.source)],
      ['destination', 'STRING', ({ packet }) => addresses.text(packet.destination)],
      ['source_port', 'INT32', ({ packet }) => packet.sourcePort],
      ['destination_port', 'INT32', ({ packet }) => packet.destinationPort],
      ['roce_version', 'INT32', ({ packet }) => packet.version],
      ['vlan', 'INT32?', ({ packet }) => natural(packet.vlan)],
      ['pcp', 'INT32?', ({ packet }) => natural(packet.pcp)],
      ['dscp', 'INT32', ({ packet }) => packet.dscp],
      ['ecn', 'INT32', ({ packet }) => packet.ecn],
      ['ttl', 'INT32', ({ packet }) => packet.hopLimit],
      ['tunnel', 'STRING?', ({ packet }) => (packet.tunnel === 'none' ? null : packet.tunnel)],
      ['vni', 'INT64?', ({ packet }) => (packet.vni < 0 ? null : packet.vni)],
      ['opcode', 'STRING', ({ packet }) => packet.info.key],
      ['dest_qp', 'INT32', ({ packet }) => packet.destQp],
      ['psn', 'INT32', ({ packet }) => packet.psn],
      ['ack_req', 'BOOLEAN', ({ packet }) => packet.ackReq],
      ['pkey', 'INT32', ({ packet }) => packet.pkey],
      ['payload_bytes', 'INT32', ({ packet }) => packet.payloadLength],
      [
        'aeth_syndrome',
        'INT32?',
        ({ packet }) => (aethOf(packet) < 0 ? null : aethSyndrome(packet.bytes, aethOf(packet))),
      ],
      [
        'aeth_msn',
        'INT32?',
        ({ packet }) => (aethOf(packet) < 0 ? null : aethMsn(packet.bytes, aethOf(packet))),
      ],
      ['icrc', 'STRING', ({ packet }) => verdictName(packet.icrc)],
      ['retransmission', 'STRING?', ({ verdict }) => orNull(verdict?.retransmission)],
      ['grade', 'STRING?', ({ verdict }) => orNull(verdict?.grade)],
      ['evidence_frame', 'INT64?', ({ verdict }) => positive(verdict?.evidence ?? 0)],
      ['repeated_frame', 'BOOLEAN', ({ verdict }) => verdict?.repeatedFrame === true],
      ['sampled', 'BOOLEAN', ({ packet }) => packet.sampled],
    ]),
  };
}

export function messageTable({ capture, clock, addresses }: Surroundings): Table<MessageRow> {
  return {
    name: 'messages',
    time: ({ message }) => message.start,
    columns: named<MessageRow>([
      ['capture', 'STRING', () => capture],
      ['connection', 'INT32', ({ message }) => message.connection],
      ['message', 'INT64', ({ message }) => message.id],
      ['from_end', 'STRING', ({ message }) => message.from],
      ['requester', 'STRING', ({ qps }) => addresses.text(qps.requesterAddress)],
      ['responder', 'STRING', ({ qps }) => addresses.text(qps.responderAddress)],
      ['requester_qp', 'INT32?', ({ qps }) => natural(qps.requester)],
      ['responder_qp', 'INT32?', ({ qps }) => natural(qps.responder)],
      ['operation', 'STRING', ({ message }) => message.operation],
      ['bytes', 'INT64?', ({ message }) => orNull(message.bytes)],
      ['first_psn', 'INT32', ({ message }) => message.firstPsn],
      ['last_psn', 'INT32', ({ message }) => message.lastPsn],
      ['packets', 'INT64', ({ message }) => message.packets],
      ['retransmitted', 'INT64', ({ message }) => message.retransmitted],
      ['first_frame', 'INT64', ({ message }) => message.firstFrame],
      ['last_frame', 'INT64', ({ message }) => message.lastFrame],
      ['start', 'TIMESTAMP?', ({ message }) => clock.micros(message.start)],
      ['start_ns', 'INT64?', ({ message }) => clock.ns(message.start), since(clock)],
      ['end_ns', 'INT64?', ({ message }) => clock.ns(message.end), since(clock)],
      ['latency_ns', 'INT64?', ({ message }) => orNull(message.latency)],
      ['ack_round_trip_ns', 'INT64?', ({ message }) => orNull(message.ackRoundTrip)],
      ['outcome', 'STRING', ({ message }) => message.outcome],
      ['failure', 'STRING?', ({ message }) => orNull(message.failure)],
    ]),
  };
}

const naksOf = ({ naks }: DirectionCounts): number =>
  Object.values(naks).reduce((sum, count) => sum + count, 0);

const COUNTS: readonly (readonly [string, (counts: DirectionCounts) => number])[] = [
  ['packets', ({ packets }) => packets],
  ['bytes', ({ bytes }) => bytes],
  ['retransmitted', ({ retransmitted }) => retransmitted],
  ['go_backs', ({ goBacks }) => goBacks],
  ['naks', naksOf],
  ['rnr_naks', ({ rnrNaks }) => rnrNaks],
  ['icrc_bad', ({ icrcBad }) => icrcBad],
  ['ecn_marked', ({ ecnMarked }) => ecnMarked],
  ['cnps', ({ cnps }) => cnps],
];

export function connectionTable({ capture, clock }: Surroundings): Table<Connection> {
  const counts = (['aToB', 'bToA'] as const).flatMap((way) =>
    COUNTS.map(
      ([name, value]) =>
        [
          `${way === 'aToB' ? 'a_to_b' : 'b_to_a'}_${name}`,
          'INT64',
          (connection: Connection) => value(connection[way]),
        ] as const,
    ),
  );
  const messages = (['messagesFromA', 'messagesFromB'] as const).flatMap((end) =>
    (['total', 'completed', 'failed', 'incomplete'] as const).map(
      (what) =>
        [
          `messages_from_${end === 'messagesFromA' ? 'a' : 'b'}${what === 'total' ? '' : `_${what}`}`,
          'INT64',
          (connection: Connection) => connection[end][what],
        ] as const,
    ),
  );
  return {
    name: 'connections',
    time: ({ start }) => start,
    columns: named<Connection>([
      ['capture', 'STRING', () => capture],
      ['connection', 'INT32', ({ id }) => id],
      ['transport', 'STRING', ({ transport }) => transport],
      ['a', 'STRING', ({ a }) => a.address],
      ['a_qp', 'INT32?', ({ a }) => natural(a.qpn)],
      ['b', 'STRING', ({ b }) => b.address],
      ['b_qp', 'INT32?', ({ b }) => natural(b.qpn)],
      ['pairing', 'STRING', ({ pairing }) => pairing],
      ['path_mtu', 'INT32?', ({ pathMtu }) => orNull(pathMtu)],
      ['first_frame', 'INT64', ({ firstFrame }) => firstFrame],
      ['last_frame', 'INT64', ({ lastFrame }) => lastFrame],
      ['start', 'TIMESTAMP?', ({ start }) => clock.micros(start)],
      ['start_ns', 'INT64?', ({ start }) => clock.ns(start), since(clock)],
      ['end_ns', 'INT64?', ({ end }) => clock.ns(end), since(clock)],
      ...counts,
      ...messages,
      ['latency_p50_ns', 'INT64?', ({ completion }) => orNull(rounded(completion?.p50))],
      ['latency_p99_ns', 'INT64?', ({ completion }) => orNull(rounded(completion?.p99))],
      ['verdict', 'STRING', ({ verdict }) => verdict.kind],
      ['verdict_certainty', 'STRING', ({ verdict }) => verdict.certainty],
      ['verdict_text', 'STRING', ({ verdict }) => verdict.text],
      ['culprit', 'STRING?', ({ verdict }) => orNull(verdict.culprit)],
      ['ended', 'STRING?', ({ ended }) => orNull(ended?.how)],
      ['ended_by', 'STRING?', ({ ended }) => orNull(ended?.by)],
    ]),
  };
}

const rounded = (value: number | undefined): number | undefined =>
  value === undefined ? undefined : Math.round(value);

export function findingTable({ capture, clock }: Surroundings): Table<FindingRow> {
  return {
    name: 'findings',
    time: ({ finding }) => finding.start,
    columns: named<FindingRow>([
      ['capture', 'STRING', () => capture],
      ['finding', 'INT32', ({ number }) => number],
      ['kind', 'STRING', ({ finding }) => finding.kind],
      ['severity', 'STRING', ({ finding }) => finding.severity],
      ['connection', 'INT32?', ({ finding }) => orNull(finding.connection)],
      ['from_end', 'STRING?', ({ finding }) => orNull(finding.from)],
      ['text', 'STRING', ({ finding }) => finding.text],
      ['hint', 'STRING', ({ finding }) => finding.hint],
      ['start', 'TIMESTAMP?', ({ finding }) => clock.micros(finding.start)],
      ['start_ns', 'INT64?', ({ finding }) => clock.ns(finding.start), since(clock)],
      ['end_ns', 'INT64?', ({ finding }) => clock.ns(finding.end), since(clock)],
      ['frame_count', 'INT64', ({ finding }) => finding.frameCount],
      ['frames', 'INT64[]', ({ finding }) => finding.frames.map(BigInt)],
    ]),
  };
}
