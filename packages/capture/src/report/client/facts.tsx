/** The facts of a connection as numbers: how it was put together, both directions, the times. */
import type { DirectionCounts, Distribution } from '../../flow/analysis.ts';
import { causeNames } from '../../ladder/kind.ts';
import { formatBytes, formatCount, formatDuration, formatTime } from '../../units.ts';
import type { ReportConnection } from '../data.ts';

export function ConnectionFacts({ connection }: { connection: ReportConnection }) {
  const { pairing, pairingReason, pathMtu, start, end, firstFrame, lastFrame } = connection;
  return (
    <div class="facts">
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
      </dl>
      <Directions connection={connection} />
      <Distributions connection={connection} />
    </div>
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
  of: (counts: DirectionCounts) => number;
  format?: (value: number) => string;
  /** Something went wrong where it isn't 0. */
  isBad?: boolean;
  /** Shown even where both directions have none. */
  isAlways?: boolean;
}

const rows: readonly Row[] = [
  { name: 'Packets', of: (d) => d.packets, isAlways: true },
  { name: 'Payload', of: (d) => d.bytes, format: formatBytes, isAlways: true },
  { name: 'Requests', of: (d) => d.requests, isAlways: true },
  { name: 'Responses', of: (d) => d.responses },
  { name: 'Responses again', of: (d) => d.repeatedResponses },
  { name: 'ACKs', of: (d) => d.acks, isAlways: true },
  { name: 'Sent again', of: (d) => d.retransmitted, isBad: true, isAlways: true },
  { name: 'Payload sent again', of: (d) => d.retransmittedBytes, format: formatBytes, isBad: true },
  { name: 'Went back (go-back-N)', of: (d) => d.goBacks, isBad: true },
  { name: 'RNR NAKs', of: (d) => d.rnrNaks, isBad: true },
  { name: 'Gaps in PSNs', of: (d) => d.gaps, isBad: true },
  { name: 'Missed by the capture', of: (d) => d.missedByCapture },
  { name: 'Ghost ACKs', of: (d) => d.ghostAcks },
  { name: 'Frames seen twice', of: (d) => d.repeatedFrames },
  { name: 'Bad ICRC', of: (d) => d.icrcBad, isBad: true },
  { name: 'ICRC not checked', of: (d) => d.icrcUnchecked },
  { name: 'ECN capable', of: (d) => d.ecnCapable },
  { name: 'ECN marked', of: (d) => d.ecnMarked, isBad: true },
  { name: 'CNPs', of: (d) => d.cnps, isBad: true },
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
    if (row.name === 'Sent again') return [row, ...causes];
    return row.name === 'RNR NAKs' ? [...naks, row] : [row];
  });
  const shown = all.filter((row) => row.isAlways || row.of(aToB) + row.of(bToA) > 0);
  const cell = ({ of, format = formatCount, isBad }: Row, counts: DirectionCounts) => {
    const value = of(counts);
    return <td class={`number${isBad && value > 0 ? ' marked' : ''}`}>{format(value)}</td>;
  };
  return (
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
            <th scope="row">{row.name}</th>
            {cell(row, aToB)}
            {cell(row, bToA)}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Distributions({ connection }: { connection: ReportConnection }) {
  const times: [name: string, title: string, distribution: Distribution | undefined][] = [
    ['To the ACK', 'From the last packet of a message to the ACK that covers it', connection.ackLatency],
    ['READ, atomic', 'From a READ or atomic request to its last response', connection.readRoundTrip],
    ['RNR wait', 'From an RNR NAK until the request came again', connection.rnrWait],
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
