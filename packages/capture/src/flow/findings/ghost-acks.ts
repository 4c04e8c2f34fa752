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
      'Harmless in itself: credit updates, answers to duplicates, or ACKs that later ones overtook.',
      { start, end, frames: [], frameCount: ghosts },
    ),
  ];
}

/**
 * Nothing was retransmitted, the capture shows no request twice, and the receiver grants no credits: it got packets twice, or its ACKs were
 * duplicated. Where the capture shows copies of requests, they may have been made before it.
 */
function causes({ direction, responder }: Subject): Cause<'ghost-acks', never>[] {
  const { counts, peer } = direction;
  if (ghostsOf(direction) === 0 || peer === undefined || peer.acknowledgedTwice < MANY) return [];
  if (counts.retransmitted > 0 || counts.repeatedFrames > 0 || direction.isDoubled) return [];
  if (peer.grantsCredits) return [];
  return [
    {
      kind: 'ghost-acks',
      severity: 'note',
      rank: Rank.NOTE,
      weight: 1,
      certainty: 'likely',
      text: `The path between ${responder} and the capture point duplicates packets: ${counted(peer.acknowledgedTwice, 'packet')} acknowledged twice, none retransmitted.`,
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
