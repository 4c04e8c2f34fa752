/** Packets in flight over time: sent, and not yet answered. */
import { useMemo } from 'preact/hooks';
import uPlot from 'uplot';
import { formatBytes, formatCount, formatTime } from '../../units.ts';
import type { ReportConnection } from '../data.ts';
import type { ThemeColor } from '../themes.ts';
import { Chart, type ChartContent } from './chart.tsx';
import { type InFlight, inFlightOf } from './in-flight.ts';
import { LegendKey } from './legend-key.tsx';
import type { TimeWindow } from './state.ts';
import { themeColor } from './theme.ts';

const HEIGHT = 200;
const NANOSECONDS = 1e9;
const LOOKS: Readonly<Record<InFlight['requester'], { name: string; color: ThemeColor; dash?: number[] }>> = {
  a: { name: 'A → B', color: 'request' },
  b: { name: 'B → A', color: 'response', dash: [6, 3] },
};

interface Props {
  connection: ReportConnection;
  window: TimeWindow;
  setWindow: (window: TimeWindow) => void;
  mark: number | undefined;
}

export function InFlightPlot({ connection, ...time }: Props) {
  const ends = useMemo(() => inFlightOf(connection), [connection]);
  const content = useMemo(() => contentOf(ends), [ends]);
  if (ends.length === 0) return null;
  const most = Math.max(...ends.flatMap(({ packets }) => packets.reduce((x, y) => Math.max(x, y), 0)));
  const { pathMtu } = connection;
  const size = (packets: number) =>
    pathMtu === undefined ? [] : [`at most ${formatBytes(packets * pathMtu)} of payload`];
  return (
    <figure>
      <figcaption>
        <h3>In flight</h3>
        <p class="legend">
          {ends.map(({ requester }) => (
            <LegendKey key={requester} {...LOOKS[requester]} />
          ))}
          <span class="faint">
            {['packets sent and not yet answered', `at most ${formatCount(most)}`, ...size(most)].join(', ')}
          </span>
        </p>
      </figcaption>
      <Chart
        label={`Packets in flight over time, at most ${formatCount(most)}`}
        content={content}
        height={HEIGHT}
        {...time}
        describe={(series, i) => {
          const packets = content.data[series][i] ?? 0;
          return [
            LOOKS[ends[series - 1].requester].name,
            `${formatCount(packets)} packets in flight`,
            ...size(packets),
            `at ${formatTime(content.data[0][i] * NANOSECONDS)}`,
          ];
        }}
      />
    </figure>
  );
}

/** Both ends on one axis of time; each keeps its value until it changes. */
function contentOf(ends: readonly InFlight[]): ChartContent {
  const [one, two] = ends;
  const own = ends.map(
    ({ times, packets }): uPlot.AlignedData => [times.map((ns) => ns / NANOSECONDS), packets],
  );
  return {
    data: one === undefined ? [[]] : two === undefined ? own[0] : uPlot.join(own),
    series: ends.map(({ requester }) => ({
      stroke: () => themeColor(LOOKS[requester].color),
      width: 1.5,
      dash: LOOKS[requester].dash,
      spanGaps: true,
      paths: uPlot.paths.stepped!({ align: 1 }),
      points: { show: false },
    })),
    y: { range: (_u, _least, most) => [0, (most || 1) * 1.1] },
    yAxis: { label: 'packets in flight', values: (_u, splits) => splits.map((n) => formatCount(n)) },
  };
}
