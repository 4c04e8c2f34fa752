/** Exchanges of the connection manager: who connected, what was agreed, how it went, and each message. */
import type { CmEvent, CmExchange } from '../../flow/pair/cm-exchanges.ts';
import { counted, formatDuration, formatEndpoint, formatSeconds } from '../../units.ts';
import type { ReportData } from '../data.ts';
import { type Column, Table } from './table.tsx';

const PAGE = 10;
/** From so many nanoseconds between two messages on, the silence is in the list. */
const SILENCE = 100e6;

/** `14 (67.1 ms)`: a timer's code, and 4.096 µs · 2^code. */
const timerText = (code: number): string =>
  code === 0 ? 'none' : `${code} (${formatDuration(4096 * 2 ** code)})`;

/** READs and atomics: those that it wants outstanding, of those that it serves. */
const depthText = ({ initiatorDepth, responderResources }: CmExchange['active']): string =>
  initiatorDepth < 0 ? '?' : `${initiatorDepth} of ${responderResources}`;

const columns: readonly Column<CmExchange & { id: number }>[] = [
  { name: '#', cell: ({ id }) => id, sort: ({ id }) => id },
  {
    name: 'From (active)',
    cell: ({ active }) => <span class="address">{formatEndpoint(active)}</span>,
    sort: ({ active }) => active.address,
  },
  {
    name: 'To (passive)',
    cell: ({ passive }) => <span class="address">{formatEndpoint(passive)}</span>,
    sort: ({ passive }) => passive.address,
  },
  { name: 'Service', cell: ({ service }) => service ?? '?', sort: ({ service }) => service, isExtra: true },
  {
    name: 'Outcome',
    cell: ({ outcome, reject, isDisconnected }) =>
      reject !== undefined || outcome === 'unanswered' ? (
        <b class="marked">{reject === undefined ? outcome : `rejected: ${reject.reason}`}</b>
      ) : (
        `${outcome}${isDisconnected ? ', disconnected' : ''}`
      ),
    sort: ({ outcome }) => outcome,
  },
  {
    name: 'Start, s',
    cell: ({ start }) => formatSeconds(start),
    sort: ({ start }) => start,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'Took',
    title: 'From the first REQ to the RTU, or to the first answer',
    cell: ({ connectTime, answerTime }) => {
      const took = connectTime ?? answerTime;
      return took === undefined ? '–' : formatDuration(took);
    },
    sort: ({ connectTime, answerTime }) => connectTime ?? answerTime,
    isNumber: true,
  },
  {
    name: 'Resent',
    title: 'Retransmitted messages',
    cell: ({ retries }) => (retries > 0 ? <b class="marked">{retries}</b> : '0'),
    sort: ({ retries }) => retries,
    isNumber: true,
  },
  {
    name: 'ACK timeout',
    title: 'Local ACK timeout of the REQ: 4.096 µs · 2^code',
    cell: ({ offered }) => (offered ? timerText(offered.ackTimeout) : '?'),
    sort: ({ offered }) => offered?.ackTimeout,
    isExtra: true,
  },
  {
    name: 'Retries',
    title: 'retry_cnt / rnr_retry; an rnr_retry of 7 is unlimited',
    cell: ({ offered }) => (offered ? `${offered.retryCount} / ${offered.rnrRetryCount}` : '?'),
    isExtra: true,
  },
  {
    name: 'READs',
    title: 'Outstanding READs and atomics that each end wants, of those that it serves',
    cell: ({ active, passive }) => `${depthText(active)} / ${depthText(passive)}`,
    isExtra: true,
  },
];

export function Exchanges({ data: { exchanges } }: { data: ReportData }) {
  if (exchanges.length === 0) return null;
  return (
    <section id="exchanges" aria-labelledby="exchanges-title">
      <div class="heading">
        <h2 id="exchanges-title">
          Connection manager <span class="count">{counted(exchanges.length, 'exchange')}</span>
        </h2>
      </div>
      <Table
        label="Exchanges of the connection manager"
        rows={exchanges.map((exchange, i) => ({ ...exchange, id: i + 1 }))}
        columns={columns}
        keyOf={({ id }) => id}
        detail={(exchange) => <Messages exchange={exchange} />}
        pageSize={PAGE}
      />
    </section>
  );
}

/** The messages of an exchange in their order, with the silences between them. */
function Messages({ exchange: { messages, active, passive } }: { exchange: CmExchange }) {
  const name = (from: CmEvent['from']) => (from === 'active' ? active : passive).address;
  return (
    <ol class="cm-messages">
      {messages.map(({ title, from, frame, time, isRetry }, i) => {
        const wait = i === 0 ? 0 : time - messages[i - 1].time;
        return (
          <li key={frame}>
            {wait >= SILENCE && <b class="marked">{formatDuration(wait)} later: </b>}
            {formatSeconds(time)} s, {title}
            {isRetry && ' (again)'}{' '}
            <span class="faint">
              from {name(from)}, frame {frame}
            </span>
          </li>
        );
      })}
    </ol>
  );
}
