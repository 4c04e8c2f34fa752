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
import { type TimeForm, timePrinter } from '../time-form.ts';

interface Options extends ReadingChoices, Selection {
  qp?: number;
  operation?: string;
  outcome?: MessageOutcome;
  retransmitted: boolean;
  time: TimeForm;
  json: boolean;
  csv: boolean;
}

interface Row {
  message: Message;
  qps: MessageQps;
}

export async function run(files: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const { json, csv } = options;
  if (json && csv) throw new UsageError('expected --json or --csv, not both');
  checkSpan(options);
  const isNamed = options.address === undefined ? () => true : addressPredicate(options.address);
  const longest =
    options.top === undefined
      ? undefined
      : new Greatest<Row>(options.top, ({ message }) => message.latency ?? 0);
  const table = new MessageTable(terminal, options.time);
  let isHeaded = json;
  const head = () => {
    if (isHeaded) return;
    isHeaded = true;
    if (csv) terminal.line(MESSAGE_CSV_HEADER);
    else if (table.fits) terminal.line(terminal.colors.bold(table.heading));
  };
  const show = (row: Row) => {
    const { message, qps } = row;
    head();
    if (json) terminal.json({ ...message, qps: { requester: qps.requester, responder: qps.responder } });
    else if (csv) terminal.line(messageCsv(message));
    else table.print(row);
  };
  const analysis = await analyzeCapture(sourcesOf(files, terminal), {
    ...(await readingOptions(terminal, options)),
    onStart: (startTime) => table.begins(startTime),
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

const qpn = (number: number): string => (number < 0 ? '?' : `0x${number.toString(16)}`);

/** `2026-11-28 13:45:26.123456Z` */
const DATE_WIDTH = 27;

// Rows are printed as they come, so the widths are fixed: nearly all cells fit.
const tableIn = (
  form: TimeForm,
  timeOf: (ns: number) => string,
): readonly (Column<Row> & { width: number })[] => [
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
  {
    heading: form === 'relative' ? 'start, s' : 'start',
    width: form === 'relative' ? 10 : DATE_WIDTH,
    right: true,
    value: ({ message }) => timeOf(message.start),
  },
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
/** Rows as they come, below a heading; where the terminal is narrower than the table, a paragraph each. */
class MessageTable {
  readonly #terminal: Terminal;
  readonly #form: TimeForm;
  readonly #columns: readonly Column<Row>[];
  readonly #widths: readonly number[];
  #timeOf: (ns: number) => string = formatSeconds;

  constructor(terminal: Terminal, form: TimeForm) {
    this.#terminal = terminal;
    this.#form = form;
    const table = tableIn(form, (ns) => this.#timeOf(ns));
    this.#columns = table;
    this.#widths = table.map(({ width }) => width);
  }

  get fits(): boolean {
    const width = this.#widths.reduce((sum, each) => sum + each + 2, -2);
    return width <= this.#terminal.paragraphWidth;
  }

  get heading(): string {
    const headings = this.#columns.map(({ heading }) => heading);
    return lineOf(this.#columns, headings, this.#widths);
  }

  /** The time of the first frame, before the first row. */
  begins(startTime: string | undefined): void {
    if (this.#form !== 'relative') this.#timeOf = timePrinter(this.#form, startTime);
  }

  print(row: Row): void {
    const line = this.fits
      ? lineOf(
          this.#columns,
          this.#columns.map(({ value }) => value(row)),
          this.#widths,
        )
      : paragraphOf(this.#columns, row, this.#terminal.paragraphWidth);
    const { outcome } = row.message;
    const { red, yellow } = this.#terminal.colors;
    this.#terminal.line(outcome === 'failed' ? red(line) : outcome === 'incomplete' ? yellow(line) : line);
  }
}
