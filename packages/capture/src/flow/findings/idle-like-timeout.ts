/** A request after a silence as long as the ACK timeout agreed: what was outstanding may have been lost before the tap. */
import { counted, formatDuration } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { event } from './chain.ts';
import { type Cause, finding, moment, Rank, rule, Stage, type Subject } from './rule.ts';

/** Silences with nothing outstanding that are as long as the ACK timeout: what was, may have been lost before the tap. */
function find(subject: Subject): FindingOf<'idle-like-timeout'>[] {
  const { direction } = subject;
  const events = direction.record.events.get('idle-like-timeout');
  const ackTimeout = direction.requester?.classifier.timer.ackTimeout ?? 0;
  if (events === undefined) return [];
  const { count, start, most } = events;
  const what =
    count === 1
      ? `nothing for ${formatDuration(most)} before a request ${moment(start)}`
      : `${counted(count, 'request')} after nothing for up to ${formatDuration(most)}, the first ${moment(start)}`;
  const lost =
    count === 1 ? 'its first transmission may have been' : 'their first transmissions may have been';
  return [
    finding(
      subject,
      events,
      'idle-like-timeout',
      'note',
      `${what}, about the ACK timeout agreed (${formatDuration(ackTimeout)}): ${lost} lost before the capture`,
      'The capture shows no packet that was lost: compare with a capture at the sender, or with its counter of timeouts.',
    ),
  ];
}

/** Its first transmission may have been lost before the tap: then a request seems to come out of nothing, after a timeout. */
function causes(subject: Subject): Cause<'idle-like-timeout', never>[] {
  const { direction } = subject;
  const events = direction.record.events.get('idle-like-timeout');
  if (events === undefined) return [];
  const { requester, responder } = subject;
  return [
    {
      kind: 'idle-like-timeout',
      severity: 'note',
      rank: Rank.NOTE,
      weight: events.count,
      certainty: 'likely',
      text: `${requester} was silent for ${formatDuration(events.most)}, its ACK timeout: a first copy to ${responder} may be lost before the capture.`,
      culprit: 'network',
      chain: event(events.frames[0], `the request of ${requester} after the silence`),
      explains: [],
    },
  ];
}

export const idleLikeTimeout = rule({
  kinds: [
    {
      kind: 'idle-like-timeout',
      title: 'Silence like an ACK timeout',
      when: 'a request came after a silence as long as the ACK timeout agreed',
    },
  ],
  find,
  stage: Stage.LAST,
  cause: causes,
});
