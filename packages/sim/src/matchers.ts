/**
 * Matchers that compose, for tests of anything that speaks RoCE:
 * `expectPacket(packet, bth({ opcode: 'RC_ACKNOWLEDGE', psn: 7 }), aeth({ nak: 0x60 }))`.
 */

import { AethKind, aethKind, aethValue, type OpcodeName, opcodeInfo } from '@node-roce/wire';
import { decodePacket, type ModelPacket, type RemoteRange } from './model/packet.ts';

/** What is wrong with a packet, or `undefined`. */
export type PacketMatcher = (packet: ModelPacket) => string | undefined;

/**
 * Holds a packet, or its bytes from the BTH through the pad, against all matchers.
 * @throws Error that names each field that differs, and the packet
 */
export function expectPacket(
  packet: ModelPacket | Uint8Array | undefined,
  ...matchers: PacketMatcher[]
): void {
  if (packet === undefined) throw new Error('expected a packet, there is none');
  const decoded = packet instanceof Uint8Array ? decodePacket(packet) : ({ ok: true, packet } as const);
  if (!decoded.ok) throw new Error(`expected an RC packet: ${decoded.reason}`);
  const faults = matchers.map((matcher) => matcher(decoded.packet)).filter((fault) => fault !== undefined);
  if (faults.length > 0) throw new Error(`${describePacket(decoded.packet)}: ${faults.join(', ')}`);
}

/** A packet in one line. */
export function describePacket(packet: ModelPacket): string {
  const name = opcodeInfo(packet.opcode)?.name ?? `opcode 0x${packet.opcode.toString(16)}`;
  const { aeth, reth } = packet;
  return [
    name,
    `PSN ${packet.psn}`,
    ...(packet.ackReq ? ['AckReq'] : []),
    ...(aeth === undefined ? [] : [`syndrome 0x${aeth.syndrome.toString(16)}, MSN ${aeth.msn}`]),
    ...(reth === undefined ? [] : [`${reth.length} bytes at 0x${reth.va.toString(16)}`]),
    `${packet.payload.length} bytes`,
  ].join(', ');
}

function fieldsDiffer(what: string, actual: object | undefined, expected: object): string | undefined {
  if (actual === undefined) return `no ${what}`;
  const fields = actual as Record<string, unknown>;
  const faults = Object.entries(expected)
    .filter(([name, value]) => value !== undefined && fields[name] !== value)
    .map(([name, value]) => `${what} ${name} is ${String(fields[name])}, expected ${String(value)}`);
  return faults.length === 0 ? undefined : faults.join(', ');
}

/** Fields of the BTH; the opcode by name. What is left out may be anything. */
export function bth(expected: {
  opcode?: OpcodeName;
  psn?: number;
  ackReq?: boolean;
  solicited?: boolean;
  destQpn?: number;
}): PacketMatcher {
  return (packet) => fieldsDiffer('BTH', { ...packet, opcode: opcodeInfo(packet.opcode)?.key }, expected);
}

/** Fields of the RETH. */
export function reth(expected: Partial<RemoteRange>): PacketMatcher {
  return (packet) => fieldsDiffer('RETH', packet.reth, expected);
}

/**
 * The AETH: an ACK (`true`, or with this credit code), an RNR NAK (`true`, or with this timer code), or a NAK
 * (its whole syndrome, 0x60 …), and the MSN.
 */
export function aeth(expected: {
  ack?: true | number;
  rnr?: true | number;
  nak?: number;
  msn?: number;
}): PacketMatcher {
  return ({ aeth: actual }) => {
    if (actual === undefined) return 'no AETH';
    const kind = aethKind(actual.syndrome);
    const value = aethValue(actual.syndrome);
    const is = (name: string, wanted: true | number | undefined, wantedKind: number) => {
      if (wanted === undefined) return undefined;
      const right = kind === wantedKind && (wanted === true || value === wanted);
      return right ? undefined : `expected ${name} ${wanted}, syndrome is 0x${actual.syndrome.toString(16)}`;
    };
    return (
      is('ACK', expected.ack, AethKind.ACK) ??
      is('RNR NAK', expected.rnr, AethKind.RNR_NAK) ??
      (expected.nak !== undefined && actual.syndrome !== expected.nak
        ? `expected NAK 0x${expected.nak.toString(16)}, syndrome is 0x${actual.syndrome.toString(16)}`
        : undefined) ??
      (expected.msn !== undefined && actual.msn !== expected.msn
        ? `MSN is ${actual.msn}, expected ${expected.msn}`
        : undefined)
    );
  };
}

/** Length of the payload, or its bytes. */
export function payload(expected: number | Uint8Array): PacketMatcher {
  return (packet) => {
    const length = typeof expected === 'number' ? expected : expected.length;
    if (packet.payload.length !== length) return `payload of ${packet.payload.length}, expected ${length}`;
    if (typeof expected === 'number' || packet.payload.every((byte, i) => byte === expected[i]))
      return undefined;
    return 'payload differs';
  };
}

/** Immediate data. */
export function immediate(expected: number): PacketMatcher {
  return (packet) =>
    packet.immediate === expected ? undefined : `immediate is ${packet.immediate}, expected ${expected}`;
}
