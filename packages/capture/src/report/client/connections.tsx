/** All connections, one a row. */
import { useMemo, useState } from 'preact/hooks';
import { formatBytes, formatCount, formatDuration, formatEndpoint } from '../../units.ts';
import { type ReportConnection, type ReportData, singles } from '../data.ts';
import { markText } from './paths.ts';
import { type Column, Table } from './table.tsx';

const PAGE = 50;
/** From so many on a filter helps. */
const FILTER_FROM = 8;

type Row = ReportConnection & { findings: number };

const both = (row: Row, of: (direction: Row['aToB']) => number) => of(row.aToB) + of(row.bToA);
const naks = (row: Row) =>
  both(row, (d) => d.rnrNaks + Object.values(d.naks).reduce((n, count) => n + count, 0));
const messages = (row: Row) => row.messagesFromA.total + row.messagesFromB.total;
const failed = (row: Row) => row.messagesFromA.failed + row.messagesFromB.failed;
const bytes = (row: Row) => both(row, (d) => d.bytes);
const packets = (row: Row) => both(row, (d) => d.packets);
const again = (row: Row) => both(row, (d) => d.retransmitted);
const badIcrc = (row: Row) => both(row, (d) => d.icrcBad);

/** A count that is worth a look unless it is 0. */
const notable = (count: number) => (count > 0 ? <b class="marked">{formatCount(count)}</b> : '0');

/** A column that is there if a row has text in it. */
const NETWORK = 'Network';

const networkText = ({ paths: { aToB, bToA } }: Row): string => {
  const texts = [aToB, bToA].flatMap((path) => (path === undefined ? [] : [markText(path)]));
  return texts.length < 2 || texts[0] === texts[1]
    ? (texts[0] ?? '')
    : texts.map((text) => text || '–').join(' / ');
};

const columns: readonly Column<Row>[] = [
  { name: '#', cell: ({ id }) => id, sort: ({ id }) => id },
  { name: 'Type', cell: ({ transport }) => transport, sort: ({ transport }) => transport, isExtra: true },
  {
    name: 'A',
    title: 'The end that sent the first request',
    cell: ({ a }) => <span class="address">{formatEndpoint(a)}</span>,
    sort: ({ a }) => formatEndpoint(a),
  },
  {
    name: 'B',
    cell: ({ b }) => <span class="address">{formatEndpoint(b)}</span>,
    sort: ({ b }) => formatEndpoint(b),
  },
  {
    name: 'Pairing',
    title: 'How the two directions were put together',
    cell: ({ pairing, pairingReason }) => <span title={pairingReason}>{pairing}</span>,
    sort: ({ pairing }) => pairing,
    isExtra: true,
  },
  {
    name: 'MTU',
    cell: ({ pathMtu }) => pathMtu ?? '–',
    sort: ({ pathMtu }) => pathMtu,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'Messages',
    cell: (row) => (
      <>
        {formatCount(messages(row))}
        {failed(row) > 0 && <b class="marked"> ({formatCount(failed(row))} failed)</b>}
      </>
    ),
    sort: messages,
    isNumber: true,
    isExtra: true,
  },
  { name: 'Payload', cell: (row) => formatBytes(bytes(row)), sort: bytes, isNumber: true, isExtra: true },
  { name: 'Packets', cell: (row) => formatCount(packets(row)), sort: packets, isNumber: true, isExtra: true },
  {
    name: 'Retransmitted',
    title: 'Packets that were retransmitted, in both directions',
    cell: (row) => notable(again(row)),
    sort: again,
    isNumber: true,
  },
  {
    name: 'NAKs',
    title: 'RNR NAKs included',
    cell: (row) => notable(naks(row)),
    sort: naks,
    isNumber: true,
    isExtra: true,
  },
  { name: 'Bad ICRC', cell: (row) => notable(badIcrc(row)), sort: badIcrc, isNumber: true, isExtra: true },
  {
    name: 'p50',
    title: 'Latency, median: from the first packet of a message to its completion',
    cell: ({ completion }) => (completion ? formatDuration(completion.p50) : '–'),
    sort: ({ completion }) => completion?.p50,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'p99',
    title: 'Latency that 99 of 100 messages do not exceed',
    cell: ({ completion }) => (completion ? formatDuration(completion.p99) : '–'),
    sort: ({ completion }) => completion?.p99,
    isNumber: true,
  },
  {
    name: NETWORK,
    title: 'VLAN, tunnel, DSCP and TTL that differ from none, 0 and 64',
    cell: networkText,
    sort: networkText,
    isExtra: true,
  },
  {
    name: 'Findings',
    cell: ({ findings }) => findings,
    sort: ({ findings }) => findings,
    isNumber: true,
    isExtra: true,
  },
];

interface Props {
  data: ReportData;
  chosen: number | undefined;
  choose: (id: number) => void;
}

export function ConnectionTable({ data, chosen, choose }: Props) {
  const [text, setText] = useState('');
  const rows = useMemo(() => {
    const counts = new Map<number | undefined, number>();
    for (const { connection } of singles(data.findings))
      counts.set(connection, (counts.get(connection) ?? 0) + 1);
    return data.connections.map(
      (connection): Row => ({ ...connection, findings: counts.get(connection.id) ?? 0 }),
    );
  }, [data]);
  const wanted = text.trim().toLowerCase();
  const shown = useMemo(
    () =>
      rows.filter(({ transport, a, b }) =>
        `${transport} ${formatEndpoint(a)} ${formatEndpoint(b)}`.toLowerCase().includes(wanted),
      ),
    [rows, wanted],
  );
  if (rows.length === 0) return null;
  return (
    <section id="connections" aria-labelledby="connections-title">
      <div class="heading">
        <h2 id="connections-title">
          Connections <span class="count">{formatCount(rows.length)}</span>
        </h2>
        {rows.length >= FILTER_FROM && (
          <label class="field">
            <span>Filter</span>
            <input
              type="search"
              value={text}
              placeholder="address, QP or type"
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
        )}
      </div>
      <Table
        label="Connections"
        rows={shown}
        columns={
          rows.some((row) => networkText(row) !== '')
            ? columns
            : columns.filter(({ name }) => name !== NETWORK)
        }
        keyOf={({ id }) => id}
        chosen={chosen}
        choose={({ id }) => choose(id)}
        pageSize={PAGE}
      />
      {shown.length === 0 && <p class="empty">No connection matches.</p>}
    </section>
  );
}
