/** Packets were acknowledged but are not in the capture. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'capture-loss'>[] {
  const { direction } = subject;
  const { events } = direction.record;
  const missed = events.get('missed');
  if (missed === undefined || direction.counts.missedByCapture === 0) return [];
  return [
    finding(
      subject,
      { ...missed, frames: [] },
      'capture-loss',
      'note',
      `${counted(direction.counts.missedByCapture, 'packet')} acknowledged but not in the capture, the first ${moment(missed.start)}: lost by the capture, not by the network`,
      'Capture with larger buffers (tcpdump -B), fewer bytes of each packet (as many as all headers have), or on both ends.',
    ),
  ];
}

export const captureLoss = rule({
  kinds: [
    {
      kind: 'capture-loss',
      title: 'Packets missing in the capture',
      when: 'packets were acknowledged but are not in the capture',
    },
  ],
  find,
});
