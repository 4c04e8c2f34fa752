/** Which connections, messages and findings a command shows; the analysis is always of the whole capture. */
import {
  type Analysis,
  addressPredicate,
  type Connection,
  connectionExpression,
  FINDING_KINDS,
  FilterError,
  type Finding,
  type Severity,
} from '@node-roce/capture';
import { UsageError } from './options.ts';

export interface Selection {
  /** Nanoseconds since the first frame, both included. */
  from?: number;
  to?: number;
  /** Address or prefix of either end. */
  address?: string;
  /** Its number. */
  connection?: number;
  /** An expression over connections. */
  filter?: string;
  /** How many, of the connections with most packets or the messages with the longest latency. */
  top?: number;
}

/** Which findings a script asks about. */
export interface FindingChoices {
  /** Kinds; all unless given. */
  kind?: readonly string[];
  /** The least severity that makes the exit code 1; none unless given. */
  failOn?: Severity;
}

/** @throws UsageError for a kind that there is none of */
export function checkKinds({ kind = [] }: FindingChoices): void {
  const unknown = kind.find((each) => !Object.hasOwn(FINDING_KINDS, each));
  if (unknown !== undefined)
    throw new UsageError(
      `--kind ${unknown}: no such kind of finding; expected some of ${Object.keys(FINDING_KINDS).join(',')}`,
    );
}

const SEVERITIES: readonly Severity[] = ['error', 'warning', 'note'];

/** The exit code that the findings make: 1 if one is at least as severe as asked, else 0. */
export function findingsCode(findings: readonly Finding[], { failOn }: FindingChoices): number {
  if (failOn === undefined) return 0;
  const least = SEVERITIES.indexOf(failOn);
  return findings.some(({ severity }) => SEVERITIES.indexOf(severity) <= least) ? 1 : 0;
}

interface Span {
  start: number;
  end: number;
}

/** @throws UsageError for an end before the start */
export function checkSpan({ from, to }: Pick<Selection, 'from' | 'to'>): void {
  if (from !== undefined && to !== undefined && from > to)
    throw new UsageError(`--from ${from / 1e9} is after --to ${to / 1e9}`);
}

/** Whether something falls into the time asked for, at least in part. */
export const isWithin = (
  { start, end }: Span,
  { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY }: Selection,
): boolean => end >= from && start <= to;

const packetsOf = ({ aToB, bToA }: Connection): number => aToB.packets + bToA.packets;

/**
 * The connection with a number.
 * @throws UsageError if there is none
 */
export function connectionOf({ connections }: Analysis, id: number): Connection {
  const found = connections.find((connection) => connection.id === id);
  if (found !== undefined) return found;
  const { length } = connections;
  throw new UsageError(
    length === 0 ? 'the capture has no connections' : `--connection ${id}: expected 1 … ${length}`,
  );
}

/** @throws UsageError for an expression that can't be understood */
export function connectionFilter(expression: string): (connection: Connection) => boolean {
  return understood(() => connectionExpression(expression));
}

/** Turns what is wrong with an expression into an error of usage. */
export function understood<T>(compile: () => T): T {
  try {
    return compile();
  } catch (error) {
    if (!(error instanceof FilterError)) throw error;
    throw new UsageError(`--filter: ${error.message} (at character ${error.position + 1})`);
  }
}

/** The part of an analysis that was asked for. Findings of no connection stay, unless connections are chosen. */
export function selected(analysis: Analysis, selection: Selection & FindingChoices): Analysis {
  const { address, connection: id, top, kind, filter } = selection;
  const isWanted = filter === undefined ? () => true : connectionFilter(filter);
  const isNamed = address === undefined ? () => true : addressPredicate(address);
  const matching = analysis.connections.filter(
    (each) =>
      (id === undefined || each.id === id) &&
      isWanted(each) &&
      (isNamed(each.a.address) || isNamed(each.b.address)) &&
      isWithin(each, selection),
  );
  if (id !== undefined) connectionOf(analysis, id);
  const connections =
    top === undefined
      ? matching
      : matching.toSorted((x, y) => packetsOf(y) - packetsOf(x) || x.id - y.id).slice(0, top);
  const shown = new Set(connections.map((each) => each.id));
  const isChosen = id !== undefined || address !== undefined || top !== undefined || filter !== undefined;
  return {
    ...analysis,
    verdict: isChosen ? worstOf(connections, analysis) : analysis.verdict,
    connections,
    // Groups of findings about several connections come apart where connections are chosen.
    findings: (isChosen
      ? analysis.findings.flatMap((finding) => finding.members ?? [finding])
      : analysis.findings
    ).filter(
      (finding) =>
        (finding.connection === undefined ? !isChosen : shown.has(finding.connection)) &&
        (kind === undefined || kind.includes(finding.kind)) &&
        isWithin(finding, selection),
    ),
    exchanges: analysis.exchanges.filter(
      (exchange) =>
        id === undefined &&
        (isNamed(exchange.active.address) || isNamed(exchange.passive.address)) &&
        isWithin(exchange, selection),
    ),
    pauses: analysis.pauses.filter((pause) => !isChosen && isWithin(pause, selection)),
  };
}

const NONE_CHOSEN: Analysis['verdict'] = {
  kind: 'not-known',
  certainty: 'not-known',
  severity: undefined,
  text: 'No connection of the capture is chosen.',
  culprit: undefined,
  connection: undefined,
  chain: [],
  also: [],
  hint: undefined,
};

/** The verdict of the connections that were chosen: that of the worst. */
function worstOf(connections: readonly Connection[], { verdict: whole }: Analysis): Analysis['verdict'] {
  const rank = ({ verdict: { severity } }: Connection) =>
    severity === undefined ? 3 : { error: 0, warning: 1, note: 2 }[severity];
  const chosen = connections.find(({ id }) => id === whole.connection);
  if (chosen !== undefined) return whole;
  const [worst] = connections.toSorted((x, y) => rank(x) - rank(y) || x.id - y.id);
  return worst?.verdict ?? NONE_CHOSEN;
}

/** Keeps the `most` items with the greatest key, in bounded memory. */
export class Greatest<T> {
  readonly #most: number;
  readonly #key: (item: T) => number;
  #items: T[] = [];

  constructor(most: number, key: (item: T) => number) {
    this.#most = most;
    this.#key = key;
  }

  add(item: T): void {
    this.#items.push(item);
    if (this.#items.length >= 2 * this.#most + 1000) this.#items = this.sorted();
  }

  /** The greatest first. */
  sorted(): T[] {
    return this.#items.toSorted((x, y) => this.#key(y) - this.#key(x)).slice(0, this.#most);
  }
}
