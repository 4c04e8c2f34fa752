/** A host skipped PSNs of its queue pair 1. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import type { GsiGap } from '../pair/cm-exchanges.ts';
import { aboutHosts } from './cm.ts';
import { type Capture, moment, rule } from './rule.ts';

function find({ gaps }: Capture): FindingOf<'cm-loss'>[] {
  const hosts = new Map<string, GsiGap[]>();
  for (const gap of gaps) hosts.set(gap.address, [...(hosts.get(gap.address) ?? []), gap]);
  return [...hosts].map(([address, of]) => {
    const missing = of.reduce((sum, gap) => sum + gap.missing, 0);
    const [first] = of;
    const frames = of.flatMap(({ before, after }) => [before, after]).slice(0, 100);
    return {
      kind: 'cm-loss',
      severity: 'note',
      ...aboutHosts(
        address,
        `${counted(missing, 'management datagram')} not in the capture: its QP 1 skipped PSN ${first.firstMissing} between ${moment(first.start).slice(3)} and ${moment(first.end).slice(3)}: lost before the place of capture, or sent to another host`,
      ),
      hint: 'A lost message of the connection manager is retransmitted after its response timeout, often seconds later: that may be a silence before connections open or end.',
      start: first.start,
      end: of.at(-1)!.end,
      frames,
      frameCount: of.length,
    };
  });
}

export const cmLoss = rule({
  kinds: [
    {
      kind: 'cm-loss',
      title: 'Management datagrams missing',
      when: 'a host skipped PSNs of its queue pair 1',
    },
  ],
  findInCapture: find,
});
