/**
 * The evidence of recoveries among the packets of a drawing: where a lost packet was seen or should have been, and in words
 * what made a requester go back.
 */
import { psnDiff } from '@node-roce/wire';
import type { Recovery, Stall, StallEnd } from '../flow/analysis.ts';
import { formatDuration, formatPsn } from '../units.ts';

/** A packet as the search takes it; its PSN has 24 bits. */
export interface SeenPacket {
  frame: number;
  psn: number;
  /** The end whose PSN it carries. */
  requester: 'a' | 'b';
  isRequest: boolean;
}

/** A packet that was lost or late, as a recovery shows. */
export interface Loss<P extends SeenPacket> {
  recovery: Recovery;
  /** The packet as the tap saw it: it was lost behind the tap. Undefined: lost before it, or not kept. */
  seen: P | undefined;
  /** The first packet behind the gap that it left, where the tap did not see it. */
  behind: P | undefined;
}

/** Packets before a recovery that are searched. */
const MAX_SEARCH = 4096;

/** Whether the tap saw the packet that was lost. */
const passedTap = ({ missing, side }: Recovery): boolean =>
  missing === 'response' ? side === 'requester' : side === 'responder';

/**
 * Finds the lost packets of recoveries.
 * @param packets in the order of their frames
 */
export function findLosses<P extends SeenPacket>(
  packets: readonly P[],
  recoveries: readonly Recovery[],
): Loss<P>[] {
  return recoveries
    .filter(({ missing, side }) => missing !== 'none' && missing !== 'unknown' && side !== 'unknown')
    .map((recovery) => ({ recovery, ...search(packets, recovery) }));
}

function search<P extends SeenPacket>(
  packets: readonly P[],
  recovery: Recovery,
): Pick<Loss<P>, 'seen' | 'behind'> {
  const { frame, from, psn, missing } = recovery;
  const isRequest = missing !== 'response';
  const passed = passedTap(recovery);
  let behind: P | undefined;
  const start = firstFrom(packets, frame) - 1;
  for (let i = start; i >= 0 && i > start - MAX_SEARCH; i--) {
    const packet = packets[i];
    if (packet.requester !== from || packet.isRequest !== isRequest) continue;
    const ahead = psnDiff(packet.psn, psn);
    if (passed && ahead === 0) return { seen: packet, behind: undefined };
    if (ahead > 0) behind = packet;
    else if (!passed && behind !== undefined) break;
  }
  return { seen: undefined, behind: passed ? undefined : behind };
}

/** The place of the first packet of that frame or a later one. */
function firstFrom(packets: readonly SeenPacket[], frame: number): number {
  let [low, high] = [0, packets.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (packets[middle].frame < frame) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** `lost or late before the tap`. */
export function lossText(recovery: Recovery): string {
  if (recovery.damaged !== undefined) return `damaged in frame ${recovery.damaged}: dropped by the receiver`;
  const where = passedTap(recovery) ? 'behind the tap' : 'before the tap';
  return recovery.missing === 'either' ? `it or its answer lost or late ${where}` : `lost or late ${where}`;
}

/** `PSN 12 = 0x00000c missing: lost or late before the tap`; of a packet that these packets do not have. */
export function missingText(recovery: Recovery): string {
  const psn = `${recovery.missing === 'response' ? 'response ' : ''}PSN ${formatPsn(recovery.psn)}`;
  // The tap saw it by all that is known, but the packets here do not have it.
  return passedTap(recovery)
    ? `${psn} not shown here: lost or late`
    : `${psn} missing: ${lossText(recovery)}`;
}

/** Names the cause of a recovery, with the evidence: `sequence NAK in frame 8, 1.09 ms before`. */
export function causeText({ cause, grade, evidence, wait, timeout }: Recovery): string {
  const likely = grade === 'likely' ? 'likely ' : '';
  const frame = evidence === undefined ? '' : ` in frame ${evidence}`;
  const before = wait > 0 ? `, ${formatDuration(wait)} before` : '';
  switch (cause) {
    case 'sequence-nak':
      return `${likely}sequence NAK${frame}${before}`;
    case 'implied-nak':
      return `${likely}implied NAK: a response behind the missing one${frame}${before}`;
    case 'rnr':
      return `${likely}RNR NAK${frame}${before}`;
    case 'timeout': {
      const code = timeout === undefined ? '' : ` ≈ timeout ${timeout}`;
      return `${likely}ACK timeout${wait > 0 ? `: ${formatDuration(wait)} of silence${code}` : code}`;
    }
    case 'probe':
      return `${likely}probe${wait > 0 ? ` after ${formatDuration(wait)} of silence` : ''}`;
    default:
      return 'cause not shown';
  }
}

/** `go-back-N to PSN 12 = 0x00000c: sequence NAK in frame 8, 1.09 ms before`. */
export const recoveryText = (recovery: Recovery): string =>
  `go-back-N to PSN ${formatPsn(recovery.psn)}: ${causeText(recovery)}`;

const endNames: Readonly<Record<StallEnd, string>> = {
  timeout: 'an ACK timeout',
  'sequence-nak': 'a retransmission for a sequence NAK',
  'implied-nak': 'a retransmission for an implied NAK',
  rnr: 'a retransmission after an RNR wait',
  probe: 'a probe',
  unknown: 'a retransmission',
  answer: 'an answer',
  request: 'a new request',
};

/** `stall of A's requests, ended by an ACK timeout`. */
export const stallText = ({ from, end }: Stall): string =>
  `stall of ${from.toUpperCase()}'s requests, ended by ${endNames[end]}`;
