/** Verdicts as text: what went wrong and who is to blame, the chain that proves it, and how connections ended. */
import {
  type Analysis,
  type Connection,
  type ConnectionEnd,
  counted,
  FINDING_TITLES,
  type Finding,
  type Verdict,
} from '@node-roce/capture';
import type { Terminal } from '../terminal.ts';

/** Connections with lines of their own; JSON has all. */
const MAX_LINES = 12;

const CERTAINTY = { certain: 'certain', likely: 'likely', 'not-known': 'not known' } as const;

/** The verdict of the capture with its chain, then a line a connection. */
export function printVerdicts({ verdict, connections }: Analysis, terminal: Terminal): void {
  const { bold, dim } = terminal.colors;
  terminal.paragraph(
    `${bold('verdict')}  `,
    bold(`${colored(verdict, terminal)} (${CERTAINTY[verdict.certainty]})`),
  );
  const width = Math.max(0, ...verdict.chain.map(({ frame }) => String(frame ?? '').length));
  for (const { frame, text } of verdict.chain)
    terminal.paragraph(`         frame ${String(frame ?? '').padStart(width)}  `, text);
  if (verdict.hint !== undefined && verdict.kind !== 'nothing-decoded')
    terminal.paragraph('         ', dim(verdict.hint));
  for (const { text, certainty } of verdict.also)
    terminal.paragraph('         ', `also: ${text} (${CERTAINTY[certainty]})`);
  const [only] = connections;
  if (connections.length === 1) {
    const end = only.ended === undefined ? undefined : endText(only, only.ended);
    if (end !== undefined) terminal.paragraph('         ', end);
  } else {
    for (const connection of shownOf(connections)) printLine(connection, verdict, terminal);
    const rest = connections.length - Math.min(MAX_LINES, connections.length);
    if (rest > 0) terminal.line(dim(`and ${counted(rest, 'connection')} more (--connection N, --json)`));
  }
  terminal.line();
}

/** Those with trouble first, in their order. */
function shownOf(connections: readonly Connection[]): Connection[] {
  if (connections.length <= MAX_LINES) return [...connections];
  const rank = ({ verdict: { severity } }: Connection) =>
    severity === undefined ? 3 : { error: 0, warning: 1, note: 2 }[severity];
  return connections
    .toSorted((x, y) => rank(x) - rank(y) || x.id - y.id)
    .slice(0, MAX_LINES)
    .sort((x, y) => x.id - y.id);
}

function printLine(connection: Connection, above: Verdict, terminal: Terminal): void {
  const { id, verdict, ended } = connection;
  const isAbove =
    verdict.kind === above.kind && verdict.culprit === above.culprit && above.text.startsWith(verdict.text);
  const end = ended === undefined ? '' : `; ${endText(connection, ended)}`;
  terminal.paragraph(
    `#${id}`.padEnd(9),
    isAbove
      ? `the verdict at the top${end}`
      : `${colored(verdict, terminal)} (${CERTAINTY[verdict.certainty]})${end}`,
  );
}

function colored({ severity, text }: Verdict, terminal: Terminal): string {
  if (severity === undefined) return text;
  const { red, yellow, cyan } = terminal.colors;
  return { error: red, warning: yellow, note: cyan }[severity](text);
}

/** `10.0.0.2 ended the connection (DREQ) in frame 12`. */
function endText({ a, b }: Connection, { by, how, frame }: ConnectionEnd): string {
  const who = by === undefined ? 'somebody' : (by === 'a' ? a : b).address;
  const what = {
    disconnected: 'ended the connection (DREQ)',
    refused: 'ended the connection (NAK)',
    'gave-up': 'gave up (retries used up)',
  }[how];
  return `${who} ${what} in frame ${frame}`;
}

/** Findings that the verdicts cover, in one line by their titles. */
export function explainedText({ findings, connections }: Analysis): string | undefined {
  const healthy = new Set(
    connections.filter(({ verdict }) => verdict.kind === 'healthy').map(({ id }) => id),
  );
  const explained = findings
    .filter(({ isExplained }) => isExplained === true)
    .flatMap((finding) => finding.members ?? [finding]);
  if (explained.length === 0) return undefined;
  const isMinor = ({ kind, connection }: Finding) =>
    kind === 'stalls' && connection !== undefined && healthy.has(connection);
  const lists = [
    ['In the verdicts above', titlesOf(explained.filter((finding) => !isMinor(finding)))],
    ['Too short to stand out', titlesOf(explained.filter(isMinor))],
  ];
  const lines = lists.filter(([, titles]) => titles !== '').map(([what, titles]) => `${what}: ${titles}.`);
  return `${lines.join(' ')} --json has them with all their frames.`;
}

/** `Remote access error, Stalls (2)`. */
function titlesOf(findings: readonly Finding[]): string {
  const titles = new Map<string, number>();
  for (const { kind } of findings)
    titles.set(FINDING_TITLES[kind], (titles.get(FINDING_TITLES[kind]) ?? 0) + 1);
  return [...titles].map(([title, count]) => (count > 1 ? `${title} (${count})` : title)).join(', ');
}
