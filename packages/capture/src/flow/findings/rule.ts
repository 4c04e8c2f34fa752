/**
 * The form of a finding's rule. A rule makes the findings of one kind, or of a few that are one question with several answers; and it may
 * make causes, which verdicts choose among. Both rest on facts (`facts.ts`), not on each other.
 */
import type { CaptureSummary } from '../../read/summary.ts';
import { formatEndpoint } from '../../units.ts';
import type { Certainty, ChainEvent, ConnectionFacts, FindingOf, Severity } from '../facts.ts';
import type { IcmpError } from '../icmp.ts';
import type { CmExchange, GsiGap } from '../pair/cm-exchanges.ts';
import type { GidPair } from '../pair/gid-pairs.ts';
import type { Clock } from '../record/clock.ts';
import type { EventSummary } from '../record/events.ts';
import type { PauseSender } from '../record/pauses.ts';
import type { ConnectionState, Direction } from '../track/direction.ts';
import type { WrongCm } from '../track/right-icrcs.ts';
import type { RecoveryRow } from './recovery-row.ts';

/** The parts of a capture that are around its connections. */
export interface Capture {
  readonly summary: CaptureSummary;
  readonly connections: readonly ConnectionFacts[];
  readonly exchanges: readonly CmExchange[];
  /** Datagrams of queue pair 1 that are missing. */
  readonly gaps: readonly GsiGap[];
  readonly pauses: readonly PauseSender[];
  readonly icmp: readonly IcmpError[];
  readonly clock: Clock;
  /** Packets of connections past those that are followed. */
  readonly tooMany: number;
  readonly wrongCm: WrongCm | undefined;
  /** Directions without another one that have CNPs. */
  readonly lone: readonly Direction[];
  readonly gidPairs: ReadonlyMap<ConnectionState, GidPair>;
  readonly addressOf: (index: number) => string;
  /** When something of an address was last seen, in any connection. */
  readonly heardAt: (index: number) => number;
  /** Answers are cut in front of what tells ACKs from NAKs. */
  readonly hidesNaks: boolean;
}

/** One direction of a connection, with what is around it. */
export interface Subject {
  readonly direction: Direction;
  readonly connection: ConnectionFacts;
  /** `#1 10.0.0.1 QP 0x12 → 10.0.0.2 QP 0x11`. */
  readonly name: string;
  /** Addresses of the sender, who asks, and of the receiver. */
  readonly requester: string;
  readonly responder: string;
  /** The exchange of the connection manager that opened it. */
  readonly exchange: CmExchange | undefined;
  readonly capture: Capture;
}

/** How bad a cause is: it ended the connection, it costs time, or it is worth knowing. The worst comes first. */
export const Rank = { ENDS: 0, COSTS: 1, NOTE: 2 } as const;

/** Among causes that weigh the same: what ended a connection goes before what its headers show, and so on. */
export const Stage = { GIDS: 0, END: 1, PATH: 2, RECOVERY: 3, OTHER: 4, LAST: 5 } as const;

/** A cause of trouble with its evidence. `Folded`: kinds of findings about the same connection that add nothing to it. */
export interface Cause<Kind extends string, Folded extends string> {
  kind: Kind;
  severity: Severity;
  /** One of `Rank`. */
  rank: number;
  /** Among causes of a rank: how many recoveries or packets it explains. */
  weight: number;
  certainty: Certainty;
  /** The verdict: at most 20 words, the culprit first. */
  text: string;
  culprit: string | undefined;
  chain: ChainEvent[];
  explains: readonly Folded[];
  /** Its kind in words, where those of the finding say more than is known. */
  title?: string | undefined;
  /** Advice, where its finding has none. */
  hint?: string | undefined;
  /** Another cause of the connection states it, too: it makes its finding only. */
  isSaid?: boolean;
  /** The finding, where the rule makes it of causes alone. */
  finding?: Omit<FindingOf<Kind>, 'kind' | 'severity' | 'members'> | undefined;
}

/** A kind of finding in words: its title, and when it is made. docs/capture-causes.md and the schema are written from it. */
interface KindRow<Kind extends string> {
  readonly kind: Kind;
  readonly title: string;
  readonly when: string;
}

/** A rule: its kinds, and functions that make findings and causes. All but the kinds may be absent. */
export interface Rule<Kind extends string, Folded extends string = never> {
  readonly kinds: readonly KindRow<Kind>[];
  readonly find?: ((subject: Subject) => FindingOf<NoInfer<Kind>>[]) | undefined;
  readonly findInExchange?:
    | ((exchange: CmExchange, capture: Capture) => FindingOf<NoInfer<Kind>>[])
    | undefined;
  readonly findInCapture?: ((capture: Capture) => FindingOf<NoInfer<Kind>>[]) | undefined;
  /** When `cause` is asked; one of `Stage`. */
  readonly stage?: number | undefined;
  readonly cause?: ((subject: Subject) => Cause<NoInfer<Kind>, Folded>[]) | undefined;
  readonly causeInExchange?:
    | ((exchange: CmExchange, capture: Capture) => Cause<NoInfer<Kind>, Folded>[])
    | undefined;
  readonly causeInCapture?: ((capture: Capture) => Cause<NoInfer<Kind>, Folded>[]) | undefined;
  /** The words for recoveries of one reason. */
  readonly recovery?: RecoveryRow<Kind, Folded> | undefined;
}

/** Checks the form of a rule, and keeps its kinds as types. */
export const rule = <const Kind extends string, const Folded extends string = never>(
  made: Rule<Kind, Folded>,
): Rule<Kind, Folded> => made;

/** Subject and text of a finding about one direction. */
const aboutSubject = ({ connection, direction, name }: Subject, statement: string) => ({
  connection: connection.id,
  from: direction.from,
  subject: name,
  statement,
  text: `${name}: ${statement}`,
});

/** A finding about one direction of a connection. */
export const ofSubject = <Kind extends string>(
  subject: Subject,
  kind: Kind,
  severity: Severity,
  statement: string,
  hint: string,
  packets: Pick<FindingOf<Kind>, 'start' | 'end' | 'frames' | 'frameCount'>,
): FindingOf<Kind> => ({ kind, severity, ...aboutSubject(subject, statement), hint, ...packets });

/** One that rests on events of one name. */
export function finding<Kind extends string>(
  subject: Subject,
  { start, end, frames, count }: EventSummary,
  kind: Kind,
  severity: Severity,
  statement: string,
  hint: string,
): FindingOf<Kind> {
  const packets = { start, end, frames: [...frames], frameCount: count };
  return ofSubject(subject, kind, severity, statement, hint, packets);
}

/** One about the capture as a whole. */
export const ofCapture = <Kind extends string>(
  kind: Kind,
  severity: Severity,
  frameCount: number,
  text: string,
  hint: string,
  end = 0,
): FindingOf<Kind> => ({
  kind,
  severity,
  connection: undefined,
  from: undefined,
  subject: undefined,
  statement: text,
  text,
  hint,
  start: 0,
  end,
  frames: [],
  frameCount,
});

/** A finding about one direction, from the frames of a cause's chain. */
export function findingOf(
  subject: Subject,
  statement: string,
  hint: string,
  frames: readonly number[],
  frameCount: number = frames.length,
): NonNullable<Cause<string, string>['finding']> {
  const { start, end } = subject.direction.span;
  return {
    ...aboutSubject(subject, statement),
    hint,
    start,
    end,
    frames: frames.filter((frame) => frame > 0).slice(0, 100),
    frameCount,
  };
}

/** A time in the capture: `at 1.240 s`. */
export const moment = (nanoseconds: number): string => `at ${(nanoseconds / 1e9).toFixed(3)} s`;

/** One direction of a connection: `#1 10.0.0.1 QP 0x12 → 10.0.0.2 QP 0x11`. */
export function flowName({ id, a, b }: Pick<ConnectionFacts, 'id' | 'a' | 'b'>, from: 'a' | 'b'): string {
  const [sender, receiver] = from === 'a' ? [a, b] : [b, a];
  return `#${id} ${formatEndpoint(sender)} → ${formatEndpoint(receiver)}`;
}

/** Kinds of findings that a cause of silence makes superfluous. */
export const SILENCE = ['retries-exceeded', 'retransmissions', 'stalls', 'one-direction'] as const;
/** And those that the end of a connection does. */
export const ALL_SAID = ['stalls', 'retransmissions', 'one-direction'] as const;
export type Silence = (typeof SILENCE)[number];
export type AllSaid = (typeof ALL_SAID)[number];
