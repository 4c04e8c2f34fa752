/** `roce compare`: what happened to packets between two captures of their way. */
import { basename } from 'node:path';
import {
  type Comparison,
  clockText,
  compareCaptures,
  comparisonText,
  counted,
  formatDuration,
  formatQp,
  formatSeconds,
  NothingInCommonError,
  renderComparison,
  type Transit,
  type TransitEvent,
} from '@node-roce/capture/node';
import { checkOutput, writeOutput } from '../drawing.ts';
import { DASH, UsageError } from '../options.ts';
import { exitCode, isFile, type ReadingChoices, readingOptions, sourceOf } from '../reading.ts';
import { type Column, fitTable } from '../table.ts';
import type { Terminal } from '../terminal.ts';
import { programName } from '../version.ts';

interface Options extends ReadingChoices {
  html?: string;
  count: number;
  json: boolean;
}

export async function run(files: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  if (!files.every(isFile))
    throw new UsageError(
      'captures are read twice: standard input and pipes cannot be compared; write them into files first',
    );
  const { html, json } = options;
  if (html !== undefined) for (const file of files) checkOutput(file, html, json);
  const [a, b] = files.map((file) => sourceOf(file, terminal) as string) as [string, string];
  let comparison: Comparison;
  try {
    comparison = await compareCaptures(a, b, await readingOptions(terminal, options));
  } catch (error) {
    if (!(error instanceof NothingInCommonError)) throw error;
    terminal.message(`${terminal.errColors.red('roce:')} ${a} and ${b}: ${error.message}`);
    return 1;
  }
  if (html !== undefined) await writePage(comparison, html, [a, b], terminal);
  if (json) terminal.json(comparison);
  else if (html !== DASH) print(comparison, options, terminal);
  const isShown = { isShown: !options.json };
  return Math.max(
    exitCode(comparison.summaryA, a, terminal, isShown),
    exitCode(comparison.summaryB, b, terminal, isShown),
  );
}

async function writePage(
  comparison: Comparison,
  output: string,
  files: readonly string[],
  terminal: Terminal,
): Promise<void> {
  const title = files.map((file) => basename(file)).join(' and ');
  const page = renderComparison(comparison, { title, generator: programName() });
  const summary = comparisonText(comparison).replace(/\.$/, '');
  await writeOutput(page, { output, json: false }, { facts: {}, summary }, terminal);
}

function print({ clock, ...comparison }: Comparison, { count }: Options, terminal: Terminal): void {
  const { aToB, bToA, outside, unplaced, events, eventCount } = comparison;
  terminal.paragraph('', clockText({ clock }));
  terminal.line();
  printTable(TRANSIT_COLUMNS, [aToB, bToA], terminal);
  const notes = [
    outside.a + outside.b > 0 &&
      `${counted(outside.a, 'packet')} of A and ${outside.b} of B at times that the other capture does not cover`,
    unplaced > 0 && `${counted(unplaced, 'packet')} of senders that only one capture shows`,
  ].filter((note) => note !== false);
  for (const note of notes) terminal.paragraph('', terminal.colors.dim(note));
  if (eventCount === 0) return;
  terminal.line();
  const shown = events.slice(0, count);
  printTable(EVENT_COLUMNS, shown, terminal);
  if (eventCount > shown.length) terminal.line(terminal.colors.dim(`… ${eventCount - shown.length} more`));
}

function printTable<T>(columns: readonly Column<T>[], rows: readonly T[], terminal: Terminal): void {
  const { heading, rows: lines } = fitTable(columns, rows, terminal.paragraphWidth);
  if (heading !== undefined) terminal.line(terminal.colors.bold(heading));
  for (const line of lines) terminal.line(line);
}

const number =
  (value: (transit: Transit) => number): Column<Transit>['value'] =>
  (transit) =>
    String(value(transit));

const duration = (value: number | undefined): string => (value === undefined ? '-' : formatDuration(value));

const TRANSIT_COLUMNS: readonly Column<Transit>[] = [
  { heading: 'direction', value: ({ from }) => (from === 'a' ? 'A → B' : 'B → A') },
  { heading: 'sent', value: number(({ sent }) => sent), right: true },
  { heading: 'arrived', value: number(({ arrived }) => arrived), right: true },
  { heading: 'lost', value: number(({ lost }) => lost), right: true },
  { heading: 'damaged', value: number(({ damaged }) => damaged), right: true },
  { heading: 'duplicated', value: number(({ duplicated }) => duplicated), right: true },
  { heading: 'reordered', value: number(({ reordered }) => reordered), right: true },
  { heading: 'unseen', value: number(({ unseen }) => unseen), right: true },
  {
    heading: 'delay min / p50 / p99',
    value: ({ delay }) => [delay?.min, delay?.p50, delay?.p99].map(duration).join(' / '),
    right: true,
  },
];

const EVENT_COLUMNS: readonly Column<TransitEvent>[] = [
  { heading: 'start, s', value: ({ time }) => formatSeconds(time), right: true },
  { heading: 'frame A', value: ({ frameA }) => String(frameA ?? '-'), right: true },
  { heading: 'frame B', value: ({ frameB }) => String(frameB ?? '-'), right: true },
  { heading: 'fate', value: ({ fate }) => fate },
  { heading: 'from', value: ({ source }) => source },
  { heading: 'to', value: ({ destination, destQp }) => `${destination} ${formatQp(destQp)}` },
  { heading: 'packet', value: ({ opcode }) => opcode },
  { heading: 'PSN', value: ({ psn }) => `${psn} (0x${psn.toString(16)})`, right: true },
];
