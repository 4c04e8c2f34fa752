/** Records of a reader: packets, and the interfaces and sections that the file describes. */

export type CaptureFormat = 'pcap' | 'pcapng';
export type ByteOrder = 'little' | 'big';
export type Direction = 'inbound' | 'outbound';

/** Counters of an interface (pcapng Interface Statistics Block). Exact up to 2^53. */
export interface InterfaceStatistics {
  /** When the counters were read, nanoseconds since 1970. */
  readonly timestamp: bigint;
  /** Start and end of the capture, nanoseconds since 1970. */
  readonly startTime?: bigint;
  readonly endTime?: bigint;
  /** Packets that reached the interface. */
  readonly received?: number;
  /** Packets lost by the interface for want of resources. */
  readonly dropped?: number;
  readonly filterAccepted?: number;
  /** Packets lost by the operating system. */
  readonly osDropped?: number;
  readonly delivered?: number;
}

/** An interface of a section. A classic pcap file has exactly one, made from its file header. */
export interface InterfaceInfo {
  /** Position in `SectionInfo.interfaces`; what `interfaceId` in a packet means. */
  readonly id: number;
  /** A `LinkType` number. */
  readonly linkType: number;
  /** Most bytes kept of a packet; 0 means no limit. */
  readonly snapLength: number;
  /** Units of the file's timestamps: 10^6 for µs, 10^9 for ns, 2^n for binary resolutions. */
  readonly timestampUnitsPerSecond: bigint;
  /** Seconds that were added to each timestamp of the file (if_tsoffset). */
  readonly timestampOffset: bigint;
  /** Bytes of frame check sequence at each packet's end; undefined when the file does not have it. */
  readonly fcsLength?: number;
  readonly name?: string;
  readonly description?: string;
  /** The capture filter, as text. */
  readonly filter?: string;
  readonly hardware?: string;
  readonly os?: string;
  /** Bits per second. */
  readonly speed?: bigint;
  readonly comments: readonly string[];
  /** The latest counters read so far; they usually stand at the end of the file. */
  statistics?: InterfaceStatistics;
}

/** A section of a pcapng file. A classic pcap file is one section. */
export interface SectionInfo {
  /** 0 for the first section of the input. */
  readonly index: number;
  readonly format: CaptureFormat;
  readonly byteOrder: ByteOrder;
  readonly versionMajor: number;
  readonly versionMinor: number;
  /** Grows while the section is read: pcapng may describe an interface anywhere before its use. */
  readonly interfaces: InterfaceInfo[];
  readonly hardware?: string;
  readonly os?: string;
  readonly application?: string;
  readonly comments: readonly string[];
}

const noComments: readonly string[] = Object.freeze([]);

/** The method by which Node's console shows an object. */
const inspect: unique symbol = Symbol.for('nodejs.util.inspect.custom');

/**
 * One captured packet.
 *
 * Lifetime: the bytes are a view of the chunk given to `push` (or of the parser's own memory when the
 * packet straddled two chunks). The parser never writes to them, so they hold for as long as the
 * caller leaves its chunk alone; keeping a record keeps its whole chunk. `data.slice()` is a copy.
 *
 * Hot loops read `bytes`, `byteOffset`, `seconds` and `nanoseconds`, which are plain fields; `data` and
 * `timestamp` make an object when asked.
 */
export class PacketRecord {
  /** Holds the packet at `byteOffset` … `byteOffset + capturedLength`, and other packets around it. */
  readonly bytes: Uint8Array;
  readonly byteOffset: number;
  /** Bytes of the packet in the file. */
  readonly capturedLength: number;
  /** Bytes the packet had on the wire. */
  readonly originalLength: number;
  /** Whole seconds since 1970, rounded down; 0 when `hasTimestamp` is false. */
  readonly seconds: number;
  /** Rest of the timestamp, 0 … 999,999,999. Finer file resolutions are rounded down. */
  readonly nanoseconds: number;
  /** False only for pcapng Simple Packet Blocks, which carry no time. */
  readonly hasTimestamp: boolean;
  readonly section: SectionInfo;
  readonly interface: InterfaceInfo;
  /** Byte of the (inflated) input at which the packet's header or block starts. */
  readonly fileOffset: number;
  comments: readonly string[] = noComments;
  /** The link-layer flags word (epb_flags; draft-ietf-opsawg-pcapng §4.3.1), when present. */
  flags: number | undefined = undefined;
  /** Packets lost between this one and the one before it on the interface, when the file counts them. */
  dropCount: number | undefined = undefined;

  constructor(
    bytes: Uint8Array,
    byteOffset: number,
    capturedLength: number,
    originalLength: number,
    seconds: number,
    nanoseconds: number,
    hasTimestamp: boolean,
    section: SectionInfo,
    interfaceInfo: InterfaceInfo,
    fileOffset: number,
  ) {
    this.bytes = bytes;
    this.byteOffset = byteOffset;
    this.capturedLength = capturedLength;
    this.originalLength = originalLength;
    this.seconds = seconds;
    this.nanoseconds = nanoseconds;
    this.hasTimestamp = hasTimestamp;
    this.section = section;
    this.interface = interfaceInfo;
    this.fileOffset = fileOffset;
  }

  /** The captured bytes: a new view at every call, no copy. */
  get data(): Uint8Array {
    return this.bytes.subarray(this.byteOffset, this.byteOffset + this.capturedLength);
  }

  /** Nanoseconds since 1970. */
  get timestamp(): bigint {
    return BigInt(this.seconds) * 1_000_000_000n + BigInt(this.nanoseconds);
  }

  /** A `LinkType` number. */
  get linkType(): number {
    return this.interface.linkType;
  }

  get interfaceId(): number {
    return this.interface.id;
  }

  /** Direction of the packet, when the file has it (bits 0 and 1 of `flags`). */
  get direction(): Direction | undefined {
    const bits = (this.flags ?? 0) & 3;
    return bits === 1 ? 'inbound' : bits === 2 ? 'outbound' : undefined;
  }

  /** One line for console.log: `bytes` holds other packets, too. */
  [inspect](): string {
    const { capturedLength, originalLength, hasTimestamp, linkType, interfaceId, comments } = this;
    const length =
      capturedLength < originalLength ? `${capturedLength} of ${originalLength}` : `${originalLength}`;
    const time = hasTimestamp ? `timestamp: ${this.timestamp}n, ` : '';
    const remarks = comments.length > 0 ? `, comments: ${comments.length}` : '';
    return `PacketRecord { ${time}${length} bytes, linkType: ${linkType}, interface: ${interfaceId}${remarks} }`;
  }
}
