/** `roce messages`: prints each message of a capture as it ends. */
import {
  addressPredicate,
  analyzeCapture,
  formatDuration,
  formatPsn,
  formatSeconds,
  MESSAGE_CSV_HEADER,
  type Message,
  type MessageOutcome,
  type MessageQps,
  messageCsv,
} from '@node-roce/capture/node';
import { UsageError } from '../options.ts';
import { exitCode, type ReadingChoices, readingOptions, sourcesOf } from '../reading.ts';
import { checkSpan, connectionOf, Greatest, isWithin, type Selection } from '../selection.ts';
import { type Column, lineOf, paragraphOf } from '../table.ts';
import type { Terminal } from '../terminal.ts';

interface Options extends ReadingChoices, Selection {
  qp?: number;
  operation?: string;
  outcome?: MessageOutcome;
  retransmitted: boolean;
  json: boolean;
  csv: boolean;
}

interface Row {
  message: Message;
  qps: MessageQps;
}

export async function run(files: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const { json, csv } = options;
  if (json && csv) throw new UsageError('--json or --csv, not both');
  checkSpan(options);
  const isNamed = options.address === undefined ? () => true : addressPredicate(options.address);
  const longest =
    options.top === undefined
      ? undefined
      : new Greatest<Row>(options.top, ({ message }) => message.latency ?? 0);
  let isHeaded = json;
  const head = () => {
    if (isHeaded) return;
    isHeaded = true;
    if (csv) terminal.line(MESSAGE_CSV_HEADER);
    else if (fits(terminal)) terminal.line(terminal.colors.bold(lineOf(COLUMNS, HEADINGS, WIDTHS)));
  };
  const show = (row: Row) => {
    const { message, qps } = row;
    head();
    if (json) terminal.json({ ...message, qps: { requester: qps.requester, responder: qps.responder } });
    else if (csv) terminal.line(messageCsv(message));
    else print(row, terminal);
  };
  const analysis = await analyzeCapture(sourcesOf(files, terminal), {
    ...(await readingOptions(terminal, options)),
    onMessage: (message, qps, addresses) => {
      if (!isWanted(message, qps, options)) return;
      if (!isNamed(addresses.text(qps.requesterAddress)) && !isNamed(addresses.text(qps.responderAddress)))
        return;
      if (longest === undefined) show({ message, qps });
      else longest.add({ message, qps });
    },
  });
  if (options.connection !== undefined) connectionOf(analysis, options.connection);
  head();
  for (const row of longest?.sorted() ?? []) show(row);
  return exitCode(analysis.summary, files, terminal);
}

function isWanted(message: Message, { requester, responder }: MessageQps, options: Options): boolean {
  const { qp, connection, operation, outcome, retransmitted } = options;
  return (
    isWithin(message, options) &&
    (connection === undefined || connection === message.connection) &&
    (qp === undefined || qp === requester || qp === responder) &&
    (operation === undefined || message.operation.includes(operation.toUpperCase())) &&
    (outcome === undefined || message.outcome === outcome) &&
    (!retransmitted || message.retransmitted > 0)
  );
}

function print(row: Row, terminal: Terminal): void {
  const cells = () => COLUMNS.map(({ value }) => value(row));
  const line = fits(terminal)
    ? lineOf(COLUMNS, cells(), WIDTHS)
    : paragraphOf(COLUMNS, row, terminal.paragraphWidth);
  const { outcome } = row.message;
  const { red, yellow } = terminal.colors;
  terminal.line(outcome === 'failed' ? red(line) : outcome === 'incomplete' ? yellow(line) : line);
}

const qpn = (number: number): string => (number < 0 ? '?' : `0x${number.toString(16)}`);

// Rows are printed as they come, so the widths are fixed: nearly all cells fit.
const TABLE: readonly (Column<Row> & { width: number })[] = [
  { heading: '#', width: 3, right: true, value: ({ message }) => String(message.connection) },
  { heading: 'message', width: 7, right: true, value: ({ message }) => String(message.id) },
  {
    heading: 'queue pairs',
    width: 15,
    value: ({ qps }) => `${qpn(qps.requester)} → ${qpn(qps.responder)}`,
  },
  { heading: 'operation', width: 19, value: ({ message }) => message.operation },
  { heading: 'bytes', width: 10, right: true, value: ({ message }) => String(message.bytes ?? '?') },
  { heading: 'first PSN', width: 19, right: true, value: ({ message }) => formatPsn(message.firstPsn) },
  { heading: 'packets', width: 7, right: true, value: ({ message }) => String(message.packets) },
  { heading: 'retransmitted', width: 13, right: true, value: ({ message }) => String(message.retransmitted) },
  { heading: 'frame', width: 7, right: true, value: ({ message }) => String(message.firstFrame) },
  { heading: 'start, s', width: 10, right: true, value: ({ message }) => formatSeconds(message.start) },
  {
    heading: 'latency',
    width: 8,
    right: true,
    value: ({ message: { latency } }) => (latency === undefined ? '-' : formatDuration(latency)),
  },
  {
    heading: 'outcome',
    width: 9,
    value: ({ message: { outcome, failure } }) =>
      failure === undefined ? outcome : `${outcome}: ${failure}`,
  },
];
const COLUMNS: readonly Column<Row>[] = TABLE;
/** Whether a line of the table fits the terminal. */
const fits = (terminal: Terminal) => TABLE_WIDTH <= terminal.paragraphWidth;

const HEADINGS = TABLE.map(({ heading }) => heading);
const WIDTHS = TABLE.map(({ width }) => width);
const TABLE_WIDTH = WIDTHS.reduce((sum, width) => sum + width + 2, -2);
