/** `roce flows`: the connections of a capture, and findings. */
import {
  type Analysis,
  analyzeCapture,
  type CmExchange,
  type Connection,
  counted,
  type DirectionCounts,
  type DirectionPath,
  FINDING_CSV_HEADER,
  FINDING_TITLES,
  type Finding,
  findingCsv,
  formatBytes,
  formatCount,
  formatDuration,
  formatSeconds,
  type MessageCounts,
  overviewText,
  tunnelName,
} from '@node-roce/capture/node';
import { explainedText, printVerdicts } from '../capture/verdicts.ts';
import { UsageError } from '../options.ts';
import { exitCode, type ReadingChoices, readingOptions, sourcesOf } from '../reading.ts';
import {
  checkKinds,
  checkSpan,
  connectionFilter,
  type FindingChoices,
  findingsCode,
  type Selection,
  selected,
} from '../selection.ts';
import { type Column, fitTable } from '../table.ts';
import type { Terminal } from '../terminal.ts';
import { type TimeForm, timePrinter } from '../time-form.ts';

interface Options extends ReadingChoices, Selection, FindingChoices {
  time: TimeForm;
  json: boolean;
  csv: boolean;
}

export async function run(files: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const { json, csv } = options;
  if (json && csv) throw new UsageError('expected --json or --csv, not both');
  checkSpan(options);
  checkKinds(options);
  if (options.filter !== undefined) connectionFilter(options.filter);
  const whole = await analyzeCapture(sourcesOf(files, terminal), {
    ...(await readingOptions(terminal, options)),
  });
  const analysis = selected(whole, options);
  // Of an input that is not a capture, or is empty, there is nothing to show but the message.
  const isEmpty = analysis.summary.frames === 0;
  if (json) await terminal.jsonParts(jsonOf(analysis));
  else if (csv) printCsv(analysis.findings, terminal);
  else if (!isEmpty) print(analysis, options.time, terminal);
  const code = exitCode(analysis.summary, files, terminal, { isShown: !json && !csv && !isEmpty });
  return code || findingsCode(analysis.findings, options);
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
  const single = findings.flatMap((finding) => finding.members ?? [finding]);
  for (const finding of single) terminal.line(findingCsv(finding));
}

function print(analysis: Analysis, form: TimeForm, terminal: Terminal): void {
  const { summary, overview, connections, exchanges, findings, unconnected } = analysis;
  const { bold, dim } = terminal.colors;
  printVerdicts(analysis, terminal);
  const timeOf = form === 'relative' ? undefined : timePrinter(form, summary.startTime);
  const { frames, rocePackets, duration, icrc } = summary;
  const verdicts = [`${formatCount(icrc.ok)} ok`];
  if (icrc.bad > 0) verdicts.push(`${formatCount(icrc.bad)} bad`);
  if (icrc.none > 0) verdicts.push(`${formatCount(icrc.none)} not checked${uncheckedReason(summary)}`);
  terminal.paragraph(
    '',
    `${counted(rocePackets, 'RoCE packet')} in ${counted(frames, 'frame')}, ${formatDuration(duration)}${timeOf === undefined ? '' : ` from ${timeOf(0)}`}; ICRC ${verdicts.join(', ')}`,
  );
  if (connections.length > 0) {
    for (const line of overviewText(overview)) terminal.paragraph('', line);
    const { heading, rows } = fitTable(columnsFor(connections), connections, terminal.paragraphWidth);
    terminal.line();
    if (heading !== undefined) terminal.line(bold(heading));
    for (const row of rows) terminal.line(row);
  }
  if (unconnected > 0) {
    terminal.paragraph(
      '',
      dim(
        `${counted(unconnected, 'packet')} outside of connections: messages of the connection manager, CNPs alone, or damaged headers`,
      ),
    );
  }
  if (exchanges.length > 0) printExchanges(exchanges, timeOf, terminal);
  terminal.line();
  if (findings.length === 0) terminal.line('No findings.');
  for (const finding of findings) if (finding.isExplained !== true) printFinding(finding, timeOf, terminal);
  const explained = explainedText(analysis);
  if (explained !== undefined) terminal.paragraph('', dim(explained));
}

/** Why ICRCs were not checked: packets without their ends have none to check. */
function uncheckedReason({ cutFrames, cutLength, otherKinds, icrc }: Analysis['summary']): string {
  if (cutFrames > 0)
    return cutLength === undefined ? ' (cut by the capture)' : ` (cut at ${cutLength} bytes by the capture)`;
  // None at all: nobody asked for it.
  if (icrc.ok + icrc.bad === 0) return '';
  return otherKinds['a later fragment'] === undefined
    ? ' (their ends are not in the frames)'
    : ' (they are in several IP fragments)';
}

/** Of one direction, then of the other. */
const both = <T>(a: T, b: T, text: (value: T) => string): string => `${text(a)} / ${text(b)}`;

const ofDirections = (text: (counts: DirectionCounts) => string) => (connection: Connection) =>
  both(connection.aToB, connection.bToA, text);

const ofMessages = (text: (counts: MessageCounts) => string) => (connection: Connection) =>
  both(connection.messagesFromA, connection.messagesFromB, text);

const endpoint = ({ address, qpn }: Connection['a']): string =>
  `${address} ${qpn < 0 ? '?' : `0x${qpn.toString(16)}`}`;

const latency = ({ completion: found }: Connection): string => {
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

const bothPaths =
  (text: (path: DirectionPath) => string) =>
  ({ paths: { aToB, bToA } }: Connection) => {
    const [a, b] = [aToB, bToA].map((path) => (path === undefined ? '-' : text(path)));
    return a === b || b === '-' ? a! : a === '-' ? b! : `${a} / ${b}`;
  };

const distinct = (values: readonly number[]): string =>
  [...new Set(values)].toSorted((x, y) => x - y).join(',');

/** Columns of the path; each is shown if it has information. */
const PATH_COLUMNS: readonly (Column<Connection> & { tells: (path: DirectionPath) => boolean })[] = [
  {
    heading: 'network',
    tells: ({ vlan, tunnel }) => vlan >= 0 || tunnel !== 'none',
    value: bothPaths(({ vlan, tunnel, vni }) =>
      [tunnel === 'none' ? '' : tunnelName(tunnel, vni), vlan < 0 ? '' : `vlan ${vlan}`]
        .filter((part) => part !== '')
        .join(' '),
    ),
  },
  {
    heading: 'PCP',
    tells: ({ classes }) => classes.some(({ pcp }) => pcp > 0),
    value: bothPaths(({ classes }) => distinct(classes.map(({ pcp }) => Math.max(pcp, 0)))),
    right: true,
  },
  {
    heading: 'DSCP',
    tells: ({ classes }) => classes.some(({ dscp }) => dscp > 0),
    value: bothPaths(({ classes }) => distinct(classes.map(({ dscp }) => dscp))),
    right: true,
  },
  {
    heading: 'TTL',
    tells: ({ classes }) => classes.some(({ ttl, dscp, pcp }) => ttl !== 64 || dscp > 0 || pcp > 0),
    value: bothPaths(({ classes }) => distinct(classes.map(({ ttl }) => ttl))),
    right: true,
  },
  {
    heading: 'CE',
    tells: ({ ecn }) => ecn.ce + ecn.ect0 + ecn.ect1 > 0,
    value: ({ paths: { aToB, bToA } }) =>
      `${formatCount(aToB?.ecn.ce ?? 0)} / ${formatCount(bToA?.ecn.ce ?? 0)}`,
    right: true,
  },
];

function columnsFor(connections: readonly Connection[]): readonly Column<Connection>[] {
  const paths = connections.flatMap(({ paths: { aToB, bToA } }) => [aToB, bToA]);
  const telling = PATH_COLUMNS.filter(({ tells }) => paths.some((path) => path !== undefined && tells(path)));
  return [...COLUMNS, ...telling];
}

/** Exchanges that are listed; JSON has all. */
const MAX_EXCHANGES = 50;

function printExchanges(
  exchanges: readonly CmExchange[],
  timeOf: ((ns: number) => string) | undefined,
  terminal: Terminal,
): void {
  const shown = exchanges.slice(0, MAX_EXCHANGES);
  const { heading, rows } = fitTable(exchangeColumns(timeOf), shown, terminal.paragraphWidth);
  terminal.line();
  terminal.line(terminal.colors.bold(heading ?? 'Exchanges of the connection manager'));
  for (const row of rows) terminal.line(row);
  if (exchanges.length > shown.length)
    terminal.line(terminal.colors.dim(`and ${formatCount(exchanges.length - shown.length)} more (--json)`));
}

const party = ({ address, qpn }: CmExchange['active']): string => endpoint({ address, qpn });

/** `14 (67.1 ms)`: a timer's code, and 4.096 µs · 2^code. */
const timeoutOf = (code: number): string =>
  code === 0 ? 'none' : `${code} (${formatDuration(4096 * 2 ** code)})`;

const exchangeColumns = (timeOf: ((ns: number) => string) | undefined): readonly Column<CmExchange>[] => [
  { heading: 'CM: from', value: ({ active }) => party(active) },
  { heading: 'to', value: ({ passive }) => party(passive) },
  { heading: 'service', value: ({ service }) => service ?? '?' },
  {
    heading: 'outcome',
    value: ({ outcome, isDisconnected, reject }) =>
      reject === undefined
        ? `${outcome}${isDisconnected ? ', disconnected' : ''}`
        : `rejected: ${reject.reason}`,
  },
  {
    heading: timeOf === undefined ? 'start, s' : 'start',
    value: ({ start }) => (timeOf ?? formatSeconds)(start),
    right: true,
  },
  {
    heading: 'took',
    value: ({ connectTime, answerTime }) => {
      const took = connectTime ?? answerTime;
      return took === undefined ? '-' : formatDuration(took);
    },
    right: true,
  },
  { heading: 'resent', value: ({ retries }) => String(retries), right: true },
  { heading: 'ACK timeout', value: ({ offered }) => (offered ? timeoutOf(offered.ackTimeout) : '?') },
  {
    heading: 'retry/rnr',
    value: ({ offered }) => (offered ? `${offered.retryCount}/${offered.rnrRetryCount}` : '?'),
  },
  { heading: 'READs', value: ({ active, passive }) => `${depth(active)} / ${depth(passive)}` },
];

/** READs and atomics: those that it wants outstanding, of those that it serves. */
const depth = ({ initiatorDepth, responderResources }: CmExchange['active']): string =>
  initiatorDepth < 0 ? '?' : `${initiatorDepth} of ${responderResources}`;

function printFinding(
  { kind, severity, text, hint, start, frames, frameCount }: Finding,
  timeOf: ((ns: number) => string) | undefined,
  terminal: Terminal,
): void {
  const { red, yellow, cyan, dim } = terminal.colors;
  const color = { error: red, warning: yellow, note: cyan }[severity];
  const shown = frames.slice(0, 8).join(', ');
  const more = frameCount > Math.min(8, frames.length) ? ', …' : '';
  const place = [timeOf?.(start) ?? '', shown === '' ? '' : `frame ${shown}${more}`]
    .filter((part) => part !== '')
    .join(', ');
  terminal.paragraph(
    `${color(severity.padEnd(7))}  `,
    `${FINDING_TITLES[kind]}: ${text}${place === '' ? '' : dim(` [${place}]`)}`,
  );
  terminal.paragraph('         ', dim(hint));
}
