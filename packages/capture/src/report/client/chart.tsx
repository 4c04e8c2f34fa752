/** A uPlot in the page: has the page's width, colours and time window; reports drags, hovers and clicks. */
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import type { TimeWindow } from './state.ts';
import { onPrint, onThemeChange, PAPER_WIDTH, themeColor } from './theme.ts';

/** The data of a chart; x is seconds. Made once a connection: a new one makes a new uPlot. */
export interface ChartContent {
  series: uPlot.Series[];
  data: uPlot.AlignedData;
  y: uPlot.Scale;
  yAxis: uPlot.Axis;
  /** Drawn below the points, and above them. */
  under?: (u: uPlot) => void;
  over?: (u: uPlot) => void;
}

interface Props {
  /** For those who don't see it. */
  label: string;
  content: ChartContent;
  /** CSS pixels, axes included. */
  height: number;
  window: TimeWindow;
  setWindow: (window: TimeWindow) => void;
  /** A time that is marked, in nanoseconds. */
  mark: number | undefined;
  /** Lines under the pointer about a point: the series from 1, the point's index in the data. */
  describe: (series: number, index: number) => string[];
  pick?: ((series: number, index: number) => void) | undefined;
}

/** CSS pixels within which a point is meant. */
const NEAR = 14;
/** A drag of less is a click. */
const MIN_DRAG = 5;
const NANOSECONDS = 1e9;
/** 1, 2 and 5 times powers of ten: "from" and "to" are exponents. */
export const axisSteps = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, i) =>
    [1, 2, 5].map((factor) => Number(`${factor}e${from + i}`)),
  ).flat();
const TIME_STEPS = axisSteps(-9, 6);

interface Hover {
  left: number;
  top: number;
  series: number;
  index: number;
}

export function Chart({ label, content, height, window, setWindow, mark, describe, pick }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const [hover, setHover] = useState<Hover>();
  // uPlot's hooks are made once, and look here for what holds now.
  const now = useRef({ mark, setWindow, hover, pick });
  now.current = { mark, setWindow, hover, pick };

  useLayoutEffect(() => {
    const element = place.current!;
    const u = new uPlot(
      optionsOf(content, element.clientWidth, height, {
        dragged: (from, to) => now.current.setWindow({ from, to }),
        hovered: setHover,
        markedAt: () => now.current.mark,
      }),
      content.data,
      element,
    );
    u.over.addEventListener('click', () => {
      const { hover, pick } = now.current;
      if (hover !== undefined) pick?.(hover.series, hover.index);
    });
    chart.current = u;
    const resized = new ResizeObserver(() => u.setSize({ width: element.clientWidth, height }));
    resized.observe(element);
    const stop = onThemeChange(() => u.redraw(false, true));
    // Scaled from the window's width the labels would be too small to read on paper.
    const stopPrint = onPrint((isPrinting) => {
      const width = isPrinting ? PAPER_WIDTH : element.clientWidth;
      u.setSize({ width, height });
    });
    return () => {
      resized.disconnect();
      stop();
      stopPrint();
      u.destroy();
      chart.current = undefined;
      setHover(undefined);
    };
  }, [content, height]);

  useEffect(() => {
    chart.current?.setScale('x', { min: window.from / NANOSECONDS, max: window.to / NANOSECONDS });
  }, [content, window.from, window.to]);
  useEffect(() => chart.current?.redraw(false, false), [mark]);

  const isPickable = hover !== undefined && pick !== undefined;
  return (
    <div class="chart" role="img" aria-label={label}>
      <div ref={place} class={isPickable ? 'pickable' : ''} />
      {hover !== undefined && (
        <Tip {...hover} lines={describe(hover.series, hover.index)} within={place.current!} />
      )}
    </div>
  );
}

interface TipProps extends Hover {
  lines: string[];
  within: HTMLElement;
}

function Tip({ left, top, lines, within }: TipProps) {
  // On the side that has more room.
  const side =
    left < within.clientWidth / 2 ? `left:${left + 14}px` : `right:${within.clientWidth - left + 14}px`;
  return (
    <div class="tip" style={`${side};top:${Math.max(0, top - 14)}px`}>
      {lines.map((line, i) => (
        <div key={line} class={i === 0 ? 'tip-title' : ''}>
          {line}
        </div>
      ))}
    </div>
  );
}

interface Hooks {
  dragged: (from: number, to: number) => void;
  hovered: (hover: Hover | undefined) => void;
  markedAt: () => number | undefined;
}

function optionsOf(content: ChartContent, width: number, height: number, hooks: Hooks): uPlot.Options {
  const axis: uPlot.Axis = {
    stroke: () => themeColor('faint'),
    font: '11px system-ui, sans-serif',
    grid: { stroke: () => themeColor('rule'), width: 0.5 },
    ticks: { stroke: () => themeColor('rule'), width: 0.5, size: 5 },
    labelFont: '11px system-ui, sans-serif',
    labelSize: 18,
    labelGap: 2,
  };
  return {
    width,
    height,
    padding: [10, 14, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      points: { show: false },
      drag: { setScale: false, x: true, y: false, dist: MIN_DRAG },
    },
    scales: { x: { time: false }, y: content.y },
    series: [{}, ...content.series],
    axes: [
      {
        ...axis,
        label: 'seconds since the first frame',
        size: 30,
        space: 90,
        incrs: TIME_STEPS,
        values: (_u, splits) => splits.map(formatSplit(splits)),
      },
      { ...axis, size: 66, ...content.yAxis },
    ],
    hooks: {
      setSelect: [
        (u) => {
          const { left, width: wide } = u.select;
          if (wide < MIN_DRAG) return;
          const at = (x: number) => u.posToVal(x, 'x') * NANOSECONDS;
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          hooks.dragged(at(left), at(left + wide));
        },
      ],
      setCursor: [(u) => hooks.hovered(nearest(u))],
      drawAxes: [(u) => content.under?.(u)],
      draw: [(u) => content.over?.(u), (u) => drawMark(u, hooks.markedAt())],
    },
  };
}

/** As many digits as distinguish the splits of an axis. */
function formatSplit(splits: readonly number[]): (split: number) => string {
  const step = splits.length > 1 ? splits[1] - splits[0] : 1;
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  return (split) => split.toFixed(digits);
}

/** The point next to the pointer, over all series that are shown. */
function nearest(u: uPlot): Hover | undefined {
  const { left = -1, top = -1 } = u.cursor;
  if (left < 0 || top < 0) return undefined;
  const xs = u.data[0];
  const span = Math.abs(u.posToVal(NEAR, 'x') - u.posToVal(0, 'x'));
  const x = u.posToVal(left, 'x');
  let best: Hover | undefined;
  let least = NEAR * NEAR;
  for (let i = lowerBound(xs, x - span); i < xs.length && xs[i] <= x + span; i++) {
    // The series that is drawn last lies on top.
    for (let s = u.series.length - 1; s > 0; s--) {
      const y = u.data[s][i];
      if (y === null || y === undefined || u.series[s].show === false) continue;
      const [px, py] = [u.valToPos(xs[i], 'x'), u.valToPos(y, 'y')];
      const distance = (px - left) ** 2 + (py - top) ** 2;
      if (distance >= least) continue;
      least = distance;
      const [ox, oy] = [u.over.offsetLeft, u.over.offsetTop];
      best = { left: px + ox, top: py + oy, series: s, index: i };
    }
  }
  return best;
}

/** The first place of a sorted list whose value is not less. */
function lowerBound(sorted: ArrayLike<number>, value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawMark(u: uPlot, time: number | undefined): void {
  if (time === undefined) return;
  const x = u.valToPos(time / NANOSECONDS, 'x', true);
  const { left, top, width, height } = u.bbox;
  if (x < left || x > left + width) return;
  u.ctx.save();
  u.ctx.setLineDash([]);
  u.ctx.strokeStyle = themeColor('accent');
  u.ctx.lineWidth = devicePixelRatio;
  u.ctx.beginPath();
  u.ctx.moveTo(x, top);
  u.ctx.lineTo(x, top + height);
  u.ctx.stroke();
  u.ctx.restore();
}
