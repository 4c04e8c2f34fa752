/** Verdicts: of each connection, and of the capture, the cause that weighs most, in one line with the chain that proves it. */
import { counted, formatDuration } from '../../units.ts';
import type { Connection, Finding, Severity, Verdict } from '../analysis.ts';
import { event } from '../findings/chain.ts';
import { FINDING_TITLES, type FindingKind, RULES } from '../findings/index.ts';
import { recoveryCauses } from '../findings/recoveries.ts';
import { type Capture, type Cause, Stage, type Subject } from '../findings/rule.ts';
import type { CmExchange } from '../pair/cm-exchanges.ts';
import { isParty } from '../pair/exchange-of.ts';
import type { ConnectionState } from '../track/direction.ts';
import { slowEnds, slowText } from './slow.ts';

/** Causes named in addition to the verdict; and events of a chain. */
const MAX_ALSO = 4;
const MAX_CHAIN = 8;
/** Waits without a cause that are shorter than this are no trouble; ns. */
const QUIET = 50e6;
const MAX_WORDS = 20;
/** The network did something to packets: each connection has its path. */
const OF_PATHS: ReadonlySet<string> = new Set([
  'packets-lost',
  'damaged-on-the-way',
  'reordering',
  'uc-loss',
] satisfies FindingKind[]);
/** Paths on which packets were lost, and paths on which they may have been damaged or late. */
const ANY_FATE = 'Packets missing or late';
/** One object for all such connections: there may be tens of thousands. */
const ONE_WAY: Verdict = {
  kind: 'one-direction',
  certainty: 'not-known',
  severity: undefined,
  text: 'The capture shows one direction only: what was answered or lost is not known.',
  culprit: undefined,
  connection: undefined,
  chain: [],
  also: [],
  hint: undefined,
};

const SEVERITY: Readonly<Record<Severity, number>> = { error: 0, warning: 1, note: 2 };

type AnyCause = Cause<FindingKind, FindingKind>;

/** The parts of an analysis that verdicts are made from. */
export interface VerdictInput {
  capture: Capture;
  states: readonly ConnectionState[];
  /** Of the same order; their verdicts are put into them. */
  connections: readonly Connection[];
  /** The directions of each connection. */
  subjects: readonly (readonly Subject[])[];
}

/** The findings that causes are; the verdicts of connections are put into them. */
export interface Verdicts {
  findings: Finding[];
  /** Marks the findings that the verdicts cover. @returns the verdict of the capture */
  finish: (findings: readonly Finding[]) => Verdict;
}

export function verdictsOf(input: VerdictInput): Verdicts {
  const { capture, states, connections, subjects } = input;
  const chosen: { cause: AnyCause; connection: Connection }[] = [];
  const all = new Map<Connection, AnyCause[]>();
  const findings: Finding[] = [];
  // Times go back: what rests on them is likely at best.
  const isOutOfOrder = capture.clock.stepsBack > 0;
  connections.forEach((connection, i) => {
    const isDoubtful = isOutOfOrder || isTakenDamaged(connection);
    const causes = causesOf(subjects[i])
      .map((cause) => (isDoubtful && cause.certainty === 'certain' ? demoted(cause) : cause))
      .sort(byWeight);
    connection.ended = endOf(connection, subjects[i][0].exchange, states[i]);
    const told = causes.filter(({ isSaid }) => isSaid !== true);
    if (told.length === 0) {
      connection.verdict = quiet(connection, capture);
      return;
    }
    const verdict = verdictFrom(told, connection.id);
    const slow = told.some(({ kind }) => kind === 'slow-responder') ? [] : slowEnds(connection, subjects[i]);
    connection.verdict = { ...verdict, also: [...verdict.also, ...slow].slice(0, MAX_ALSO) };
    all.set(connection, told);
    findings.push(...causes.flatMap(findingFrom));
    chosen.push({ cause: told[0], connection });
  });
  const wide = causesInCapture(capture).sort(byWeight);
  findings.push(...wide.flatMap(findingFrom));
  return {
    findings,
    finish: (made) => {
      const byId = new Map([...all].map(([connection, causes]) => [connection.id, explainedBy(causes)]));
      const byAll = explainedBy(wide);
      const byConnection = new Map<number | undefined, Finding[]>();
      for (const finding of made.flatMap((each) => each.members ?? [each])) {
        const known = byConnection.get(finding.connection);
        if (known === undefined) byConnection.set(finding.connection, [finding]);
        else known.push(finding);
      }
      for (const connection of connections) {
        const about = byConnection.get(connection.id);
        if (about === undefined) continue;
        // The text has the longest stall.
        if (doubt(connection, about, capture)) byId.set(connection.id, new Set(['stalls']));
        connection.verdict = advised(connection.verdict, about);
      }
      for (const finding of made) mark(finding, byId, byAll);
      const verdict = captureVerdict(chosen, wide, connections, capture);
      const isSaid = isOneWaySaid(verdict, connections, byId);
      for (const finding of made) if (isSaid && finding.kind === 'one-direction') finding.isExplained = true;
      return advised(verdict, byConnection.get(verdict.connection) ?? []);
    },
  };
}

/** All that may be wrong with a connection, in the order of the stages. */
const causesOf = (subjects: readonly Subject[]): AnyCause[] =>
  Object.values(Stage).flatMap((stage) =>
    stage === Stage.RECOVERY
      ? recoveryCauses(subjects)
      : subjects.flatMap((subject) =>
          RULES.flatMap((rule) => (rule.stage === stage ? (rule.cause?.(subject) ?? []) : [])),
        ),
  );

const causesInCapture = (capture: Capture): AnyCause[] => [
  ...capture.exchanges.flatMap((exchange) =>
    RULES.flatMap((rule) => rule.causeInExchange?.(exchange, capture) ?? []),
  ),
  ...RULES.flatMap((rule) => rule.causeInCapture?.(capture) ?? []),
];

/** Whether the verdict of each connection with one direction states that, or its cause. */
const isOneWaySaid = (
  { kind }: Verdict,
  connections: readonly Connection[],
  byId: ReadonlyMap<number, ReadonlySet<FindingKind>>,
): boolean =>
  connections.every(
    ({ id, aToB, bToA, verdict }) =>
      (aToB.packets > 0 && bToA.packets > 0) ||
      byId.get(id)?.has('one-direction') === true ||
      (verdict === ONE_WAY && kind === 'one-direction'),
  );

/** The kinds that the verdict of a connection, and what is named with it, explain. */
const explainedBy = (causes: readonly AnyCause[]): Set<FindingKind> =>
  new Set(
    causes
      .slice(0, 1 + MAX_ALSO)
      .flatMap(({ kind, explains }) => (DETAILED.has(kind) ? explains : [kind, ...explains])),
  );

/** Findings of these kinds need more than one line. */
const DETAILED: ReadonlySet<FindingKind> = new Set(['nothing-decoded', 'damaged-packets', 'damaged-file']);

function mark(finding: Finding, byId: ReadonlyMap<number, Set<FindingKind>>, byAll: Set<FindingKind>): void {
  for (const member of finding.members ?? []) mark(member, byId, byAll);
  const { members, connection, kind } = finding;
  const isSaid =
    members !== undefined
      ? members.every(({ isExplained }) => isExplained)
      : connection === undefined
        ? byAll.has(kind)
        : byId.get(connection)?.has(kind);
  if (isSaid === true) finding.isExplained = true;
}

const findingFrom = ({ kind, severity, finding }: AnyCause): Finding[] =>
  finding === undefined ? [] : [{ kind, severity, ...finding }];

/** Packets with a wrong ICRC count, as their sender had shown no right one yet: their content may be the damage. */
const isTakenDamaged = ({ aToB, bToA }: Connection): boolean =>
  [aToB, bToA].some(
    ({ icrcTaken, icrcBad, packets }) => icrcTaken > 0 && (icrcBad < packets || icrcBad === 1),
  );

const demoted = (cause: AnyCause): AnyCause => ({ ...cause, certainty: 'likely' });

const byWeight = (x: AnyCause, y: AnyCause): number =>
  x.rank - y.rank || SEVERITY[x.severity] - SEVERITY[y.severity] || y.weight - x.weight;

function verdictFrom([first, ...others]: readonly AnyCause[], connection: number | undefined): Verdict {
  const { kind, certainty, severity, text, culprit, chain } = first;
  const also = others
    .filter((other) => other.text !== text && !first.explains.includes(other.kind))
    .slice(0, MAX_ALSO)
    .map((other) => ({ kind: other.kind, certainty: other.certainty, text: other.text }));
  return {
    kind,
    certainty,
    severity,
    text,
    culprit,
    connection,
    chain: chain.slice(0, MAX_CHAIN),
    also,
    hint: first.finding?.hint ?? first.hint,
  };
}

/** A connection without any cause. */
function quiet(connection: Connection, capture: Capture): Verdict {
  const { summary } = capture;
  const { id, aToB, bToA, transport, messagesFromA, messagesFromB } = connection;
  const total = messagesFromA.total + messagesFromB.total;
  const open = messagesFromA.incomplete + messagesFromB.incomplete;
  const base = {
    severity: undefined,
    culprit: undefined,
    connection: id,
    chain: [],
    also: [],
    hint: undefined,
  };
  const isOneWay = aToB.packets === 0 || bToA.packets === 0;
  if (isOneWay && (transport === 'RC' || transport === 'XRC')) return ONE_WAY;
  const missed = aToB.missedByCapture + bToA.missedByCapture;
  if (total > 0 && open === 0 && (transport === 'UC' || transport === 'UD')) {
    // Nothing is acknowledged.
    const text = `Nothing stands out: ${counted(total, 'message')}, seen whole; losses behind the capture point do not show (${transport}).`;
    return { ...base, kind: 'healthy', certainty: 'likely', text };
  }
  return {
    ...base,
    kind: 'healthy',
    certainty: missed > 0 || open > 0 || total === 0 || summary.cutHeaders > 0 ? 'likely' : 'certain',
    text: quietText(connection, capture),
  };
}

/** @param wait the longest without a cause, ns */
function quietText(connection: Connection, { hidesNaks }: Capture, wait?: number): string {
  const { aToB, bToA, messagesFromA, messagesFromB } = connection;
  const total = messagesFromA.total + messagesFromB.total;
  const open = messagesFromA.incomplete + messagesFromB.incomplete;
  const messages =
    total === 0
      ? [counted(aToB.packets + bToA.packets, 'packet'), 'no message']
      : [counted(total, 'message')];
  if (open > 0) messages.push(`${open} of them not complete${wait === undefined ? ' in the capture' : ''}`);
  else if (total > 0 && wait === undefined) messages.push('all complete');
  const longest = wait === undefined ? undefined : formatDuration(wait);
  // In a deep queue, messages wait for long though nothing stands still.
  const isLong = wait !== undefined && wait >= QUIET;
  if (longest === undefined) messages.push('nothing retransmitted');
  else if (!isLong) messages.push(`the longest wait was ${longest}`);
  const head = isLong ? `The longest wait was ${longest}; nothing else stands out` : 'Nothing stands out';
  const rest = hidesNaks ? '; cut headers hide NAKs' : slowText(connection);
  return `${head}: ${messages.join(', ')}${rest}.`;
}

/** The verdict with the hint of the finding of the same kind. */
function advised(verdict: Verdict, findings: readonly Finding[]): Verdict {
  const hint = verdict.hint ?? findings.find(({ kind }) => kind === verdict.kind)?.hint;
  return hint === undefined ? verdict : { ...verdict, hint };
}

/** A warning about a connection that no cause explains: then something does stand out. @returns the verdict is that nothing does, but short stalls */
function doubt(connection: Connection, findings: readonly Finding[], capture: Capture): boolean {
  if (connection.verdict.kind !== 'healthy') return false;
  const finding = findings.find((each) => each.severity !== 'note');
  if (finding === undefined) return false;
  const [longest] = connection.stalls;
  if (finding.kind === 'stalls' && longest !== undefined && longest.duration < QUIET) {
    connection.verdict.certainty = 'likely';
    // Messages wait beside each other: none of the silences need be as long as the slowest message took.
    const wait = Math.max(longest.duration, connection.completion?.max ?? 0);
    connection.verdict.text = quietText(connection, capture, wait);
    return true;
  }
  const { kind, severity, frames, frameCount, from } = finding;
  const { a, b } = connection;
  const [sender, receiver] = from === 'b' ? [b, a] : [a, b];
  connection.verdict = {
    ...connection.verdict,
    kind,
    severity,
    certainty: 'not-known',
    text: `${FINDING_TITLES[kind]} from ${sender.address} to ${receiver.address} (${frameCount}); why is not known.`,
    chain: event(frames[0], 'the first packet that shows it'),
  };
  return false;
}

function captureVerdict(
  chosen: readonly { cause: AnyCause; connection: Connection }[],
  wide: readonly AnyCause[],
  connections: readonly Connection[],
  capture: Capture,
): Verdict {
  const worst = chosen.toSorted((x, y) => byWeight(x.cause, y.cause))[0];
  const [first] = wide;
  if (worst === undefined && first === undefined) return allQuiet(connections, capture);
  if (worst === undefined || (first !== undefined && byWeight(first, worst.cause) < 0)) {
    const others = chosen.map(({ cause }) => cause).sort(byWeight);
    return verdictFrom([first, ...wide.slice(1), ...others], undefined);
  }
  const { connection, cause } = worst;
  const verdict = verdictFrom([cause, ...wide], connection.id);
  const alike = chosen.filter((other) => other.cause.kind === cause.kind);
  const { also } = connection.verdict;
  const others = [...also, ...verdict.also].slice(0, MAX_ALSO);
  return { ...verdict, ...alikeIn(connection.verdict, alike, connections), also: others };
}

/** The text about the worst connection, with the number of those like it; where paths to several hosts have one fate, what they have in common. */
function alikeIn(
  { kind, text, certainty, connection: worst }: Verdict,
  alike: readonly { cause: AnyCause; connection: Connection }[],
  connections: readonly Connection[],
): Pick<Verdict, 'text' | 'certainty'> {
  if (alike.length === 1 || kind === 'gid-mismatch') return { text, certainty };
  const share = `${alike.length} of ${connections.length} connections`;
  const ends = alike.map(({ connection: { a, b } }) => [a.address, b.address]);
  const hosts = new Set(ends.flat());
  if (OF_PATHS.has(kind) && hosts.size > 2) {
    const common = [...hosts].find((host) => ends.every((each) => each.includes(host)));
    const between =
      common === undefined
        ? `between ${hosts.size} hosts`
        : `between ${common} and ${hosts.size - 1} other hosts`;
    const titles = new Set(alike.map(({ cause }) => cause.title ?? FINDING_TITLES[kind as FindingKind]));
    const [title] = titles.size > 1 ? [ANY_FATE] : titles;
    return {
      text: `${title} in ${share} ${between}; the chain is of #${worst}.`,
      certainty: alike.every(({ cause }) => cause.certainty === 'certain') ? certainty : 'likely',
    };
  }
  // The counts in the text are of the worst one alone.
  const withShare = `${text} (#${worst}; ${counted(alike.length - 1, 'other')} alike)`;
  return { text: wordsOf(withShare) <= MAX_WORDS ? withShare : text, certainty };
}

function allQuiet(connections: readonly Connection[], { exchanges, summary }: Capture): Verdict {
  const base = {
    severity: undefined,
    culprit: undefined,
    connection: undefined,
    chain: [],
    also: [],
    hint: undefined,
  };
  const [unknown] = connections
    .filter(({ verdict }) => verdict.certainty === 'not-known')
    .sort((x, y) => severityOf(x) - severityOf(y));
  if (unknown !== undefined) return unknown.verdict;
  if (connections.length === 1) return { ...connections[0].verdict, connection: undefined };
  if (connections.length === 0 && exchanges.length === 0) {
    const text =
      summary.sampledPackets > 0
        ? `The capture holds samples only (${summary.sampledPackets} of RoCE): what was lost or answered is not known.`
        : 'The capture shows no connection: nothing is known about any.';
    return { ...base, kind: 'not-known', certainty: 'not-known', text };
  }
  const what =
    connections.length === 0
      ? `${counted(exchanges.length, 'exchange')} of the connection manager`
      : `${counted(connections.length, 'connection')}, nothing retransmitted`;
  return {
    ...base,
    kind: 'healthy',
    certainty: connections.every(({ verdict }) => verdict.certainty === 'certain') ? 'certain' : 'likely',
    text: `Nothing stands out: ${what}.`,
  };
}

const severityOf = ({ verdict: { severity } }: Connection): number =>
  severity === undefined ? 3 : SEVERITY[severity];

function endOf(
  { a }: Connection,
  exchange: CmExchange | undefined,
  { first, second }: ConnectionState,
): Connection['ended'] {
  const request = exchange?.messages.find(({ name }) => name === 'DREQ');
  if (request !== undefined && exchange !== undefined) {
    const party = exchange[request.from];
    return { by: isParty(party, a) ? 'a' : 'b', how: 'disconnected', frame: request.frame };
  }
  for (const direction of [first, second]) {
    if (direction === undefined) continue;
    const other = direction.from === 'a' ? 'b' : 'a';
    const nak = Object.keys(direction.peer?.counts.naks ?? {}).find((name) => name !== 'psn-sequence-error');
    const events =
      nak === undefined
        ? undefined
        : direction.peer?.record.events.get(`nak-${nak}` as 'nak-invalid-request');
    if (events !== undefined) return { by: other, how: 'refused', frame: events.frames[0] };
    const { failure } = direction.ended;
    const failed = failure && direction.requester?.messages.endedBy(failure.failure);
    if (failed !== undefined && failure?.isShown === true)
      return { by: direction.from, how: 'gave-up', frame: failed.lastFrame };
  }
  return undefined;
}

/** Words as a reader counts them: arrows and dashes do not count. */
export const wordsOf = (text: string): number =>
  text.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
