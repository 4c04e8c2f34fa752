/** The three forms in which `roce dump` prints a packet: a line, a JSON object, a list of fields. */
import { type Grade, type RetransmitCause, type Tunnel, tunnelName } from '@node-roce/capture';
import {
  CM_TITLES,
  decodeCm,
  describeSyndrome,
  formatFields,
  formatLine,
  GSI_QPN,
  hexByte,
  type LineNames,
  type Packet,
  packetAddresses,
} from '@node-roce/wire';
import type { Terminal } from '../terminal.ts';
import { seconds, type TimeForm, timeText } from '../time-form.ts';

/** A packet and where it stands in the capture. */
export interface Entry {
  packet: Packet;
  /** Of native InfiniBand: its addresses, which are no IP addresses. */
  names: LineNames | undefined;
  /** A sample of the traffic (sFlow). */
  sampled: boolean;
  /** Number of the frame in the file, from 1, as Wireshark counts. */
  number: number;
  /** Position in the super-packet that the frame is, from 0; undefined where the frame is one packet. */
  segment: number | undefined;
  /** The fields by which the network treats it; VLAN id and priority −1: no tag. */
  marks: { vlan: number; pcp: number; dscp: number; ecn: number; ttl: number };
  /** The tunnel or mirror that it was extracted from, and its VNI, key, session or label; −1: none. */
  tunnel: Tunnel;
  vni: number;
  /** Cause of the retransmission, its grade and the frame that shows it (0: none); only with `--retransmissions`. */
  retransmission: { cause: RetransmitCause; grade: Grade; evidence: number } | undefined;
  /** Nanoseconds since 1970; undefined where the file has no time. */
  time: bigint | undefined;
  /** Nanoseconds since the file's first frame. */
  relativeTime: bigint | undefined;
}

/** The first two columns of a line. */
export function placeOf(
  frame: string,
  relativeTime: bigint | undefined,
  time?: bigint | undefined,
  form?: TimeForm,
): string {
  return `${frame.padStart(5)} ${timeText(relativeTime, time, form).padStart(11)}  `;
}

/** `sequence-nak (likely, frame 8)`. */
function causeText({ cause, grade, evidence }: NonNullable<Entry['retransmission']>): string {
  if (grade === 'not-shown') return cause;
  return `${cause} (${grade}${evidence > 0 ? `, frame ${evidence}` : ''})`;
}

/** One line, as tshark prints it: frame and time, and what they are of. */
export function toLine(
  { packet, names, sampled, number, segment, marks, tunnel, vni, retransmission, time, relativeTime }: Entry,
  { colors }: Terminal,
  form?: TimeForm,
): [prefix: string, text: string] {
  const frame = `${number}${segment === undefined ? '' : `.${segment}`}`;
  const text = formatLine(packet, names);
  const line = packet.icrcStatus === 'bad' ? text.replace(/icrc bad(?= \(|$)/, colors.red('icrc BAD')) : text;
  const inside =
    tunnel === 'none'
      ? ''
      : ` in ${tunnelName(tunnel, vni)}${sampled && tunnel !== 'sflow' ? ' of an sflow sample' : ''}`;
  const again = retransmission === undefined ? '' : ` retransmission: ${causeText(retransmission)}`;
  return [placeOf(frame, relativeTime, time, form), `${line}${marksOf(marks)}${inside}${again}`];
}

const ECN_NAMES = ['', 'ECT(1)', 'ECT(0)', 'CE'];

/** ` DSCP 26 ECT(0) VLAN 10 PCP 3`: those that are not 0 or absent. */
function marksOf({ vlan, pcp, dscp, ecn }: Entry['marks']): string {
  const parts = [
    dscp > 0 ? `DSCP ${dscp}` : '',
    ECN_NAMES[ecn] ?? '',
    vlan >= 0 ? `VLAN ${vlan}` : '',
    pcp > 0 ? `PCP ${pcp}` : '',
  ].filter((part) => part !== '');
  return parts.length === 0 ? '' : ` ${parts.join(' ')}`;
}

/** One line per field, with its offset in the frame and its bytes. */
export function toFields(
  { packet, number, segment, tunnel, vni, retransmission, time }: Entry,
  { colors }: Terminal,
): string {
  const of = segment === undefined ? '' : `, packet ${segment} of a super-packet`;
  const inside = tunnel === 'none' ? '' : `, extracted from ${tunnelName(tunnel, vni)}`;
  const when = time === undefined ? '' : ` at ${seconds(time)}`;
  const again = retransmission === undefined ? '' : `, retransmission: ${causeText(retransmission)}`;
  const fields = formatFields(packet, { offsets: true, hex: true });
  return `${colors.bold(`Frame ${number}${of}${inside}${when}${again}`)}\n${fields.replace(/\(bad\)/, colors.red('(BAD)'))}\n`;
}

/**
 * The object of `--json`. Times are texts, as a number would lose the nanoseconds; so are fields of 64
 * bits (addresses, operands of atomics), in hexadecimal. `segment` is there in super-packets only, `tunnel`
 * and `vni` in packets extracted from one, `retransmission` only with `--retransmissions`, an extension
 * header's member in packets that have it, `sampled` in samples of the traffic, `headersCut` where the capture lacks some of them.
 */
export function toJson({
  packet,
  names,
  sampled,
  number,
  segment,
  marks,
  tunnel,
  vni,
  retransmission,
  time,
  relativeTime,
}: Entry): Record<string, unknown> {
  const { bth, extensions, info, udp, version } = packet;
  const { source, destination } = names ?? packetAddresses(packet);
  return {
    frame: number,
    segment,
    tunnel: tunnel === 'none' ? undefined : tunnel,
    sampled: sampled ? true : undefined,
    vni: vni < 0 ? undefined : vni,
    retransmission: retransmission?.cause,
    grade: retransmission?.grade,
    evidence:
      retransmission === undefined || retransmission.evidence === 0 ? undefined : retransmission.evidence,
    time: time === undefined ? null : seconds(time),
    relativeTime: relativeTime === undefined ? null : seconds(relativeTime),
    src: source,
    dst: destination,
    srcPort: udp?.sourcePort ?? null,
    ...(udp === undefined ? {} : { dstPort: udp.destinationPort }),
    vlan: marks.vlan < 0 ? undefined : marks.vlan,
    pcp: marks.pcp < 0 ? undefined : marks.pcp,
    dscp: marks.dscp,
    ecn: marks.ecn,
    ttl: marks.ttl,
    ipId: packet.ip.version === 4 ? packet.ip.id : undefined,
    roceVersion: names === undefined ? version : 0,
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
    headersCut: packet.cut === undefined ? undefined : true,
    cm: cmOf(packet),
    icrc: packet.icrcStatus,
    icrcQuirk: packet.icrcQuirk,
    icrcValue: packet.icrc ?? null,
    ...Object.fromEntries(Object.entries(extensions).map(([name, value]) => [name, plain(value)])),
    ...(extensions.aeth
      ? { aeth: { ...extensions.aeth, meaning: describeSyndrome(extensions.aeth.syndrome) } }
      : {}),
  };
}

/** The message of the connection manager with its fields; undefined for other datagrams and cut ones. */
function cmOf({ bth, extensions, payload }: Packet): unknown {
  if (bth.destQp !== GSI_QPN || extensions.deth === undefined) return undefined;
  const parsed = decodeCm(payload);
  return parsed.ok ? plain({ title: CM_TITLES[parsed.message.name], ...parsed.message }) : undefined;
}

/** A header's value for JSON. */
function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return `0x${value.toString(16).padStart(16, '0')}`;
  if (value instanceof Uint8Array) return Array.from(value, hexByte).join('');
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member)]));
}
