/** Throughput and latency over time. */
import { useMemo } from 'preact/hooks';
import uPlot from 'uplot';
import { formatDuration, formatRate, formatTime } from '../../units.ts';
import type { ReportConnection } from '../data.ts';
import type { ThemeColor } from '../themes.ts';
import { Chart, type ChartContent } from './chart.tsx';
import { drawPoints } from './shapes.ts';
import type { TimeWindow } from './state.ts';
import { themeColor } from './theme.ts';

const HEIGHT = 190;
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
          <span class="faint">payload, in spans of {formatDuration(connection.throughput.span)}</span>
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
      paths: uPlot.paths.stepped!({ align: 1 }),
      points: { show: false },
    })),
    y: { range: (_u, _least, most) => [0, (most || 1) * 1.1] },
    yAxis: { values: (_u, splits) => splits.map(formatRate) },
  };
}

export function LatencyPlot({
  connection,
  showFrame,
  ...time
}: Props & { showFrame: (frame: number) => void }) {
  const points = useMemo(
    () => connection.latency.filter(({ nanoseconds }) => nanoseconds > 0).sort((x, y) => x.time - y.time),
    [connection],
  );
  const content = useMemo(() => latencyOf(points), [points]);
  const { ackLatency, readRoundTrip } = connection;
  const spread = [
    ackLatency && `ACK p50 ${formatDuration(ackLatency.p50)}, p99 ${formatDuration(ackLatency.p99)}`,
  ]
    .concat(
      readRoundTrip &&
        `READ p50 ${formatDuration(readRoundTrip.p50)}, p99 ${formatDuration(readRoundTrip.p99)}`,
    )
    .filter((text) => text !== undefined);
  return (
    <figure>
      <figcaption>
        <h3>Latency</h3>
        <p class="legend faint">
          {spread.length > 0 ? spread.join(' · ') : 'last request packet to ACK or last response'} (log scale)
        </p>
      </figcaption>
      {points.length === 0 ? (
        <p class="empty">No message was seen from its request to its answer.</p>
      ) : (
        <Chart
          label={`Latency of messages over time. ${spread.join(' · ')}`}
          content={content}
          height={HEIGHT}
          {...time}
          describe={(_, i) => [
            `Message ${points[i].message}`,
            formatDuration(points[i].nanoseconds),
            formatTime(points[i].time),
          ]}
          pick={(_, i) => {
            const message = connection.messages.find(({ id }) => id === points[i].message);
            if (message !== undefined) showFrame(message.firstFrame);
          }}
        />
      )}
    </figure>
  );
}

function latencyOf(points: ReportConnection['latency']): ChartContent {
  return {
    data: [points.map(({ time }) => time / NANOSECONDS), points.map(({ nanoseconds }) => nanoseconds)],
    series: [
      { paths: () => null, points: { show: drawPoints('dot', () => themeColor('request'), points.length) } },
    ],
    y: { distr: 3, range: (_u, least, most) => decades(least ?? 1, most ?? 10) },
    yAxis: {
      splits: (_u, _axis, low, high) => powersOfTen(low, high),
      values: (_u, splits) => splits.map(formatDuration),
    },
  };
}

/** Whole powers of ten about the values. */
const decades = (least: number, most: number): [number, number] => {
  const low = 10 ** Math.floor(Math.log10(least));
  return [low, Math.max(low * 10, 10 ** Math.ceil(Math.log10(most)))];
};

function powersOfTen(low: number, high: number): number[] {
  const powers: number[] = [];
  for (let power = low; power <= high * 1.001; power *= 10) powers.push(power);
  return powers;
}
