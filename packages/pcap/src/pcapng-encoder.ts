import {
  type CaptureEncoder,
  checkInteger,
  OutputBuffer,
  type PacketInput,
  packetNanoseconds,
  packetSeconds,
  UINT32_MAX,
} from './encoder.ts';
import { DEFAULT_SNAP_LENGTH } from './pcap-format.ts';
import {
  BLOCK_HEADER,
  BlockType,
  BodyLength,
  BYTE_ORDER_MAGIC,
  OptionCode,
  padded,
} from './pcapng-format.ts';
import { statisticsCounters } from './pcapng-metadata.ts';
import { OptionWriter } from './pcapng-options.ts';
import type { InterfaceInfo, InterfaceStatistics, SectionInfo } from './record.ts';
import { NANOSECOND_SECONDS_END, setNanoseconds, splitTime } from './timestamp.ts';

/** The options of a section header. `byteOrder` is `little` unless given. */
export type SectionOptions = Partial<
  Pick<SectionInfo, 'byteOrder' | 'hardware' | 'os' | 'application' | 'comments'>
>;

/** The options of an interface description. `snapLength` is 262,144 unless given; 0 means no limit. */
export type InterfaceOptions = Pick<InterfaceInfo, 'linkType'> &
  Partial<
    Pick<
      InterfaceInfo,
      | 'snapLength'
      | 'fcsLength'
      | 'name'
      | 'description'
      | 'filter'
      | 'hardware'
      | 'os'
      | 'speed'
      | 'comments'
    >
  >;

/** if_tsresol of every interface written: nanoseconds. */
const TSRESOL_NANO = 9;

/**
 * Writes pcapng 1.0 (draft-ietf-opsawg-pcapng) with timestamps in nanoseconds.
 *
 * The first section is started by the constructor; then `interface` before the packets that name it,
 * `packet` for each, and `statistics` at the end of the section if there are any.
 */
export class PcapngEncoder implements CaptureEncoder {
  readonly format = 'pcapng';
  readonly #out = new OutputBuffer();
  #littleEndian = true;
  /** Of each interface of the section, the bytes kept of a packet. */
  #snapLengths: number[] = [];

  constructor(options: SectionOptions = {}) {
    this.section(options);
  }

  get pending(): number {
    return this.#out.length;
  }

  /**
   * Starts a new section: its byte order is its own, and interfaces are numbered from 0 again.
   *
   * @throws RangeError for text longer than 65,535 bytes
   */
  section(options: SectionOptions = {}): void {
    const littleEndian = (options.byteOrder ?? 'little') === 'little';
    this.#block(BlockType.SECTION_HEADER, littleEndian, (out) => {
      out.reserve(BodyLength.SECTION_HEADER);
      const { view, length: at } = out;
      view.setUint32(at, BYTE_ORDER_MAGIC, littleEndian);
      view.setUint16(at + 4, 1, littleEndian);
      view.setUint16(at + 6, 0, littleEndian);
      // Section length -1: not given.
      view.setBigInt64(at + 8, -1n, littleEndian);
      out.length = at + BodyLength.SECTION_HEADER;
      const list = new OptionWriter(out, littleEndian);
      list.texts(OptionCode.COMMENT, options.comments);
      list.text(OptionCode.SHB_HARDWARE, options.hardware);
      list.text(OptionCode.SHB_OS, options.os);
      list.text(OptionCode.SHB_APPLICATION, options.application);
      list.end();
    });
    this.#littleEndian = littleEndian;
    this.#snapLengths = [];
  }

  /**
   * Describes an interface of the section.
   *
   * @returns its id, for `PacketInput.interfaceId`
   * @throws RangeError for a link type, length or text that does not fit
   */
  interface(options: InterfaceOptions): number {
    const { linkType, snapLength = DEFAULT_SNAP_LENGTH } = options;
    checkInteger('linkType', linkType, 0, 0xffff);
    checkInteger('snapLength', snapLength, 0, UINT32_MAX);
    const littleEndian = this.#littleEndian;
    this.#block(BlockType.INTERFACE_DESCRIPTION, littleEndian, (out) => {
      out.reserve(BodyLength.INTERFACE_DESCRIPTION);
      const { view, length: at } = out;
      view.setUint16(at, linkType, littleEndian);
      view.setUint16(at + 2, 0, littleEndian);
      view.setUint32(at + 4, snapLength, littleEndian);
      out.length = at + BodyLength.INTERFACE_DESCRIPTION;
      const list = new OptionWriter(out, littleEndian);
      list.texts(OptionCode.COMMENT, options.comments);
      list.text(OptionCode.IF_NAME, options.name);
      list.text(OptionCode.IF_DESCRIPTION, options.description);
      list.uint64(OptionCode.IF_SPEED, options.speed);
      list.uint8(OptionCode.IF_TSRESOL, TSRESOL_NANO);
      // A leading zero byte means that the filter is text.
      list.text(OptionCode.IF_FILTER, options.filter === undefined ? undefined : `\0${options.filter}`);
      list.text(OptionCode.IF_OS, options.os);
      list.uint8(OptionCode.IF_FCSLEN, options.fcsLength);
      list.text(OptionCode.IF_HARDWARE, options.hardware);
      list.end();
    });
    return this.#snapLengths.push(snapLength === 0 ? UINT32_MAX : snapLength) - 1;
  }

  packet(packet: PacketInput): void {
    const { data, originalLength = data.length, interfaceId = 0 } = packet;
    const seconds = packetSeconds(packet);
    const nanoseconds = packetNanoseconds(packet);
    checkInteger('seconds', seconds, 0, NANOSECOND_SECONDS_END - 1);
    checkInteger('nanoseconds', nanoseconds, 0, 999_999_999);
    checkInteger('originalLength', originalLength, 0, UINT32_MAX);
    const snapLength = this.#snapLengthOf(interfaceId);

    const littleEndian = this.#littleEndian;
    const kept = data.length > snapLength ? data.subarray(0, snapLength) : data;
    this.#block(BlockType.ENHANCED_PACKET, littleEndian, (out) => {
      const dataLength = padded(kept.length);
      out.reserve(BodyLength.ENHANCED_PACKET + dataLength);
      const { view, length: at } = out;
      view.setUint32(at, interfaceId, littleEndian);
      setNanoseconds(view, at + 4, seconds, nanoseconds, littleEndian);
      view.setUint32(at + 12, kept.length, littleEndian);
      view.setUint32(at + 16, originalLength, littleEndian);
      out.length = at + BodyLength.ENHANCED_PACKET;
      out.append(kept, dataLength);
      this.#packetOptions(out, packet);
    });
  }

  /**
   * Writes an interface's counters; usually once, at the end of the section.
   *
   * @throws RangeError for an interface that has not been described, or a value that does not fit
   */
  statistics(interfaceId: number, statistics: InterfaceStatistics): void {
    this.#snapLengthOf(interfaceId);
    const littleEndian = this.#littleEndian;
    this.#block(BlockType.INTERFACE_STATISTICS, littleEndian, (out) => {
      out.reserve(BodyLength.INTERFACE_STATISTICS);
      const { view, length: at } = out;
      view.setUint32(at, interfaceId, littleEndian);
      const { seconds, nanoseconds } = splitTime(statistics.timestamp);
      setNanoseconds(view, at + 4, seconds, nanoseconds, littleEndian);
      out.length = at + BodyLength.INTERFACE_STATISTICS;
      const list = new OptionWriter(out, littleEndian);
      list.time(OptionCode.ISB_STARTTIME, statistics.startTime);
      list.time(OptionCode.ISB_ENDTIME, statistics.endTime);
      for (const [code, name] of statisticsCounters) {
        const count = statistics[name];
        if (count === undefined) continue;
        checkInteger(name, count, 0, Number.MAX_SAFE_INTEGER);
        list.uint64(code, BigInt(count));
      }
      list.end();
    });
  }

  take(): Uint8Array {
    return this.#out.take();
  }

  #snapLengthOf(interfaceId: number): number {
    const snapLength = this.#snapLengths[interfaceId];
    if (snapLength === undefined) {
      const known = this.#snapLengths.length;
      throw new RangeError(`interface ${interfaceId} is not described in this section, which has ${known}`);
    }
    return snapLength;
  }

  #packetOptions(out: OutputBuffer, packet: PacketInput): void {
    const { comments, flags, direction, dropCount } = packet;
    const list = new OptionWriter(out, this.#littleEndian);
    list.texts(OptionCode.COMMENT, comments);
    if (flags !== undefined || direction !== undefined) {
      checkInteger('flags', flags ?? 0, 0, UINT32_MAX);
      const bits = direction === undefined ? (flags ?? 0) & 3 : direction === 'inbound' ? 1 : 2;
      list.uint32(OptionCode.EPB_FLAGS, (((flags ?? 0) & ~3) | bits) >>> 0);
    }
    if (dropCount !== undefined) {
      checkInteger('dropCount', dropCount, 0, Number.MAX_SAFE_INTEGER);
      list.uint64(OptionCode.EPB_DROPCOUNT, BigInt(dropCount));
    }
    list.end();
  }

  /** A block around what `writeBody` appends; nothing is left behind when it throws. */
  #block(type: number, littleEndian: boolean, writeBody: (out: OutputBuffer) => void): void {
    const out = this.#out;
    const start = out.length;
    try {
      out.reserve(BLOCK_HEADER);
      out.length += BLOCK_HEADER;
      writeBody(out);
      out.reserve(4);
    } catch (error) {
      out.length = start;
      throw error;
    }
    const length = out.length + 4 - start;
    out.view.setUint32(start, type, littleEndian);
    out.view.setUint32(start + 4, length, littleEndian);
    out.view.setUint32(out.length, length, littleEndian);
    out.length += 4;
  }
}
