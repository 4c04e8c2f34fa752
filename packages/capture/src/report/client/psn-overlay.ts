/** Drawings under and over the points of the PSN plot: hatched stalls, and lines from evidence to resend. */
import type uPlot from 'uplot';
import { formatDuration } from '../../units.ts';
import type { PsnContent, PsnJoin } from './psn-points.ts';
import { saveAndClip } from './shapes.ts';
import { themeColor } from './theme.ts';

const NANOSECONDS = 1e9;
/** CSS pixels: between hatches, of labels, and of the least length that has one. */
const HATCH = 7;
const FONT = 11;
const MIN_LABELLED = 46;
const HEAD = 5;

/** Hatches the times in which requests were outstanding and nothing happened; they print without colours. */
export function drawStalls(u: uPlot, { stalls }: PsnContent): void {
  const { ctx, bbox } = u;
  const { left, top, width, height } = bbox;
  const ratio = devicePixelRatio;
  saveAndClip(ctx, left, top, width, height);
  ctx.setLineDash([]);
  ctx.lineWidth = ratio;
  for (const { start, duration } of stalls) {
    const from = Math.max(left, u.valToPos(start / NANOSECONDS, 'x', true));
    const to = Math.min(left + width, u.valToPos((start + duration) / NANOSECONDS, 'x', true));
    if (to - from < 2 * ratio) continue;
    saveAndClip(ctx, from, top, to - from, height);
    ctx.strokeStyle = themeColor('rule');
    ctx.beginPath();
    for (let x = from - height; x < to; x += HATCH * ratio) {
      ctx.moveTo(x, top + height);
      ctx.lineTo(x + height, top);
    }
    ctx.stroke();
    ctx.restore();
    if (to - from >= MIN_LABELLED * ratio)
      label(u, formatDuration(duration), (from + to) / 2, top + FONT * ratio, 'faint');
  }
  ctx.restore();
}

/** Joins the evidence of each recovery to its first packet: a NAK by a line, a silence by a dashed one. */
export function drawJoins(u: uPlot, { joins }: PsnContent): void {
  const { ctx, bbox } = u;
  const { left, top, width, height } = bbox;
  const ratio = devicePixelRatio;
  saveAndClip(ctx, left, top, width, height);
  ctx.strokeStyle = themeColor('text');
  ctx.fillStyle = themeColor('text');
  for (const join of joins) {
    const [x1, y1] = [
      u.valToPos(join.fromTime / NANOSECONDS, 'x', true),
      u.valToPos(join.fromPsn, 'y', true),
    ];
    const [x2, y2] = [u.valToPos(join.time / NANOSECONDS, 'x', true), u.valToPos(join.psn, 'y', true)];
    if (x2 < left || x1 > left + width || Math.hypot(x2 - x1, y2 - y1) < 4 * ratio) continue;
    ctx.setLineDash(join.isSilence ? [4 * ratio, 3 * ratio] : []);
    ctx.lineWidth = ratio;
    ctx.beginPath();
    ctx.moveTo(x1, y1);
    ctx.lineTo(x2, y2);
    ctx.stroke();
    arrowHead(ctx, x1, y1, x2, y2, HEAD * ratio);
    labelJoin(u, join, x1, x2, y2);
  }
  ctx.restore();
}

function arrowHead(
  ctx: CanvasRenderingContext2D,
  x1: number,
  y1: number,
  x2: number,
  y2: number,
  size: number,
): void {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  ctx.beginPath();
  ctx.moveTo(x2, y2);
  for (const turn of [-0.45, 0.45])
    ctx.lineTo(x2 - size * Math.cos(angle + turn), y2 - size * Math.sin(angle + turn));
  ctx.closePath();
  ctx.fill();
}

function labelJoin(u: uPlot, { text }: PsnJoin, x1: number, x2: number, y: number): void {
  const { left, width } = u.bbox;
  const [from, to] = [Math.max(left, x1), Math.min(left + width, x2)];
  if (text === '' || to - from < 2 * MIN_LABELLED * devicePixelRatio) return;
  label(u, text, (from + to) / 2, y - 8 * devicePixelRatio, 'text');
}

/** Text that stays readable over points and lines. */
function label({ ctx }: uPlot, text: string, x: number, y: number, color: 'text' | 'faint'): void {
  ctx.save();
  ctx.setLineDash([]);
  ctx.font = `${FONT * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.strokeStyle = themeColor('paper');
  ctx.strokeText(text, x, y);
  ctx.fillStyle = themeColor(color);
  ctx.fillText(text, x, y);
  ctx.restore();
}
