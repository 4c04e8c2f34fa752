/** The three forms in which `roce dump` prints a packet: a line, a JSON object, a list of fields. */
import type { RetransmitCause } from '@node-roce/capture';
import {
  describeSyndrome,
  formatFields,
  formatLine,
  hexByte,
  type Packet,
  packetAddresses,
} from '@node-roce/wire';
import type { Terminal } from '../terminal.ts';

/** A packet and where it stands in the capture. */
export interface Entry {
  packet: Packet;
  /** Number of the frame in the file, from 1, as Wireshark counts. */
  number: number;
  /** Position in the super-packet that the frame is, from 0; undefined where the frame is one packet. */
  segment: number | undefined;
  /** The encapsulation that it was extracted from. */
  mirror: 'none' | 'erspan' | 'vxlan';
  /** Cause of the retransmission; only with `--retransmissions`. */
  retransmission: RetransmitCause | undefined;
  /** Nanoseconds since 1970; undefined where the file has no time. */
  time: bigint | undefined;
  /** Nanoseconds since the file's first frame. */
  relativeTime: bigint | undefined;
}

/** Seconds with a fraction of `digits` digits. */
function seconds(ns: bigint, digits = 9): string {
  const size = ns < 0n ? -ns : ns;
  const fraction = (size % 1_000_000_000n).toString().padStart(9, '0').slice(0, digits);
  return `${ns < 0n ? '-' : ''}${size / 1_000_000_000n}.${fraction}`;
}

/** One line, as tshark prints it. */
export function toLine(
  { packet, number, segment, mirror, retransmission, relativeTime }: Entry,
  { colors }: Terminal,
): string {
  const frame = `${number}${segment === undefined ? '' : `.${segment}`}`;
  const time = relativeTime === undefined ? '' : seconds(relativeTime, 6);
  const text = formatLine(packet);
  const line = packet.icrcStatus === 'bad' ? text.replace(/icrc bad$/, colors.red('icrc BAD')) : text;
  const inside = mirror === 'none' ? '' : ` in ${mirror}`;
  const again = retransmission === undefined ? '' : ` retransmission: ${retransmission}`;
  return `${frame.padStart(5)} ${time.padStart(11)}  ${line}${inside}${again}`;
}

/** One line per field, with its offset in the frame and its bytes. */
export function toFields(
  { packet, number, segment, mirror, retransmission, time }: Entry,
  { colors }: Terminal,
): string {
  const of = segment === undefined ? '' : `, packet ${segment} of a super-packet`;
  const inside = mirror === 'none' ? '' : `, extracted from ${mirror}`;
  const when = time === undefined ? '' : ` at ${seconds(time)}`;
  const again = retransmission === undefined ? '' : `, retransmission: ${retransmission}`;
  const fields = formatFields(packet, { offsets: true, hex: true });
  return `${colors.bold(`Frame ${number}${of}${inside}${when}${again}`)}\n${fields.replace(/\(bad\)/, colors.red('(BAD)'))}\n`;
}

/**
 * The object of `--json`. Times are texts, as a number would lose the nanoseconds; so are fields of 64
 * bits (addresses, operands of atomics), in hexadecimal. `segment` is there in super-packets only, `mirror`
 * in packets extracted from one, `retransmission` only with `--retransmissions`, an extension header's member in packets that have it.
 */
export function toJson({
  packet,
  number,
  segment,
  mirror,
  retransmission,
  time,
  relativeTime,
}: Entry): Record<string, unknown> {
  const { bth, extensions, info, udp, version } = packet;
  const { source, destination } = packetAddresses(packet);
  return {
    frame: number,
    segment,
    mirror: mirror === 'none' ? undefined : mirror,
    retransmission,
    time: time === undefined ? null : seconds(time),
    relativeTime: relativeTime === undefined ? null : seconds(relativeTime),
    src: source,
    dst: destination,
    srcPort: udp?.sourcePort ?? null,
    roceVersion: version,
    opcode: info.fieldName,
    opcodeValue: bth.opcode,
    transport: info.transportName,
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
    icrc: packet.icrcStatus,
    icrcValue: packet.icrc ?? null,
    ...Object.fromEntries(Object.entries(extensions).map(([name, value]) => [name, plain(value)])),
    ...(extensions.aeth
      ? { aeth: { ...extensions.aeth, meaning: describeSyndrome(extensions.aeth.syndrome) } }
      : {}),
  };
}

/** A header's value for JSON. */
function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return `0x${value.toString(16).padStart(16, '0')}`;
  if (value instanceof Uint8Array) return Array.from(value, hexByte).join('');
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member)]));
}
