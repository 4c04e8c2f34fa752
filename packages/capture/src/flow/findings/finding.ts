/** Findings, their subjects, and times and names in their texts. */
import { formatEndpoint } from '../../units.ts';
import type { Connection, Finding, Severity } from '../analysis.ts';
import type { EventSummary } from '../record/events.ts';
import type { Direction } from '../track/direction.ts';
import type { FindingKind } from './kinds.ts';

/** A direction with its name and its connection. */
export interface Subject {
  direction: Direction;
  connection: Connection;
  /** `#1 10.0.0.1 QP 0x12 → 10.0.0.2 QP 0x11`. */
  name: string;
}

/** A finding that rests on events of one kind. */
export function finding(
  subject: Subject,
  events: EventSummary,
  kind: FindingKind,
  severity: Severity,
  statement: string,
  hint: string,
): Finding {
  const { start, end, frames, count } = events;
  return ofSubject(subject, kind, severity, statement, hint, {
    start,
    end,
    frames: [...frames],
    frameCount: count,
  });
}

/** A finding about one direction of a connection. */
export function ofSubject(
  { connection, direction, name }: Subject,
  kind: FindingKind,
  severity: Severity,
  statement: string,
  hint: string,
  packets: Pick<Finding, 'start' | 'end' | 'frames' | 'frameCount'>,
): Finding {
  return {
    kind,
    severity,
    connection: connection.id,
    from: direction.from,
    subject: name,
    statement,
    text: `${name}: ${statement}`,
    hint,
    ...packets,
  };
}

/** A time in the capture: `at 1.240 s`. */
export const moment = (nanoseconds: number): string => `at ${(nanoseconds / 1e9).toFixed(3)} s`;

/** One direction of a connection: `#1 10.0.0.1 QP 0x12 → 10.0.0.2 QP 0x11`. */
export function flowName({ id, a, b }: Pick<Connection, 'id' | 'a' | 'b'>, from: 'a' | 'b'): string {
  const [sender, receiver] = from === 'a' ? [a, b] : [b, a];
  return `#${id} ${formatEndpoint(sender)} → ${formatEndpoint(receiver)}`;
}
