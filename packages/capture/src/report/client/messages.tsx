/** The messages of a connection that the report holds. */
import { PSN_MASK } from '@node-roce/wire';
import { useMemo, useState } from 'preact/hooks';
import type { Message } from '../../flow/analysis.ts';
import { formatBytes, formatCount, formatDuration, formatPsn, formatSeconds } from '../../units.ts';
import type { ReportConnection } from '../data.ts';
import type { View } from './state.ts';
import { type Column, Table } from './table.tsx';

const PAGE = 25;

const filters = {
  all: { name: 'All', keeps: () => true },
  again: { name: 'Retransmitted', keeps: ({ retransmitted }: Message) => retransmitted > 0 },
  failed: { name: 'Failed', keeps: ({ outcome }: Message) => outcome === 'failed' },
  incomplete: { name: 'Incomplete', keeps: ({ outcome }: Message) => outcome === 'incomplete' },
} as const;
type FilterName = keyof typeof filters;

const columns: readonly Column<Message>[] = [
  { name: '#', cell: ({ id }) => id, sort: ({ id }) => id },
  { name: 'From', cell: ({ from }) => from.toUpperCase(), sort: ({ from }) => from, isExtra: true },
  {
    name: 'Operation',
    cell: ({ operation }) => <span class="address">{operation}</span>,
    sort: ({ operation }) => operation,
  },
  {
    name: 'Size',
    cell: ({ bytes }) => (bytes === undefined ? '–' : formatBytes(bytes)),
    sort: ({ bytes }) => bytes,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'PSNs',
    title: 'The first PSN, and how many follow it',
    cell: ({ firstPsn, lastPsn }) =>
      firstPsn === lastPsn
        ? formatPsn(firstPsn)
        : `${formatPsn(firstPsn)} … +${(lastPsn - firstPsn) & PSN_MASK}`,
    sort: ({ start }) => start,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'Packets',
    cell: ({ packets }) => formatCount(packets),
    sort: ({ packets }) => packets,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'Retransmitted',
    title: 'Packets of it that were retransmitted',
    cell: ({ retransmitted }) =>
      retransmitted > 0 ? <b class="marked">{formatCount(retransmitted)}</b> : '0',
    sort: ({ retransmitted }) => retransmitted,
    isNumber: true,
  },
  {
    name: 'Start',
    cell: ({ start }) => formatSeconds(start),
    sort: ({ start }) => start,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'Latency',
    title: 'From the first packet to the ACK or the last response that completes the message',
    cell: ({ latency }) => (latency === undefined ? '–' : formatDuration(latency)),
    sort: ({ latency }) => latency,
    isNumber: true,
  },
  {
    name: 'ACK round trip',
    title: 'From the last packet of the message to its ACK or last response',
    cell: ({ ackRoundTrip }) => (ackRoundTrip === undefined ? '–' : formatDuration(ackRoundTrip)),
    sort: ({ ackRoundTrip }) => ackRoundTrip,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'Outcome',
    cell: ({ outcome, failure }) =>
      outcome === 'failed' ? <b class="marked">{failure ? `failed: ${failure}` : 'failed'}</b> : outcome,
    sort: ({ outcome }) => outcome,
  },
];

interface Props {
  connection: ReportConnection;
  view: View;
  showFrame: (frame: number) => void;
}

export function MessageTable({ connection, view, showFrame }: Props) {
  const [filter, setFilter] = useState<FilterName>('all');
  const { messages } = connection;
  const { from = -Infinity, to = Infinity } = view.window ?? {};
  const inTime = useMemo(
    () =>
      messages.filter(({ start, end, latency = 0 }) => Math.max(end, start + latency) >= from && start <= to),
    [messages, from, to],
  );
  const shown = useMemo(() => inTime.filter(filters[filter].keeps), [inTime, filter]);
  const frame = view.packet?.frame;
  const chosen = useMemo(
    () => (frame === undefined ? undefined : chosenMessage(connection, frame)),
    [connection, frame],
  );
  const total = connection.messagesFromA.total + connection.messagesFromB.total;
  return (
    <section id="messages" aria-labelledby="messages-title">
      <div class="heading">
        <h3 id="messages-title">
          Messages{' '}
          <span class="count">
            {shown.length === total
              ? formatCount(total)
              : `${formatCount(shown.length)} of ${formatCount(total)}`}
          </span>
        </h3>
        <fieldset class="segments">
          <legend class="hidden">Messages shown</legend>
          {(Object.keys(filters) as FilterName[]).map((name) => (
            <label key={name}>
              <input
                type="radio"
                name="messages"
                value={name}
                checked={name === filter}
                onChange={() => setFilter(name)}
              />
              <span>
                {filters[name].name}{' '}
                <span class="faint">{formatCount(inTime.filter(filters[name].keeps).length)}</span>
              </span>
            </label>
          ))}
        </fieldset>
      </div>
      {shown.length === 0 ? (
        <p class="empty">No message in this report matches.</p>
      ) : (
        <Table
          label="Messages"
          rows={shown}
          columns={columns}
          keyOf={({ id }) => id}
          chosen={chosen}
          choose={({ firstFrame }) => showFrame(firstFrame)}
          pageSize={PAGE}
        />
      )}
    </section>
  );
}

/** The message of the chosen packet. */
function chosenMessage({ ladder, messages }: ReportConnection, frame: number): number | undefined {
  const packet = ladder.find((each) => each.frame === frame);
  return packet?.message ?? messages.find(({ firstFrame }) => firstFrame === frame)?.id;
}
