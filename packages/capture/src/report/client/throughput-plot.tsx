/** Throughput over time. */
import { useMemo } from 'preact/hooks';
import uPlot from 'uplot';
import { formatDuration, formatRate, formatTime } from '../../units.ts';
import type { ReportConnection } from '../data.ts';
import type { ThemeColor } from '../themes.ts';
import { Chart, type ChartContent } from './chart.tsx';
import { LegendKey } from './legend-key.tsx';
import type { TimeWindow } from './state.ts';
import { themeColor } from './theme.ts';

const HEIGHT = 230;
const NANOSECONDS = 1e9;

interface Props {
  connection: ReportConnection;
  window: TimeWindow;
  setWindow: (window: TimeWindow) => void;
  mark: number | undefined;
}

interface Line {
  name: string;
  color: ThemeColor;
  dash: number[] | undefined;
  /** Bytes in each span. */
  bytes: readonly number[];
  isGoodput: boolean;
}

/** Payload of both directions; of one with retransmissions also the payload without them. */
function linesOf({ throughput: { aToB, bToA, againAToB, againBToA } }: ReportConnection): Line[] {
  const directions = [
    { name: 'A → B', color: 'request', dash: undefined, bytes: aToB, again: againAToB },
    { name: 'B → A', color: 'response', dash: [6, 3], bytes: bToA, again: againBToA },
  ] as const;
  return directions.flatMap(({ name, color, dash, bytes, again }) => {
    const line = { name, color, dash: dash && [...dash], bytes, isGoodput: false };
    if (again.length === 0) return [line];
    const goodput = bytes.map((all, i) => all - again[i]);
    return [
      line,
      { name: `${name} goodput`, color: 'retransmission', dash: [2, 3], bytes: goodput, isGoodput: true },
    ];
  });
}

export function ThroughputPlot({ connection, ...time }: Props) {
  const lines = useMemo(() => linesOf(connection), [connection]);
  const content = useMemo(() => contentOf(connection, lines), [connection, lines]);
  const peak = Math.max(0, ...content.data.slice(1).flatMap((rates) => [...rates].map((rate) => rate ?? 0)));
  const hasGoodput = lines.some(({ isGoodput }) => isGoodput);
  return (
    <figure>
      <figcaption>
        <h3>Throughput</h3>
        <p class="legend">
          {lines.map(({ name, color, dash }) => (
            <LegendKey key={name} name={name} color={color} dash={dash} />
          ))}
          <span class="faint">
            payload with retransmissions{hasGoodput ? '; goodput without' : ''}, per{' '}
            {formatDuration(connection.throughput.span)}
          </span>
        </p>
      </figcaption>
      <Chart
        label={`Payload per second over time, at most ${formatRate(peak)}`}
        content={content}
        height={HEIGHT}
        {...time}
        describe={(series, i) => [
          lines[series - 1].name,
          formatRate(content.data[series][i] ?? 0),
          `from ${formatTime(content.data[0][i] * NANOSECONDS)}`,
        ]}
      />
    </figure>
  );
}

function contentOf(
  { throughput: { start, span, aToB } }: ReportConnection,
  lines: readonly Line[],
): ChartContent {
  const rate = (bytes: number) => (span > 0 ? (bytes * 8 * NANOSECONDS) / span : 0);
  // The last span's step ends where the next one would begin.
  const closed = (bytes: readonly number[]) => [...bytes, bytes.at(-1) ?? 0].map(rate);
  const times = Array.from({ length: aToB.length + 1 }, (_, i) => (start + i * span) / NANOSECONDS);
  return {
    data: [times, ...lines.map(({ bytes }) => closed(bytes))],
    series: lines.map(({ color, dash, isGoodput }) => ({
      stroke: () => themeColor(color),
      width: 1.5,
      dash,
      // Filled: where little was sent, an outline alone can't be distinguished from the axis.
      ...(!isGoodput && { fill: () => `${themeColor(color)}22` }),
      paths: uPlot.paths.stepped!({ align: 1 }),
      points: { show: false },
    })),
    y: { range: (_u, _least, most) => [0, (most || 1) * 1.1] },
    yAxis: { label: 'payload a second', values: (_u, splits) => splits.map(formatRate) },
  };
}
