/**
 * PSN over time, as tcptrace draws sequence numbers: a point a packet at the time when it was seen, the ACKs as a
 * line that the packets run ahead of. What went wrong has a colour and a shape of its own.
 */
import { useMemo, useState } from 'preact/hooks';
import uPlot from 'uplot';
import type { PlotPoint } from '../../flow/analysis.ts';
import { formatCount, formatEndpoint, formatTime } from '../../units.ts';
import { fromColumns, type ReportConnection } from '../data.ts';
import type { ThemeColor } from '../themes.ts';
import { axisSteps, Chart, type ChartContent } from './chart.tsx';
import { drawPoints, type Shape } from './shapes.ts';
import type { TimeWindow } from './state.ts';
import { themeColor } from './theme.ts';

type Kind = PlotPoint['kind'];

interface Look {
  name: string;
  color: ThemeColor;
  shape: Shape;
}

/** In the order in which they are drawn: what matters lies on top. */
const looks: Readonly<Record<Kind, Look>> = {
  ack: { name: 'ACK', color: 'ack', shape: 'step' },
  request: { name: 'Request', color: 'request', shape: 'dot' },
  response: { name: 'Response', color: 'response', shape: 'dot' },
  marked: { name: 'ECN mark', color: 'cnp', shape: 'ring' },
  cnp: { name: 'CNP', color: 'cnp', shape: 'triangle' },
  retransmission: { name: 'Retransmission', color: 'retransmission', shape: 'diamond' },
  rnr: { name: 'RNR NAK', color: 'rnr', shape: 'triangle' },
  nak: { name: 'NAK', color: 'nak', shape: 'cross' },
};
const KINDS = Object.keys(looks) as Kind[];
const PSN_COUNT = 2 ** 24;
/** Steps of the axis: PSNs have no fractions. */
const STEPS = axisSteps(0, 9);

interface Props {
  connection: ReportConnection;
  window: TimeWindow;
  setWindow: (window: TimeWindow) => void;
  mark: number | undefined;
  showFrame: (frame: number) => void;
}

export function PsnPlot({ connection, window, setWindow, mark, showFrame }: Props) {
  const points = useMemo(() => pointsOf(connection), [connection]);
  const requesters = (['a', 'b'] as const).filter((end) => points.some(({ requester }) => requester === end));
  const [chosen, setRequester] = useState<'a' | 'b'>();
  const [hidden, setHidden] = useState<ReadonlySet<Kind>>(new Set());
  const requester = chosen ?? mostTelling(points);
  const shown = useMemo(() => points.filter((point) => point.requester === requester), [points, requester]);
  const counts = useMemo(() => countKinds(shown), [shown]);
  const content = useMemo(() => contentOf(shown, hidden), [shown, hidden]);
  if (points.length === 0)
    return <p class="empty">No packet with a PSN of this connection was kept for a plot.</p>;

  const toggle = (kind: Kind) => {
    const next = new Set(hidden);
    if (!next.delete(kind)) next.add(kind);
    setHidden(next);
  };
  const summary = KINDS.filter((kind) => counts[kind] > 0).map(
    (kind) => `${counts[kind]} × ${looks[kind].name}`,
  );
  return (
    <figure>
      <figcaption>
        <h3>PSN over time</h3>
        {requesters.length > 1 && (
          <fieldset class="segments">
            <legend class="hidden">Whose requests</legend>
            {requesters.map((end) => (
              <label key={end}>
                <input
                  type="radio"
                  name="requester"
                  value={end}
                  checked={end === requester}
                  onChange={() => setRequester(end)}
                />
                <span>
                  Requests of {end.toUpperCase()}{' '}
                  <span class="faint wide">{formatEndpoint(connection[end])}</span>
                </span>
              </label>
            ))}
          </fieldset>
        )}
        <fieldset class="legend">
          <legend class="hidden">What is shown</legend>
          {KINDS.filter((kind) => counts[kind] > 0).map((kind) => (
            <label key={kind} class="key">
              <input type="checkbox" checked={!hidden.has(kind)} onChange={() => toggle(kind)} />
              <KeySymbol look={looks[kind]} />
              {looks[kind].name}{' '}
              <span class="faint">{countText(counts[kind], seenOf(kind, requester, connection))}</span>
            </label>
          ))}
        </fieldset>
      </figcaption>
      <Chart
        label={`PSN over time, requests of ${requester.toUpperCase()}: ${summary.join(', ')}`}
        content={content}
        height={380}
        {...{ window, setWindow, mark }}
        describe={(_, index) => describePoint(shown[index])}
        pick={(_, index) => showFrame(shown[index].frame)}
      />
    </figure>
  );
}

/**
 * In order of time; CNPs, which have no PSN of their own, where the packets were. Whole turns of PSNs are taken
 * off, so that the axis has round numbers.
 */
function pointsOf({ plot }: ReportConnection): PlotPoint[] {
  const points = fromColumns(plot).sort((p, q) => p.time - q.time);
  const last: Partial<Record<'a' | 'b', number>> = {};
  for (const { requester, kind, psn } of points) if (kind !== 'cnp') last[requester] ??= psn;
  for (const point of points) {
    if (point.kind === 'cnp') point.psn = last[point.requester] ?? point.psn;
    else last[point.requester] = point.psn;
  }
  const least = points.reduce((low, { psn }) => Math.min(low, psn), Number.POSITIVE_INFINITY);
  for (const point of points) point.psn -= Math.floor(least / PSN_COUNT) * PSN_COUNT;
  return points;
}

/** How many there were in the capture, of which the plot may have a selection. */
function seenOf(kind: Kind, requester: 'a' | 'b', { aToB, bToA }: ReportConnection): number {
  const [requests, answers] = requester === 'a' ? [aToB, bToA] : [bToA, aToB];
  const naks = Object.values(answers.naks).reduce((sum, count) => sum + count, 0);
  const seen: Partial<Record<Kind, number>> = {
    request: requests.requests - requests.retransmitted,
    retransmission: requests.retransmitted,
    response: answers.responses - answers.acks - naks - answers.rnrNaks,
    ack: answers.acks,
    nak: naks,
    rnr: answers.rnrNaks,
  };
  return seen[kind] ?? 0;
}

function describePoint({ kind, psn, time, frame }: PlotPoint): string[] {
  return [
    looks[kind].name,
    `PSN ${((psn % PSN_COUNT) + PSN_COUNT) % PSN_COUNT}`,
    formatTime(time),
    `frame ${frame}`,
  ];
}

const countText = (drawn: number, seen: number): string =>
  seen > drawn ? `${formatCount(drawn)} of ${formatCount(seen)}` : formatCount(drawn);

/** The end in whose numbers more went wrong; then the one with more points. */
function mostTelling(points: readonly PlotPoint[]): 'a' | 'b' {
  let trouble = 0;
  let size = 0;
  for (const { requester, kind } of points) {
    const sign = requester === 'a' ? 1 : -1;
    size += sign;
    if (kind === 'retransmission' || kind === 'nak' || kind === 'rnr') trouble += sign;
  }
  return (trouble || size) >= 0 ? 'a' : 'b';
}

function countKinds(points: readonly PlotPoint[]): Record<Kind, number> {
  const counts = Object.fromEntries(KINDS.map((kind) => [kind, 0])) as Record<Kind, number>;
  for (const { kind } of points) counts[kind]++;
  return counts;
}

function contentOf(points: readonly PlotPoint[], hidden: ReadonlySet<Kind>): ChartContent {
  const columns = KINDS.map((kind) => points.map((point) => (point.kind === kind ? point.psn : null)));
  return {
    data: [points.map(({ time }) => time / 1e9), ...columns],
    series: KINDS.map((kind) => seriesOf(looks[kind], !hidden.has(kind), points.length)),
    y: { range: (_u, least, most) => margin(least ?? 0, most ?? 1) },
    yAxis: {
      incrs: STEPS,
      values: (_u, splits) => splits.map((psn) => String(((psn % PSN_COUNT) + PSN_COUNT) % PSN_COUNT)),
    },
  };
}

const margin = (least: number, most: number): [number, number] => {
  const room = Math.max(1, (most - least) * 0.05);
  return [least - room, most + room];
};

function seriesOf({ color, shape }: Look, show: boolean, count: number): uPlot.Series {
  if (shape === 'step') {
    return {
      show,
      stroke: () => themeColor(color),
      width: 1.25,
      spanGaps: true,
      paths: uPlot.paths.stepped!({ align: 1 }),
      points: { show: false },
    };
  }
  return { show, paths: () => null, points: { show: drawPoints(shape, () => themeColor(color), count) } };
}

function KeySymbol({ look: { shape, color } }: { look: Look }) {
  const paths: Record<Shape, string> = {
    step: 'M1 11h6v-6h6',
    dot: 'M5 5h4v4h-4z',
    ring: 'M7 3a4 4 0 1 0 .01 0z',
    triangle: 'M7 2l5 9h-10z',
    diamond: 'M7 1.500l5.500 5.500l-5.500 5.500l-5.500 -5.500z',
    cross: 'M3 3l8 8m0 -8l-8 8',
  };
  const isLine = shape === 'step' || shape === 'ring' || shape === 'cross' || shape === 'diamond';
  const fill = isLine ? 'none' : `var(--${color})`;
  return (
    <svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">
      <path d={paths[shape]} style={`fill:${fill};stroke:var(--${color});stroke-width:${isLine ? 1.8 : 0}`} />
    </svg>
  );
}
