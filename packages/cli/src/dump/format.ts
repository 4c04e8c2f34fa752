/** The three forms in which `roce dump` prints a packet: a line, a JSON object, a list of fields. */
import { describeSyndrome, EXTENSION_BYTES, type ExtensionName, toHex, u16 } from '@node-roce/wire';
import type { Terminal } from '../terminal.ts';
import { opcodeName } from './opcode-name.ts';
import type { DumpPacket } from './packet.ts';

/** A packet and where it stands in the capture. */
export interface Entry {
  packet: DumpPacket;
  /** The packet's bytes from the link layer on; of a super-packet's segment, with headers of its own. */
  frame: Uint8Array;
  /** Number of the frame in the file, from 1, as Wireshark counts. */
  number: number;
  /** Position in the super-packet that the frame is, from 0; undefined where the frame is one packet. */
  segment: number | undefined;
  /** Nanoseconds since 1970; undefined where the file has no time. */
  time: bigint | undefined;
  /** Nanoseconds since the file's first frame. */
  relativeTime: bigint | undefined;
}

const hex = (value: number | bigint, digits: number) => `0x${value.toString(16).padStart(digits, '0')}`;
const qp = (value: number) => hex(value, 6);

/** Seconds with a fraction of so many digits; all of the nanoseconds unless told. */
function seconds(ns: bigint, digits = 9): string {
  const sign = ns < 0n ? '-' : '';
  const size = ns < 0n ? -ns : ns;
  const fraction = (size % 1_000_000_000n).toString().padStart(9, '0').slice(0, digits);
  return `${sign}${size / 1_000_000_000n}.${fraction}`;
}

/** One line, in the manner of tshark. */
export function formatLine(entry: Entry, { colors }: Terminal): string {
  const { packet, number, segment } = entry;
  const { bth } = packet;
  const time = entry.relativeTime === undefined ? '' : seconds(entry.relativeTime, 6);
  const words = [
    `${number}${segment === undefined ? '' : `.${segment}`}`.padStart(5),
    time.padStart(11),
    ` ${packet.src} → ${packet.dst}`,
    ` ${colors.bold(opcodeName(bth.opcode))}`,
    `QP=${qp(bth.destQp)}`,
    `PSN=${bth.psn}`,
    `len=${packet.payloadLength}`,
    ...notable(packet),
  ];
  if (packet.icrc === 'bad') words.push(colors.red('icrc=BAD'));
  else words.push(colors.dim(`icrc=${packet.icrc}`));
  return words.join(' ');
}

/** The rest of what a person wants to see in a line. */
function notable({ bth, extensions: ext }: DumpPacket): string[] {
  const words: string[] = [];
  if (ext.deth) words.push(`srcQP=${qp(ext.deth.srcQp)}`);
  if (ext.xrceth) words.push(`SRQ=${qp(ext.xrceth.srq)}`);
  if (ext.reth)
    words.push(`va=${hex(ext.reth.va, 16)} rkey=${hex(ext.reth.rkey, 8)} dmalen=${ext.reth.length}`);
  if (ext.atomicEth) {
    const { va, rkey, swapAdd, compare } = ext.atomicEth;
    words.push(
      `va=${hex(va, 16)} rkey=${hex(rkey, 8)} swapadd=${hex(swapAdd, 16)} compare=${hex(compare, 16)}`,
    );
  }
  if (ext.aeth) words.push(`MSN=${ext.aeth.msn} [${describeSyndrome(ext.aeth.syndrome)}]`);
  if (ext.atomicAckEth) words.push(`original=${hex(ext.atomicAckEth.original, 16)}`);
  if (ext.immDt !== undefined) words.push(`imm=${hex(ext.immDt, 8)}`);
  if (ext.ieth) words.push(`invalidate=${hex(ext.ieth.rkey, 8)}`);
  if (bth.solicited) words.push('solicited');
  if (bth.ackReq) words.push('ackreq');
  if (bth.fecn) words.push('fecn');
  if (bth.becn) words.push('becn');
  return words;
}

/**
 * The object of `--json`. Times are texts, as a number would lose the nanoseconds; so are the fields of 64
 * bits (addresses, operands of atomics), in hexadecimal. `segment` is there in super-packets only, an
 * extension header's object in packets that have it.
 */
export function toJson(entry: Entry): Record<string, unknown> {
  const { packet } = entry;
  const { bth, extensions: ext, info } = packet;
  const json: Record<string, unknown> = {
    frame: entry.number,
    segment: entry.segment,
    time: entry.time === undefined ? null : seconds(entry.time),
    relativeTime: entry.relativeTime === undefined ? null : seconds(entry.relativeTime),
    src: packet.src,
    dst: packet.dst,
    srcPort: packet.srcPort ?? null,
    roceVersion: packet.located.version,
    opcode: opcodeName(bth.opcode),
    opcodeValue: bth.opcode,
    transport: info?.transportName ?? null,
    destQp: bth.destQp,
    psn: bth.psn,
    ackReq: bth.ackReq,
    solicited: bth.solicited,
    migReq: bth.migReq,
    pad: bth.pad,
    tver: bth.tver,
    pkey: bth.pkey,
    fecn: bth.fecn,
    becn: bth.becn,
    payloadLength: packet.payloadLength,
    icrc: packet.icrc,
  };
  if (packet.icrc === 'bad') {
    json.icrcValue = hex(packet.icrcValue!, 8);
    json.icrcExpected = hex(packet.icrcExpected!, 8);
  }
  if (ext.rdeth) json.rdeth = { eeContext: ext.rdeth.eeContext };
  if (ext.deth) json.deth = { qkey: ext.deth.qkey, srcQp: ext.deth.srcQp };
  if (ext.xrceth) json.xrceth = { srq: ext.xrceth.srq };
  if (ext.feth) json.feth = { placement: ext.feth.placement, selectivity: ext.feth.selectivity };
  if (ext.reth) json.reth = { va: hex(ext.reth.va, 16), rkey: ext.reth.rkey, length: ext.reth.length };
  if (ext.atomicEth) {
    const { va, rkey, swapAdd, compare } = ext.atomicEth;
    json.atomicEth = { va: hex(va, 16), rkey, swapAdd: hex(swapAdd, 16), compare: hex(compare, 16) };
  }
  if (ext.aeth) {
    const { syndrome, msn } = ext.aeth;
    json.aeth = { syndrome, meaning: describeSyndrome(syndrome), msn };
  }
  if (ext.atomicAckEth) json.atomicAckEth = { original: hex(ext.atomicAckEth.original, 16) };
  if (ext.immDt !== undefined) json.immDt = ext.immDt;
  if (ext.ieth) json.ieth = { rkey: ext.ieth.rkey };
  return json;
}

/** A field: offset in the frame, bytes, name, value. */
type Field = readonly [offset: number, length: number, name: string, value: string];

/** Bytes of a long field that are shown. */
const SHOWN_BYTES = 16;

/** A line a field, with its offset in the frame and its bytes. */
export function formatFields(entry: Entry, { colors }: Terminal): string[] {
  const { frame, number, segment, time } = entry;
  const of = segment === undefined ? '' : `, packet ${segment} of a super-packet`;
  const title = `Frame ${number}${of}: ${frame.length} bytes${time === undefined ? '' : ` at ${seconds(time)}`}`;
  const lines = [colors.bold(title)];
  for (const [offset, length, name, value] of fieldsOf(entry)) {
    const bytes = frame.subarray(offset, Math.min(offset + length, frame.length));
    const shown = toHex(bytes.subarray(0, SHOWN_BYTES)) + (bytes.length > SHOWN_BYTES ? '…' : '');
    const text = value.endsWith('BAD') ? colors.red(value) : value;
    lines.push(
      `  ${colors.dim(hex(offset, 4))}  ${name.padEnd(22)} ${text.padEnd(34)} ${colors.dim(shown)}`.trimEnd(),
    );
  }
  return lines;
}

function fieldsOf({ packet, frame }: Entry): Field[] {
  const { located, bth, info, extensions: ext } = packet;
  const { ip, udp, bth: at, end } = located;
  const fields: Field[] = [];
  const isIpv4 = located.version === 2 && frame[ip]! >> 4 === 4;
  if (isIpv4) {
    fields.push(
      [ip + 1, 1, 'ip.dscp_ecn', hex(frame[ip + 1]!, 2)],
      [ip + 2, 2, 'ip.length', `${u16(frame, ip + 2)}`],
      [ip + 4, 2, 'ip.id', hex(u16(frame, ip + 4), 4)],
      [ip + 8, 1, 'ip.ttl', `${frame[ip + 8]}`],
      [ip + 12, 4, 'ip.source', packet.src],
      [ip + 16, 4, 'ip.destination', packet.dst],
    );
  } else {
    const name = located.version === 2 ? 'ipv6' : 'grh';
    fields.push(
      [ip, 4, `${name}.class_flow`, `class ${hex(((frame[ip]! & 15) << 4) | (frame[ip + 1]! >> 4), 2)}`],
      [ip + 4, 2, `${name}.length`, `${u16(frame, ip + 4)}`],
      [ip + 7, 1, `${name}.hop_limit`, `${frame[ip + 7]}`],
      [ip + 8, 16, `${name}.source`, packet.src],
      [ip + 24, 16, `${name}.destination`, packet.dst],
    );
  }
  if (udp >= 0) {
    fields.push(
      [udp, 2, 'udp.source_port', `${packet.srcPort}`],
      [udp + 2, 2, 'udp.destination_port', `${u16(frame, udp + 2)}`],
      [udp + 4, 2, 'udp.length', `${u16(frame, udp + 4)}`],
      [udp + 6, 2, 'udp.checksum', hex(u16(frame, udp + 6), 4)],
    );
  }
  const bit = (on: boolean) => (on ? '1' : '0');
  fields.push(
    [at, 1, 'bth.opcode', `${hex(bth.opcode, 2)} ${opcodeName(bth.opcode)}`],
    [
      at + 1,
      1,
      'bth.flags',
      `SE ${bit(bth.solicited)}, M ${bit(bth.migReq)}, pad ${bth.pad}, tver ${bth.tver}`,
    ],
    [at + 2, 2, 'bth.pkey', hex(bth.pkey, 4)],
    [at + 4, 1, 'bth.fecn_becn', `F ${bit(bth.fecn)}, B ${bit(bth.becn)}, reserved ${hex(bth.reserved6, 2)}`],
    [at + 5, 3, 'bth.dest_qp', qp(bth.destQp)],
    [at + 8, 1, 'bth.ack_req', `A ${bit(bth.ackReq)}, reserved ${hex(bth.reserved7, 2)}`],
    [at + 9, 3, 'bth.psn', `${bth.psn}`],
  );
  const o = (name: ExtensionName) => at + info!.offsets[name];
  if (ext.rdeth) fields.push([o('rdeth') + 1, 3, 'rdeth.ee_context', qp(ext.rdeth.eeContext)]);
  if (ext.deth) {
    fields.push(
      [o('deth'), 4, 'deth.qkey', hex(ext.deth.qkey, 8)],
      [o('deth') + 5, 3, 'deth.src_qp', qp(ext.deth.srcQp)],
    );
  }
  if (ext.xrceth) fields.push([o('xrceth') + 1, 3, 'xrceth.srq', qp(ext.xrceth.srq)]);
  if (ext.feth) {
    const { placement, selectivity } = ext.feth;
    fields.push([o('feth'), 4, 'feth', `placement ${placement}, selectivity ${selectivity}`]);
  }
  if (ext.reth) {
    fields.push(
      [o('reth'), 8, 'reth.va', hex(ext.reth.va, 16)],
      [o('reth') + 8, 4, 'reth.rkey', hex(ext.reth.rkey, 8)],
      [o('reth') + 12, 4, 'reth.length', `${ext.reth.length}`],
    );
  }
  if (ext.atomicEth) {
    fields.push(
      [o('atomicEth'), 8, 'atomic.va', hex(ext.atomicEth.va, 16)],
      [o('atomicEth') + 8, 4, 'atomic.rkey', hex(ext.atomicEth.rkey, 8)],
      [o('atomicEth') + 12, 8, 'atomic.swap_add', hex(ext.atomicEth.swapAdd, 16)],
      [o('atomicEth') + 20, 8, 'atomic.compare', hex(ext.atomicEth.compare, 16)],
    );
  }
  if (ext.aeth) {
    const { syndrome, msn } = ext.aeth;
    fields.push(
      [o('aeth'), 1, 'aeth.syndrome', `${hex(syndrome, 2)} ${describeSyndrome(syndrome)}`],
      [o('aeth') + 1, 3, 'aeth.msn', `${msn}`],
    );
  }
  if (ext.atomicAckEth)
    fields.push([o('atomicAckEth'), 8, 'atomic_ack.original', hex(ext.atomicAckEth.original, 16)]);
  if (ext.immDt !== undefined) fields.push([o('immDt'), 4, 'immediate', hex(ext.immDt, 8)]);
  if (ext.ieth) fields.push([o('ieth'), 4, 'ieth.rkey', hex(ext.ieth.rkey, 8)]);
  if (info?.offsets.cnp !== -1 && info) fields.push([o('cnp'), EXTENSION_BYTES.cnp, 'cnp.reserved', '']);
  const payload = at + (info?.headerLength ?? 12);
  if (packet.payloadLength > 0 && payload < frame.length) {
    fields.push([payload, packet.payloadLength, 'payload', `${packet.payloadLength} bytes`]);
  }
  if (packet.icrc !== 'none') {
    if (bth.pad > 0) fields.push([end - 4 - bth.pad, bth.pad, 'pad', `${bth.pad} bytes`]);
    const verdict = packet.icrc === 'ok' ? 'ok' : `expected ${hex(packet.icrcExpected!, 8)}: BAD`;
    fields.push([end - 4, 4, 'icrc', `${hex(packet.icrcValue!, 8)} ${verdict}`]);
  }
  return fields;
}
