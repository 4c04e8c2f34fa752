/** Latency of messages over time by operation, with the ACK round trip, percentiles as lines and by class. */
import { useMemo } from 'preact/hooks';
import type uPlot from 'uplot';
import type { Distribution } from '../../flow/analysis.ts';
import { formatBytes, formatCount, formatDuration, formatTime } from '../../units.ts';
import type { ReportConnection } from '../data.ts';
import type { ThemeColor } from '../themes.ts';
import { Chart, type ChartContent } from './chart.tsx';
import { KeySymbol } from './psn-plot.tsx';
import { drawPoints, type Shape } from './shapes.ts';
import type { TimeWindow } from './state.ts';
import { themeColor } from './theme.ts';

const HEIGHT = 230;
const NANOSECONDS = 1e9;

interface Look {
  name: string;
  color: ThemeColor;
  shape: Shape;
  has: (operation: string) => boolean;
}

const looks: readonly Look[] = [
  { name: 'SEND', color: 'request', shape: 'dot', has: (name) => name.startsWith('SEND') },
  { name: 'WRITE', color: 'retransmission', shape: 'diamond', has: (name) => name.includes('WRITE') },
  { name: 'READ', color: 'response', shape: 'ring', has: (name) => name === 'RDMA_READ' },
  { name: 'Other', color: 'rnr', shape: 'up', has: () => true },
];
const ROUND_TRIP: Omit<Look, 'has'> = { name: 'ACK round trip', color: 'ack', shape: 'bar' };
/** Percentiles with a line. */
const LINES = ['p50', 'p99'] as const;

interface Props {
  connection: ReportConnection;
  window: TimeWindow;
  setWindow: (window: TimeWindow) => void;
  mark: number | undefined;
  showFrame: (frame: number) => void;
}

export function LatencyPlot({ connection, showFrame, ...time }: Props) {
  const points = useMemo(
    () => connection.latency.filter(({ nanoseconds }) => nanoseconds > 0).sort((x, y) => x.time - y.time),
    [connection],
  );
  const content = useMemo(() => contentOf(points, connection.completion), [points, connection]);
  const present = looks.filter((_, i) => points.some(({ operation }) => lookOf(operation) === i));
  const { completion } = connection;
  const spread = LINES.map((name) => completion && `${name} ${formatDuration(completion[name])}`).filter(
    Boolean,
  );
  return (
    <figure id="latency">
      <figcaption>
        <h3>Latency</h3>
        <p class="legend">
          {present.map(({ name, shape, color }) => (
            <span key={name} class="key">
              <KeySymbol shape={shape} color={color} />
              {name}
            </span>
          ))}
          {points.some(({ ackRoundTrip }) => ackRoundTrip !== undefined) && (
            <span class="key">
              <KeySymbol shape={ROUND_TRIP.shape} color={ROUND_TRIP.color} />
              {ROUND_TRIP.name}
            </span>
          )}
          <span class="faint">first packet to completion, log scale</span>
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
          describe={(_, i) => {
            const { message, operation, nanoseconds, ackRoundTrip, time: at } = points[i];
            return [
              `Message ${message}: ${operation}`,
              `latency ${formatDuration(nanoseconds)}`,
              ...(ackRoundTrip === undefined ? [] : [`ACK round trip ${formatDuration(ackRoundTrip)}`]),
              `completed at ${formatTime(at)}`,
            ];
          }}
          pick={(_, i) => {
            const message = connection.messages.find(({ id }) => id === points[i].message);
            if (message !== undefined) showFrame(message.firstFrame);
          }}
        />
      )}
    </figure>
  );
}

const lookOf = (operation: string): number => looks.findIndex(({ has }) => has(operation));

function contentOf(points: ReportConnection['latency'], completion: Distribution | undefined): ChartContent {
  const ofLook = looks.map((_, i) =>
    points.map(({ operation, nanoseconds }) => (lookOf(operation) === i ? nanoseconds : null)),
  );
  const roundTrips = points.map(({ ackRoundTrip }) => (ackRoundTrip ? ackRoundTrip : null));
  return {
    data: [points.map(({ time }) => time / NANOSECONDS), roundTrips, ...ofLook],
    series: [ROUND_TRIP, ...looks].map(({ shape, color }) => ({
      paths: () => null,
      points: { show: drawPoints(shape, () => themeColor(color), points.length) },
    })),
    y: { distr: 3, range: (_u, least, most) => decades(least ?? 1, most ?? 10) },
    yAxis: {
      label: 'latency',
      splits: (_u, _axis, low, high) => powersOfTen(low, high),
      values: (_u, splits) => splits.map(formatDuration),
    },
    over: (u) => drawPercentiles(u, completion),
  };
}

/** Dashed lines across the plot, named at the right end. */
function drawPercentiles(u: uPlot, completion: Distribution | undefined): void {
  if (completion === undefined) return;
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = 'right';
  ctx.strokeStyle = themeColor('faint');
  ctx.lineWidth = ratio;
  let lowest = Number.POSITIVE_INFINITY;
  for (const name of LINES.toReversed()) {
    const y = u.valToPos(completion[name], 'y', true);
    ctx.setLineDash([5 * ratio, 4 * ratio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    // Two that are close have one name above the line, and one below it.
    const below = lowest !== Number.POSITIVE_INFINITY && y - lowest < 16 * ratio;
    lowest = y;
    const text = `${name} ${formatDuration(completion[name])}`;
    const [x, base] = [bbox.left + bbox.width - 3 * ratio, y + (below ? 13 : -4) * ratio];
    ctx.setLineDash([]);
    ctx.save();
    ctx.lineWidth = 4 * ratio;
    ctx.strokeStyle = themeColor('paper');
    ctx.strokeText(text, x, base);
    ctx.fillStyle = themeColor('text');
    ctx.fillText(text, x, base);
    ctx.restore();
  }
  ctx.restore();
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

const PERCENTILES = [
  ['count', ({ count }) => formatCount(count)],
  ['p50', ({ p50 }) => formatDuration(p50)],
  ['p90', ({ p90 }) => formatDuration(p90)],
  ['p99', ({ p99 }) => formatDuration(p99)],
  ['p99.9', ({ p999 }) => formatDuration(p999)],
  ['max', ({ max }) => formatDuration(max)],
] as const satisfies readonly (readonly [string, (of: Distribution) => string])[];

/** Percentiles by operation and size, with the round trips. */
export function LatencyClasses({ connection }: { connection: ReportConnection }) {
  const { latencyClasses, ackRoundTrip, readRoundTrip, completion } = connection;
  if (completion === undefined) return null;
  const ends = new Set(latencyClasses.map(({ from }) => from)).size;
  const sorted = latencyClasses.toSorted(
    (x, y) =>
      x.from.localeCompare(y.from) ||
      x.operation.localeCompare(y.operation) ||
      (x.mostBytes ?? Infinity) - (y.mostBytes ?? Infinity),
  );
  const rows: [name: string, of: Distribution | undefined, isOther?: boolean][] = [
    ...sorted.map(({ from, operation, mostBytes, ...of }): [string, Distribution] => [
      `${ends > 1 ? `${from.toUpperCase()}: ` : ''}${operation}, ${mostBytes === undefined ? 'longer' : `to ${formatBytes(mostBytes)}`}`,
      of,
    ]),
    ['All messages', completion],
    ['ACK round trip (last packet to its ACK)', ackRoundTrip, true],
    ['READ or atomic request to its last response', readRoundTrip, true],
  ];
  return (
    <div class="classes">
      <table class="figures-table">
        <caption>Latency by operation and size: first packet to completion</caption>
        <thead>
          <tr>
            <td />
            {PERCENTILES.map(([name]) => (
              <th
                key={name}
                scope="col"
                class={`number ${name === 'p90' || name === 'p99.9' ? 'extra' : ''}`}
              >
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(
            ([name, of, isOther]) =>
              of !== undefined && (
                <tr key={name} class={isOther ? 'other' : ''}>
                  <th scope="row">{name}</th>
                  {PERCENTILES.map(([part, text]) => (
                    <td key={part} class={`number ${part === 'p90' || part === 'p99.9' ? 'extra' : ''}`}>
                      {text(of)}
                    </td>
                  ))}
                </tr>
              ),
          )}
        </tbody>
      </table>
    </div>
  );
}
