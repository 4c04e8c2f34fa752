/** Brackets along a lifeline, from the evidence of a recovery to its first packet. */
import type { LadderRow } from './layout.ts';
import type { Join } from './marks.ts';

/** Pixels from the lifeline, at most. */
const DISTANCE = 9;
const HEAD = 4;

interface Place {
  left: number;
  right: number;
  rowHeight: number;
  height: number;
}

const n = (value: number): string => String(Math.round(value * 10) / 10);

/**
 * Draws the joins as far as they lie within these rows, which may be a part of a longer ladder.
 * @param rows in the order of their frames
 */
export function drawJoins(rows: readonly LadderRow[], joins: readonly Join[], place: Place): string[] {
  const packets = rows.flatMap((row) => ('packet' in row ? [{ y: row.y, frame: row.packet.frame }] : []));
  const first = packets[0]?.frame;
  const last = packets.at(-1)?.frame;
  if (first === undefined || last === undefined) return [];
  return joins
    .filter(({ from, to }) => from <= last && to >= first)
    .map(({ requester, from, to, isSilence }) => {
      const yOf = (frame: number) => packets.find((packet) => packet.frame === frame)?.y;
      const [start, end] = [yOf(from), yOf(to)];
      // A line in a row lies below its text.
      const line = Math.min(place.rowHeight / 2 - 3, 7);
      const y1 = start === undefined ? yBefore(packets, from) : start + line;
      const y2 = end === undefined ? yAfter(packets, to, place.height) : end + line;
      const out = requester === 'a' ? -DISTANCE : DISTANCE;
      const x = requester === 'a' ? place.left : place.right;
      const path =
        `M${n(x + (start === undefined ? out : 0))} ${n(y1)}` +
        `${start === undefined ? '' : `h${out}`}V${n(y2)}${end === undefined ? '' : `h${-out}`}`;
      const tip = Math.sign(-out) * HEAD;
      const head =
        end === undefined ? '' : `<path class="point" d="M${x} ${n(y2)}l${-tip} ${-HEAD}v${2 * HEAD}z"/>`;
      return `<g class="join${isSilence ? ' silence' : ''}"><path d="${path}"/>${head}</g>`;
    });
}

type Placed = readonly { y: number; frame: number }[];

/** Evidence that has no row here: the top, or the row after it. */
const yBefore = (packets: Placed, frame: number): number =>
  frame < packets[0].frame ? 0 : (packets.find((packet) => packet.frame > frame)?.y ?? 0);

const yAfter = (packets: Placed, frame: number, height: number): number =>
  frame > packets.at(-1)!.frame ? height : (packets.findLast((packet) => packet.frame < frame)?.y ?? height);
