/** Captured frames in, RoCE packets out: decoding, super-packets, verdicts, and the counts of the summary. */
import type { PacketRecord, SectionInfo } from '@node-roce/pcap';
import { ICRC_BYTES, UDP_BYTES, u16 } from '@node-roce/wire';
import { AddressTable } from './addresses.ts';
import { FrameDecoder } from './decode.ts';
import { contradictions, FOREIGN, isVendorOpcode } from './foreign.ts';
import type { IcmpError } from './icmp.ts';
import {
  type Crc32,
  isIcrcOfRxe,
  isIcrcRight,
  isIcrcRightBehindExtensions,
  isNativeIcrcRight,
} from './icrc-check.ts';
import { inspect } from './inspect.ts';
import { InterfaceCounts } from './interface-counts.ts';
import { OtherFrames } from './nothing.ts';
import { IcrcVerdict, RocePacket } from './packet.ts';
import type { PauseFrame } from './pause.ts';
import type { Refusal } from './refusal.ts';
import { sflowSamples } from './sflow.ts';
import { SnapLength } from './snap-length.ts';
import type { CaptureSummary } from './summary.ts';
import { isSurelySingle, MAX_PACKET_BYTES, SuperPacketSplitter } from './super-packet.ts';
import { UdpPorts } from './udp-ports.ts';

/** A frame without a packet, or a part of a super-packet that is not one. */
export interface RefusedFrame {
  /** From 1. */
  frame: number;
  reason: Refusal;
  /** The frame's content instead, in words. */
  detail: string;
  /** Where in the frame. */
  offset: number;
}

export interface PacketReaderOptions {
  /** False leaves all ICRCs unchecked, except those by which super-packets are recognized. Default true. */
  readonly icrc?: boolean | undefined;
  /** A CRC-32 that is faster than one by tables, as zlib's is. */
  readonly crc32?: Crc32 | undefined;
  /** UDP ports of RoCE in addition to 4791. Others are found by themselves where ICRCs are right. */
  readonly ports?: readonly number[] | undefined;
  /**
   * Called for each packet, in the order of the capture. The packet is one object, used again for each: its
   * fields, and the bytes it refers to, hold until the function returns. `reader.record` is its frame.
   */
  readonly onPacket?: ((packet: RocePacket, reader: PacketReader) => void) | undefined;
  /** Called for each pause frame, PFC included. The frame is one object, used again for each. */
  readonly onPause?: ((pause: PauseFrame, reader: PacketReader) => void) | undefined;
  /** Called for each ICMP error about a RoCE packet. The error is one object, used again for each. */
  readonly onIcmp?: ((error: IcmpError, reader: PacketReader) => void) | undefined;
  /** Called for each frame without a packet, including those that are not RoCE. */
  readonly onRefused?: ((refused: RefusedFrame, reader: PacketReader) => void) | undefined;
}

/** Sections whose counters are not added up yet; a file may have many, one after the other. */
const MAX_OPEN_SECTIONS = 256;

/** Decodes frames one by one, splits super-packets, checks ICRCs and calls back for each packet. */
export class PacketReader {
  /** The addresses behind the numbers in packets. */
  readonly addresses: AddressTable = new AddressTable();
  /** The frame at hand. */
  record!: PacketRecord;
  /** Frames so far. */
  frames = 0;
  rocePackets = 0;
  otherFrames = 0;
  pauseFrames = 0;
  icmpErrors = 0;
  /** Of the packets: samples of the traffic (sFlow). */
  sampledPackets = 0;
  readonly #options: PacketReaderOptions;
  readonly #packet = new RocePacket();
  readonly #ports: UdpPorts;
  readonly #decoder: FrameDecoder;
  readonly #others = new OtherFrames();
  readonly #splitter: SuperPacketSplitter;
  readonly #checks: boolean;
  readonly #icrcs = [0, 0, 0];
  readonly #damaged: Record<string, number> = {};
  readonly #interfaces = new InterfaceCounts();
  #section: SectionInfo | undefined;
  /** Those that may go on; their interfaces' counters come last. */
  readonly #sections = new Set<SectionInfo>();
  #cutFrames = 0;
  #cutHeaders = 0;
  #superPackets = 0;
  readonly #snap = new SnapLength();
  #told = 0;
  #start: { seconds: number; nanoseconds: number } | undefined;
  #time = 0;
  #least = 0;
  #most = 0;

  constructor(options: PacketReaderOptions = {}) {
    this.#options = options;
    this.#checks = options.icrc ?? true;
    this.#splitter = new SuperPacketSplitter(options.crc32);
    this.#ports = new UdpPorts(options.ports, options.crc32);
    this.#decoder = new FrameDecoder(this.#packet, this.addresses, this.#ports);
  }

  /** One line for console.log: what was read so far. */
  [inspect](): string {
    const { frames, rocePackets, otherFrames, pauseFrames, icmpErrors } = this;
    return `PacketReader { frames: ${frames}, rocePackets: ${rocePackets}, otherFrames: ${otherFrames}, pauseFrames: ${pauseFrames}, icmpErrors: ${icmpErrors} }`;
  }

  /** Takes the next frame. Never throws for what stands in it. */
  frame(record: PacketRecord): void {
    this.record = record;
    this.frames++;
    if (record.section !== this.#section) this.#enter(record.section);
    if (record.capturedLength < record.originalLength) this.#cutFrames++;
    if (record.dropCount !== undefined) this.#told += record.dropCount;
    this.#setTime(record);
    const packet = this.#packet;
    packet.frame = this.frames;
    packet.interfaceId = record.interface.id;
    packet.time = this.#time;
    const { bytes, byteOffset } = record;
    const end = byteOffset + record.capturedLength;
    if (this.#decoder.decode(bytes, byteOffset, end, record.interface.linkType)) this.#decoded(end);
    else if (this.#decoder.refusal === 'samples') this.#samples(bytes, end);
    else if (this.#decoder.refusal === 'unknown-opcode') this.#unknownOpcode();
    else this.#refuse();
  }

  /** A summary of the capture so far. */
  summary(file?: string, damage?: string): CaptureSummary {
    const { format, linkTypes, dropped } = this.#interfaces.until(this.#sections);
    const [ok = 0, bad = 0, none = 0] = this.#icrcs;
    return {
      file,
      format,
      linkTypes,
      startTime: this.startTime,
      duration: this.#most - this.#least,
      frames: this.frames,
      rocePackets: this.rocePackets,
      otherFrames: this.otherFrames,
      pauseFrames: this.pauseFrames,
      icmpErrors: this.icmpErrors,
      sampledPackets: this.sampledPackets,
      otherKinds: this.#others.counts(),
      otherPorts: [...this.#ports.found],
      damaged: { ...this.#damaged },
      cutFrames: this.#cutFrames,
      cutHeaders: this.#cutHeaders,
      superPackets: this.#superPackets,
      neededSnapLength: this.#snap.needed,
      icrc: { ok, bad, none },
      // By the interfaces' counters; where there are none, by the counts in the packets' records.
      droppedByCapture: dropped ?? (this.#told > 0 ? this.#told : undefined),
      damage,
    };
  }

  /** @param end of what was captured */
  #decoded(end: number): void {
    const { version, extended } = this.#packet;
    // Segmentation offload knows no extension headers.
    if (version !== 2 || extended) this.#single(end);
    else this.#datagram(end);
  }

  #samples(bytes: Uint8Array, end: number): void {
    const { offset, detail } = this.#decoder;
    let found = 0;
    for (const sample of sflowSamples(bytes, offset, end)) {
      if (this.#decoder.decodeSample(bytes, sample.at, sample.end, sample.linkType)) {
        found++;
        this.sampledPackets++;
        this.#decoded(sample.end);
      } else if (this.#decoder.refusal !== 'not-roce') {
        found++;
        this.#refuse();
      }
    }
    if (found > 0) return;
    this.#decoder.offset = offset;
    this.#refuse('not-roce', detail);
  }

  /** A datagram that may hold several packets. */
  #datagram(end: number): void {
    const packet = this.#packet;
    if (!this.#checks && isSurelySingle(packet)) {
      this.#give(IcrcVerdict.NONE);
      return;
    }
    const length = packet.info.headerLength + packet.payloadLength + packet.padCount + ICRC_BYTES;
    const whole = packet.bth + length <= end;
    if (whole && this.#isRight(packet)) {
      this.#give(this.#checks ? IcrcVerdict.OK : IcrcVerdict.NONE);
      return;
    }
    // A frame that was cut, and is no longer than a packet can be, is taken for one packet.
    const size = !whole && length <= MAX_PACKET_BYTES ? 0 : this.#splitter.segmentSize(packet, length, end);
    if (size > 0) this.#split(size, length, end);
    else if (whole) this.#give(this.#checks ? this.#explain(packet) : IcrcVerdict.NONE);
    else if (length <= MAX_PACKET_BYTES) this.#give(IcrcVerdict.NONE);
    else this.#refuse('cut-super-packet', 'a super-packet that was cut inside its first packet');
  }

  #single(end: number): void {
    const packet = this.#packet;
    const whole = packet.payload + packet.payloadLength + packet.padCount + ICRC_BYTES <= end;
    if (!whole || !this.#checks) this.#give(IcrcVerdict.NONE);
    else this.#give(this.#isRight(packet) ? IcrcVerdict.OK : this.#explain(packet));
  }

  #isRight(packet: RocePacket): boolean {
    const { bytes, ip, version, bth, end } = packet;
    if (version === 0) return isNativeIcrcRight(packet);
    if (packet.extended) return isIcrcRightBehindExtensions(packet);
    return isIcrcRight(bytes, ip, version, bytes, bth, end, this.#options.crc32);
  }

  /** The verdict on an ICRC that is not right: a FLUSH of rxe is whole all the same. */
  #explain(packet: RocePacket): number {
    packet.flushTwice = packet.info.isFlush && isIcrcOfRxe(packet);
    return packet.flushTwice ? IcrcVerdict.OK : IcrcVerdict.BAD;
  }

  /** Gives the packets of a super-packet, the last ones only as far as the capture has them. */
  #split(size: number, length: number, end: number): void {
    const packet = this.#packet;
    const first = packet.bth;
    const id = packet.ipId;
    this.#superPackets++;
    packet.parts = Math.ceil(length / size);
    for (let part = 0; part < packet.parts; part++) {
      const at = first + part * size;
      const sent = Math.min(size, length - part * size);
      // The parts behind the captured bytes count as missed, as any packet that the capture did not see.
      if (at >= end) break;
      packet.part = part;
      if (!this.#decoder.bth(packet.bytes, at, end, at + sent)) {
        this.#refuse();
        continue;
      }
      const verdict = this.#splitter.verdict(packet, sent, id, end);
      this.#give(this.#checks ? verdict : IcrcVerdict.NONE);
    }
  }

  #give(verdict: number): void {
    if (verdict !== IcrcVerdict.OK && this.#isForeign(verdict)) {
      this.#decoder.offset = this.#packet.bth;
      this.#refuse('not-roce', FOREIGN);
      return;
    }
    this.#packet.icrc = verdict;
    this.#icrcs[verdict]++;
    if (this.#packet.payload > this.#packet.end) this.#cutHeaders++;
    this.rocePackets++;
    this.#snap.packet(this.#packet);
    this.#options.onPacket?.(this.#packet, this);
  }

  /** Without an ICRC it takes more. */
  #isForeign(verdict: number): boolean {
    const { bytes, bth, info, payloadLength, padCount, sourcePort, version, parts } = this.#packet;
    if (version !== 2 || parts > 1) return false;
    const length = info.headerLength + payloadLength + padCount + ICRC_BYTES;
    return contradictions(bytes, bth, length, sourcePort) >= (verdict === IcrcVerdict.BAD ? 2 : 3);
  }

  /** The refusal of an opcode that is not in the table: a manufacturer's, another protocol's, or damage. */
  #unknownOpcode(): void {
    const { bytes, udp, version, sourcePort } = this.#packet;
    const { offset, detail } = this.#decoder;
    const length = version === 2 ? u16(bytes, udp + 4) - UDP_BYTES : 0;
    if (version === 2 && contradictions(bytes, offset, length, sourcePort) >= 2)
      this.#refuse('not-roce', FOREIGN);
    else if (isVendorOpcode(bytes[offset])) this.#refuse('vendor-opcode', detail);
    else this.#refuse('unknown-opcode', detail);
  }

  #refuse(reason: Refusal = this.#decoder.refusal, detail = this.#decoder.detail): void {
    if (reason === 'pause') {
      this.#pause();
      return;
    }
    if (reason === 'icmp') {
      this.#icmp();
      return;
    }
    if (reason === 'not-roce') {
      this.otherFrames++;
      this.#others.add(detail);
    } else if (reason === 'cut-super-packet') this.#snap.superPacket();
    else if (reason === 'truncated') this.#snap.cut(this.record.capturedLength);
    if (reason !== 'not-roce') this.#damaged[reason] = (this.#damaged[reason] ?? 0) + 1;
    if (this.#options.onRefused === undefined) return;
    const offset = this.#decoder.offset - this.record.byteOffset;
    this.#options.onRefused({ frame: this.frames, reason, detail, offset }, this);
  }

  #pause(): void {
    this.pauseFrames++;
    const { pause } = this.#decoder;
    pause.frame = this.frames;
    pause.time = this.#time;
    // A number as long as it is one exactly.
    pause.speed = Number(this.record.interface.speed ?? 0);
    this.#options.onPause?.(pause, this);
  }

  #icmp(): void {
    this.icmpErrors++;
    const { icmp } = this.#decoder;
    icmp.frame = this.frames;
    icmp.time = this.#time;
    this.#options.onIcmp?.(icmp, this);
  }

  /** Sections follow one another; those of several files take turns. */
  #enter(section: SectionInfo): void {
    this.#section = section;
    this.#sections.add(section);
    if (this.#sections.size <= MAX_OPEN_SECTIONS) return;
    const [oldest] = this.#sections;
    this.#sections.delete(oldest);
    this.#interfaces.add(oldest);
  }

  /** Frames without a time (pcapng's simple packets) have that of the one before. */
  #setTime({ hasTimestamp, seconds, nanoseconds }: PacketRecord): void {
    if (!hasTimestamp) return;
    this.#start ??= { seconds, nanoseconds };
    const time = (seconds - this.#start.seconds) * 1e9 + (nanoseconds - this.#start.nanoseconds);
    this.#time = time;
    if (time < this.#least) this.#least = time;
    else if (time > this.#most) this.#most = time;
  }

  /** The time of the first frame, in UTC (ISO 8601, nanoseconds); undefined before it, and where it is no date. */
  get startTime(): string | undefined {
    if (this.#start === undefined) return undefined;
    const { seconds, nanoseconds } = this.#start;
    const date = new Date(seconds * 1000);
    if (Number.isNaN(date.getTime())) return undefined;
    return `${date.toISOString().slice(0, -5)}.${String(nanoseconds).padStart(9, '0')}Z`;
  }
}
