/** A requester that went silent inside a message. */
import { formatDuration } from '../../units.ts';
import { event } from './chain.ts';
import { ALL_SAID, type AllSaid, type Cause, findingOf, Rank, rule, Stage, type Subject } from './rule.ts';

/** A requester that sends nothing for so long inside a message has stopped; ns. */
const STOPPED = 1e9;

/** rxe goes silent inside a message when an ACK for its last packet crosses a retransmission (docs/quirks.md). */
function causes(subject: Subject): Cause<'requester-stopped', AllSaid>[] {
  const { direction, exchange, capture } = subject;
  const { requester: tracker, peer, connection: state } = direction;
  if (tracker === undefined || peer === undefined || !direction.reliable || direction.ended.isOver) return [];
  const { duration } = capture.summary;
  const quiet = duration - Math.max(direction.span.end, peer.span.end);
  const timeout = tracker.classifier.timer.ackTimeout;
  if (exchange?.isDisconnected === true || state.second === undefined) return [];
  if (quiet < Math.max(STOPPED, 8 * timeout)) return [];
  const crossing = tracker.stoppedInside;
  if (crossing === undefined) return [];
  const { requester, responder } = subject;
  const { frame, answerFrame, lastFrame } = crossing;
  return [
    {
      kind: 'requester-stopped',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 0,
      certainty: 'likely',
      text: `${requester} stopped inside a message after an ACK crossed its retransmission; ${responder} had acknowledged everything.`,
      culprit: requester,
      chain: [
        ...event(frame, `${requester} sends packets again`),
        ...event(answerFrame, `${responder} had them, and acknowledges`),
        ...event(lastFrame, `the last packet of ${requester}; nothing follows for ${formatDuration(quiet)}`),
      ].sort((x, y) => x.frame! - y.frame!),
      explains: ALL_SAID,
      finding: findingOf(
        subject,
        `the last message is not complete, all of its packets are acknowledged, and nothing follows for ${formatDuration(quiet)}`,
        'A quirk of rxe: give its queue pairs a longer ACK timeout (perftest -u 18). A program that was killed looks the same.',
        [frame, answerFrame, lastFrame],
      ),
    },
  ];
}

export const requesterStopped = rule({
  kinds: [
    {
      kind: 'requester-stopped',
      title: 'Requester stopped',
      when: 'a requester went silent inside a message whose packets were all acknowledged, as rxe does after a crossing ACK',
    },
  ],
  stage: Stage.END,
  cause: causes,
});
