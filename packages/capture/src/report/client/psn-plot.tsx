/**
 * PSN over time, as tcptrace draws sequence numbers: a point a packet at the time when it was seen, the ACKs as a
 * line that the packets run ahead of. Retransmissions, NAKs and the like have colours and shapes of their own; lines lead from the
 * evidence to the retransmission that it caused, and stalls are hatched.
 */
import { useMemo, useState } from 'preact/hooks';
import uPlot from 'uplot';
import type { RetransmitCause } from '../../flow/analysis.ts';
import { formatCount, formatEndpoint, formatPsn, formatTime } from '../../units.ts';
import type { ReportConnection } from '../data.ts';
import { axisSteps, Chart, type ChartContent } from './chart.tsx';
import { drawJoins, drawStalls } from './psn-overlay.ts';
import {
  looks,
  PSN_KINDS,
  type PsnContent,
  type PsnKind,
  type PsnPoint,
  psn24,
  psnContents,
} from './psn-points.ts';
import { drawPoints, isFilled, type Shape, shapePath } from './shapes.ts';
import type { TimeWindow } from './state.ts';
import { themeColor } from './theme.ts';

/** Steps of the axis: PSNs have no fractions. */
const STEPS = axisSteps(0, 9);
/** Points of a selection are joined up to so many times the usual time between two. */
const JOINED_TIMES = 20;

interface Props {
  connection: ReportConnection;
  window: TimeWindow;
  setWindow: (window: TimeWindow) => void;
  mark: number | undefined;
  showFrame: (frame: number) => void;
}

export function PsnPlot({ connection, window, setWindow, mark, showFrame }: Props) {
  const contents = useMemo(() => psnContents(connection), [connection]);
  const [chosen, setRequester] = useState<'a' | 'b'>();
  const [hidden, setHidden] = useState<ReadonlySet<PsnKind>>(new Set());
  const shown = contents.find(({ requester }) => requester === chosen) ?? mostTelling(contents);
  const counts = useMemo(() => countKinds(shown?.points ?? []), [shown]);
  const content = useMemo(
    () => (shown === undefined ? undefined : contentOf(shown, hidden, connection)),
    [shown, hidden, connection],
  );
  if (shown === undefined || content === undefined)
    return <p class="empty">This report has no points of this connection for a plot.</p>;
  const { requester, points, joins, stalls } = shown;

  const toggle = (kind: PsnKind) => {
    const next = new Set(hidden);
    if (!next.delete(kind)) next.add(kind);
    setHidden(next);
  };
  const present = PSN_KINDS.filter((kind) => counts[kind] > 0);
  const summary = present.map((kind) => `${counts[kind]} × ${looks[kind].name}`);
  return (
    <figure>
      <figcaption>
        <h3>PSN over time</h3>
        {contents.length > 1 && (
          <fieldset class="segments">
            <legend class="hidden">Whose requests</legend>
            {contents.map(({ requester: end }) => (
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
          <legend class="hidden">Kinds shown</legend>
          {present.map((kind) => (
            <label key={kind} class="key">
              <input type="checkbox" checked={!hidden.has(kind)} onChange={() => toggle(kind)} />
              <KeySymbol shape={looks[kind].shape} color={looks[kind].color} />
              {looks[kind].name}{' '}
              <span class="faint">{countText(counts[kind], seenOf(kind, requester, connection))}</span>
            </label>
          ))}
          {joins.some(({ isSilence }) => !isSilence) && (
            <Key path="M1 7h14m0 0l-4 -3v6z" name="Evidence to resend" />
          )}
          {joins.some(({ isSilence }) => isSilence) && (
            <Key path="M1 7h3m2 0h3m2 0h4m0 0l-4 -3v6z" name="Silence to resend" />
          )}
          {stalls.length > 0 && (
            <Key path="M1 13l6 -12m-1 12l6 -12m-1 12l5 -10" name={`Stall ${stalls.length}`} />
          )}
        </fieldset>
      </figcaption>
      <Chart
        label={`PSN over time, requests of ${requester.toUpperCase()}: ${summary.join(', ')}`}
        content={content}
        height={380}
        {...{ window, setWindow, mark }}
        describe={(_, index) => describePoint(points[index])}
        pick={(_, index) => showFrame(points[index].frame)}
      />
    </figure>
  );
}

/** How many there were in the capture, of which the plot may have a selection. */
function seenOf(kind: PsnKind, requester: 'a' | 'b', { aToB, bToA }: ReportConnection): number {
  const [requests, answers] = requester === 'a' ? [aToB, bToA] : [bToA, aToB];
  const naks = Object.values(answers.naks).reduce((sum, count) => sum + count, 0);
  if (kind.startsWith('again-'))
    return requests.retransmitCauses[kind.slice('again-'.length) as RetransmitCause];
  const seen: Partial<Record<PsnKind, number>> = {
    request: requests.requests - requests.retransmitted,
    response: answers.responses - answers.acks - naks - answers.rnrNaks,
    ack: answers.acks,
    nak: naks,
    rnr: answers.rnrNaks,
  };
  return seen[kind] ?? 0;
}

const describePoint = ({ kind, psn, time, frame, note }: PsnPoint): string[] => [
  looks[kind].name,
  ...(note === undefined ? [] : [note]),
  `PSN ${formatPsn(psn24(psn))}`,
  formatTime(time),
  `frame ${frame}`,
];

const countText = (drawn: number, seen: number): string =>
  seen > drawn ? `${formatCount(drawn)} of ${formatCount(seen)}` : formatCount(drawn);

/** The end in whose numbers more went wrong; then the one with more points. */
function mostTelling(contents: readonly PsnContent[]): PsnContent | undefined {
  const trouble = ({ points }: PsnContent) =>
    points.filter(({ kind }) => kind.startsWith('again-') || kind === 'nak' || kind === 'rnr').length;
  return contents.toSorted((x, y) => trouble(y) - trouble(x) || y.points.length - x.points.length)[0];
}

function countKinds(points: readonly PsnPoint[]): Record<PsnKind, number> {
  const counts = Object.fromEntries(PSN_KINDS.map((kind) => [kind, 0])) as Record<PsnKind, number>;
  for (const { kind } of points) counts[kind]++;
  return counts;
}

function contentOf(
  shown: PsnContent,
  hidden: ReadonlySet<PsnKind>,
  connection: ReportConnection,
): ChartContent {
  const { points, requester } = shown;
  const columns = PSN_KINDS.map((kind) => points.map((point) => (point.kind === kind ? point.psn : null)));
  const requests = points.filter(({ kind }) => kind === 'request');
  const isSelection = requests.length < seenOf('request', requester, connection);
  const joined = isSelection ? JOINED_TIMES * usualTime(requests) : 0;
  const base = points.reduce((least, { psn }) => Math.min(least, psn), Number.POSITIVE_INFINITY);
  return {
    data: [points.map(({ time }) => time / 1e9), ...columns],
    series: PSN_KINDS.map((kind) => seriesOf(kind, !hidden.has(kind), points.length, joined)),
    y: { range: (_u, least, most) => margin(least ?? 0, most ?? 1) },
    yAxis: {
      label: `PSN − ${formatPsn(psn24(base))}`,
      incrs: STEPS,
      splits: (_u, _axis, low, high, step) => splitsFrom(base, low, high, step),
      values: (_u, splits) => splits.map((psn) => formatCount(psn - base)),
    },
    under: (u) => drawStalls(u, shown),
    over: (u) => drawJoins(u, shown),
  };
}

/** Round numbers from the base on. */
function splitsFrom(base: number, low: number, high: number, step: number): number[] {
  const splits: number[] = [];
  for (let at = base + Math.ceil((low - base) / step) * step; at <= high; at += step) splits.push(at);
  return splits;
}

/** Seconds between two points, the median. */
function usualTime(points: readonly PsnPoint[]): number {
  const spans = points.slice(1).map(({ time }, i) => time - points[i].time);
  return (spans.sort((x, y) => x - y)[spans.length >> 1] ?? 0) / 1e9;
}

const margin = (least: number, most: number): [number, number] => {
  const room = Math.max(1, (most - least) * 0.05);
  return [least - room, most + room];
};

function seriesOf(kind: PsnKind, show: boolean, count: number, joined: number): uPlot.Series {
  const { color, shape } = looks[kind];
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
  return {
    show,
    paths: () => null,
    points: { show: drawPoints(shape, () => themeColor(color), count, kind === 'request' ? joined : 0) },
  };
}

/** A legend's symbol, drawn as the plot draws it. */
export function KeySymbol({ shape, color }: { shape: Shape; color: string }) {
  const path = shape === 'step' ? 'M1 11h6v-6h6' : shapePath(shape, 7, 7, shape === 'dot' ? 2.5 : 4.5);
  const fill = isFilled(shape) ? `var(--${color})` : 'none';
  return (
    <svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">
      <path
        d={path}
        style={`fill:${fill};stroke:var(--${color});stroke-width:${isFilled(shape) ? 0 : 1.6}`}
      />
    </svg>
  );
}

function Key({ path, name }: { path: string; name: string }) {
  return (
    <span class="key still">
      <svg viewBox="0 0 16 14" width="16" height="14" aria-hidden="true">
        <path d={path} style="fill:none;stroke:var(--text);stroke-width:1.3" />
      </svg>
      {name}
    </span>
  );
}
