/** Findings, their subjects, and times and names in their texts. */
import { formatQp } from '../units.ts';
import type { Connection, Finding, Severity } from './analysis.ts';
import type { Direction } from './direction.ts';
import type { EventSummary } from './events.ts';
import type { FindingKind } from './finding-kinds.ts';

/** A direction with its name and its connection. */
export interface Subject {
  direction: Direction;
  connection: Connection;
  /** `QP 0x12 → 0x11`. */
  name: string;
}

/** A finding that rests on events of one kind. */
export function finding(
  { connection }: Pick<Subject, 'connection'>,
  events: EventSummary,
  kind: FindingKind,
  severity: Severity,
  text: string,
  hint: string,
): Finding {
  const { start, end, frames, count } = events;
  return {
    kind,
    severity,
    connection: connection.id,
    text,
    hint,
    start,
    end,
    frames: [...frames],
    frameCount: count,
  };
}

/** A time in the capture: `at 1.240 s`. */
export const moment = (nanoseconds: number): string => `at ${(nanoseconds / 1e9).toFixed(3)} s`;

/** One direction of a connection, by its queue pairs: `QP 0x12 → 0x11`. */
export function flowName({ a, b }: Pick<Connection, 'a' | 'b'>, from: 'a' | 'b'): string {
  const [sender, receiver] = from === 'a' ? [a, b] : [b, a];
  return `${formatQp(sender.qpn)} → ${formatQp(receiver.qpn).slice(3)}`;
}
