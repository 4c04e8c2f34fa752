/** ACKs of packets that were acknowledged before. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { ofSubject, rule, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'ghost-acks'>[] {
  const { counts, peer } = subject.direction;
  const ghosts = peer?.counts.ghostAcks ?? 0;
  if (peer === undefined || ghosts <= counts.retransmitted || ghosts * 10 <= peer.counts.acks) return [];
  const { start, end } = peer.span;
  return [
    ofSubject(
      subject,
      'ghost-acks',
      'note',
      `${counted(ghosts, 'ACK')} of PSNs that were acknowledged before`,
      'Harmless in itself: credit updates, or answers to duplicates.',
      { start, end, frames: [], frameCount: ghosts },
    ),
  ];
}

export const ghostAcks = rule({
  kinds: [
    { kind: 'ghost-acks', title: 'Repeated ACKs', when: 'ACKs of packets that were acknowledged before' },
  ],
  find,
});
