/**
 * A ladder: the packets of a connection as arrows between its two ends, in the order in which the tap saw them.
 *
 * One row a packet, since packets of one burst lie microseconds apart and bursts seconds: a true scale of
 * time would show only one of the two. A row shows the length of a pause. The same packets give the same SVG, in Node as
 * in the report's page.
 */
import type { Connection, LadderPacket } from '../flow/analysis.ts';
import { escapeMarkup } from '../report/escape.ts';
import { counted, formatDuration, formatEndpoint, formatQp, formatSeconds, formatTime } from '../units.ts';
import { drawJoins } from './joins.ts';
import { kindNames, kindOf, PACKET_KINDS, type PacketKind, packetLabel, packetNotes } from './kind.ts';
import { type LadderRow, layoutLadder, usualGap } from './layout.ts';
import { type LadderMarks, ladderMarks } from './marks.ts';
import { CHARACTER_WIDTH, ladderStyle, paperColors } from './style.ts';

export interface LadderOptions {
  /** The packets to draw, of `connection.ladder`; all of them by default. */
  packets?: readonly LadderPacket[] | undefined;
  /** Where they are the middle of a longer ladder: the packet before them, for the time between. */
  before?: LadderPacket | undefined;
  /** Missing packets, recoveries and stalls (`ladderMarks`); unless given, those of the connection. */
  marks?: LadderMarks | undefined;
  /** Pixels, 300 … 10,000; below 700 the notes of a packet stand in a row below it. */
  width?: number | undefined;
  /** Pixels a packet, 4 … 60; below 15 there is no room for text. */
  rowHeight?: number | undefined;
  /** Nanoseconds between two packets from which on a gap is shown; unless given, as these packets come. */
  gapAfter?: number | undefined;
  /** Stands above a ladder that stands alone. */
  title?: string | undefined;
  /**
   * Part of a page, which has the style sheet (`ladderStyle`): no title, names and legend (`ladderColumns`
   * has the positions of the columns), and each packet is an option of a list box with the id `packet-FRAME-PART`.
   */
  embedded?: boolean | undefined;
}

const MIN_WIDTH = 300;
const NARROW = 700;
const MIN_ROW = 4;
const MAX_ROW = 60;
const ROW_WITH_TEXT = 15;
const MARGIN = 16;
const NAMES_HEIGHT = 44;
const FRAME_RIGHT = 64;
const TIME_RIGHT = 152;
const LEFT_LIFE = 176;
const NOTES_WIDTH = 196;
const MOST_NOTES = 330;

/** Where the columns of a ladder of that width stand: right ends of frame and time, the two lifelines. */
export const ladderColumns = (width: number) =>
  width < NARROW
    ? { frame: 36, time: 98, left: 116, right: width - MARGIN }
    : {
        frame: FRAME_RIGHT,
        time: TIME_RIGHT,
        left: LEFT_LIFE,
        right: width - Math.min(MOST_NOTES, Math.max(NOTES_WIDTH, Math.round(width * 0.26))),
      };

/** The place of a packet in the page: the id of its row. */
export const packetId = ({ frame, part }: { frame: number; part: number }): string =>
  `packet-${frame}-${part}`;

/** The parts of a connection that a ladder needs. */
export type LadderSubject = Pick<Connection, 'transport' | 'a' | 'b' | 'ladder'> &
  Partial<Pick<Connection, 'recoveries' | 'stalls'>>;

/**
 * The ladder of a connection as SVG.
 *
 * @throws RangeError (`ERR_OUT_OF_RANGE`) for a width or row height outside of what the options allow
 */
export function renderLadder(connection: LadderSubject, options: LadderOptions = {}): string {
  const { packets = connection.ladder, width = 980, rowHeight = 24, embedded = false } = options;
  requireRange('width', width, MIN_WIDTH, 10_000);
  requireRange('rowHeight', rowHeight, MIN_ROW, MAX_ROW);
  const marks = options.marks ?? ladderMarks(connection);
  const isNarrow = width < NARROW;
  const { rows, height } = layoutLadder(
    packets,
    rowHeight,
    options.gapAfter ?? usualGap(packets),
    options.before,
    {
      before: marks.before,
      stalls: marks.stalls,
      // The row of its recovery names the cause of a retransmission.
      below: isNarrow ? (packet) => notesOf({ ...packet, retransmission: undefined }, marks) : undefined,
      columns: isNarrow ? Math.floor((width - 2 * MARGIN - 20) / CHARACTER_WIDTH) : undefined,
    },
  );
  const frame: Frame = { ...ladderColumns(width), width, rowHeight, embedded, marks, isNarrow };
  const top = embedded ? 0 : 52 + NAMES_HEIGHT;
  const foot = embedded ? 0 : 44;
  const total = top + height + foot;

  const out: string[] = [
    `<svg xmlns="http://www.w3.org/2000/svg" class="ladder" width="${width}" height="${n(total)}" ` +
      `viewBox="0 0 ${width} ${n(total)}" role="${embedded ? 'presentation' : 'img'}">`,
  ];
  if (!embedded)
    out.push(...heading(connection, packets, options.title, width, total), names(connection, frame, top));
  for (const x of [frame.left, frame.right])
    out.push(`<line class="life" x1="${x}" y1="${top - 6}" x2="${x}" y2="${n(top + height + 6)}"/>`);
  out.push(`<g transform="translate(0 ${top})"${embedded ? ' role="presentation"' : ''}>`);
  for (const row of rows) out.push(drawRow(row, frame));
  out.push(...drawJoins(rows, marks.joins, { ...frame, height }));
  out.push('</g>');
  if (!embedded) out.push(legend(packets, total - 16));
  out.push('</svg>');
  return `${out.join('\n')}\n`;
}

interface Frame {
  /** x of the two lifelines, and the right ends of frame and time. */
  left: number;
  right: number;
  frame: number;
  time: number;
  width: number;
  rowHeight: number;
  embedded: boolean;
  marks: LadderMarks;
  /** No column of notes. */
  isNarrow: boolean;
}

function drawRow(row: LadderRow, frame: Frame): string {
  if ('packet' in row) return packetRow(row, frame);
  return 'gap' in row ? gapRow(row, frame) : annotationRow(row, frame);
}

const notesOf = (packet: LadderPacket, { lost }: LadderMarks): string =>
  [lost.get(packet.frame), ...packetNotes(packet)].filter((text) => text !== undefined).join(', ');

function requireRange(name: string, value: number, least: number, most: number): void {
  if (value >= least && value <= most) return;
  const error = new RangeError(`ladder: ${name} is ${value}; it must be ${least} … ${most}`);
  throw Object.assign(error, { code: 'ERR_OUT_OF_RANGE' });
}

/** A coordinate, without more digits than anyone sees. */
const n = (value: number): string => String(Math.round(value * 10) / 10);

/** As much of a text as fits into so many pixels, cut between words if one ends near the edge. */
function fitted(text: string, pixels: number): string {
  const most = Math.max(1, Math.floor(pixels / CHARACTER_WIDTH));
  if (text.length <= most) return text;
  const space = text.lastIndexOf(' ', most - 1);
  return `${text.slice(0, space > most / 2 ? space : most - 1)}…`;
}

function heading(
  connection: LadderSubject,
  packets: readonly LadderPacket[],
  given: string | undefined,
  width: number,
  height: number,
): string[] {
  const title =
    given ?? `${connection.transport} ${formatEndpoint(connection.a)} ↔ ${formatEndpoint(connection.b)}`;
  const first = packets[0];
  const last = packets.at(-1);
  const span = first && last ? `, ${formatTime(first.time)} … ${formatTime(last.time)}` : '';
  const shown = `${counted(packets.length, 'packet')}${span}`;
  return [
    `<title>${escapeMarkup(title)}</title>`,
    `<desc>${escapeMarkup(shown)}</desc>`,
    `<style>\n${ladderStyle((name) => paperColors[name])}\n.ladder .title{font-size:14px;font-weight:600}\n</style>`,
    `<rect width="${width}" height="${n(height)}" fill="${paperColors.paper}"/>`,
    `<text class="title" x="${MARGIN}" y="26">${escapeMarkup(fitted(title, (width - 2 * MARGIN) * 0.78))}</text>`,
    `<text class="faint" x="${MARGIN}" y="44">${escapeMarkup(shown)}</text>`,
  ];
}

function names({ a, b }: LadderSubject, { left, right }: Frame, top: number): string {
  const room = (right - left) / 2 - 12;
  const end = (x: number, anchor: string, { address, qpn }: { address: string; qpn: number }) =>
    `<text class="end" x="${x}" y="${top - 26}" text-anchor="${anchor}">${escapeMarkup(fitted(address, room * 0.9))}</text>` +
    `<text class="faint" x="${x}" y="${top - 11}" text-anchor="${anchor}">${formatQp(qpn)}</text>`;
  const head = (x: number, text: string) =>
    `<text class="faint" x="${x}" y="${top - 11}" text-anchor="end">${text}</text>`;
  return (
    head(FRAME_RIGHT, 'Frame') + head(TIME_RIGHT, 'Seconds') + end(left, 'start', a) + end(right, 'end', b)
  );
}

function packetRow({ y, packet }: LadderRow & { packet: LadderPacket }, frame: Frame): string {
  const { left, right, width, rowHeight, embedded, marks, isNarrow } = frame;
  const kind = kindOf(packet);
  const label = packetLabel(packet);
  const notes = notesOf(packet, marks);
  const isLost = marks.lost.has(packet.frame);
  const number = packet.part > 0 ? `${packet.frame}.${packet.part}` : String(packet.frame);
  const room = right - left - 24;
  const isLong = isNarrow && label.length * CHARACTER_WIDTH > room;
  const hasText = rowHeight >= ROW_WITH_TEXT;
  // Where there is text the line stands below it.
  const line = hasText ? y + Math.min(rowHeight / 2 - 3, 7) : y;
  const [tail, tip, back] = packet.from === 'a' ? [left, right - 1, -1] : [right, left + 1, 1];
  const size = Math.min(5, Math.max(2.5, rowHeight / 3));
  const classes = [
    `row k-${kind}`,
    packet.repeatedFrame ? 'repeated' : '',
    packet.icrc === 'bad' ? 'bad' : '',
    isLost ? 'lost' : '',
  ];
  const out = [
    `<g class="${classes.filter(Boolean).join(' ')}"${embedded ? listOption(packet, number, label, notes) : ''}>`,
  ];
  if (embedded) {
    out.push(`<rect class="hit" x="0" y="${n(y - rowHeight / 2)}" width="${width}" height="${rowHeight}"/>`);
  } else if (!hasText) {
    out.push(`<title>${escapeMarkup(`${number} ${formatSeconds(packet.time)} ${label}`)}</title>`);
  }
  out.push(
    `<line class="line" x1="${tail}" y1="${n(line)}" x2="${n(tip + back * size)}" y2="${n(line)}"/>`,
    `<path class="head" d="M${tip} ${n(line)}l${n(back * size * 1.7)} ${n(-size * 0.8)}v${n(size * 1.6)}z"/>`,
  );
  if (packet.icrc === 'bad') out.push(cross((left + right) / 2, line));
  // Behind the tap: near the end that it did not reach.
  if (isLost) out.push(cross(tip + back * 30, line));
  if (hasText) {
    const base = n(line - 4);
    out.push(
      `<text class="faint" x="${frame.frame}" y="${base}" text-anchor="end">${number}</text>`,
      `<text class="faint" x="${frame.time}" y="${base}" text-anchor="end">${formatSeconds(packet.time)}</text>`,
      `<text class="label" x="${n((left + right) / 2)}" y="${base}" text-anchor="middle">` +
        `${escapeMarkup(fitted(isLong ? packetLabel(packet, true) : label, room))}</text>`,
    );
    if (notes !== '' && !isNarrow) {
      const text = escapeMarkup(fitted(notes, width - right - 26));
      out.push(`<text class="note" x="${right + 14}" y="${n(line)}">${text}</text>`);
    }
  }
  out.push('</g>');
  // Blanks keep the texts apart for those who hear the row.
  return out.join(embedded ? ' ' : '');
}

const cross = (x: number, y: number): string =>
  `<path class="cross" d="M${n(x - 5)} ${n(y - 5)}l10 10m0 -10l-10 10"/>`;

function listOption(packet: LadderPacket, number: string, label: string, notes: string): string {
  // The row's texts in their order: users of speech control name an element by the text that they see.
  const text = `Frame ${number} ${formatSeconds(packet.time)} ${label} ${notes}`.trimEnd();
  return ` id="${packetId(packet)}" role="option" aria-label="${escapeMarkup(text)}"`;
}

function gapRow({ y, gap, stall }: Extract<LadderRow, { gap: number }>, frame: Frame): string {
  const { left, right, rowHeight, embedded, isNarrow } = frame;
  const line = `<line x1="${left}" y1="${n(y)}" x2="${right}" y2="${n(y)}"/>`;
  const open = `<g class="${stall === undefined ? 'gap' : 'gap stall'}"${embedded ? ' role="presentation"' : ''}>`;
  // Two strokes across each lifeline: time is cut out.
  const cut =
    stall === undefined
      ? ''
      : [left, right].map((x) => `<path d="M${x - 5} ${n(y + 1)}l10 -5m-10 9l10 -5"/>`).join('');
  if (rowHeight < ROW_WITH_TEXT) return `${open}${line}${cut}</g>`;
  // Not "of silence": packets that were filtered out, or not kept, may lie between.
  const text = `${formatDuration(gap)} later${stall === undefined ? '' : `: ${isNarrow ? 'stall' : stall}`}`;
  return `${open}${line}${cut}${middleText(text, y, frame)}</g>`;
}

/** A missing packet has a cross at the place where its arrow would begin, a recovery the arrow back. */
function annotationRow(
  { y, annotation: { kind, text } }: Extract<LadderRow, { annotation: unknown }>,
  frame: Frame,
): string {
  const { left, right, rowHeight, embedded, isNarrow } = frame;
  const open = `<g class="annotation ${kind}"${embedded ? ' role="presentation"' : ''}>`;
  const line = kind === 'missing' ? `<line x1="${left}" y1="${n(y)}" x2="${right}" y2="${n(y)}"/>` : '';
  const sign = kind === 'missing' && !isNarrow ? cross(left + 14, y) : '';
  if (rowHeight < ROW_WITH_TEXT) return `${open}${line}${sign}</g>`;
  return `${open}${line}${sign}${middleText(text, y, frame)}</g>`;
}

/** Text in the middle between the lifelines; a narrow drawing needs its whole width. */
function middleText(text: string, y: number, { left, right, width, isNarrow }: Frame): string {
  const shown = fitted(text, isNarrow ? width - 2 * MARGIN : right - left - 44);
  const place = isNarrow ? `x="${right - 6}"` : `x="${n((left + right) / 2 + 8)}"`;
  return (
    `<text class="label" ${place} y="${n(y + 4)}" text-anchor="${isNarrow ? 'end' : 'middle'}">${escapeMarkup(shown)}` +
    `${shown === text ? '' : `<title>${escapeMarkup(text)}</title>`}</text>`
  );
}

/** The kinds that are there, each with its arrow. */
function legend(packets: readonly LadderPacket[], y: number): string {
  const there = new Set<PacketKind>(packets.map(kindOf));
  const out: string[] = [];
  let x = MARGIN;
  for (const kind of PACKET_KINDS) {
    if (!there.has(kind)) continue;
    out.push(
      `<g class="k-${kind}"><line class="line" x1="${n(x)}" y1="${n(y - 4)}" x2="${n(x + 26)}" y2="${n(y - 4)}"/>` +
        `<text x="${n(x + 32)}" y="${n(y)}">${kindNames[kind]}</text></g>`,
    );
    x += 32 + kindNames[kind].length * CHARACTER_WIDTH + 22;
  }
  return out.join('\n');
}
