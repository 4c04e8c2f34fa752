/** One finding for one disease: findings of a kind about several connections become one, with the worst of them in words. */
import { counted } from '../../units.ts';
import type { Finding } from '../analysis.ts';
import type { ConnectionFacts } from '../facts.ts';
import { FINDING_TITLES } from './index.ts';

/** From so many findings of a kind on. */
const MIN_GROUP = 3;

/**
 * Groups findings of the same kind and severity.
 * @param findings worst first
 * @param connections those that findings name
 */
export function groupFindings(
  findings: readonly Finding[],
  connections: readonly ConnectionFacts[],
): Finding[] {
  const byKind = new Map<string, Finding[]>();
  for (const finding of findings) {
    const key = finding.connection === undefined ? '' : `${finding.kind} ${finding.severity}`;
    const members = byKind.get(key) ?? [];
    members.push(finding);
    byKind.set(key, members);
  }
  const byId = new Map(connections.map((connection) => [connection.id, connection]));
  const grouped: Finding[] = [];
  const done = new Set<string>();
  for (const finding of findings) {
    const key = `${finding.kind} ${finding.severity}`;
    const members = finding.connection === undefined ? undefined : byKind.get(key)!;
    if (members === undefined || members.length < MIN_GROUP) grouped.push(finding);
    else if (!done.has(key)) grouped.push(groupOf(members, byId));
    done.add(key);
  }
  return grouped;
}

function groupOf(members: readonly Finding[], connections: ReadonlyMap<number, ConnectionFacts>): Finding {
  const [worst] = members;
  const ids = new Set(members.map(({ connection }) => connection));
  const statement = `in ${counted(ids.size, 'connection')}${target(members, connections)}; the worst: ${worst.statement}`;
  return {
    kind: worst.kind,
    severity: worst.severity,
    connection: undefined,
    from: undefined,
    subject: worst.subject,
    statement,
    text: `${FINDING_TITLES[worst.kind]} in ${counted(ids.size, 'connection')}${target(members, connections)}; the worst, ${worst.text}`,
    hint: worst.hint,
    start: Math.min(...members.map(({ start }) => start)),
    end: Math.max(...members.map(({ end }) => end)),
    frames: worst.frames,
    frameCount: members.reduce((sum, { frameCount }) => sum + frameCount, 0),
    members: [...members],
  };
}

/** `, 7 of them to one receiver` where most of the packets go to one end. */
function target(members: readonly Finding[], connections: ReadonlyMap<number, ConnectionFacts>): string {
  const receivers = new Map<string, number>();
  for (const { connection, from } of members) {
    const found = connection === undefined ? undefined : connections.get(connection);
    if (found === undefined) continue;
    const { address } = from === 'a' ? found.b : found.a;
    receivers.set(address, (receivers.get(address) ?? 0) + 1);
  }
  const [, most] = [...receivers].sort((x, y) => y[1] - x[1])[0] ?? [undefined, 0];
  if (receivers.size === 1) return ', all to one receiver';
  return 2 * most > members.length ? `, ${most} of them to one receiver` : '';
}
