/** A cause of trouble with its evidence: verdicts choose among causes, and causes of new kinds are findings as well. */
import type {
  CaptureSummary,
  Certainty,
  ChainEvent,
  Connection,
  Finding,
  Grade,
  Severity,
} from '../analysis.ts';
import { flowName } from '../findings/finding.ts';
import type { FindingKind } from '../findings/kinds.ts';
import type { CmExchange } from '../pair/cm-exchanges.ts';
import type { PauseSender } from '../record/pauses.ts';
import type { ConnectionState, Direction } from '../track/direction.ts';

/** How bad a cause is: it ended the connection, it costs time, or it is worth knowing. The worst comes first. */
export const Rank = { ENDS: 0, COSTS: 1, NOTE: 2 } as const;

export interface Cause {
  kind: FindingKind;
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
  /** Kinds of findings about the same connection that add nothing to this. */
  explains: readonly FindingKind[];
  /** The finding of a kind that has no other source; undefined: it is made elsewhere. */
  finding?: Omit<Finding, 'kind' | 'severity'> | undefined;
}

/** Input of the search for causes: a connection, its two directions, and what the capture has around it. */
export interface Context {
  connection: Connection;
  state: ConnectionState;
  directions: readonly Direction[];
  summary: CaptureSummary;
  exchange: CmExchange | undefined;
  pauses: readonly PauseSender[];
}

/** The causes that `makers` find in each direction of a connection. */
export const ofDirections = (
  context: Context,
  makers: readonly ((context: Context, direction: Direction) => Cause[])[],
): Cause[] => context.directions.flatMap((direction) => makers.flatMap((make) => make(context, direction)));

/** The addresses of a direction: its sender, the requester of its requests, and its receiver. */
export function endsOf({ connection: { a, b } }: Context, direction: Direction) {
  return direction.from === 'a'
    ? { requester: a.address, responder: b.address }
    : { requester: b.address, responder: a.address };
}

/** A finding about one direction, from the frames of a cause's chain. */
export function findingOf(
  { connection }: Context,
  direction: Direction,
  statement: string,
  hint: string,
  frames: readonly number[],
  frameCount: number = frames.length,
): Cause['finding'] {
  const subject = flowName(connection, direction.from);
  return {
    connection: connection.id,
    from: direction.from,
    subject,
    statement,
    text: `${subject}: ${statement}`,
    hint,
    start: direction.span.start,
    end: direction.span.end,
    frames: frames.filter((frame) => frame > 0).slice(0, 100),
    frameCount,
  };
}

/** An event of a chain; none where the capture has no frame of it. */
export const event = (frame: number | undefined, text: string): ChainEvent[] =>
  frame === undefined || frame === 0 ? [] : [{ frame, text }];

/** The grade of a cause as the certainty of a verdict. */
export const certaintyOf = (grade: Grade): Certainty => (grade === 'not-shown' ? 'not-known' : grade);

/** Words as a reader counts them: arrows and dashes do not count. */
export const wordsOf = (text: string): number =>
  text.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
