/** CNPs came, and the capture shows no mark. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { event } from './chain.ts';
import { type Cause, finding, moment, Rank, rule, Stage, type Subject } from './rule.ts';

/** CNPs that are no accident. */
const SEVERAL = 2;

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

/**
 * The receiver saw marks that the capture does not show. Not where an adapter may have sent the CNPs with its NAKs. Queues do not mark packets that
 * are Not-ECT (RFC 3168 §5): where all pass so, one CNP is no evidence. Several are: the packets are made ECT, or are marked all the same, behind
 * the capture point.
 */
function causes({ direction, requester, responder }: Subject): Cause<'cnp', 'cnp'>[] {
  const { counts, record, peer } = direction;
  const cnps = peer?.record.events.get('cnp');
  if (peer === undefined || cnps === undefined || record.events.get('ecn-marked') !== undefined) return [];
  if (counts.ecnCapable === 0 && cnps.count < SEVERAL) return [];
  if (Object.keys(peer.counts.naks).length > 0 || peer.counts.rnrNaks > 0) return [];
  return [
    {
      kind: 'cnp',
      severity: 'note',
      rank: Rank.NOTE,
      weight: 1,
      certainty: 'likely',
      text: `A queue between the capture point and ${responder} is congested: ${counted(cnps.count, 'CNP')} came to ${requester}.`,
      culprit: 'network',
      chain: event(cnps.frames[0], `the first CNP of ${responder}: a packet came to it with a mark (CE)`),
      hint: 'Queues behind the capture point mark packets: look there for incast or a slower link.',
      explains: [],
    },
  ];
}

export const cnp = rule({
  kinds: [{ kind: 'cnp', title: 'CNPs without marks', when: 'CNPs came, and the capture shows no mark' }],
  find,
  stage: Stage.LAST,
  cause: causes,
});
