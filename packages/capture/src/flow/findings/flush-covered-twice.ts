/** FLUSHes with the ICRC that rxe of Linux 6.12 gives them. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'flush-covered-twice'>[] {
  const { direction } = subject;
  const { events } = direction.record;
  const twice = events.get('flush-twice');
  if (twice === undefined) return [];
  return [
    finding(
      subject,
      twice,
      'flush-covered-twice',
      'note',
      `${counted(twice.count, 'FLUSH', 'FLUSHes')} with an ICRC over BTH to RETH twice, the first ${moment(twice.start)}: rxe of Linux 6.12 makes it so, no damage`,
      'An adapter that checks ICRCs drops them; node-roce takes them unless it was opened with flushIcrc: strict.',
    ),
  ];
}

export const flushCoveredTwice = rule({
  kinds: [
    {
      kind: 'flush-covered-twice',
      title: 'ICRC of rxe’s FLUSH',
      when: 'FLUSHes have the ICRC that rxe of Linux 6.12 gives them',
    },
  ],
  find,
});
