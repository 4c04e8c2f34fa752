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

/** So many NAKs that each waited long for the packet that they ask for show a long path, or a slow host. */
const MIN_NAKS = 3;

/** The soonest answer to packets that were sent once: messages that wait for a retransmission, or for a receive, take long as well. */
function leastAnswer(connection: Connection, { direction: { from, requester } }: Subject): number {
  return leastOf(connection, from) === undefined ? 0 : (requester?.classifier.evidence.leastLatency ?? 0);
}

/** The soonest retransmission after a NAK: near the responder nothing else shows how long the path to the requester is. */
function leastReaction({ direction: { record } }: Subject): number {
  const waits = record.recoveries.kept
    .filter(({ cause, missing }) => cause === 'sequence-nak' && missing !== 'none')
    .map(({ wait }) => wait);
  return waits.length < MIN_NAKS ? 0 : Math.min(...waits);
}

/** What is named beside other trouble: retransmissions hide that a path, or a host, is slow. Each end is named once. */
export function slowEnds(connection: Connection, subjects: readonly Subject[]): Verdict['also'] {
  const found = new Map<string, string>();
  const note = (end: string, least: number, what: string) => {
    if (least < SLOW || !Number.isFinite(least) || found.has(end)) return;
    found.set(end, `The path to ${end}, or that host, is slow: ${what} within ${formatDuration(least)}.`);
  };
  for (const subject of subjects) note(subject.responder, leastAnswer(connection, subject), 'no answer came');
  for (const subject of subjects) note(subject.requester, leastReaction(subject), 'no NAK was answered');
  return [...found.values()].map((text) => ({ kind: 'slow-responder', certainty: 'likely', text }));
}
