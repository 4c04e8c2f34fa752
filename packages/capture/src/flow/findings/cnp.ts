/** CNPs came, and the capture shows no mark. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'cnp'>[] {
  const { record, peer } = subject.direction;
  const cnps = peer?.record.events.get('cnp');
  if (cnps === undefined || record.events.get('ecn-marked') !== undefined) return [];
  return [
    finding(
      subject,
      cnps,
      'cnp',
      'note',
      `${counted(cnps.count, 'CNP')} sent to this end, the first ${moment(cnps.start)}, but no CE-marked packet was captured`,
      'Marks are set behind the place of capture; some adapters also send a CNP with a NAK.',
    ),
  ];
}

export const cnp = rule({
  kinds: [{ kind: 'cnp', title: 'CNPs without marks', when: 'CNPs came, and the capture shows no mark' }],
  find,
});
