/** Points of charts in shapes that tell kinds apart without colours. */
import type uPlot from 'uplot';

/** `step` is a line and has no points. */
export type Shape = 'dot' | 'ring' | 'triangle' | 'diamond' | 'cross' | 'step';

/** Half the size of each, in CSS pixels. */
const sizes: Readonly<Record<Shape, number>> = {
  dot: 2.6,
  ring: 4,
  triangle: 5,
  diamond: 4.5,
  cross: 5,
  step: 0,
};
/** From so many points on dots are smaller. */
const MANY = 200;
const SMALL_DOT = 1.6;
const filled: ReadonlySet<Shape> = new Set<Shape>(['dot', 'triangle']);

/**
 * A uPlot `points.show` that draws the points itself: the library has circles only.
 * @param count of points in the chart: many dots are small ones
 */
export function drawPoints(shape: Shape, color: () => string, count: number): uPlot.Series.Points.Show {
  const size = shape === 'dot' && count > MANY ? SMALL_DOT : sizes[shape];
  return (u, series, from, to) => {
    const { ctx, bbox } = u;
    const r = size * devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    // Points at the edge are shown whole.
    ctx.rect(bbox.left - r, bbox.top - r, bbox.width + 2 * r, bbox.height + 2 * r);
    ctx.clip();
    ctx.beginPath();
    const xs = u.data[0];
    const ys = u.data[series];
    for (let i = from; i <= to; i++) {
      const y = ys[i];
      if (y === null || y === undefined) continue;
      trace(ctx, shape, u.valToPos(xs[i], 'x', true), u.valToPos(y, 'y', true), r);
    }
    if (filled.has(shape)) {
      ctx.fillStyle = color();
      ctx.fill();
    } else {
      ctx.strokeStyle = color();
      ctx.lineWidth = 1.8 * devicePixelRatio;
      ctx.stroke();
    }
    ctx.restore();
    return false;
  };
}

function trace(ctx: CanvasRenderingContext2D, shape: Shape, x: number, y: number, r: number): void {
  switch (shape) {
    case 'dot':
      ctx.rect(x - r, y - r, 2 * r, 2 * r);
      break;
    case 'ring':
      ctx.moveTo(x + r, y);
      ctx.arc(x, y, r, 0, 2 * Math.PI);
      break;
    case 'triangle':
      ctx.moveTo(x, y - r);
      ctx.lineTo(x + r, y + r * 0.8);
      ctx.lineTo(x - r, y + r * 0.8);
      ctx.closePath();
      break;
    case 'diamond':
      ctx.moveTo(x, y - r);
      ctx.lineTo(x + r, y);
      ctx.lineTo(x, y + r);
      ctx.lineTo(x - r, y);
      ctx.closePath();
      break;
    case 'cross':
      ctx.moveTo(x - r, y - r);
      ctx.lineTo(x + r, y + r);
      ctx.moveTo(x + r, y - r);
      ctx.lineTo(x - r, y + r);
      break;
    case 'step':
      break;
  }
}
