/** A capture in a test, packet by packet: two hosts, times in microseconds, opcodes by name. */
import {
  type CmInput,
  encodeCm,
  ICRC_BYTES,
  icrcV2,
  Opcode,
  type OpcodeName,
  opcodeInfo,
  ROCE_UDP_PORT,
  setU16,
  setU24,
  setU32,
  writeBth,
  writeIcrc,
} from '@node-roce/wire';
import type { Analysis, Grade, Message, RetransmitCause } from '../src/flow/analysis.ts';
import { FlowAnalyzer } from '../src/flow/analyzer.ts';
import { PacketReader } from '../src/read/reader.ts';
import { rawRecord } from './records.ts';

/** Queue pairs of the two ends. */
export const QP = { a: 0x11, b: 0x12 } as const;

export interface PacketOptions {
  psn?: number;
  payload?: number;
  /** The payload's first bytes; the rest is zero. */
  data?: Uint8Array;
  ackReq?: boolean;
  /** AETH: 0x1f is an ACK without limits, 0x60 a sequence NAK, 0x2c an RNR NAK of 640 µs. */
  syndrome?: number;
  /** Of the RETH. */
  length?: number;
  va?: bigint;
  /** IPv4 Identification; by default counted up by each end. `false`: IPv6. */
  id?: number | false;
  migReq?: boolean;
  ecn?: number;
  badIcrc?: boolean;
  destQp?: number;
  /** UDP source port. */
  port?: number;
  /** Last byte of the address of end `a`. */
  host?: number;
  ttl?: number;
  /** Upper six bits of the traffic class, of IPv4. */
  dscp?: number;
  pkey?: number;
}

/** The verdict on a packet as it came. */
export interface PacketVerdict {
  retransmission: RetransmitCause | undefined;
  grade: Grade | undefined;
  repeatedFrame: boolean;
}

/** Builds a capture packet by packet, and collects the verdicts and messages of its analysis. */
export class CaptureBuilder {
  readonly messages: Message[] = [];
  readonly verdicts: PacketVerdict[] = [];
  #analyzer = new FlowAnalyzer({
    onMessage: (message) => this.messages.push(message),
    onPacket: (_packet, { retransmission, grade, repeatedFrame }) =>
      this.verdicts.push({ retransmission, grade, repeatedFrame }),
  });
  #reader = new PacketReader({
    onPacket: (packet) => this.#analyzer.add(packet),
    onIcmp: (error) => this.#analyzer.addIcmp(error),
  });
  #ids = { a: 100, b: 5000 };
  /** PSNs of the queue pairs 1. */
  #cmPsns = { a: 10, b: 20 };

  /** A packet from one end to the other, `time` µs after the capture's begin. */
  packet(time: number, from: 'a' | 'b', opcode: OpcodeName, options: PacketOptions = {}): this {
    const frame = frameOf(from, Opcode[opcode], { id: this.#ids[from]++, ...options });
    this.#reader.frame(rawRecord(frame, { nanoseconds: Math.round(time * 1000) }));
    return this;
  }

  /** Any frame, from its IP header on. */
  other(time: number, frame: Uint8Array, linkType?: number): this {
    this.#reader.frame(rawRecord(frame, { linkType, nanoseconds: Math.round(time * 1000) }));
    return this;
  }

  /** A message of the connection manager. */
  cm(time: number, from: 'a' | 'b', message: CmInput, psn = this.#cmPsns[from]++): this {
    const data = encodeCm(message);
    return this.packet(time, from, 'UD_SEND_ONLY', { destQp: 1, psn, data, payload: data.length });
  }

  /** The same, several times in a row. */
  each(times: readonly number[], from: 'a' | 'b', opcode: OpcodeName, options: PacketOptions = {}): this {
    for (const time of times) this.packet(time, from, opcode, options);
    return this;
  }

  finish(): Analysis {
    return this.#analyzer.finish(this.#reader.summary(), this.#reader.addresses);
  }

  /** Causes of the retransmissions, in order. */
  get causes(): (RetransmitCause | undefined)[] {
    return this.verdicts.map(({ retransmission }) => retransmission).filter((cause) => cause !== undefined);
  }
}

/** A packet from one end to the other, from its IP header on. */
export function frameOf(from: 'a' | 'b', opcode: number, options: PacketOptions): Uint8Array {
  const { psn = 0, payload = 0, ackReq = false, syndrome = 0x1f, length = 0, id = 0, ecn = 0 } = options;
  const {
    migReq = true,
    badIcrc = false,
    destQp = from === 'a' ? QP.b : QP.a,
    port = 50_000,
    host = 1,
    ttl = 64,
    dscp = 0,
    pkey = 0xffff,
  } = options;
  const info = opcodeInfo(opcode)!;
  const pad = -payload & 3;
  const ip = id === false ? 40 : 20;
  const bth = ip + 8;
  const frame = new Uint8Array(bth + info.headerLength + payload + pad + ICRC_BYTES);
  const [source, destination] = from === 'a' ? [host, 2] : [2, host];
  if (id === false) {
    frame.set([0x60, ecn << 4, 0, 0, 0, 0, 17, 64]);
    setU16(frame, 4, frame.length - 40);
    frame.set([0xfd, 0x77], 8);
    frame.set([0xfd, 0x77], 24);
    frame[23] = source;
    frame[39] = destination;
  } else {
    frame.set([
      0x45,
      dscp * 4 + ecn,
      0,
      0,
      id >> 8,
      id & 0xff,
      0x40,
      0,
      ttl,
      17,
      0,
      0,
      10,
      0,
      0,
      source,
      10,
      0,
      0,
      destination,
    ]);
    setU16(frame, 2, frame.length);
    setU16(frame, 10, checksumOf(frame));
  }
  setU16(frame, ip, port);
  setU16(frame, ip + 2, ROCE_UDP_PORT);
  setU16(frame, ip + 4, frame.length - ip);
  const flags = (pad << 4) | (migReq ? 0x40 : 0);
  writeBth(frame, bth, opcode, flags, pkey, destQp, ackReq ? psn + 2 ** 31 : psn);
  if (info.offsets.aeth >= 0) {
    frame[bth + info.offsets.aeth] = syndrome;
    setU24(frame, bth + info.offsets.aeth + 1, 1);
  }
  if (info.offsets.reth >= 0) {
    const { va = 0x1000n } = options;
    setU32(frame, bth + info.offsets.reth, Number(va >> 32n));
    setU32(frame, bth + info.offsets.reth + 4, Number(va & 0xffff_ffffn));
    setU32(frame, bth + info.offsets.reth + 12, length);
  }
  if (options.data !== undefined) frame.set(options.data, bth + info.headerLength);
  const at = frame.length - ICRC_BYTES;
  writeIcrc(frame, at, icrcV2(frame, 0, at) ^ (badIcrc ? 1 : 0));
  return frame;
}

/** Of an IPv4 header of 20 bytes at the begin, whose checksum is 0 so far (RFC 791 §3.1). */
function checksumOf(header: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < 20; i += 2) sum += header[i] * 256 + header[i + 1];
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}
