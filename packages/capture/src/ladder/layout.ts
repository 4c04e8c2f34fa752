/** Where the rows of a ladder stand: one a packet, evenly spaced, with a mark where time was long. */
import type { LadderPacket } from '../flow/analysis.ts';

export type LadderRow =
  | { y: number; packet: LadderPacket }
  /** `gap` nanoseconds pass until the next packet. */
  | { y: number; gap: number };

/** A gap is shown from here on, whatever the rest looks like. */
const MIN_GAP = 100_000;
/** … and from so many times what usually lies between two packets. */
const USUAL_TIMES = 20;

/** The time, in nanoseconds, from which on a ladder shows a gap: as these packets come. */
export function usualGap(packets: readonly LadderPacket[]): number {
  const spans: number[] = [];
  for (let i = 1; i < packets.length; i++) spans.push(packets[i].time - packets[i - 1].time);
  spans.sort((a, b) => a - b);
  return Math.max(MIN_GAP, USUAL_TIMES * (spans[(spans.length - 1) >> 1] ?? 0));
}

/**
 * @param rowHeight pixels of a row; y is the middle of one
 * @param gapAfter nanoseconds between two packets from which on there is a row for them
 * @param before the packet before the first one: the time between them is shown too
 * @returns the rows in order, and the height of all
 */
export function layoutLadder(
  packets: readonly LadderPacket[],
  rowHeight: number,
  gapAfter: number,
  before?: LadderPacket,
): { rows: LadderRow[]; height: number } {
  const rows: LadderRow[] = [];
  let last = before;
  for (const packet of packets) {
    const gap = last === undefined ? 0 : packet.time - last.time;
    if (gap >= gapAfter) rows.push({ y: (rows.length + 0.5) * rowHeight, gap });
    rows.push({ y: (rows.length + 0.5) * rowHeight, packet });
    last = packet;
  }
  return { rows, height: rows.length * rowHeight };
}
