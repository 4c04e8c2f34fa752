/** Packets as text: one line each, or a line a field with its offset and bytes. */
import { buildPacket } from './build.ts';
import { u16, u24, u32, u64 } from './bytes.ts';
import { formatIpAddress, formatMac } from './gid.ts';
import { describeSyndrome } from './headers/aeth.ts';
import { BTH_BYTES } from './headers/bth.ts';
import { type FethValue, FlushPlacement, FlushSelectivity } from './headers/small.ts';
import { cmFieldTexts, describeCm } from './mad/describe.ts';
import { GSI_QPN } from './mad/mad.ts';
import { ETHERNET_BYTES, VLAN_BYTES } from './network.ts';
import { type ExtensionName, opcodeInfo } from './opcodes.ts';
import type { Packet } from './packet.ts';

const hex = (value: number | bigint, digits = 0): string => `0x${value.toString(16).padStart(digits, '0')}`;

/** Source and destination addresses as text. */
export function packetAddresses({ ip }: Packet): { source: string; destination: string } {
  return { source: formatIpAddress(ip.source), destination: formatIpAddress(ip.destination) };
}

/** Bytes of the frame as it was sent, with those that a capture cut off. */
export function frameLength({ bthOffset, info, payloadLength, bth, trailer, icrcStatus }: Packet): number {
  const packet = bthOffset + info.headerLength + payloadLength + bth.pad + 4;
  return icrcStatus === 'none' ? packet : packet + trailer.length;
}

/** Texts that stand in a line in place of those of the packet's own headers. */
export interface LineNames {
  source: string;
  destination: string;
  protocol: string;
  /** Bytes of the frame. */
  length: number;
}

/**
 * A packet in a line, begun as tshark does:
 * `10.77.0.2 → 10.77.0.3 RRoCE 74 RC Send Only QP=0x00005f PSN=1193046 (0x123456) AckReq 13 bytes icrc ok`
 */
export function formatLine(packet: Packet, names: Partial<LineNames> = {}): string {
  const { bth, extensions: e, info } = packet;
  const { source, destination, protocol, length } = {
    ...packetAddresses(packet),
    protocol: packet.version === 2 ? 'RRoCE' : 'RoCE',
    length: frameLength(packet),
    ...names,
  };
  const parts = [`${source} → ${destination} ${protocol} ${length} ${info.name}`];
  parts.push(`QP=${hex(bth.destQp, 6)} PSN=${bth.psn} (${hex(bth.psn, 6)})`);
  if (bth.ackReq) parts.push('AckReq');
  if (bth.solicited) parts.push('SE');
  if (bth.fecn) parts.push('FECN');
  if (bth.becn) parts.push('BECN');
  if (e.rdeth) parts.push(`EEC=${hex(e.rdeth.eeContext, 6)}`);
  if (e.deth) parts.push(`SrcQP=${hex(e.deth.srcQp, 6)} QKey=${hex(e.deth.qkey, 8)}`);
  if (e.xrceth) parts.push(`SRQ=${hex(e.xrceth.srq, 6)}`);
  if (e.feth) parts.push(`Placement=${placementName(e.feth)} Selectivity=${selectivityName(e.feth)}`);
  if (e.reth) parts.push(`VA=${hex(e.reth.va)} RKey=${hex(e.reth.rkey)} DMALen=${e.reth.length}`);
  if (e.atomicEth) {
    const { va, rkey, swapAdd, compare } = e.atomicEth;
    parts.push(`VA=${hex(va)} RKey=${hex(rkey)} SwapAdd=${hex(swapAdd)} Compare=${hex(compare)}`);
  }
  if (e.aeth) parts.push(`${describeSyndrome(e.aeth.syndrome)} MSN=${e.aeth.msn}`);
  if (e.atomicAckEth) parts.push(`Original=${hex(e.atomicAckEth.original)}`);
  if (e.immDt !== undefined) parts.push(`Imm=${hex(e.immDt, 8)}`);
  if (e.ieth !== undefined) parts.push(`Inv=${hex(e.ieth, 8)}`);
  if (info.hasPayload || packet.payloadLength > 0) parts.push(contentOf(packet));
  if (packet.cut) parts.push('headers cut');
  parts.push(`icrc ${icrcText(packet)}`);
  return parts.join(' ');
}

/** `global-visibility+persistence`; the number where it is another (IBTA vol 1 annex A19). */
function placementName({ placement }: Pick<FethValue, 'placement'>): string {
  const names = [
    placement & FlushPlacement.GLOBAL_VISIBILITY ? 'global-visibility' : '',
    placement & FlushPlacement.PERSISTENCE ? 'persistence' : '',
  ].filter((name) => name !== '');
  return placement > 3 || names.length === 0 ? String(placement) : names.join('+');
}

function selectivityName({ selectivity }: Pick<FethValue, 'selectivity'>): string {
  if (selectivity === FlushSelectivity.RANGE) return 'range';
  return selectivity === FlushSelectivity.MEMORY_REGION ? 'memory-region' : String(selectivity);
}

/** `bad (flush-covered-twice)`: the verdict, and the habit of the sender's that explains it. */
const icrcText = ({ icrcStatus, icrcQuirk }: Packet): string =>
  icrcQuirk === undefined ? icrcStatus : `${icrcStatus} (${icrcQuirk})`;

/** The message of the connection manager, or how many bytes there are. */
const contentOf = ({ bth, extensions, payload, payloadLength }: Packet): string =>
  (isGsi(bth, extensions) ? describeCm(payload, 0, payload.length) : undefined) ?? `${payloadLength} bytes`;

const isGsi = ({ destQp }: Packet['bth'], { deth }: Packet['extensions']): boolean =>
  destQp === GSI_QPN && deth !== undefined;

/** A field of a packet, for display. */
export interface FieldText {
  /** `ethernet`, `ipv4`, `bth`, `reth`, … */
  layer: string;
  name: string;
  text: string;
  /** Of its first byte in the frame. Fields of less than a byte share it with their neighbours. */
  offset: number;
  /** Its bytes in the frame. */
  bytes: Uint8Array;
}

/** Formats of a field's value, from its bytes: a number by default. */
type Text = (b: Uint8Array, o: number) => string;
/** Name, offset in the header, bytes; and the format of the value. */
type Row = readonly [name: string, at: number, length: number, text?: Text];

const asHex = (b: Uint8Array, o: number, length: number): string =>
  length === 8 ? hex(u64(b, o), 16) : hex(number(b, o, length), length * 2);
const hex2: Text = (b, o) => asHex(b, o, 2);
const hex3: Text = (b, o) => asHex(b, o, 3);
const hex4: Text = (b, o) => asHex(b, o, 4);
const hex8: Text = (b, o) => asHex(b, o, 8);
const bits =
  (shift: number, mask: number): Text =>
  (b, o) =>
    String((b[o] >> shift) & mask);
const mac: Text = (b, o) => formatMac(b.subarray(o, o + 6));
const address =
  (length: number): Text =>
  (b, o) =>
    formatIpAddress(b, o, length);

function number(b: Uint8Array, o: number, length: number): number {
  if (length === 1) return b[o];
  return length === 2 ? u16(b, o) : length === 3 ? u24(b, o) : u32(b, o);
}

const ipv4: readonly Row[] = [
  ['version', 0, 1, bits(4, 15)],
  ['header length', 0, 1, (b, o) => String((b[o] & 15) * 4)],
  ['DSCP', 1, 1, bits(2, 63)],
  ['ECN', 1, 1, bits(0, 3)],
  ['total length', 2, 2],
  ['identification', 4, 2, hex2],
  ['reserved flag', 6, 1, bits(7, 1)],
  ['DF', 6, 1, bits(6, 1)],
  ['MF', 6, 1, bits(5, 1)],
  ['fragment offset', 6, 2, (b, o) => String(u16(b, o) & 0x1fff)],
  ['TTL', 8, 1],
  ['protocol', 9, 1],
  ['checksum', 10, 2, hex2],
  ['source', 12, 4, address(4)],
  ['destination', 16, 4, address(4)],
];
const ipv6: readonly Row[] = [
  ['version', 0, 1, bits(4, 15)],
  ['DSCP', 0, 2, (b, o) => String((u16(b, o) >> 6) & 63)],
  ['ECN', 1, 1, bits(4, 3)],
  ['flow label', 1, 3, (b, o) => hex(u24(b, o) & 0xf_ffff, 5)],
  ['payload length', 4, 2],
  ['next header', 6, 1],
  ['hop limit', 7, 1],
  ['source', 8, 16, address(16)],
  ['destination', 24, 16, address(16)],
];
const udp: readonly Row[] = [
  ['source port', 0, 2],
  ['destination port', 2, 2],
  ['length', 4, 2],
  ['checksum', 6, 2, hex2],
];
const bth: readonly Row[] = [
  ['opcode', 0, 1, (b, o) => `${hex(b[o], 2)} (${opcodeInfo(b[o])?.name})`],
  ['solicited event', 1, 1, bits(7, 1)],
  ['MigReq', 1, 1, bits(6, 1)],
  ['pad count', 1, 1, bits(4, 3)],
  ['header version', 1, 1, bits(0, 15)],
  ['P_Key', 2, 2, hex2],
  ['FECN', 4, 1, bits(7, 1)],
  ['BECN', 4, 1, bits(6, 1)],
  ['reserved (6 bits)', 4, 1, bits(0, 63)],
  ['destination QP', 5, 3, hex3],
  ['AckReq', 8, 1, bits(7, 1)],
  ['reserved (7 bits)', 8, 1, bits(0, 127)],
  ['PSN', 9, 3, (b, o) => `${u24(b, o)} (${hex(u24(b, o), 6)})`],
];
const extensions: Record<ExtensionName, readonly Row[]> = {
  rdeth: [
    ['reserved', 0, 1],
    ['EE context', 1, 3, hex3],
  ],
  deth: [
    ['Q_Key', 0, 4, hex4],
    ['reserved', 4, 1],
    ['source QP', 5, 3, hex3],
  ],
  xrceth: [
    ['reserved', 0, 1],
    ['SRQ', 1, 3, hex3],
  ],
  feth: [
    ['reserved (26 bits)', 0, 4, (b, o) => String(u32(b, o) >>> 6)],
    ['selectivity', 3, 1, (b, o) => selectivityName({ selectivity: (b[o] >> 4) & 3 })],
    ['placement type', 3, 1, (b, o) => placementName({ placement: b[o] & 15 })],
  ],
  reth: [
    ['virtual address', 0, 8, hex8],
    ['R_Key', 8, 4, hex4],
    ['DMA length', 12, 4],
  ],
  atomicEth: [
    ['virtual address', 0, 8, hex8],
    ['R_Key', 8, 4, hex4],
    ['swap or add data', 12, 8, hex8],
    ['compare data', 20, 8, hex8],
  ],
  aeth: [
    ['syndrome', 0, 1, (b, o) => `${hex(b[o], 2)} (${describeSyndrome(b[o])})`],
    ['MSN', 1, 3],
  ],
  atomicAckEth: [['original remote data', 0, 8, hex8]],
  immDt: [['immediate data', 0, 4, hex4]],
  ieth: [['R_Key', 0, 4, hex4]],
  cnp: [['reserved', 0, 16, (b, o) => (b.subarray(o, o + 16).some((byte) => byte) ? 'not zero' : 'zero')]],
};

/**
 * Every field of the BTH at `o` and of the extension headers that its opcode has, as far as their bytes
 * are there. Offsets are from the start of `b`. Empty where no BTH is.
 */
export function transportFields(b: Uint8Array, o = 0): FieldText[] {
  const info = b.length >= o + BTH_BYTES ? opcodeInfo(b[o]) : undefined;
  if (info === undefined) return [];
  const fields: FieldText[] = [];
  const layer = (name: string, header: number, rows: readonly Row[]) => {
    for (const [field, at, length, text] of rows) {
      const offset = header + at;
      if (offset + length > b.length) return;
      const value = text ? text(b, offset) : String(number(b, offset, length));
      fields.push({
        layer: name,
        name: field,
        text: value,
        offset,
        bytes: b.subarray(offset, offset + length),
      });
    }
  };
  layer('bth', o, bth);
  for (const name of info.extensions) layer(name, o + info.offsets[name], extensions[name]);
  return fields;
}

/** Every field of every layer, in the order of the wire. */
export function packetFields(packet: Packet): FieldText[] {
  // The frame again, as it was: what is shown is what stands in these bytes.
  const b = packet.cut ? withCutHeaders(packet, packet.cut) : buildPacket(packet);
  const fields: FieldText[] = [];
  const add = (layer: string, name: string, offset: number, length: number, text: string) =>
    fields.push({ layer, name, text, offset, bytes: b.subarray(offset, offset + length) });
  const layer = (name: string, at: number, rows: readonly Row[]) => {
    for (const [field, o, length, text] of rows)
      add(name, field, at + o, length, text ? text(b, at + o) : String(number(b, at + o, length)));
  };

  const { ip, info, bthOffset } = packet;
  const ipOffset = bthOffset - (packet.udp ? 8 : 0) - (ip.version === 4 ? 20 + ip.options.length : 40);
  if (packet.ethernet) {
    layer('ethernet', 0, ethernetRows(packet.ethernet.vlans.length));
  } else if (packet.linkHeader) {
    add('link', 'header', 0, packet.linkHeader.length, `${packet.linkHeader.length} bytes`);
  }
  if (ip.version === 6) layer(packet.version === 1 ? 'grh' : 'ipv6', ipOffset, ipv6);
  else {
    layer('ipv4', ipOffset, ipv4);
    const { length } = ip.options;
    if (length > 0) add('ipv4', 'options', ipOffset + 20, length, `${length} bytes`);
  }
  if (packet.udp) layer('udp', bthOffset - 8, udp);
  fields.push(...transportFields(b, bthOffset));

  if (packet.cut) {
    add('icrc', 'value', b.length, 0, 'cut off');
    return fields;
  }
  const payloadAt = bthOffset + info.headerLength;
  const { payload, payloadLength, pad, icrc, trailer } = packet;
  if (info.hasPayload || payloadLength > 0) {
    const there = payload.length < payloadLength ? `, ${payload.length} of them here` : '';
    add('payload', 'data', payloadAt, payload.length, `${payloadLength} bytes${there}`);
  }
  if (isGsi(packet.bth, packet.extensions)) {
    for (const { name, text, offset, bytes } of cmFieldTexts(b, payloadAt, payloadAt + payload.length))
      fields.push({ layer: 'cm', name, text, offset, bytes });
  }
  const padAt = payloadAt + payload.length;
  if (pad && pad.length > 0) {
    add('payload', 'pad', padAt, pad.length, pad.some((byte) => byte) ? 'not zero' : 'zero');
  }
  const icrcAt = padAt + (pad?.length ?? 0);
  if (icrc === undefined) add('icrc', 'value', icrcAt, 0, 'cut off');
  else add('icrc', 'value', icrcAt, 4, `${asHex(b, icrcAt, 4)} (${icrcText(packet)})`);
  if (icrc !== undefined && trailer.length > 0) {
    add('trailer', 'data', icrcAt + 4, trailer.length, `${trailer.length} bytes`);
  }
  return fields;
}

/** The frame up to the BTH as it was, and then the bytes that the capture has. */
function withCutHeaders(packet: Packet, cut: Uint8Array): Uint8Array {
  const { cut: _, ...whole } = packet;
  const b = new Uint8Array(packet.bthOffset + cut.length);
  b.set(buildPacket(whole).subarray(0, packet.bthOffset));
  b.set(cut, packet.bthOffset);
  return b;
}

function ethernetRows(tags: number): Row[] {
  const rows: Row[] = [
    ['destination', 0, 6, mac],
    ['source', 6, 6, mac],
  ];
  for (let i = 0; i < tags; i++) {
    const at = 12 + VLAN_BYTES * i;
    rows.push(
      ['VLAN tag', at, 2, hex2],
      ['VLAN priority', at + 2, 1, bits(5, 7)],
      ['VLAN DEI', at + 2, 1, bits(4, 1)],
      ['VLAN ID', at + 2, 2, (b, o) => String(u16(b, o) & 0xfff)],
    );
  }
  rows.push(['EtherType', ETHERNET_BYTES - 2 + VLAN_BYTES * tags, 2, hex2]);
  return rows;
}

/** How `formatFields` shows a field's place: its offset in the frame, and its bytes (16 at most). */
export interface FieldOptions {
  offsets?: boolean;
  hex?: boolean;
}

/** `packetFields`, a line each: `  bth.PSN   1193046`, with `offsets` and `hex` `0033 12 34 56` before it. */
export function formatFields(packet: Packet, options: FieldOptions = {}): string {
  return packetFields(packet)
    .map(({ layer, name, text, offset, bytes }) => {
      const place = options.offsets ? `  ${offset.toString(16).padStart(4, '0')}` : '';
      return `${place}${options.hex ? `  ${hexColumn(bytes)}` : ''}  ${`${layer}.${name}`.padEnd(30)} ${text}`;
    })
    .join('\n');
}

const HEX_COLUMN_BYTES = 16;

function hexColumn(bytes: Uint8Array): string {
  const shown = Array.from(bytes.subarray(0, HEX_COLUMN_BYTES), (byte) => byte.toString(16).padStart(2, '0'));
  const text = shown.join(' ') + (bytes.length > HEX_COLUMN_BYTES ? ' …' : '');
  return text.padEnd(HEX_COLUMN_BYTES * 3 + 1);
}
