/** ICMP errors about RoCE packets as `roce dump` prints them. */
import type { Addresses, IcmpError } from '@node-roce/capture';
import type { PacketRecord } from '@node-roce/pcap';
import { seconds, type TimeForm } from '../time-form.ts';
import { placeOf } from './format.ts';

const timesOf = ({ time }: IcmpError, { hasTimestamp, timestamp }: PacketRecord) => ({
  time: hasTimestamp ? timestamp : undefined,
  relativeTime: hasTimestamp ? BigInt(time) : undefined,
});

/** `    7    0.001000  10.0.0.254 → 10.0.0.1 ICMP too-big, MTU 1500, about 10.0.0.1 → 10.1.0.1 QP=0x000012 PSN=7 (0x000007) of 4156 bytes`. */
export function icmpLine(
  error: IcmpError,
  record: PacketRecord,
  addresses: Addresses,
  form?: TimeForm,
): [prefix: string, text: string] {
  const { time, relativeTime } = timesOf(error, record);
  const { version, meaning, type, code, mtu, destQp, psn, quotedLength } = error;
  const name = meaning === 'other' ? `type ${type} code ${code}` : meaning;
  const hex = (value: number) => `0x${value.toString(16).padStart(6, '0')}`;
  const bth = destQp < 0 ? '' : ` QP=${hex(destQp)} PSN=${psn} (${hex(psn)})`;
  const text =
    `${addresses.text(error.source)} → ${addresses.text(error.destination)} ICMP${version === 6 ? 'v6' : ''} ${name}` +
    `${mtu > 0 ? `, MTU ${mtu}` : ''}, about ${addresses.text(error.quotedSource)} → ${addresses.text(error.quotedDestination)}` +
    `${bth} of ${quotedLength} bytes`;
  return [placeOf(String(error.frame), relativeTime, time, form), text];
}

/** The object of `--json`: `mtu` is there if the error names one, `destQp` and `psn` if it quotes a BTH. */
export function icmpJson(
  error: IcmpError,
  record: PacketRecord,
  addresses: Addresses,
): Record<string, unknown> {
  const { time, relativeTime } = timesOf(error, record);
  const { frame, version, meaning, type, code, mtu, destQp, psn, quotedLength } = error;
  return {
    frame,
    time: time === undefined ? null : seconds(time),
    relativeTime: relativeTime === undefined ? null : seconds(relativeTime),
    type: version === 6 ? 'ICMPv6' : 'ICMP',
    meaning,
    icmpType: type,
    icmpCode: code,
    mtu: mtu > 0 ? mtu : undefined,
    src: addresses.text(error.source),
    dst: addresses.text(error.destination),
    about: {
      src: addresses.text(error.quotedSource),
      dst: addresses.text(error.quotedDestination),
      srcPort: error.sourcePort,
      dstPort: error.destinationPort,
      length: quotedLength,
      destQp: destQp < 0 ? undefined : destQp,
      psn: psn < 0 ? undefined : psn,
    },
  };
}
