/** Where the rows of a ladder stand: one a packet, evenly spaced, with others where time was long or a packet is missing. */
import type { LadderPacket } from '../flow/analysis.ts';
import type { Annotation } from './marks.ts';

export type LadderRow =
  | { y: number; packet: LadderPacket }
  /** `gap` nanoseconds pass until the next packet. */
  | { y: number; gap: number; stall: string | undefined }
  /** A line about the place before the next packet, or (a note) about the packet above. */
  | { y: number; annotation: Annotation };

/** Rows of a layout in addition to packets and gaps. */
export interface LayoutExtras {
  /** Rows before the packet of a frame. */
  before?: ReadonlyMap<number, readonly Annotation[]> | undefined;
  /** Stalls by the frame that ended them: they are gaps whatever their length. */
  stalls?: ReadonlyMap<number, string> | undefined;
  /** The row below a packet. */
  below?: ((packet: LadderPacket) => string) | undefined;
  /** Characters of a row that is no packet: longer texts take several. */
  columns?: number | undefined;
}

/** Breaks a text between words. */
function linesOf(text: string, columns: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= columns)
      lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** A gap is shown from here on, whatever the rest looks like. */
const MIN_GAP = 100_000;
/** … and from so many times the usual time between two packets. */
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
  extras: LayoutExtras = {},
): { rows: LadderRow[]; height: number } {
  const rows: LadderRow[] = [];
  const y = () => (rows.length + 0.5) * rowHeight;
  const add = ({ kind, text }: Annotation) => {
    for (const line of linesOf(text, extras.columns ?? Infinity))
      rows.push({ y: y(), annotation: { kind, text: line } });
  };
  let last = before;
  for (const packet of packets) {
    const gap = last === undefined ? 0 : packet.time - last.time;
    const stall = packet.part === 0 ? extras.stalls?.get(packet.frame) : undefined;
    if (gap >= gapAfter || (stall !== undefined && gap > 0)) rows.push({ y: y(), gap, stall });
    if (packet.part === 0) for (const annotation of extras.before?.get(packet.frame) ?? []) add(annotation);
    rows.push({ y: y(), packet });
    const text = extras.below?.(packet) ?? '';
    if (text !== '') add({ kind: 'note', text });
    last = packet;
  }
  return { rows, height: rows.length * rowHeight };
}
