/** The matrix of hosts: payload and retransmissions from each to each other. */
import { useMemo } from 'preact/hooks';
import { formatBytes, formatCount } from '../../units.ts';
import type { ReportConnection, ReportData } from '../data.ts';
import type { Action } from './state.ts';

/** For fewer hosts the summary is enough. */
const MIN_HOSTS = 3;
const MAX_HOSTS = 16;

interface Cell {
  bytes: number;
  packets: number;
  again: number;
  /** That with most retransmissions, then most bytes. */
  connection: ReportConnection;
}

export function HostMatrix({ data, show }: { data: ReportData; show: (...actions: Action[]) => void }) {
  const { hosts, cells, left } = useMemo(() => matrixOf(data.connections), [data]);
  if (hosts.length < MIN_HOSTS) return null;
  return (
    <section id="hosts" aria-labelledby="hosts-title">
      <h2 id="hosts-title">Hosts</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard. */}
      <section class="scroll matrix" tabIndex={0} aria-label="Payload from each host to each other">
        <table>
          <thead>
            <tr>
              <th scope="col">from ↓ to →</th>
              {hosts.map((host) => (
                <th key={host} scope="col" class="number">
                  {host}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {hosts.map((from) => (
              <tr key={from} class="still">
                <th scope="row">{from}</th>
                {hosts.map((to) => (
                  <td key={to} class="number">
                    <CellView cell={cells.get(`${from} ${to}`)} show={show} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {left > 0 && <p class="faint">{formatCount(left)} hosts with less traffic are left out.</p>}
    </section>
  );
}

function CellView({ cell, show }: { cell: Cell | undefined; show: (...actions: Action[]) => void }) {
  if (cell === undefined) return <span class="faint">–</span>;
  const { bytes, packets, again, connection } = cell;
  return (
    <button
      type="button"
      class="go"
      title={`${formatCount(packets)} packets; shows connection ${connection.id}`}
      onClick={() => show({ type: 'connection', id: connection.id })}
    >
      {formatBytes(bytes)}
      {again > 0 && <b class="marked"> {formatCount(again)} again</b>}
    </button>
  );
}

function matrixOf(connections: readonly ReportConnection[]) {
  const cells = new Map<string, Cell>();
  const traffic = new Map<string, number>();
  for (const connection of connections) {
    const { a, b, aToB, bToA } = connection;
    for (const [from, to, counts] of [
      [a.address, b.address, aToB],
      [b.address, a.address, bToA],
    ] as const) {
      if (counts.packets === 0) continue;
      for (const host of [from, to]) traffic.set(host, (traffic.get(host) ?? 0) + counts.packets);
      const key = `${from} ${to}`;
      const cell = cells.get(key) ?? { bytes: 0, packets: 0, again: 0, connection };
      const before = ofPath(cell.connection, from);
      if (counts.retransmitted > before.retransmitted) cell.connection = connection;
      cell.again += counts.retransmitted;
      cell.bytes += counts.bytes;
      cell.packets += counts.packets;
      cells.set(key, cell);
    }
  }
  const hosts = [...traffic].toSorted(([, x], [, y]) => y - x).map(([host]) => host);
  return { hosts: hosts.slice(0, MAX_HOSTS), cells, left: Math.max(0, hosts.length - MAX_HOSTS) };
}

const ofPath = ({ a, aToB, bToA }: ReportConnection, from: string) => (a.address === from ? aToB : bToA);
