/** Queue pair numbers that another connection had before. */
import { formatDuration } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'queue-pairs-reused'>[] {
  const { direction } = subject;
  const { events } = direction.record;
  const presumed = events.get('reuse-presumed');
  const reused = events.get('reused') ?? presumed;
  if (reused === undefined) return [];
  const doubt =
    presumed === undefined ? '' : ', or packets of one connection in between are not in the capture';
  return [
    finding(
      subject,
      reused,
      'queue-pairs-reused',
      'note',
      `queue pair numbers used again ${moment(reused.start)}, ${formatDuration(reused.sum)} after the last packet of another connection that had both${doubt}`,
      'Each has a row of its own: PSNs, retransmissions and latency of one are unrelated to those of the other.',
    ),
  ];
}

export const queuePairsReused = rule({
  kinds: [
    {
      kind: 'queue-pairs-reused',
      title: 'Queue pair numbers used again',
      when: 'another connection had the same two queue pair numbers before, or seems to have had',
    },
  ],
  find,
});
