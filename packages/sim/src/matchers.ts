/**
 * Matchers that compose, for tests of anything that speaks RoCE:
 * `expectPacket(packet, bth({ opcode: 'RC_ACKNOWLEDGE', psn: 7 }), aeth({ nak: 0x60 }))`.
 */
import { AssertionError } from 'node:assert';
import { AethKind, aethKind, aethValue, type OpcodeName, opcodeInfo } from '@node-roce/wire';
import { decodePacket, type ModelPacket, type RemoteRange } from './model/packet.ts';

/** A field that differs: `BTH psn`, with both values. */
interface Mismatch {
  field: string;
  actual: unknown;
  expected: unknown;
}

/** Returns the fields of a packet that differ from the expected ones; none if it matches. */
export type PacketMatcher = (packet: ModelPacket) => readonly Mismatch[];

/**
 * Checks a packet, or its bytes from the BTH through the pad, with all matchers.
 * @throws AssertionError of `node:assert`, whose `actual` and `expected` hold the fields that differ, so that test
 * runners print them side by side
 */
export function expectPacket(
  packet: ModelPacket | Uint8Array | undefined,
  ...matchers: PacketMatcher[]
): void {
  if (packet === undefined) fail('expected a packet, there is none', undefined, 'a packet');
  const decoded = packet instanceof Uint8Array ? decodePacket(packet) : ({ ok: true, packet } as const);
  if (!decoded.ok) fail(`expected an RC packet: ${decoded.reason}`, decoded.reason, 'an RC packet');
  const found = matchers.flatMap((matcher) => matcher(decoded.packet));
  if (found.length === 0) return;
  const differences = found.map(
    ({ field, actual, expected }) => `${field} is ${text(actual)}, expected ${text(expected)}`,
  );
  fail(
    `${describePacket(decoded.packet)}: ${differences.join(', ')}`,
    Object.fromEntries(found.map(({ field, actual }) => [field, actual])),
    Object.fromEntries(found.map(({ field, expected }) => [field, expected])),
  );
}

function fail(message: string, actual: unknown, expected: unknown): never {
  throw new AssertionError({
    message,
    actual,
    expected,
    operator: 'expectPacket',
    stackStartFn: expectPacket,
  });
}

/** A value in a message. */
const text = (value: unknown): string =>
  value === undefined ? 'absent' : value instanceof Uint8Array ? `${value.length} bytes` : String(value);

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

function differences(what: string, actual: object | undefined, expected: object): Mismatch[] {
  const fields = (actual ?? {}) as Record<string, unknown>;
  return Object.entries(expected)
    .filter(([name, value]) => value !== undefined && fields[name] !== value)
    .map(([name, value]) => ({ field: `${what} ${name}`, actual: fields[name], expected: value }));
}

/** Fields of the BTH; the opcode by name. Absent fields match any value. */
export function bth(expected: {
  opcode?: OpcodeName;
  psn?: number;
  ackReq?: boolean;
  solicited?: boolean;
  destQpn?: number;
}): PacketMatcher {
  return (packet) => differences('BTH', { ...packet, opcode: opcodeInfo(packet.opcode)?.key }, expected);
}

/** Fields of the RETH. */
export function reth(expected: Partial<RemoteRange>): PacketMatcher {
  return (packet) => differences('RETH', packet.reth, expected);
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
    const kind = actual === undefined ? -1 : aethKind(actual.syndrome);
    const value = actual === undefined ? -1 : aethValue(actual.syndrome);
    const { ack, rnr, ...rest } = expected;
    const ofKind = (wanted: true | number | undefined, is: boolean): true | number | undefined =>
      !is ? undefined : wanted === true ? true : value;
    const shown = {
      ack: ofKind(ack, kind === AethKind.ACK),
      rnr: ofKind(rnr, kind === AethKind.RNR_NAK),
      nak: actual?.syndrome,
      msn: actual?.msn,
    };
    const found = differences('AETH', shown, { ack, rnr, ...rest });
    // Another AETH where an ACK or RNR NAK was expected: its syndrome is shown.
    return found.map((one) =>
      one.actual === undefined && actual !== undefined ? { ...one, actual: hex(actual.syndrome) } : one,
    );
  };
}

const hex = (syndrome: number): string => `0x${syndrome.toString(16)}`;

/** Length of the payload, or its bytes. */
export function payload(expected: number | Uint8Array): PacketMatcher {
  return ({ payload: actual }) => {
    const length = typeof expected === 'number' ? expected : expected.length;
    if (actual.length !== length)
      return [{ field: 'payload length', actual: actual.length, expected: length }];
    if (typeof expected === 'number' || actual.every((byte, i) => byte === expected[i])) return [];
    return [{ field: 'payload', actual, expected }];
  };
}

/** Immediate data. */
export function immediate(expected: number): PacketMatcher {
  return (packet) => differences('immediate', { data: packet.immediate }, { data: expected });
}
