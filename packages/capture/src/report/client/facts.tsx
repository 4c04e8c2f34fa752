/** The facts of a connection as numbers: how it was put together, its path, both directions, the times. */
import { Fragment } from 'preact';
import type { DirectionCounts, Distribution } from '../../flow/analysis.ts';
import type { CmExchange } from '../../flow/pair/cm-exchanges.ts';
import { causeNames } from '../../ladder/kind.ts';
import { formatBytes, formatCount, formatDuration, formatTime } from '../../units.ts';
import type { ReportConnection } from '../data.ts';
import { pathRows } from './paths.ts';

interface FactsProps {
  connection: ReportConnection;
  /** Of the whole capture. */
  exchanges: readonly CmExchange[];
}

export function ConnectionFacts({ connection, exchanges }: FactsProps) {
  const { pairing, pairingReason, pathMtu, start, end, firstFrame, lastFrame } = connection;
  return (
    <div class="facts">
      <div>
        <dl class="plain">
          <dt>Pairing</dt>
          <dd>
            <b>{pairing}</b> <span class="faint">{pairingReason}</span>
          </dd>
          <dt>Path MTU</dt>
          <dd>{pathMtu === undefined ? 'not known from these packets' : `${pathMtu} bytes`}</dd>
          <dt>Seen</dt>
          <dd>
            {formatTime(start)} … {formatTime(end)}{' '}
            <span class="faint">
              frames {firstFrame} … {lastFrame}
            </span>
          </dd>
          <dt>Messages</dt>
          <dd>
            <MessageSummary connection={connection} />
          </dd>
          <Agreed exchange={exchangeOf(connection, exchanges)} />
        </dl>
        <Paths connection={connection} />
      </div>
      <Directions connection={connection} />
      <Distributions connection={connection} />
    </div>
  );
}

/** The exchange that opened it, if the capture has it. */
const exchangeOf = ({ a, b }: ReportConnection, exchanges: readonly CmExchange[]) =>
  exchanges.find(({ active, passive }) => {
    const names = [active, passive].map(({ address, qpn }) => `${address} ${qpn}`);
    return names.includes(`${a.address} ${a.qpn}`) && names.includes(`${b.address} ${b.qpn}`);
  });

/** The timers that the connection manager agreed on. */
function Agreed({ exchange }: { exchange: CmExchange | undefined }) {
  if (exchange?.offered === undefined) return null;
  const { ackTimeout, retryCount, rnrRetryCount } = exchange.offered;
  const timeout = ackTimeout === 0 ? 'none' : `${ackTimeout} (${formatDuration(4096 * 2 ** ackTimeout)})`;
  return (
    <>
      <dt>Agreed</dt>
      <dd>
        ACK timeout {timeout}, retry_cnt {retryCount}, rnr_retry {rnrRetryCount}
        {rnrRetryCount === 7 && ' (unlimited)'}
      </dd>
    </>
  );
}

/** Where its packets were seen, and how they were marked. */
function Paths({ connection: { paths } }: { connection: ReportConnection }) {
  const [there, back] = [paths.aToB, paths.bToA].map((path) =>
    path === undefined ? undefined : pathRows(path),
  );
  const shown = there ?? back;
  if (shown === undefined) return null;
  return (
    <table class="figures-table">
      <caption>Path</caption>
      <thead>
        <tr>
          <td />
          <th scope="col">A → B</th>
          <th scope="col">B → A</th>
        </tr>
      </thead>
      <tbody>
        {shown.map(([name], i) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{there?.[i]?.[1] ?? '–'}</td>
            <td>{back?.[i]?.[1] ?? '–'}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function MessageSummary({ connection }: { connection: ReportConnection }) {
  const ends = [
    ['A', connection.messagesFromA],
    ['B', connection.messagesFromB],
  ] as const;
  const shown = ends.filter(([, counts]) => counts.total > 0);
  if (shown.length === 0) return <>none</>;
  return (
    <>
      {shown.map(([name, { total, failed, incomplete, bytes, byOperation }]) => (
        <div key={name}>
          from {name}: {formatCount(total)}
          {failed > 0 && <b class="marked">, {formatCount(failed)} failed</b>}
          {incomplete > 0 && `, ${formatCount(incomplete)} incomplete`}, {formatBytes(bytes)}{' '}
          <span class="faint">
            {Object.entries(byOperation)
              .map(([operation, count]) => `${formatCount(count)} ${operation}`)
              .join(', ')}
          </span>
        </div>
      ))}
    </>
  );
}

interface Row {
  name: string;
  /** The meaning of the name. */
  means?: string;
  of: (counts: DirectionCounts) => number;
  format?: (value: number) => string;
  /** Something went wrong where it isn't 0. */
  isBad?: boolean;
  /** Shown even where both directions have none. */
  isAlways?: boolean;
}

const RETRANSMITTED = 'Retransmitted';
const RNR_NAKS = 'RNR NAKs';

const rows: readonly Row[] = [
  { name: 'Packets', of: (d) => d.packets, isAlways: true },
  { name: 'Payload', of: (d) => d.bytes, format: formatBytes, isAlways: true },
  { name: 'Requests', of: (d) => d.requests, isAlways: true },
  { name: 'Responses', of: (d) => d.responses },
  {
    name: 'Repeated responses',
    means: 'responses to READs and atomics that were retransmitted',
    of: (d) => d.repeatedResponses,
  },
  { name: 'ACKs', of: (d) => d.acks, isAlways: true },
  { name: RETRANSMITTED, of: (d) => d.retransmitted, isBad: true, isAlways: true },
  { name: 'Payload retransmitted', of: (d) => d.retransmittedBytes, format: formatBytes, isBad: true },
  {
    name: 'Go-back-N events',
    means: 'times at which the sender resumed from an earlier PSN',
    of: (d) => d.goBacks,
    isBad: true,
  },
  {
    name: RNR_NAKS,
    means: 'refusals because no receive was posted (receiver not ready)',
    of: (d) => d.rnrNaks,
    isBad: true,
  },
  {
    name: 'Gaps in PSNs',
    means: 'PSNs that were skipped: they came later, or were lost before the tap',
    of: (d) => d.gaps,
    isBad: true,
  },
  {
    name: 'Out of order',
    means: 'packets that were overtaken by packets sent after them',
    of: (d) => d.late,
    isBad: true,
  },
  {
    name: 'Missed by the capture',
    means: 'packets that were acknowledged, but are not in the capture',
    of: (d) => d.missedByCapture,
  },
  {
    name: 'Ghost ACKs',
    means: 'ACKs of packets that were acknowledged before: credit updates, or answers to duplicates',
    of: (d) => d.ghostAcks,
  },
  {
    name: 'Duplicate frames',
    means: 'frames that the capture has twice, as from a mirror of two ports',
    of: (d) => d.repeatedFrames,
  },
  {
    name: 'Bad ICRC',
    means: 'damaged packets, which a receiver silently drops',
    of: (d) => d.icrcBad,
    isBad: true,
  },
  { name: 'ICRC not checked', means: 'packets that the capture cut', of: (d) => d.icrcUnchecked },
  { name: 'ECN capable', of: (d) => d.ecnCapable },
  { name: 'ECN CE', means: 'packets that a switch marked as congested', of: (d) => d.ecnMarked, isBad: true },
  { name: 'CNPs', means: 'requests to send more slowly', of: (d) => d.cnps, isBad: true },
];

function Directions({ connection: { aToB, bToA } }: { connection: ReportConnection }) {
  const causes = Object.entries(causeNames)
    .map(
      ([cause, name]): Row => ({
        name: `… ${name}`,
        of: (d) => d.retransmitCauses[cause as keyof typeof causeNames] ?? 0,
      }),
    )
    .filter((row) => row.of(aToB) + row.of(bToA) > 0);
  const codes = [...Object.keys(aToB.naks), ...Object.keys(bToA.naks)] as (keyof typeof aToB.naks)[];
  const naks = [...new Set(codes)].map(
    (syndrome): Row => ({
      name: `NAK ${syndrome.replaceAll('-', ' ').replace(/\b(psn|rd)\b/, (name) => name.toUpperCase())}`,
      of: (d) => d.naks[syndrome] ?? 0,
      isBad: true,
    }),
  );
  const all = rows.flatMap((row) => {
    if (row.name === RETRANSMITTED) return [row, ...causes];
    return row.name === RNR_NAKS ? [...naks, row] : [row];
  });
  const shown = all.filter((row) => row.isAlways || row.of(aToB) + row.of(bToA) > 0);
  const cell = ({ of, format = formatCount, isBad }: Row, counts: DirectionCounts) => {
    const value = of(counts);
    return <td class={`number${isBad && value > 0 ? ' marked' : ''}`}>{format(value)}</td>;
  };
  const meanings = shown.filter(({ means }) => means !== undefined);
  return (
    <div>
      <table class="figures-table">
        <caption>Packets by direction</caption>
        <thead>
          <tr>
            <td />
            <th scope="col" class="number">
              A → B
            </th>
            <th scope="col" class="number">
              B → A
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={row.name} class={row.name.startsWith('…') ? 'sub' : ''}>
              <th scope="row" title={row.means}>
                {row.name}
              </th>
              {cell(row, aToB)}
              {cell(row, bToA)}
            </tr>
          ))}
        </tbody>
      </table>
      {meanings.length > 0 && (
        <details class="meanings">
          <summary>Meaning of these counts</summary>
          <dl class="plain">
            {meanings.map(({ name, means }) => (
              <Fragment key={name}>
                <dt>{name}</dt>
                <dd>{means}</dd>
              </Fragment>
            ))}
          </dl>
        </details>
      )}
    </div>
  );
}

function Distributions({ connection }: { connection: ReportConnection }) {
  const times: [name: string, title: string, distribution: Distribution | undefined][] = [
    ['Latency', 'From the first packet of a message to its completion', connection.completion],
    [
      'ACK round trip',
      'From the last packet of a message to the ACK that covers it',
      connection.ackRoundTrip,
    ],
    ['READ, atomic', 'From a READ or atomic request to its last response', connection.readRoundTrip],
    ['RNR wait', 'From an RNR NAK to the retransmitted request', connection.rnrWait],
    ['Mark to CNP', 'From the first CE mark to the first CNP after it', connection.cnpDelay],
  ];
  const shown = times.filter(([, , distribution]) => distribution !== undefined);
  if (shown.length === 0) return null;
  return (
    <table class="figures-table">
      <caption>Times</caption>
      <thead>
        <tr>
          <td />
          {['count', 'min', 'p50', 'p99', 'max'].map((name) => (
            <th key={name} scope="col" class="number">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {shown.map(([name, title, distribution]) => (
          <tr key={name}>
            <th scope="row" title={title}>
              {name}
            </th>
            <td class="number">{formatCount(distribution!.count)}</td>
            {(['min', 'p50', 'p99', 'max'] as const).map((part) => (
              <td key={part} class="number">
                {formatDuration(distribution![part])}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
