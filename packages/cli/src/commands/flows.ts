/** `roce flows`: the connections of a capture, and findings. */
import {
  type Analysis,
  analyzeCapture,
  type Connection,
  counted,
  type DirectionCounts,
  FINDING_CSV_HEADER,
  type Finding,
  findingCsv,
  formatBytes,
  formatCount,
  formatDuration,
  type MessageCounts,
} from '@node-roce/capture';
import { UsageError } from '../options.ts';
import { nameOfSource, readingOptions, sourceOf } from '../reading.ts';
import { type Column, fitTable } from '../table.ts';
import type { Terminal } from '../terminal.ts';

interface Options {
  icrc: 'check' | 'skip';
  json: boolean;
  csv: boolean;
}

export async function run([file]: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const { icrc, json, csv } = options;
  if (json && csv) throw new UsageError('--json or --csv, not both');
  const analysis = await analyzeCapture(sourceOf(file!, terminal), {
    ...(await readingOptions(terminal, icrc)),
  });
  const { damage, frames } = analysis.summary;
  // Of an input that is not a capture there is nothing to show but the error.
  const isEmpty = damage !== undefined && frames === 0;
  if (json) await terminal.jsonParts(jsonOf(analysis));
  else if (csv) printCsv(analysis.findings, terminal);
  else if (!isEmpty) print(analysis, terminal);
  if (damage === undefined) return 0;
  terminal.message(`${terminal.errColors.red('roce:')} ${nameOfSource(file!)}: ${damage}`);
  return 1;
}

/** An analysis as JSON, a connection at a time: there may be tens of thousands. */
function* jsonOf({ connections, ...rest }: Analysis): Generator<string> {
  yield `${JSON.stringify(rest).slice(0, -1)},"connections":[`;
  for (const [i, connection] of connections.entries())
    yield `${i === 0 ? '' : ','}${JSON.stringify(connection)}`;
  yield ']}\n';
}

function printCsv(findings: readonly Finding[], terminal: Terminal): void {
  terminal.line(FINDING_CSV_HEADER);
  for (const finding of findings) terminal.line(findingCsv(finding));
}

function print({ summary, connections, findings, unconnected }: Analysis, terminal: Terminal): void {
  const { bold, dim } = terminal.colors;
  const { frames, rocePackets, duration, icrc } = summary;
  const verdicts = [`${formatCount(icrc.ok)} ok`];
  if (icrc.bad > 0) verdicts.push(`${formatCount(icrc.bad)} bad`);
  if (icrc.none > 0) verdicts.push(`${formatCount(icrc.none)} not checked`);
  terminal.line(
    `${counted(rocePackets, 'RoCE packet')} in ${counted(frames, 'frame')}, ${formatDuration(duration)}; ICRC ${verdicts.join(', ')}`,
  );
  if (connections.length > 0) {
    const { heading, rows } = fitTable(COLUMNS, connections, terminal.paragraphWidth);
    terminal.line();
    if (heading !== undefined) terminal.line(bold(heading));
    for (const row of rows) terminal.line(row);
  }
  if (unconnected > 0) {
    terminal.line(
      dim(
        `${counted(unconnected, 'packet')} outside of connections: management datagrams, or damaged headers`,
      ),
    );
  }
  terminal.line();
  if (findings.length === 0) terminal.line('No findings.');
  else for (const finding of findings) printFinding(finding, terminal);
}

/** Of one direction, then of the other. */
const both = <T>(a: T, b: T, text: (value: T) => string): string => `${text(a)} / ${text(b)}`;

const ofDirections = (text: (counts: DirectionCounts) => string) => (connection: Connection) =>
  both(connection.aToB, connection.bToA, text);

const ofMessages = (text: (counts: MessageCounts) => string) => (connection: Connection) =>
  both(connection.messagesFromA, connection.messagesFromB, text);

const endpoint = ({ address, qpn }: Connection['a']): string =>
  `${address} ${qpn < 0 ? '?' : `0x${qpn.toString(16)}`}`;

const latency = ({ ackLatency, readRoundTrip }: Connection): string => {
  const found = ackLatency ?? readRoundTrip;
  return found === undefined ? '-' : `${formatDuration(found.p50)} / ${formatDuration(found.p99)}`;
};

const naks = ({ naks, rnrNaks }: DirectionCounts): string =>
  formatCount(rnrNaks + Object.values(naks).reduce((sum, count) => sum + count, 0));

const COLUMNS: readonly Column<Connection>[] = [
  { heading: '#', value: ({ id }) => String(id), right: true },
  { heading: 'type', value: ({ transport }) => transport },
  { heading: 'a', value: ({ a }) => endpoint(a) },
  { heading: 'b', value: ({ b }) => endpoint(b) },
  { heading: 'paired', value: ({ pairing }) => pairing },
  { heading: 'mtu', value: ({ pathMtu }) => String(pathMtu ?? '-'), right: true },
  { heading: 'packets', value: ofDirections(({ packets }) => formatCount(packets)), right: true },
  { heading: 'messages', value: ofMessages(({ total }) => formatCount(total)), right: true },
  { heading: 'payload', value: ofDirections(({ bytes }) => formatBytes(bytes)), right: true },
  {
    heading: 'retransmitted',
    value: ofDirections(({ retransmitted }) => formatCount(retransmitted)),
    right: true,
  },
  { heading: 'NAKs', value: ofDirections(naks), right: true },
  { heading: 'latency p50 / p99', value: latency, right: true },
];

function printFinding({ severity, text, hint, frames, frameCount }: Finding, terminal: Terminal): void {
  const { red, yellow, cyan, dim } = terminal.colors;
  const color = { error: red, warning: yellow, note: cyan }[severity];
  const shown = frames.slice(0, 8).join(', ');
  const more = frameCount > Math.min(8, frames.length) ? ', …' : '';
  terminal.paragraph(
    `${color(severity.padEnd(7))}  `,
    `${text}${shown === '' ? '' : dim(` [frame ${shown}${more}]`)}`,
  );
  terminal.paragraph('         ', dim(hint));
}
