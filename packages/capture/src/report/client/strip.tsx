/** All connections over the time of the capture: their payload, recoveries and stalls. */
import { useMemo } from 'preact/hooks';
import { formatCount, formatEndpoint, formatRate, formatSeconds } from '../../units.ts';
import type { ReportConnection, ReportData } from '../data.ts';
import { type Action, clamped, wholeOf } from './state.ts';

/** Connections with a row; the table has all. */
const MAX_ROWS = 20;
const WIDTH = 1000;
const HEIGHT = 26;
/** Part of the capture that a click chooses. */
const CLICKED = 0.05;
const NANOSECONDS = 1e9;

const RANK = { error: 0, warning: 1, note: 2 };
const rankOf = ({ verdict: { severity } }: ReportConnection) => (severity === undefined ? 3 : RANK[severity]);
const bytesOf = ({ aToB, bToA }: ReportConnection) => aToB.bytes + bToA.bytes;

interface Row {
  connection: ReportConnection;
  traffic: string;
  again: string;
  stalls: { x: number; width: number }[];
}

export function TimeStrip({ data, show }: { data: ReportData; show: (...actions: Action[]) => void }) {
  const { connections, summary } = data;
  const { rows, peak } = useMemo(() => rowsOf(connections, summary.duration), [data]);
  if (rows.length === 0 || !(summary.duration > 0)) return null;
  const clicked = (connection: ReportConnection) => (event: MouseEvent & { currentTarget: SVGElement }) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    const middle = ((event.clientX - left) / width) * summary.duration;
    const half = (summary.duration * CLICKED) / 2;
    show(
      { type: 'connection', id: connection.id },
      { type: 'window', window: clamped({ from: middle - half, to: middle + half }, wholeOf(connection)) },
    );
  };
  return (
    <section id="strip" aria-labelledby="strip-title">
      <h2 id="strip-title">Connections over time</h2>
      <table class="strip">
        <caption class="faint">
          Payload of both directions, full height {formatRate(peak)}
          <span class="key">
            <svg viewBox="0 0 8 14" width="8" height="14" aria-hidden="true">
              <path d="M4 0V14" class="again" />
            </svg>
            recovery
          </span>
          <span class="key">
            <svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">
              <rect width="14" height="14" class="stall" />
            </svg>
            stall
          </span>
        </caption>
        <tbody>
          {rows.map(({ connection, traffic, again, stalls }) => (
            <tr key={connection.id}>
              <th scope="row">
                <button
                  type="button"
                  class="go"
                  title={connection.verdict.text}
                  onClick={() => show({ type: 'connection', id: connection.id })}
                >
                  #{connection.id}
                </button>{' '}
                <span class="address">
                  {formatEndpoint(connection.a)} ↔ {formatEndpoint(connection.b)}
                </span>
              </th>
              <td>
                {/* biome-ignore lint/a11y/useKeyWithClickEvents: the row's button and the time bar do this by keys. */}
                <svg
                  viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
                  preserveAspectRatio="none"
                  role="img"
                  aria-label={`${formatCount(connection.recoveries.length)} recoveries, ${formatCount(stalls.length)} stalls`}
                  onClick={clicked(connection)}
                >
                  {stalls.map(({ x, width }) => (
                    <rect key={x} class="stall" x={x} width={width} height={HEIGHT} />
                  ))}
                  <path class="traffic" d={traffic} />
                  <path class="again" d={again} />
                </svg>
              </td>
            </tr>
          ))}
        </tbody>
        <tfoot class="faint">
          <tr>
            <td>
              {connections.length > rows.length &&
                `${formatCount(connections.length - rows.length)} more in the table below`}
            </td>
            <td>
              <span>0 s</span>
              <span>{formatSeconds(summary.duration)} s</span>
            </td>
          </tr>
        </tfoot>
      </table>
    </section>
  );
}

function rowsOf(connections: readonly ReportConnection[], duration: number): { rows: Row[]; peak: number } {
  const chosen = connections
    .toSorted((x, y) => rankOf(x) - rankOf(y) || bytesOf(y) - bytesOf(x) || x.id - y.id)
    .slice(0, MAX_ROWS);
  const rates = chosen.map(({ throughput: { span, aToB, bToA } }) =>
    aToB.map((bytes, i) => (span > 0 ? ((bytes + bToA[i]) * 8 * NANOSECONDS) / span : 0)),
  );
  const peak = rates.flat().reduce((most, rate) => Math.max(most, rate), 0);
  const at = (time: number) => round((WIDTH * Math.min(Math.max(time, 0), duration)) / duration);
  const rows = chosen.map((connection, k) => {
    const { throughput, recoveries, stalls } = connection;
    const { start, span } = throughput;
    const bars = rates[k].map((rate, i) => {
      if (rate === 0) return '';
      const [x, end] = [at(start + i * span), at(start + (i + 1) * span)];
      // The root shows small rates next to great ones; a bar has a pixel at least.
      const y = round(HEIGHT - Math.max(1, HEIGHT * Math.sqrt(rate / peak)));
      return `M${x} ${HEIGHT}V${y}H${Math.max(end, x + 1)}V${HEIGHT}Z`;
    });
    return {
      connection,
      traffic: bars.join(''),
      again: [...new Set(recoveries.map(({ time }) => `M${at(time)} 0V${HEIGHT}`))].join(''),
      stalls: stalls.map(({ start: from, duration: length }) => ({
        x: at(from),
        width: Math.max(1, at(from + length) - at(from)),
      })),
    };
  });
  return { rows, peak };
}

const round = (value: number): number => Math.round(value * 10) / 10;
