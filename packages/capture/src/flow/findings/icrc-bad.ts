/** Packets have a wrong ICRC. */
import { counted, formatCount } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import type { Direction } from '../track/direction.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'icrc-bad'>[] {
  const { direction } = subject;
  const { events } = direction.record;
  const bad = events.get('icrc-bad');
  if (bad === undefined) return [];
  return [
    finding(
      subject,
      bad,
      'icrc-bad',
      'warning',
      `${counted(bad.count, 'packet')} with a wrong ICRC, the first ${moment(bad.start)}${damageText(direction)}`,
      'Damaged on the way (cables, switch memory), or changed by something that rewrites headers (NAT, IP ID), or by the capture itself.',
    ),
  ];
}

/** The consequences of damage: recoveries, or none where it lies at the tap or behind it. */
function damageText({ counts, record: { recoveries }, peer }: Direction): string {
  const all = [...recoveries.kept, ...(peer?.record.recoveries.kept ?? [])];
  const caused = all.filter(({ damaged }) => damaged !== undefined).length;
  const accepted = counts.damagedAccepted;
  const parts: string[] = [];
  if (caused > 0)
    parts.push(
      `${counted(caused, 'recovery', 'recoveries')} began with such a packet, which the receiver dropped`,
    );
  if (accepted > 0)
    parts.push(`${formatCount(accepted)} acknowledged nevertheless: damaged at the tap or behind it`);
  return parts.length === 0 ? '; receivers drop them silently' : `; ${parts.join('; ')}`;
}

export const icrcBad = rule({
  kinds: [{ kind: 'icrc-bad', title: 'Wrong ICRC', when: 'packets have a wrong ICRC' }],
  find,
});
