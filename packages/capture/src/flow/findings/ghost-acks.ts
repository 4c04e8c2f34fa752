/** ACKs of packets that were acknowledged before. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import type { Direction } from '../track/direction.ts';
import { type Cause, ofSubject, Rank, rule, Stage, type Subject } from './rule.ts';

/** Fewer are no verdict. */
const MANY = 3;

/** How many; 0 if retransmissions explain them, or if they are few. */
function ghostsOf({ counts, peer }: Direction): number {
  const ghosts = peer?.counts.ghostAcks ?? 0;
  if (peer === undefined || ghosts <= counts.retransmitted || ghosts * 10 <= peer.counts.acks) return 0;
  return ghosts;
}

function find(subject: Subject): FindingOf<'ghost-acks'>[] {
  const { direction } = subject;
  const ghosts = ghostsOf(direction);
  if (ghosts === 0) return [];
  const { start, end } = direction.peer!.span;
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

/** Nothing was retransmitted, and the receiver grants no credits: it got packets twice, or its ACKs were duplicated. */
function causes({ direction, responder }: Subject): Cause<'ghost-acks', never>[] {
  const ghosts = ghostsOf(direction);
  if (ghosts < MANY || direction.counts.retransmitted > 0 || direction.isDoubled) return [];
  if (direction.peer?.grantsCredits === true) return [];
  return [
    {
      kind: 'ghost-acks',
      severity: 'note',
      rank: Rank.NOTE,
      weight: 1,
      certainty: 'likely',
      text: `The path between ${responder} and the capture point duplicates packets: ${counted(ghosts, 'packet')} acknowledged twice, none retransmitted.`,
      culprit: 'network',
      chain: [],
      hint: 'Harmless in itself: receivers drop duplicates, and acknowledge them again.',
      explains: [],
    },
  ];
}

export const ghostAcks = rule({
  kinds: [
    { kind: 'ghost-acks', title: 'Repeated ACKs', when: 'ACKs of packets that were acknowledged before' },
  ],
  find,
  stage: Stage.LAST,
  cause: causes,
});
