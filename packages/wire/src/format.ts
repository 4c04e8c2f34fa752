/** Packets as text: one line each, or a line a field. */
import { toHex } from './bytes.ts';
import { formatIpAddress, formatMac } from './gid.ts';
import { describeSyndrome } from './headers/aeth.ts';
import type { Packet } from './packet.ts';

const hex = (value: number | bigint, digits = 0): string => `0x${value.toString(16).padStart(digits, '0')}`;

/** Source and destination addresses as text. */
export function packetAddresses({ ip }: Packet): { source: string; destination: string } {
  return { source: formatIpAddress(ip.source), destination: formatIpAddress(ip.destination) };
}

/**
 * `10.0.0.1 → 10.0.0.2 RC RDMA Write First QP=0x12 PSN=1193046 AckReq VA=0x7f… RKey=0x1234 DMALen=100 1024 bytes icrc ok`
 */
export function formatLine(packet: Packet): string {
  const { source, destination } = packetAddresses(packet);
  const { bth, extensions: e } = packet;
  const parts = [`${source} → ${destination}`, packet.info.name, `QP=${hex(bth.destQp)}`, `PSN=${bth.psn}`];
  if (bth.ackReq) parts.push('AckReq');
  if (bth.solicited) parts.push('SE');
  if (bth.fecn) parts.push('FECN');
  if (bth.becn) parts.push('BECN');
  if (e.deth) parts.push(`SrcQP=${hex(e.deth.srcQp)} QKey=${hex(e.deth.qkey)}`);
  if (e.reth) parts.push(`VA=${hex(e.reth.va)} RKey=${hex(e.reth.rkey)} DMALen=${e.reth.length}`);
  if (e.atomicEth) parts.push(`VA=${hex(e.atomicEth.va)} RKey=${hex(e.atomicEth.rkey)}`);
  if (e.aeth) parts.push(`${describeSyndrome(e.aeth.syndrome)} MSN=${e.aeth.msn}`);
  if (e.atomicAckEth) parts.push(`Original=${hex(e.atomicAckEth.original)}`);
  if (e.immDt !== undefined) parts.push(`Imm=${hex(e.immDt, 8)}`);
  if (e.ieth !== undefined) parts.push(`Inv=${hex(e.ieth)}`);
  if (packet.info.hasPayload) parts.push(`${packet.payloadLength} bytes`);
  parts.push(`icrc ${packet.icrcStatus}`);
  return parts.join(' ');
}

/** A field of a packet, for people. */
export interface FieldText {
  layer: string;
  name: string;
  text: string;
}

function textOf(name: string, value: unknown): string {
  if (value instanceof Uint8Array) {
    if (value.length === 6) return formatMac(value);
    if (value.length === 16 || (value.length === 4 && (name === 'source' || name === 'destination'))) {
      return formatIpAddress(value);
    }
    return toHex(value);
  }
  if (typeof value === 'boolean') return value ? '1' : '0';
  if (typeof value === 'bigint') return `${hex(value, 16)} (${value})`;
  return typeof value === 'number' ? `${hex(value)} (${value})` : String(value);
}

/** Every field of every layer, in the order of the wire. */
export function packetFields(packet: Packet): FieldText[] {
  const fields: FieldText[] = [];
  const layer = (name: string, value: object) => {
    for (const [field, v] of Object.entries(value)) {
      if (Array.isArray(v)) for (const [i, tag] of v.entries()) layer(`${name}.${field}[${i}]`, tag);
      else if (v !== undefined) fields.push({ layer: name, name: field, text: textOf(field, v) });
    }
  };
  if (packet.ethernet) layer('ethernet', packet.ethernet);
  layer(packet.version === 1 ? 'grh' : packet.ip.version === 4 ? 'ipv4' : 'ipv6', packet.ip);
  if (packet.udp) layer('udp', packet.udp);
  layer('bth', { ...packet.bth, opcode: `${hex(packet.bth.opcode, 2)} (${packet.info.name})` });
  for (const name of packet.info.extensions) {
    const value = packet.extensions[name];
    if (typeof value === 'number') layer(name, { value });
    else if (name === 'aeth' && packet.extensions.aeth) {
      const { syndrome, msn } = packet.extensions.aeth;
      layer(name, { syndrome: `${hex(syndrome, 2)} (${describeSyndrome(syndrome)})`, msn });
    } else if (value instanceof Uint8Array) layer(name, { reserved: value });
    else if (value) layer(name, value);
  }
  if (packet.info.hasPayload)
    fields.push({ layer: 'payload', name: 'length', text: `${packet.payloadLength}` });
  fields.push({
    layer: 'icrc',
    name: 'value',
    text: packet.icrc === undefined ? 'cut off' : `${hex(packet.icrc, 8)} (${packet.icrcStatus})`,
  });
  return fields;
}

/** `packetFields`, a line each. */
export function formatFields(packet: Packet): string {
  return packetFields(packet)
    .map(({ layer, name, text }) => `  ${`${layer}.${name}`.padEnd(26)} ${text}`)
    .join('\n');
}
