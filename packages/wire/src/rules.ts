/**
 * The part that the model of the transport may know: names of opcodes, sequence numbers, codes and timers. No header: the model reads
 * packets by tables of its own, so that both can't have one wrong offset.
 */
import { type OpcodeInfo as WholeInfo, opcodeInfo as wholeInfo } from './opcodes.ts';

export { gidToText, isIpv4Mapped, isMulticast } from './gid.ts';
export {
  AethKind,
  aethKind,
  aethValue,
  CREDIT_UNLIMITED,
  creditCodeFor,
  creditsOf,
  NakCode,
} from './headers/aeth.ts';
export { Opcode, type OpcodeName, Transport } from './opcodes.ts';
export { psnAdd, psnDiff } from './psn.ts';
export { ackTimeoutMicroseconds, rnrTimerMicroseconds } from './timers.ts';

/** The row of an opcode without the places of its headers. */
export type OpcodeInfo = Omit<WholeInfo, 'headerLength' | 'offsets' | 'extensions'>;
export const opcodeInfo: (opcode: number) => OpcodeInfo | undefined = wholeInfo;
