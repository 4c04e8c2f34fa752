import {
  type CaptureEncoder,
  checkInteger,
  OutputBuffer,
  type PacketInput,
  packetNanoseconds,
  packetSeconds,
  UINT32_MAX,
} from './encoder.ts';
import {
  DEFAULT_SNAP_LENGTH,
  LINK_TYPE_MASK,
  PCAP_HEADER,
  PCAP_PACKET_HEADER,
  PCAP_VERSION_MAJOR,
  PCAP_VERSION_MINOR,
  PcapMagic,
} from './pcap-format.ts';
import type { ByteOrder } from './record.ts';

export interface PcapOptions {
  /** A `LinkType` number. */
  readonly linkType: number;
  /** Most bytes kept of a packet, 1 or more; 262,144 unless given. */
  readonly snapLength?: number;
  /** Unit of the timestamps; `nano` unless given. `micro` rounds down, for old readers. */
  readonly resolution?: 'micro' | 'nano';
  /** `little` unless given. */
  readonly byteOrder?: ByteOrder;
}

/** Writes classic pcap 2.4 (draft-ietf-opsawg-pcap). */
export class PcapEncoder implements CaptureEncoder {
  readonly format = 'pcap';
  readonly #out = new OutputBuffer();
  readonly #littleEndian: boolean;
  readonly #snapLength: number;
  readonly #nanosecondsPerUnit: number;

  /** @throws RangeError for a link type or snapshot length that does not fit */
  constructor(options: PcapOptions) {
    const { linkType, snapLength = DEFAULT_SNAP_LENGTH, resolution = 'nano', byteOrder = 'little' } = options;
    checkInteger('linkType', linkType, 0, LINK_TYPE_MASK);
    checkInteger('snapLength', snapLength, 1, UINT32_MAX);
    this.#littleEndian = byteOrder === 'little';
    this.#snapLength = snapLength;
    this.#nanosecondsPerUnit = resolution === 'nano' ? 1 : 1000;

    const out = this.#out;
    const littleEndian = this.#littleEndian;
    out.reserve(PCAP_HEADER);
    const magic = resolution === 'nano' ? PcapMagic.NANOSECONDS : PcapMagic.MICROSECONDS;
    out.view.setUint32(0, magic, littleEndian);
    out.view.setUint16(4, PCAP_VERSION_MAJOR, littleEndian);
    out.view.setUint16(6, PCAP_VERSION_MINOR, littleEndian);
    out.view.setUint32(16, snapLength, littleEndian);
    out.view.setUint32(20, linkType, littleEndian);
    out.length = PCAP_HEADER;
  }

  get pending(): number {
    return this.#out.length;
  }

  packet(packet: PacketInput): void {
    const { data, originalLength = data.length, interfaceId = 0 } = packet;
    const seconds = packetSeconds(packet);
    const nanoseconds = packetNanoseconds(packet);
    checkInteger('seconds', seconds, 0, UINT32_MAX);
    checkInteger('nanoseconds', nanoseconds, 0, 999_999_999);
    checkInteger('originalLength', originalLength, 0, UINT32_MAX);
    checkInteger('interfaceId of a classic pcap', interfaceId, 0, 0);

    const out = this.#out;
    const littleEndian = this.#littleEndian;
    const kept = data.length > this.#snapLength ? data.subarray(0, this.#snapLength) : data;
    out.reserve(PCAP_PACKET_HEADER + kept.length);
    const { view, length: at } = out;
    view.setUint32(at, seconds, littleEndian);
    view.setUint32(at + 4, Math.floor(nanoseconds / this.#nanosecondsPerUnit), littleEndian);
    view.setUint32(at + 8, kept.length, littleEndian);
    view.setUint32(at + 12, originalLength, littleEndian);
    out.length = at + PCAP_PACKET_HEADER;
    out.append(kept, kept.length);
  }

  take(): Uint8Array {
    return this.#out.take();
  }
}
