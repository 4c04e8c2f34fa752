/**
 * The contents of a report's file: the analysis, within bounds, plots as columns. Written by `render.ts` in
 * Node, read by the page's script; both use this file, so that they can't disagree.
 */
import type {
  Analysis,
  CaptureSummary,
  Connection,
  Finding,
  LadderPacket,
  Message,
  Overview,
  PlotPoint,
  Verdict,
} from '../flow/analysis.ts';
import type { CmExchange } from '../flow/pair/cm-exchanges.ts';
import type { PauseSender } from '../flow/record/pauses.ts';
import { PLOT_CAUSES, PLOT_KINDS } from '../flow/record/series.ts';

/** Points as columns of differences: a fifth of the bytes that a list of objects takes. */
export interface PlotColumns {
  /** Each less the one before. */
  time: number[];
  psn: number[];
  frame: number[];
  /** A character a point: `PLOT_KINDS`' index as a digit, or a retransmission's cause as a letter, `a` is the first. */
  kind: string;
  requester: string;
}

export interface ReportConnection extends Omit<Connection, 'plot'> {
  plot: PlotColumns;
}

export interface ReportData {
  verdict: Verdict;
  /** The program that wrote the report, with its version. */
  generator: string;
  summary: CaptureSummary;
  overview: Overview;
  findings: Finding[];
  connections: ReportConnection[];
  exchanges: CmExchange[];
  pauses: PauseSender[];
  /** The numbers that the bounds left out; the analysis itself has bounds of its own. */
  left: { connections: number; points: number; messages: number; packets: number; exchanges: number };
  unconnected: number;
}

/** How much of everything a report holds at most, over all connections: about 20 MB in all. */
export interface ReportLimits {
  connections: number;
  points: number;
  messages: number;
  /** Of the ladders. */
  packets: number;
  /** Exchanges of the connection manager. */
  exchanges: number;
}

export const DEFAULT_LIMITS: ReportLimits = {
  connections: 1000,
  points: 200_000,
  messages: 25_000,
  packets: 20_000,
  exchanges: 1000,
};

/** Ports with pause frames that a report lists. */
const MAX_PAUSE_SENDERS = 50;

const PLAIN_POINTS: ReadonlySet<PlotPoint['kind']> = new Set(['request', 'response', 'ack']);

export function toReportData(analysis: Analysis, generator: string, limits: ReportLimits): ReportData {
  const connections = mostTelling(analysis, limits.connections);
  const framesOf = findingFrames(analysis.findings);
  const noFrames: ReadonlySet<number> = new Set();
  const left = {
    connections: analysis.connections.length - connections.length,
    points: 0,
    messages: 0,
    packets: 0,
    exchanges: Math.max(0, analysis.exchanges.length - limits.exchanges),
  };
  const cap = {
    points: fairShare(
      connections.map(({ plot }) => plot.length),
      limits.points,
    ),
    messages: fairShare(
      connections.map(({ messages }) => messages.length),
      limits.messages,
    ),
    packets: fairShare(
      connections.map(({ ladder }) => ladder.length),
      limits.packets,
    ),
  };
  return {
    verdict: analysis.verdict,
    generator,
    summary: analysis.summary,
    overview: analysis.overview,
    findings: analysis.findings,
    exchanges: first(analysis.exchanges, limits.exchanges, ({ outcome }) => TROUBLED.has(outcome)),
    pauses: analysis.pauses.slice(0, MAX_PAUSE_SENDERS),
    connections: connections.map((connection) => {
      const frames = framesOf.get(connection.id) ?? noFrames;
      const plot = thin(
        connection.plot,
        cap.points,
        ({ kind, frame }) => !PLAIN_POINTS.has(kind) || frames.has(frame),
      );
      const messages = first(connection.messages, cap.messages, isRemarkable);
      const ladder = first(connection.ladder, cap.packets, ({ frame }) => frames.has(frame));
      left.points += connection.plot.length - plot.length;
      left.messages += connection.messages.length - messages.length;
      left.packets += connection.ladder.length - ladder.length;
      return { ...connection, plot: toColumns(plot), messages, ladder };
    }),
    left,
    unconnected: analysis.unconnected,
  };
}

/** Those that findings speak of, then those with most packets; in the order of the analysis. */
function mostTelling({ connections, findings }: Analysis, most: number): Connection[] {
  if (connections.length <= most) return connections;
  const rank = new Map<number, number>();
  for (const [i, { connection }] of singles(findings).entries()) {
    if (connection !== undefined && !rank.has(connection)) rank.set(connection, i);
  }
  const packets = ({ aToB, bToA }: Connection) => aToB.packets + bToA.packets;
  const chosen = connections
    .toSorted(
      (x, y) =>
        (rank.get(x.id) ?? Infinity) - (rank.get(y.id) ?? Infinity) || packets(y) - packets(x) || x.id - y.id,
    )
    .slice(0, most);
  return chosen.sort((x, y) => x.id - y.id);
}

const isRemarkable = ({ outcome, retransmitted }: Message): boolean =>
  outcome === 'failed' || retransmitted > 0;

/** Outcomes of exchanges that are kept before others. */
const TROUBLED: ReadonlySet<CmExchange['outcome']> = new Set(['rejected', 'unanswered']);

/** Those of groups one by one. */
export const singles = (findings: readonly Finding[]): Finding[] =>
  findings.flatMap((finding) => finding.members ?? [finding]);

function findingFrames(findings: readonly Finding[]): Map<number, Set<number>> {
  const frames = new Map<number, Set<number>>();
  for (const finding of singles(findings)) {
    if (finding.connection === undefined) continue;
    const set = frames.get(finding.connection) ?? new Set();
    for (const frame of finding.frames) set.add(frame);
    frames.set(finding.connection, set);
  }
  return frames;
}

/** The greatest number that each may have so that all have no more than `total`. */
export function fairShare(counts: readonly number[], total: number): number {
  let rest = total;
  const sorted = counts.toSorted((a, b) => a - b);
  for (const [i, count] of sorted.entries()) {
    const share = Math.floor(rest / (sorted.length - i));
    if (count > share) return share;
    rest -= count;
  }
  return Infinity;
}

/** At most so many, evenly taken, those that matter before the others. */
function thin<T>(items: readonly T[], most: number, matters: (item: T) => boolean): readonly T[] {
  if (items.length <= most) return items;
  const kept = new Uint8Array(items.length);
  let room = most;
  for (const wanted of [true, false]) {
    const places = [...items.keys()].filter((i) => matters(items[i]) === wanted);
    const take = Math.min(room, places.length);
    for (let k = 0; k < take; k++) kept[places[Math.floor((k * places.length) / take)]] = 1;
    room -= take;
  }
  return items.filter((_, i) => kept[i] === 1);
}

/** At most so many: those that matter, then the first of the others. In their order. */
function first<T>(items: readonly T[], most: number, matters: (item: T) => boolean): T[] {
  if (items.length <= most) return [...items];
  const kept = new Set(items.filter(matters).slice(0, most));
  for (const item of items) {
    if (kept.size >= most) break;
    kept.add(item);
  }
  return items.filter((item) => kept.has(item));
}

const CAUSE_LETTERS = 'abcdef';

function toColumns(points: readonly PlotPoint[]): PlotColumns {
  const differences = (of: (point: PlotPoint) => number) =>
    points.map((point, i) => of(point) - (i === 0 ? 0 : of(points[i - 1])));
  return {
    time: differences(({ time }) => time),
    psn: differences(({ psn }) => psn),
    frame: differences(({ frame }) => frame),
    kind: points
      .map(({ kind, cause }) =>
        cause === undefined ? PLOT_KINDS.indexOf(kind) : CAUSE_LETTERS[PLOT_CAUSES.indexOf(cause)],
      )
      .join(''),
    requester: points.map(({ requester }) => requester).join(''),
  };
}

/** The points again. */
export function fromColumns({ time, psn, frame, kind, requester }: PlotColumns): PlotPoint[] {
  const at = { time: 0, psn: 0, frame: 0 };
  return time.map((_, i) => {
    at.time += time[i];
    at.psn += psn[i];
    at.frame += frame[i];
    const whose = requester[i] as 'a' | 'b';
    const cause = PLOT_CAUSES[CAUSE_LETTERS.indexOf(kind[i])];
    return cause === undefined
      ? { ...at, kind: PLOT_KINDS[Number(kind[i])], requester: whose }
      : { ...at, kind: 'retransmission', requester: whose, cause };
  });
}

/** A packet of a ladder by its frame and part; by default the first part. */
export const findPacket = (
  { ladder }: { ladder: readonly LadderPacket[] },
  frame: number,
  part?: number,
): LadderPacket | undefined =>
  ladder.find((packet) => packet.frame === frame && (part === undefined || packet.part === part));
