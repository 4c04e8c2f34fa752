/** Ends of a connection whose answers all take long: their paths are long, or these hosts slow. */
import { formatDuration } from '../../units.ts';
import type { Connection, Verdict } from '../analysis.ts';
import type { Subject } from '../findings/rule.ts';

/** A host that answers so many messages, and none sooner than this, is far away or slow; ns. Longer messages take as long to pass. */
const MIN_ANSWERS = 10;
const SLOW = 5e6;
const LONGEST = 65_536;

/** The soonest answer to one end, if it took long. */
function leastOf({ latencyClasses }: Connection, from: 'a' | 'b'): number | undefined {
  const own = latencyClasses.filter((each) => each.from === from);
  const least = Math.min(...own.map(({ min }) => min));
  const short = own.filter(({ mostBytes = Number.POSITIVE_INFINITY }) => mostBytes <= LONGEST);
  const isEnough = short.reduce((sum, { count }) => sum + count, 0) >= MIN_ANSWERS;
  return isEnough && least >= SLOW ? least : undefined;
}

/** `; 10.0.0.2 answered none within 6 ms`. */
export function slowText(connection: Connection): string {
  for (const from of ['a', 'b'] as const) {
    const least = leastOf(connection, from);
    const { address } = from === 'a' ? connection.b : connection.a;
    if (least !== undefined) return `; ${address} answered none within ${formatDuration(least)}`;
  }
  return '';
}

/**
 * What is named beside other trouble: retransmissions hide that all answers take long. Messages that wait for a retransmission, or for a
 * receive, take long as well: so only the packets that were sent once count.
 */
export function slowEnds(connection: Connection, subjects: readonly Subject[]): Verdict['also'] {
  return subjects.flatMap((subject) => {
    const { from, requester } = subject.direction;
    if (leastOf(connection, from) === undefined) return [];
    const least = requester?.classifier.evidence.leastLatency ?? 0;
    if (least < SLOW || !Number.isFinite(least)) return [];
    const text = `The path to ${subject.responder}, or that host, is slow: no answer came within ${formatDuration(least)}.`;
    return [{ kind: 'slow-responder' as const, certainty: 'likely' as const, text }];
  });
}
