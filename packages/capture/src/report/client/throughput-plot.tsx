/** Throughput over time. */
import { useMemo } from 'preact/hooks';
import uPlot from 'uplot';
import { formatDuration, formatRate, formatTime } from '../../units.ts';
import type { ReportConnection } from '../data.ts';
import type { ThemeColor } from '../themes.ts';
import { Chart, type ChartContent } from './chart.tsx';
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

const directions: readonly { name: string; color: ThemeColor; dash: number[] | undefined }[] = [
  { name: 'A → B', color: 'request', dash: undefined },
  { name: 'B → A', color: 'response', dash: [6, 3] },
];

export function ThroughputPlot({ connection, ...time }: Props) {
  const content = useMemo(() => throughputOf(connection), [connection]);
  const peak = Math.max(0, ...content.data.slice(1).flatMap((rates) => [...rates].map((rate) => rate ?? 0)));
  return (
    <figure>
      <figcaption>
        <h3>Throughput</h3>
        <p class="legend">
          {directions.map(({ name, color, dash }) => (
            <span key={name} class="key">
              <svg viewBox="0 0 22 14" width="22" height="14" aria-hidden="true">
                <path
                  d="M0 7h22"
                  style={`stroke:var(--${color});stroke-width:2`}
                  stroke-dasharray={dash?.join(' ')}
                />
              </svg>
              {name}
            </span>
          ))}
          <span class="faint">
            payload with retransmissions, per {formatDuration(connection.throughput.span)}
          </span>
        </p>
      </figcaption>
      <Chart
        label={`Payload per second over time, at most ${formatRate(peak)}`}
        content={content}
        height={HEIGHT}
        {...time}
        describe={(series, i) => [
          directions[series - 1].name,
          formatRate(content.data[series][i] ?? 0),
          `from ${formatTime(content.data[0][i] * NANOSECONDS)}`,
        ]}
      />
    </figure>
  );
}

function throughputOf({ throughput: { start, span, aToB, bToA } }: ReportConnection): ChartContent {
  const rate = (bytes: number) => (span > 0 ? (bytes * 8 * NANOSECONDS) / span : 0);
  // The last span's step ends where the next one would begin.
  const closed = (bytes: readonly number[]) => [...bytes, bytes.at(-1) ?? 0].map(rate);
  const times = Array.from({ length: aToB.length + 1 }, (_, i) => (start + i * span) / NANOSECONDS);
  return {
    data: [times, closed(aToB), closed(bToA)],
    series: directions.map(({ color, dash }) => ({
      stroke: () => themeColor(color),
      width: 1.5,
      dash,
      // Filled: where little was sent, an outline alone can't be distinguished from the axis.
      fill: () => `${themeColor(color)}22`,
      paths: uPlot.paths.stepped!({ align: 1 }),
      points: { show: false },
    })),
    y: { range: (_u, _least, most) => [0, (most || 1) * 1.1] },
    yAxis: { label: 'payload a second', values: (_u, splits) => splits.map(formatRate) },
  };
}
