/** Frames that the capture shows twice. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

/** Where so many packets of ten have a duplicate, a mirror shows all of them twice. */
const MIRRORED = 0.9;

function find(subject: Subject): FindingOf<'repeated-frames'>[] {
  const { direction } = subject;
  const { events } = direction.record;
  const repeated = events.get('repeated-frame');
  if (repeated === undefined) return [];
  return [
    finding(
      subject,
      repeated,
      'repeated-frames',
      'note',
      `${counted(repeated.count, 'duplicate frame')}, the first ${moment(repeated.start)}: packets that were sent once`,
      repeated.count >= MIRRORED * direction.counts.packets
        ? 'A mirror of two ports shows every packet twice. They are counted once.'
        : 'A network that duplicates packets does this, or a mirror of a part of the traffic; receivers drop duplicates. They are counted once.',
    ),
  ];
}

export const repeatedFrames = rule({
  kinds: [{ kind: 'repeated-frames', title: 'Frames shown twice', when: 'the capture shows frames twice' }],
  find,
});
