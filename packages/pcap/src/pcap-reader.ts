import { CaptureError, CaptureErrorCode } from './errors.ts';
import type { FormatReader } from './format-reader.ts';
import {
  FCS_LENGTH_PRESENT,
  LINK_TYPE_MASK,
  PCAP_HEADER,
  PCAP_PACKET_HEADER,
  PCAP_VERSION_MAJOR,
  PCAP_VERSION_MINOR,
} from './pcap-format.ts';
import { type InterfaceInfo, PacketRecord, type SectionInfo } from './record.ts';
import type { ByteWindow } from './window.ts';

/** Reads classic pcap, given the byte order and unit of its magic number. */
export class PcapReader implements FormatReader {
  reading = 'file header';
  section: SectionInfo | undefined;
  readonly #window: ByteWindow;
  readonly #littleEndian: boolean;
  readonly #unitsPerSecond: number;
  readonly #nanosecondsPerUnit: number;
  readonly #maxBlockLength: number;

  constructor(window: ByteWindow, littleEndian: boolean, unitsPerSecond: number, maxBlockLength: number) {
    this.#window = window;
    this.#littleEndian = littleEndian;
    this.#unitsPerSecond = unitsPerSecond;
    this.#nanosecondsPerUnit = 1_000_000_000 / unitsPerSecond;
    this.#maxBlockLength = maxBlockLength;
  }

  read(): PacketRecord | CaptureError | undefined {
    if (this.section === undefined) {
      const header = this.#readFileHeader();
      if (header === undefined || header instanceof CaptureError) return header;
      this.section = header;
    }
    return this.#readPacket(this.section, this.section.interfaces[0]);
  }

  #readPacket(section: SectionInfo, interfaceInfo: InterfaceInfo): PacketRecord | CaptureError | undefined {
    const window = this.#window;
    if (!window.require(PCAP_PACKET_HEADER)) {
      this.reading = 'packet header';
      return undefined;
    }
    const capturedLength = window.view.getUint32(window.start + 8, this.#littleEndian);
    if (capturedLength > this.#maxBlockLength) {
      return new CaptureError(
        CaptureErrorCode.TOO_LARGE,
        window.offset,
        `the packet header at byte ${window.offset} claims ${capturedLength} captured bytes, more than the ${this.#maxBlockLength} allowed`,
      );
    }
    if (!window.require(PCAP_PACKET_HEADER + capturedLength)) {
      this.reading = 'packet';
      return undefined;
    }
    const { view, start } = window;
    let seconds = view.getUint32(start, this.#littleEndian);
    let fraction = view.getUint32(start + 4, this.#littleEndian);
    if (fraction >= this.#unitsPerSecond) {
      // Some writers let the fraction run over; carry, so that nanoseconds keep their range.
      seconds += Math.floor(fraction / this.#unitsPerSecond);
      fraction %= this.#unitsPerSecond;
    }
    const record = new PacketRecord(
      window.bytes,
      start + PCAP_PACKET_HEADER,
      capturedLength,
      view.getUint32(start + 12, this.#littleEndian),
      seconds,
      fraction * this.#nanosecondsPerUnit,
      true,
      section,
      interfaceInfo,
      window.offset,
    );
    window.start = start + PCAP_PACKET_HEADER + capturedLength;
    return record;
  }

  #readFileHeader(): SectionInfo | CaptureError | undefined {
    const window = this.#window;
    if (!window.require(PCAP_HEADER)) return undefined;
    const { view, start } = window;
    const littleEndian = this.#littleEndian;
    const versionMajor = view.getUint16(start + 4, littleEndian);
    const versionMinor = view.getUint16(start + 6, littleEndian);
    // Before 2.4 the two length fields of a packet stood in another order, or in either.
    if (versionMajor !== PCAP_VERSION_MAJOR || versionMinor !== PCAP_VERSION_MINOR) {
      return new CaptureError(
        CaptureErrorCode.VERSION,
        window.offset,
        `pcap version ${versionMajor}.${versionMinor} is not read, only ${PCAP_VERSION_MAJOR}.${PCAP_VERSION_MINOR}`,
      );
    }
    const linkWord = view.getUint32(start + 20, littleEndian);
    const interfaceInfo: InterfaceInfo = {
      id: 0,
      linkType: linkWord & LINK_TYPE_MASK,
      snapLength: view.getUint32(start + 16, littleEndian),
      timestampUnitsPerSecond: BigInt(this.#unitsPerSecond),
      timestampOffset: 0n,
      // The length is in units of 16 bits: draft-ietf-opsawg-pcap §4.
      ...(linkWord & FCS_LENGTH_PRESENT ? { fcsLength: (linkWord >>> 28) * 2 } : {}),
      comments: [],
    };
    window.start += PCAP_HEADER;
    return {
      index: 0,
      format: 'pcap',
      byteOrder: littleEndian ? 'little' : 'big',
      versionMajor,
      versionMinor,
      interfaces: [interfaceInfo],
      comments: [],
    };
  }
}
