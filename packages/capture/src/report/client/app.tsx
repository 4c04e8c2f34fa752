/** The page from top to bottom, and the reader's selection. */
import { useMemo, useReducer, useState } from 'preact/hooks';
import type { LadderPacket } from '../../flow/analysis.ts';
import { formatCount } from '../../units.ts';
import type { ReportConnection, ReportData } from '../data.ts';
import { ConnectionView } from './connection.tsx';
import { ConnectionTable } from './connections.tsx';
import { Exchanges } from './exchanges.tsx';
import { Findings } from './findings.tsx';
import { Header } from './header.tsx';
import { HostMatrix } from './hosts.tsx';
import { Pauses } from './pauses.tsx';
import { type Action, firstView, nextView, type TimeWindow, type View } from './state.ts';
import { TimeStrip } from './strip.tsx';
import { Summary } from './summary.tsx';
import { VerdictSection } from './verdict.tsx';

/** Reads packets of a connection again, where the page has the capture. */
export type Reload = (connection: ReportConnection, window: TimeWindow) => Promise<LadderPacket[]>;

export function App({ data, reload }: { data: ReportData; reload?: Reload }) {
  const [more, setMore] = useState<ReadonlyMap<number, readonly LadderPacket[]>>(new Map());
  const [view, dispatch] = useReducer(
    (before: View, action: Action) => nextView(data, before, action),
    undefined,
    () => firstView(data),
  );
  const kept = data.connections.find(({ id }) => id === view.connection);
  const read = kept && more.get(kept.id);
  const connection = useMemo(
    () => kept && (read === undefined ? kept : { ...kept, ladder: together(kept.ladder, read) }),
    [kept, read],
  );
  const load =
    reload &&
    (async (of: ReportConnection, window: TimeWindow) => {
      const packets = await reload(of, window);
      setMore((before) => new Map(before).set(of.id, together(before.get(of.id) ?? [], packets)));
    });
  /** A finding takes the reader to its connection, a frame of it to the packet. */
  const show = (...actions: Action[]) => {
    const [action] = actions;
    for (const each of actions) dispatch(each);
    if (action === undefined || action.type === 'packet') return;
    const place = action.type === 'finding' && action.frame !== undefined ? 'ladder' : 'connection';
    requestAnimationFrame(() => document.getElementById(place)?.scrollIntoView({ block: 'start' }));
  };
  return (
    <>
      <a class="skip" href="#findings">
        Skip to the findings
      </a>
      <Header data={data} />
      <main>
        <VerdictSection data={data} show={show} />
        <Summary data={data} />
        <TimeStrip data={data} show={show} />
        <HostMatrix data={data} show={show} />
        <Findings data={data} show={show} />
        <Exchanges data={data} />
        <Pauses data={data} />
        <ConnectionTable
          data={data}
          chosen={view.connection}
          choose={(id) => show({ type: 'connection', id })}
        />
        {connection === undefined ? (
          <p class="empty">
            {data.exchanges.length > 0
              ? 'No packet of a connection was seen: only messages of the connection manager.'
              : 'No RoCE connection was seen in this capture.'}
          </p>
        ) : (
          <ConnectionView
            key={connection.id}
            connection={connection}
            data={data}
            view={view}
            dispatch={dispatch}
            load={load}
          />
        )}
      </main>
      <Footer data={data} />
    </>
  );
}

/** Packets of both lists, each once, in the order of the capture. */
function together(one: readonly LadderPacket[], other: readonly LadderPacket[]): LadderPacket[] {
  const known = new Set(one.map(({ frame, part }) => `${frame} ${part}`));
  return [...one, ...other.filter(({ frame, part }) => !known.has(`${frame} ${part}`))].sort(
    (x, y) => x.frame - y.frame || x.part - y.part,
  );
}

function Footer({ data: { generator, left } }: { data: ReportData }) {
  const parts = [
    left.connections > 0 && `${formatCount(left.connections)} connections`,
    left.points > 0 && `${formatCount(left.points)} points of plots`,
    left.messages > 0 && `${formatCount(left.messages)} messages`,
    left.packets > 0 && `${formatCount(left.packets)} packets of ladders`,
    left.exchanges > 0 && `${formatCount(left.exchanges)} exchanges of the connection manager`,
  ].filter((part) => part !== false);
  return (
    <footer>
      {parts.length > 0 && <p>Left out to keep this file small: {parts.join(', ')}.</p>}
      <p>
        Times are seconds since the first frame; frames are numbered from 1, as in Wireshark. Written by{' '}
        {generator}; this page loads nothing from anywhere.
      </p>
    </footer>
  );
}
