/** `roce dump`: the RoCE packets of a capture. */
import {
  FlowAnalyzer,
  type PacketFilter,
  type PacketReader,
  packetFilter,
  packetFrame,
  type RefusedFrame,
  type RetransmitCause,
  type RocePacket,
  readPackets,
} from '@node-roce/capture';
import { LinkType } from '@node-roce/pcap';
import { parseFrame } from '@node-roce/wire';
import { type Entry, toFields, toJson, toLine } from '../dump/format.ts';
import { nameOfSource, readingOptions, sourceOf } from '../reading.ts';
import type { Terminal } from '../terminal.ts';

interface Options extends PacketFilter {
  fields: boolean;
  json: boolean;
  count?: number;
  retransmissions: boolean;
}

export async function run([file]: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const name = nameOfSource(file!);
  let others = 0;
  let found = 0;
  let shown = 0;
  let isWanted: ((packet: RocePacket) => boolean) | undefined;
  let cause: RetransmitCause | undefined;
  const analyzer = options.retransmissions
    ? new FlowAnalyzer({
        onPacket: (_, verdict) => {
          cause = verdict.retransmission;
        },
      })
    : undefined;
  const isEnough = () => shown === options.count;
  const warn = ({ frame, reason, detail, offset }: RefusedFrame) =>
    terminal.message(`${name}: frame ${frame} is not shown: ${reason}, ${detail} (byte ${offset})`);
  try {
    const { summary } = await readPackets(sourceOf(file!, terminal), {
      ...(await readingOptions(terminal)),
      onPacket: (packet, reader) => {
        found++;
        isWanted ??= packetFilter(options, reader.addresses);
        if (isEnough()) return;
        analyzer?.add(packet);
        if (!isWanted(packet) || (analyzer !== undefined && cause === undefined)) return;
        const entry = entryOf(packet, reader, cause);
        if ('reason' in entry) warn(entry);
        else print(entry, options, terminal);
        shown++;
      },
      onRefused: (refused) => {
        if (isEnough()) return;
        if (refused.reason === 'not-roce') others++;
        else warn(refused);
      },
      onChunk: () => !isEnough(),
    });
    if (summary.damage !== undefined) {
      terminal.message(`${terminal.errColors.red('roce:')} ${name}: ${summary.damage}`);
      return 1;
    }
    if (summary.frames === 0) terminal.message(`${name}: the capture is empty`);
    return 0;
  } finally {
    const notShown = `${others} frame${others === 1 ? ' is' : 's are'} not RoCE and not shown`;
    if (others > 0) terminal.message(found > 0 ? notShown : `${name}: no RoCE packets; ${notShown}`);
  }
}

function print(entry: Entry, { json, fields }: Options, terminal: Terminal): void {
  if (json) terminal.json(toJson(entry));
  else terminal.line(fields ? toFields(entry, terminal) : toLine(entry, terminal));
}

/** A packet with all its fields; refused if the capture cut its extension headers. */
function entryOf(
  packet: RocePacket,
  { record }: PacketReader,
  retransmission: RetransmitCause | undefined,
): Entry | RefusedFrame {
  const frame = packetFrame(packet);
  let parsed = parseFrame(frame, packet.linkType);
  // Tags behind a cooked header, and other rarities, are parsed from the IP header on.
  if (!parsed.ok && packet.version === 2)
    parsed = parseFrame(frame.subarray(packet.ip - packet.link), LinkType.RAW);
  if (!parsed.ok) {
    const { reason, detail, offset } = parsed;
    return { frame: packet.frame, reason, detail, offset };
  }
  return {
    packet: parsed.packet,
    number: packet.frame,
    segment: packet.parts > 1 ? packet.part : undefined,
    mirror: packet.mirror,
    retransmission,
    time: record.hasTimestamp ? record.timestamp : undefined,
    relativeTime: record.hasTimestamp ? BigInt(packet.time) : undefined,
  };
}
