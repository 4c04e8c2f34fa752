/** Parts of a capture as a capture of their own. */
import type { InterfaceInfo, PacketRecord, PcapngEncoder } from '@node-roce/pcap';
import type { CaptureSource, CaptureWriter } from '@node-roce/pcap/node';
import { ICRC_BYTES } from '@node-roce/wire';
import type { CaptureSummary } from '../../flow/analysis.ts';
import type { RocePacket } from '../../read/packet.ts';
import type { ReadOptions } from '../../read/read.ts';
import type { PacketReader } from '../../read/reader.ts';
import { packetFrame } from '../../read/super-packet.ts';
import { readPackets } from '../read.ts';
import { type RewriteOptions, rewrittenFrame, rewrittenLinkType } from './rewrite.ts';

export interface ExportOptions
  extends RewriteOptions,
    Pick<ReadOptions, 'crc32' | 'ports' | 'onProgress' | 'signal'> {
  /** Which packets; all unless given. Native InfiniBand is left out where addresses or payload are changed. */
  isWanted?: ((packet: RocePacket, reader: PacketReader) => boolean) | undefined;
  /**
   * Comments on a packet, which Wireshark shows. Called for each packet in order, wanted or not. An `anonymizer` renames
   * the addresses in them.
   */
  commentsOf?: ((packet: RocePacket) => readonly string[]) | undefined;
}

export interface ExportResult {
  /** Packets written. */
  packets: number;
  /** Of what was read. */
  summary: CaptureSummary;
}

/** Times in 64 bits of nanoseconds end in 2554; a damaged file can have later ones, and such before 1970. */
const LAST_SECOND = 18_446_744_072;

/** Options of pcapng have 65,535 bytes, and the text of a damaged file may take three for each character. */
const fitting = (text: string): string => text.slice(0, 20_000);

/**
 * Copies RoCE packets into a pcapng, each into a frame of its own: super-packets are taken apart and mirrored
 * packets out of their mirrors, so that tools that know neither see all of them. Times are kept, and
 * unless addresses are renamed also the interfaces' names and filters and the comments that are there already.
 * Frames that are not RoCE stay behind.
 *
 * Rejects as `readPackets` does, and with the writer's error.
 */
export async function exportPackets(
  source: CaptureSource | readonly string[],
  writer: CaptureWriter<PcapngEncoder>,
  options: ExportOptions = {},
): Promise<ExportResult> {
  const { isWanted, commentsOf, anonymizer, zeroPayload, crc32, ports, onProgress, signal } = options;
  const changes = anonymizer !== undefined || zeroPayload === true;
  const interfaces = new OutputInterfaces(writer.encoder, anonymizer === undefined, !changes);
  let packets = 0;
  let keepsUp = true;
  // A frame without a time (simple packet block) has that of the packet before it, as in the analysis.
  let [seconds, nanoseconds] = [0, 0];
  const { summary } = await readPackets(source, {
    crc32,
    ports,
    onProgress,
    signal,
    onPacket: (packet, reader) => {
      const { record } = reader;
      if (record.hasTimestamp) {
        seconds = Math.min(Math.max(record.seconds, 0), LAST_SECOND);
        nanoseconds = record.nanoseconds;
      }
      const added = commentsOf?.(packet) ?? [];
      if (isWanted !== undefined && !isWanted(packet, reader)) return;
      // Its LIDs and VCRC have no place in a frame that is changed.
      if (changes && packet.version === 0) return;
      const data = changes ? rewrittenFrame(packet, options) : packetFrame(packet);
      keepsUp = writer.write({
        seconds,
        nanoseconds,
        data,
        originalLength: data.length + missing(packet, record),
        interfaceId: interfaces.idOf(record.interface, changes ? rewrittenLinkType(packet) : packet.linkType),
        comments:
          anonymizer === undefined
            ? [...record.comments.map(fitting), ...added]
            : added.map((text) => anonymizer.sentence(text)),
        direction: record.direction,
      });
      packets++;
    },
    onChunk: () => (keepsUp ? undefined : writer.drain()),
  });
  return { packets, summary };
}

/** Bytes of the packet that the capture did not keep. */
function missing(
  { bth, end, info, payloadLength, padCount, parts, sampled }: RocePacket,
  record: PacketRecord,
): number {
  // In a damaged file it may claim to have been shorter.
  if (parts === 1 && !sampled) return Math.max(0, record.originalLength - record.capturedLength);
  return Math.max(0, bth + info.headerLength + payloadLength + padCount + ICRC_BYTES - end);
}

/** The output's interfaces: one for each of the input, and for each kind of frame found in its mirrors. */
class OutputInterfaces {
  readonly #encoder: PcapngEncoder;
  readonly #named: boolean;
  readonly #whole: boolean;
  readonly #ids = new Map<InterfaceInfo, Map<number, number>>();

  /**
   * @param named with the names, descriptions and capture filters that they had
   * @param whole frames keep what stands behind their packets
   */
  constructor(encoder: PcapngEncoder, named: boolean, whole: boolean) {
    this.#encoder = encoder;
    this.#named = named;
    this.#whole = whole;
  }

  idOf(info: InterfaceInfo, linkType: number): number {
    const known = this.#ids.get(info)?.get(linkType);
    if (known !== undefined) return known;
    const { name, description, filter, speed, snapLength, fcsLength } = info;
    const id = this.#encoder.interface({
      linkType,
      // No frame gets longer than it was, but one that is taken out of its mirror has other headers.
      snapLength: linkType === info.linkType ? snapLength : 0,
      ...(fcsLength === undefined || !this.#whole ? {} : { fcsLength }),
      ...(speed === undefined ? {} : { speed }),
      ...(this.#named && name !== undefined ? { name: fitting(name) } : {}),
      ...(this.#named && description !== undefined ? { description: fitting(description) } : {}),
      // Such as "host 192.0.2.33".
      ...(this.#named && filter !== undefined ? { filter: fitting(filter) } : {}),
    });
    const ids = this.#ids.get(info) ?? new Map<number, number>();
    ids.set(linkType, id);
    this.#ids.set(info, ids);
    return id;
  }
}
