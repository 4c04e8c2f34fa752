/** Points of charts in shapes that distinguish kinds without colours. */
import type uPlot from 'uplot';

/** `step` is a line and has no points. */
export type Shape =
  | 'step'
  | 'dot'
  | 'ring'
  | 'plus'
  | 'triangle'
  | 'diamond'
  | 'square'
  | 'up'
  | 'down'
  | 'bar'
  | 'star'
  | 'filled-down'
  | 'cross'
  | 'crossed-ring';

/** Half the size of each, in CSS pixels. */
const sizes: Readonly<Record<Shape, number>> = {
  step: 0,
  dot: 2.2,
  ring: 2.6,
  plus: 4.5,
  triangle: 5,
  diamond: 4.5,
  square: 3.6,
  up: 4.5,
  down: 4.5,
  bar: 4.5,
  star: 4.5,
  'filled-down': 5,
  cross: 5,
  'crossed-ring': 6.5,
};
/** From so many points on those that are common are smaller, so that they do not hide each other. */
const MANY = 400;
const SMALL: ReadonlySet<Shape> = new Set<Shape>([
  'dot',
  'ring',
  'diamond',
  'square',
  'up',
  'down',
  'filled-down',
  'bar',
  'star',
]);
const FEWER = 0.65;
/** More than a canvas is high, in places of two pixels. */
const PLACES = 65_536;
const filled: ReadonlySet<Shape> = new Set<Shape>(['dot', 'triangle', 'filled-down']);

/**
 * A uPlot `points.show` that draws the points itself: the library has circles only.
 * @param count of points in the chart: many are small ones
 * @param joined points of a selection no further apart than so many seconds are joined, so that they do not look sparse
 */
export function drawPoints(
  shape: Shape,
  color: () => string,
  count: number,
  joined = 0,
): uPlot.Series.Points.Show {
  const isSmall = count > MANY && SMALL.has(shape);
  const size = sizes[shape] * (isSmall ? FEWER : 1);
  return (u, series, from, to) => {
    const { ctx, bbox } = u;
    const r = size * devicePixelRatio;
    // Points at the edge are shown whole.
    saveAndClip(ctx, bbox.left - r, bbox.top - r, bbox.width + 2 * r, bbox.height + 2 * r);
    const xs = u.data[0];
    const ys = u.data[series];
    if (joined > 0) {
      ctx.strokeStyle = color();
      ctx.lineWidth = 1.5 * devicePixelRatio;
      join(u, series, from, to, joined);
    }
    ctx.beginPath();
    // Points of one place are drawn once: thousands of outlines take seconds.
    const drawn = new Set<number>();
    for (let i = from; i <= to; i++) {
      const y = ys[i];
      if (y === null || y === undefined) continue;
      const [px, py] = [u.valToPos(xs[i], 'x', true), u.valToPos(y, 'y', true)];
      const place = Math.round(px / 2) * PLACES + Math.round(py / 2);
      if (drawn.has(place)) continue;
      drawn.add(place);
      trace(ctx, shape, px, py, r);
    }
    if (filled.has(shape)) {
      ctx.fillStyle = color();
      ctx.fill();
    } else {
      ctx.strokeStyle = color();
      ctx.lineWidth = (isSmall || shape === 'ring' ? 1.2 : 1.8) * devicePixelRatio;
      ctx.stroke();
    }
    ctx.restore();
    return false;
  };
}

/** Lines between points that are not far apart. */
function join(u: uPlot, series: number, from: number, to: number, most: number): void {
  const { ctx } = u;
  const xs = u.data[0];
  const ys = u.data[series];
  let last = -1;
  ctx.beginPath();
  for (let i = from; i <= to; i++) {
    const y = ys[i];
    if (y === null || y === undefined) continue;
    const [px, py] = [u.valToPos(xs[i], 'x', true), u.valToPos(y, 'y', true)];
    if (last >= 0 && xs[i] - xs[last] <= most) ctx.lineTo(px, py);
    else ctx.moveTo(px, py);
    last = i;
  }
  ctx.stroke();
}

type Pen = Pick<CanvasRenderingContext2D, 'moveTo' | 'lineTo' | 'arc' | 'rect' | 'closePath'>;

/** The outline of a shape about its middle. */
function trace(pen: Pen, shape: Shape, x: number, y: number, r: number): void {
  const polygon = (points: readonly (readonly [number, number])[]) => {
    for (let i = 0; i < points.length; i++) {
      const [dx, dy] = points[i];
      if (i === 0) pen.moveTo(x + dx * r, y + dy * r);
      else pen.lineTo(x + dx * r, y + dy * r);
    }
    pen.closePath();
  };
  const stroke = (dx: number, dy: number) => {
    pen.moveTo(x - dx * r, y - dy * r);
    pen.lineTo(x + dx * r, y + dy * r);
  };
  switch (shape) {
    case 'step':
      break;
    case 'dot':
    case 'square':
      pen.rect(x - r, y - r, 2 * r, 2 * r);
      break;
    case 'crossed-ring':
      stroke(0.7, 0.7);
      stroke(0.7, -0.7);
      pen.moveTo(x + r, y);
      pen.arc(x, y, r, 0, 2 * Math.PI);
      break;
    case 'ring':
      pen.moveTo(x + r, y);
      pen.arc(x, y, r, 0, 2 * Math.PI);
      break;
    case 'triangle':
    case 'up':
      polygon([
        [0, -1],
        [1, 0.8],
        [-1, 0.8],
      ]);
      break;
    case 'down':
    case 'filled-down':
      polygon([
        [0, 1],
        [1, -0.8],
        [-1, -0.8],
      ]);
      break;
    case 'diamond':
      polygon([
        [0, -1],
        [1, 0],
        [0, 1],
        [-1, 0],
      ]);
      break;
    case 'bar':
      stroke(0, 1);
      break;
    case 'star':
      stroke(0, 1);
      stroke(0.87, 0.5);
      stroke(0.87, -0.5);
      break;
    case 'plus':
      stroke(0, 1);
      stroke(1, 0);
      break;
    case 'cross':
      stroke(1, 1);
      stroke(1, -1);
      break;
  }
}

/** The same outline as the data of an SVG path. */
export function shapePath(shape: Shape, x: number, y: number, r: number): string {
  const parts: string[] = [];
  const n = (value: number) => value.toFixed(2);
  trace(
    {
      moveTo: (px, py) => parts.push(`M${n(px)} ${n(py)}`),
      lineTo: (px, py) => parts.push(`L${n(px)} ${n(py)}`),
      closePath: () => parts.push('Z'),
      rect: (px, py, w, h) => parts.push(`M${n(px)} ${n(py)}h${n(w)}v${n(h)}h${n(-w)}Z`),
      arc: (px, py, radius) =>
        parts.push(
          `M${n(px + radius)} ${n(py)}a${n(radius)} ${n(radius)} 0 1 0 -${n(2 * radius)} 0a${n(radius)} ${n(radius)} 0 1 0 ${n(2 * radius)} 0`,
        ),
    },
    shape,
    x,
    y,
    r,
  );
  return parts.join('');
}

export const isFilled = (shape: Shape): boolean => filled.has(shape);

/** Saves the context's state and draws in a rectangle alone, until it is restored. */
export function saveAndClip(
  ctx: CanvasRenderingContext2D,
  left: number,
  top: number,
  width: number,
  height: number,
): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
}
