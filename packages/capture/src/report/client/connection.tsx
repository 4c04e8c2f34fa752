/** One connection: what is known of it, its plots, its ladder, its messages. */
import { useMemo } from 'preact/hooks';
import { formatEndpoint } from '../../units.ts';
import { findPacket, type ReportConnection, type ReportData } from '../data.ts';
import { ConnectionFacts } from './facts.tsx';
import { InFlightPlot } from './in-flight-plot.tsx';
import { LadderView } from './ladder.tsx';
import { LatencyClasses, LatencyPlot } from './latency-plot.tsx';
import { MessageTable } from './messages.tsx';
import { PsnPlot } from './psn-plot.tsx';
import { type Action, clamped, panned, type TimeWindow, type View, wholeOf, zoomed } from './state.ts';
import { ThroughputPlot } from './throughput-plot.tsx';
import { TimeBar } from './time-bar.tsx';

interface Props {
  connection: ReportConnection;
  data: ReportData;
  view: View;
  dispatch: (action: Action) => void;
  /** Reads packets that the report left out; undefined where the page has no capture. */
  load: ((connection: ReportConnection, window: TimeWindow) => Promise<void>) | undefined;
}

export function ConnectionView({ connection, data, view, dispatch, load }: Props) {
  const whole = useMemo(() => wholeOf(connection), [connection]);
  const window = view.window ?? whole;
  const setWindow = (next: TimeWindow | undefined) =>
    dispatch({ type: 'window', window: next === undefined ? undefined : clamped(next, whole) });
  const place = view.packet;
  const mark =
    place && (findPacket(connection, place.frame, place.part)?.time ?? timeInPlot(connection, place.frame));
  /** Chosen where it can't be seen: the reader is taken to it. */
  const showFrame = (frame: number) => {
    dispatch({ type: 'packet', packet: { frame, part: undefined } });
    requestAnimationFrame(() => document.getElementById('ladder')?.scrollIntoView());
  };
  const shared = { connection, window, setWindow, mark };
  /** The keys of the plots: the same as the time bar's buttons. */
  const onKey = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves: Record<string, () => TimeWindow | undefined> = {
      ArrowLeft: () => panned(window, -0.25, whole),
      ArrowRight: () => panned(window, 0.25, whole),
      '+': () => zoomed(window, 0.5, whole),
      '=': () => zoomed(window, 0.5, whole),
      '-': () => zoomed(window, 2, whole),
      '0': () => undefined,
    };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    dispatch({ type: 'window', window: move() });
  };
  return (
    <section id="connection" aria-labelledby="connection-title">
      <div class="heading">
        <h2 id="connection-title">
          Connection {connection.id} <span class="ends">{connection.transport}</span>{' '}
          <span class="ends">
            {formatEndpoint(connection.a)} ↔ {formatEndpoint(connection.b)}
          </span>
        </h2>
      </div>
      <ConnectionFacts connection={connection} exchanges={data.exchanges} />
      <TimeBar window={view.window} whole={whole} setWindow={setWindow} />
      <section
        class="plots"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: its keys move and zoom all plots.
        tabIndex={0}
        onKeyDown={onKey}
        aria-label="Plots: arrow keys move in time, plus and minus zoom, 0 shows all"
      >
        <PsnPlot {...shared} showFrame={showFrame} />
        <InFlightPlot {...shared} />
        <div class="pair">
          <ThroughputPlot {...shared} />
          <LatencyPlot {...shared} showFrame={showFrame} />
        </div>
        <LatencyClasses connection={connection} />
      </section>
      <LadderView {...{ connection, data, view, dispatch }} load={load && (() => load(connection, window))} />
      <MessageTable {...{ connection, view, showFrame }} />
    </section>
  );
}

/** The time of a frame that only the plot knows. */
function timeInPlot({ plot }: ReportConnection, frame: number): number | undefined {
  let [time, number] = [0, 0];
  for (let i = 0; i < plot.frame.length; i++) {
    time += plot.time[i];
    number += plot.frame[i];
    if (number === frame) return time;
  }
  return undefined;
}
