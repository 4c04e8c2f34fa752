/** Words that findings of the connection manager share. */
import { formatDuration, formatQp } from '../../units.ts';
import type { ChainEvent, FindingOf, Severity } from '../facts.ts';
import type { CmExchange } from '../pair/cm-exchanges.ts';
import { event } from './chain.ts';

/** `10.0.0.1 QP 0x11 → 10.0.0.2 (TCP port 7174)`. */
function nameOf({ active, passive, service }: CmExchange): string {
  const to = service === undefined ? '' : ` (${service})`;
  return `${active.address}${active.qpn < 0 ? '' : ` ${formatQp(active.qpn)}`} → ${passive.address}${to}`;
}

/** A finding about an exchange. */
export function cmFinding<Kind extends string>(
  exchange: CmExchange,
  kind: Kind,
  severity: Severity,
  statement: string,
  hint: string,
): FindingOf<Kind> {
  const { start, end, messages } = exchange;
  const frames = messages.map(({ frame }) => frame);
  const span = { start, end, frames, frameCount: frames.length };
  return { kind, severity, ...aboutHosts(nameOf(exchange), statement), hint, ...span };
}

/** A subject that is no connection. */
export const aboutHosts = (subject: string, statement: string) => ({
  connection: undefined,
  from: undefined,
  subject,
  statement,
  text: `${subject}: ${statement}`,
});

/** The times between messages, in words: `, 2.1 s apart`. */
export function intervals(messages: readonly { time: number }[]): string {
  if (messages.length < 2) return '';
  const spans = messages.slice(1).map(({ time }, i) => time - messages[i].time);
  const [least, most] = [Math.min(...spans), Math.max(...spans)];
  const isEven = most <= least * 1.1;
  return `, ${isEven ? formatDuration(least) : `${formatDuration(least)} to ${formatDuration(most)}`} apart`;
}

/** The requests of an exchange. */
export const requestsOf = ({ messages }: CmExchange) =>
  messages.filter(({ name }) => name === 'REQ' || name === 'SIDR_REQ');

/** The first of them, as an event of a chain. */
export const asked = (exchange: CmExchange): ChainEvent[] =>
  event(
    requestsOf(exchange)[0]?.frame,
    `${exchange.active.address} asks ${exchange.passive.address} for a connection (REQ)`,
  );
