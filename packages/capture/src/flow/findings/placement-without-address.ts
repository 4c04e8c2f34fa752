/** FLUSHes and ATOMIC_WRITEs with the address 0. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'placement-without-address'>[] {
  const { direction } = subject;
  const { events } = direction.record;
  const aimless = events.get('no-address');
  if (aimless === undefined) return [];
  return [
    finding(
      subject,
      aimless,
      'placement-without-address',
      'note',
      `${counted(aimless.count, 'FLUSH or ATOMIC_WRITE', 'FLUSHes or ATOMIC_WRITEs')} to the address 0, the first ${moment(aimless.start)}: rxe of Linux 6.12 sends them so when it sends them again`,
      'If the first one arrived, its answer comes again; if it was lost, a responder refuses the address. Right only where a region begins at 0.',
    ),
  ];
}

export const placementWithoutAddress = rule({
  kinds: [
    {
      kind: 'placement-without-address',
      title: 'Placement without an address',
      when: 'FLUSHes or ATOMIC_WRITEs have the address 0, as rxe of Linux 6.12 sends them again',
    },
  ],
  find,
});
