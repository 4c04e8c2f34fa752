import { CaptureError, CaptureErrorCode } from './errors.ts';
import type { FormatReader } from './format-reader.ts';
import {
  BLOCK_HEADER,
  BLOCK_OVERHEAD,
  BlockType,
  BodyLength,
  BYTE_ORDER_MAGIC,
  blockName,
  OptionCode,
  padded,
} from './pcapng-format.ts';
import { readInterface, readSection, readStatistics } from './pcapng-metadata.ts';
import { type BlockOption, optionText, readOptions } from './pcapng-options.ts';
import { type InterfaceInfo, PacketRecord, type SectionInfo } from './record.ts';
import { TimestampScale } from './timestamp.ts';
import type { ByteWindow } from './window.ts';

/** Interfaces kept of one section: a bound on what a hostile file can make us remember. */
const MAX_INTERFACES = 65_536;
/** Bytes of names and comments kept of one section: the same. Each counts four more, for its string. */
const MAX_TEXT = 4 << 20;

/** Reads pcapng block by block. Blocks without information about packets are skipped. */
export class PcapngReader implements FormatReader {
  reading = 'block header';
  section: SectionInfo | undefined;
  readonly #window: ByteWindow;
  readonly #maxBlockLength: number;
  #littleEndian = true;
  #sectionCount = 0;
  /** Bytes of text kept of this section. */
  #text = 0;
  /** By interface id, like `section.interfaces`. */
  #scales: TimestampScale[] = [];

  constructor(window: ByteWindow, maxBlockLength: number) {
    this.#window = window;
    this.#maxBlockLength = maxBlockLength;
  }

  read(): PacketRecord | CaptureError | undefined {
    const window = this.#window;
    // Every turn consumes a block of 12 bytes or more, or returns.
    for (;;) {
      if (!window.require(BLOCK_OVERHEAD)) {
        this.reading = 'block header';
        return undefined;
      }
      let { view, start } = window;
      const type = view.getUint32(start, this.#littleEndian);
      if (type === BlockType.SECTION_HEADER) {
        // Its byte order has to be known before its length can be read.
        const error = this.#setByteOrder(view, start + BLOCK_HEADER);
        if (error !== undefined) return error;
      }
      const littleEndian = this.#littleEndian;
      const length = view.getUint32(start + 4, littleEndian);
      if (length > this.#maxBlockLength) {
        const claim = `claims ${length} bytes, more than the ${this.#maxBlockLength} allowed`;
        return this.#error(CaptureErrorCode.TOO_LARGE, type, claim);
      }
      if (length < BLOCK_OVERHEAD || length % 4 !== 0) {
        return this.#bad(type, `claims ${length} bytes, not a multiple of 4 from ${BLOCK_OVERHEAD} on`);
      }
      if (!window.require(length)) {
        this.reading = blockName(type);
        return undefined;
      }
      ({ view, start } = window);
      const end = start + length - 4;
      const repeated = view.getUint32(end, littleEndian);
      if (repeated !== length) return this.#bad(type, `has length ${length} in front and ${repeated} behind`);
      const result = this.#readBlock(type, start + BLOCK_HEADER, end);
      if (result instanceof CaptureError) return result;
      window.start = start + length;
      if (result !== undefined) return result;
    }
  }

  #setByteOrder(view: DataView, at: number): CaptureError | undefined {
    if (view.getUint32(at, true) === BYTE_ORDER_MAGIC) this.#littleEndian = true;
    else if (view.getUint32(at, false) === BYTE_ORDER_MAGIC) this.#littleEndian = false;
    else return this.#bad(BlockType.SECTION_HEADER, 'has no byte-order magic');
    return undefined;
  }

  /** The block whose body is `at` … `end`; undefined for a block that is no packet. */
  #readBlock(type: number, at: number, end: number): PacketRecord | CaptureError | undefined {
    switch (type) {
      case BlockType.ENHANCED_PACKET:
        return this.#readPacket(type, at, end);
      case BlockType.SIMPLE_PACKET:
        return this.#readSimplePacket(at, end);
      case BlockType.PACKET:
        return this.#readPacket(type, at, end);
      case BlockType.SECTION_HEADER:
        return this.#readSectionHeader(at, end);
      case BlockType.INTERFACE_DESCRIPTION:
        return this.#readInterfaceDescription(at, end);
      case BlockType.INTERFACE_STATISTICS:
        return this.#readInterfaceStatistics(at, end);
      default:
        return undefined;
    }
  }

  /** Enhanced Packet Block, and the obsolete Packet Block, whose first word holds two fields. */
  #readPacket(type: number, at: number, end: number): PacketRecord | CaptureError {
    const { view, bytes } = this.#window;
    const littleEndian = this.#littleEndian;
    const room = end - at - BodyLength.ENHANCED_PACKET;
    if (room < 0) return this.#tooShort(type, BodyLength.ENHANCED_PACKET, end - at);
    const obsolete = type === BlockType.PACKET;
    const interfaceId = obsolete ? view.getUint16(at, littleEndian) : view.getUint32(at, littleEndian);
    const section = this.section!;
    const interfaceInfo = section.interfaces[interfaceId];
    const scale = this.#scales[interfaceId];
    if (interfaceInfo === undefined || scale === undefined) return this.#unknownInterface(type, interfaceId);
    const capturedLength = view.getUint32(at + 12, littleEndian);
    if (capturedLength > room) {
      return this.#bad(type, `claims ${capturedLength} captured bytes, has room for ${room}`);
    }
    scale.split(view.getUint32(at + 4, littleEndian), view.getUint32(at + 8, littleEndian));
    const data = at + BodyLength.ENHANCED_PACKET;
    const record = new PacketRecord(
      bytes,
      data,
      capturedLength,
      view.getUint32(at + 16, littleEndian),
      scale.seconds,
      scale.nanoseconds,
      true,
      section,
      interfaceInfo,
      this.#window.offset,
    );
    if (obsolete) {
      const drops = view.getUint16(at + 2, littleEndian);
      // 0xffff: not known.
      if (drops !== 0xffff) record.dropCount = drops;
    }
    const options = data + padded(capturedLength);
    if (end - options < 4) return record;
    return this.#readPacketOptions(record, type, options, end) ?? record;
  }

  #readPacketOptions(record: PacketRecord, type: number, at: number, end: number): CaptureError | undefined {
    const { view, bytes } = this.#window;
    const options = this.#options(type, at, end);
    if (options instanceof CaptureError) return options;
    const comments: string[] = [];
    for (const option of options) {
      if (option.code === OptionCode.COMMENT) {
        comments.push(optionText(bytes, option));
      } else if (option.code === OptionCode.EPB_FLAGS) {
        if (option.length !== 4) return this.#badOption(type, option, 4);
        record.flags = view.getUint32(option.start, this.#littleEndian);
      } else if (option.code === OptionCode.EPB_DROPCOUNT && type === BlockType.ENHANCED_PACKET) {
        if (option.length !== 8) return this.#badOption(type, option, 8);
        record.dropCount = Number(view.getBigUint64(option.start, this.#littleEndian));
      }
    }
    if (comments.length > 0) record.comments = comments;
    return undefined;
  }

  /** Simple Packet Block: the section's first interface, no time, and a length that is implied. */
  #readSimplePacket(at: number, end: number): PacketRecord | CaptureError {
    const room = end - at - BodyLength.SIMPLE_PACKET;
    if (room < 0) return this.#tooShort(BlockType.SIMPLE_PACKET, BodyLength.SIMPLE_PACKET, end - at);
    const { view, bytes, offset } = this.#window;
    const section = this.section!;
    const interfaceInfo = section.interfaces[0];
    if (interfaceInfo === undefined) return this.#unknownInterface(BlockType.SIMPLE_PACKET, 0);
    const originalLength = view.getUint32(at, this.#littleEndian);
    const { snapLength } = interfaceInfo;
    const capturedLength = snapLength === 0 ? originalLength : Math.min(originalLength, snapLength);
    if (capturedLength > room) {
      return this.#bad(BlockType.SIMPLE_PACKET, `must hold ${capturedLength} bytes, has room for ${room}`);
    }
    const data = at + BodyLength.SIMPLE_PACKET;
    return new PacketRecord(
      bytes,
      data,
      capturedLength,
      originalLength,
      0,
      0,
      false,
      section,
      interfaceInfo,
      offset,
    );
  }

  #readSectionHeader(at: number, end: number): CaptureError | undefined {
    const { view, bytes } = this.#window;
    const littleEndian = this.#littleEndian;
    const type = BlockType.SECTION_HEADER;
    if (end - at < BodyLength.SECTION_HEADER)
      return this.#tooShort(type, BodyLength.SECTION_HEADER, end - at);
    const versionMajor = view.getUint16(at + 4, littleEndian);
    const versionMinor = view.getUint16(at + 6, littleEndian);
    // Some writers write 1.2 and mean 1.0: draft-ietf-opsawg-pcapng §4.1.
    if (versionMajor !== 1 || (versionMinor !== 0 && versionMinor !== 2)) {
      const version = `has version ${versionMajor}.${versionMinor}; only 1.0 is read`;
      return this.#error(CaptureErrorCode.VERSION, type, version);
    }
    const options = this.#options(type, at + BodyLength.SECTION_HEADER, end);
    if (options instanceof CaptureError) return options;
    this.#text = 0;
    const tooMuch = this.#keepText(type, options);
    if (tooMuch !== undefined) return tooMuch;
    this.section = {
      index: this.#sectionCount++,
      format: 'pcapng',
      byteOrder: littleEndian ? 'little' : 'big',
      versionMajor,
      versionMinor,
      interfaces: [],
      ...readSection(bytes, options),
    };
    this.#scales = [];
    return undefined;
  }

  #readInterfaceDescription(at: number, end: number): CaptureError | undefined {
    const { view, bytes } = this.#window;
    const type = BlockType.INTERFACE_DESCRIPTION;
    const interfaces = this.section!.interfaces;
    if (interfaces.length >= MAX_INTERFACES) {
      const claim = `is one more than the ${MAX_INTERFACES} that are kept of a section`;
      return this.#error(CaptureErrorCode.TOO_MANY_INTERFACES, type, claim);
    }
    const fixed = BodyLength.INTERFACE_DESCRIPTION;
    if (end - at < fixed) return this.#tooShort(type, fixed, end - at);
    const options = this.#options(type, at + fixed, end);
    if (options instanceof CaptureError) return options;
    const tooMuch = this.#keepText(type, options);
    if (tooMuch !== undefined) return tooMuch;
    const described = readInterface(bytes, view, options, this.#littleEndian);
    if ('badOption' in described) return this.#badOption(type, described.badOption, described.expected);
    const interfaceInfo: InterfaceInfo = {
      id: interfaces.length,
      linkType: view.getUint16(at, this.#littleEndian),
      snapLength: view.getUint32(at + 4, this.#littleEndian),
      ...described,
    };
    interfaces.push(interfaceInfo);
    this.#scales.push(
      new TimestampScale(interfaceInfo.timestampUnitsPerSecond, interfaceInfo.timestampOffset),
    );
    return undefined;
  }

  #readInterfaceStatistics(at: number, end: number): CaptureError | undefined {
    const { view } = this.#window;
    const type = BlockType.INTERFACE_STATISTICS;
    const fixed = BodyLength.INTERFACE_STATISTICS;
    if (end - at < fixed) return this.#tooShort(type, fixed, end - at);
    const interfaceId = view.getUint32(at, this.#littleEndian);
    const interfaceInfo = this.section!.interfaces[interfaceId];
    const scale = this.#scales[interfaceId];
    if (interfaceInfo === undefined || scale === undefined) return this.#unknownInterface(type, interfaceId);
    const options = this.#options(type, at + fixed, end);
    if (options instanceof CaptureError) return options;
    const statistics = readStatistics(view, at + 4, options, scale, this.#littleEndian);
    if ('badOption' in statistics) return this.#badOption(type, statistics.badOption, statistics.expected);
    interfaceInfo.statistics = statistics;
    return undefined;
  }

  /** Counts the bytes that these options add to the text that is kept. */
  #keepText(type: number, options: readonly BlockOption[]): CaptureError | undefined {
    for (const option of options) this.#text += option.length + 4;
    if (this.#text <= MAX_TEXT) return undefined;
    const claim = `brings the names and comments of the section to more than the ${MAX_TEXT} bytes that are kept`;
    return this.#error(CaptureErrorCode.TOO_LARGE, type, claim);
  }

  #options(type: number, at: number, end: number): BlockOption[] | CaptureError {
    const options = readOptions(this.#window.view, at, end, this.#littleEndian);
    return typeof options === 'string'
      ? this.#error(CaptureErrorCode.BAD_OPTION, type, `has damaged options: ${options}`)
      : options;
  }

  #badOption(type: number, option: BlockOption, expected: number): CaptureError {
    const claim = `has option ${option.code} with ${option.length} bytes, expected ${expected}`;
    return this.#error(CaptureErrorCode.BAD_OPTION, type, claim);
  }

  #unknownInterface(type: number, interfaceId: number): CaptureError {
    const known = this.section?.interfaces.length ?? 0;
    const claim = `refers to interface ${interfaceId}, ${known} are described`;
    return this.#error(CaptureErrorCode.UNKNOWN_INTERFACE, type, claim);
  }

  #tooShort(type: number, expected: number, have: number): CaptureError {
    return this.#bad(type, `has a body of ${have} bytes, its fields need ${expected}`);
  }

  #bad(type: number, claim: string): CaptureError {
    return this.#error(CaptureErrorCode.BAD_BLOCK, type, claim);
  }

  #error(code: CaptureErrorCode, type: number, claim: string): CaptureError {
    const { offset } = this.#window;
    return new CaptureError(code, offset, `the ${blockName(type)} at byte ${offset} ${claim}`);
  }
}
