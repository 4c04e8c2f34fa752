/** `roce dump`: the RoCE packets of a capture. */
import {
  AddressTable,
  FlowAnalyzer,
  isPlain,
  type PacketFilter,
  type PacketReader,
  packetExpression,
  packetFilter,
  packetFrame,
  plainFrame,
  plainLinkType,
  type RefusedFrame,
  type RocePacket,
  readPackets,
  verdictName,
} from '@node-roce/capture/node';
import { LinkType } from '@node-roce/pcap';
import { parseFrame, ROCE_UDP_PORT } from '@node-roce/wire';
import { type Entry, toFields, toJson, toLine } from '../dump/format.ts';
import { icmpJson, icmpLine } from '../dump/icmp.ts';
import { pauseEntry, pauseJson, pauseLine } from '../dump/pause.ts';
import { exitCode, nameOfSources, type ReadingChoices, readingOptions, sourcesOf } from '../reading.ts';
import { checkSpan, understood } from '../selection.ts';
import type { Terminal } from '../terminal.ts';
import type { TimeForm } from '../time-form.ts';

interface Options extends PacketFilter, ReadingChoices {
  filter?: string;
  fields: boolean;
  json: boolean;
  count?: number;
  time: TimeForm;
  retransmissions: boolean;
}

export async function run(files: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  checkSpan(options);
  const name = nameOfSources(files);
  let others = 0;
  let found = 0;
  let shown = 0;
  let isWanted: ((packet: RocePacket) => boolean) | undefined;
  const expression = options.filter;
  // An expression is checked before the file is read.
  if (expression !== undefined) understood(() => packetExpression(expression, new AddressTable()));
  let fits: ((packet: RocePacket) => boolean) | undefined;
  let again: Entry['retransmission'];
  const analyzer = options.retransmissions
    ? new FlowAnalyzer({
        onPacket: (_, verdict) => {
          const { retransmission: cause, grade, evidence } = verdict;
          again = cause === undefined ? undefined : { cause, grade: grade!, evidence };
        },
      })
    : undefined;
  const isEnough = () => shown === options.count;
  const warn = ({ frame, reason, detail, offset }: RefusedFrame) =>
    terminal.message(`${name}: frame ${frame} is not shown: ${reason}, ${detail} (byte ${offset})`);
  try {
    const { summary } = await readPackets(sourcesOf(files, terminal), {
      ...(await readingOptions(terminal, options)),
      onPacket: (packet, reader) => {
        found++;
        isWanted ??= packetFilter(options, reader.addresses);
        if (isEnough()) return;
        analyzer?.add(packet);
        if (expression !== undefined) fits ??= packetExpression(expression, reader.addresses);
        if (fits?.(packet) === false || !isWanted(packet) || (analyzer !== undefined && again === undefined))
          return;
        const entry = entryOf(packet, reader, again);
        if ('reason' in entry) warn(entry);
        else print(entry, options, terminal);
        shown++;
      },
      onPause: (pause, { record }) => {
        if (isEnough() || !showsPauses(options) || isOutside(pause.time, options)) return;
        const entry = pauseEntry(pause, record);
        if (options.json) terminal.json(pauseJson(entry));
        else terminal.paragraph(...pauseLine(entry, options.time));
        shown++;
      },
      onIcmp: (error, { record, addresses }) => {
        if (isEnough() || !showsPauses(options) || isOutside(error.time, options)) return;
        if (options.json) terminal.json(icmpJson(error, record, addresses));
        else terminal.paragraph(...icmpLine(error, record, addresses, options.time));
        shown++;
      },
      onRefused: (refused) => {
        if (isEnough()) return;
        if (refused.reason === 'not-roce') others++;
        else warn(refused);
      },
      onChunk: () => !isEnough(),
    });
    return exitCode(summary, files, terminal);
  } finally {
    if (others > 0 && found > 0)
      terminal.message(`${others} frame${others === 1 ? ' is' : 's are'} not RoCE and not shown`);
  }
}

/** Whether nothing selects RoCE packets. */
const showsPauses = ({ qp, opcode, address, nak, filter, retransmissions }: Options): boolean =>
  filter === undefined &&
  qp === undefined &&
  opcode === undefined &&
  address === undefined &&
  !nak &&
  !retransmissions;

const isOutside = (
  time: number,
  { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY }: Options,
): boolean => time < from || time > to;

function print(entry: Entry, { json, fields, time }: Options, terminal: Terminal): void {
  if (json) terminal.json(toJson(entry));
  else if (fields) terminal.line(toFields(entry, terminal));
  else terminal.paragraph(...toLine(entry, terminal, time));
}

/** A packet with all its fields, as far as the capture has them. */
function entryOf(
  packet: RocePacket,
  { record, addresses }: PacketReader,
  retransmission: Entry['retransmission'],
): Entry | RefusedFrame {
  const plain = isPlain(packet);
  const frame = plain ? packetFrame(packet) : plainFrame(packet);
  const options = { port: packet.destinationPort || ROCE_UDP_PORT, allowCut: true };
  let parsed = parseFrame(frame, plain ? packet.linkType : plainLinkType(packet), options);
  // Tags behind a cooked header, and other rarities, are parsed from the IP header on.
  if (!parsed.ok && packet.version === 2 && plain)
    parsed = parseFrame(frame.subarray(packet.ip - packet.link), LinkType.RAW, options);
  if (!parsed.ok) {
    const { reason, detail, offset } = parsed;
    return { frame: packet.frame, reason, detail, offset };
  }
  // The ICRC is that of the frame as it was.
  if (!plain) parsed.packet.icrcStatus = verdictName(packet.icrc);
  return {
    packet: parsed.packet,
    names:
      packet.version === 0
        ? {
            source: addresses.text(packet.source),
            destination: addresses.text(packet.destination),
            protocol: 'InfiniBand',
            length: record.originalLength,
          }
        : undefined,
    sampled: packet.sampled,
    number: packet.frame,
    segment: packet.parts > 1 ? packet.part : undefined,
    marks: {
      vlan: packet.vlan,
      pcp: packet.pcp,
      dscp: packet.dscp,
      ecn: packet.ecn,
      ttl: packet.hopLimit,
    },
    tunnel: packet.tunnel,
    vni: packet.vni,
    retransmission,
    time: record.hasTimestamp ? record.timestamp : undefined,
    relativeTime: record.hasTimestamp ? BigInt(packet.time) : undefined,
  };
}
