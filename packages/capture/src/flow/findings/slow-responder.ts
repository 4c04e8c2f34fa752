/** Answers came late, and nothing was retransmitted meanwhile. */
import { counted, formatDuration } from '../../units.ts';
import type { Stall } from '../facts.ts';
import { event } from './chain.ts';
import { type Cause, findingOf, Rank, rule, Stage, type Subject } from './rule.ts';

/** Waits that are worth a verdict: so long, or such a share of the connection's time. */
const LONG_WAIT = 50e6;
const WAIT = 5e6;
const SHARE = 0.2;

function causes(subject: Subject): Cause<'slow-responder', 'stalls'>[] {
  const { direction } = subject;
  const { requester: tracker, record, span, peer } = direction;
  if (tracker === undefined || peer === undefined) return [];
  const waits = tracker.stalls.longest.filter(
    (stall) => stall.end === 'answer' && !record.recoveries.kept.some(({ time }) => isWithin(stall, time)),
  );
  const [longest] = waits;
  if (longest === undefined) return [];
  const total = waits.reduce((sum, { duration }) => sum + duration, 0);
  const whole = Math.max(span.end, peer.span.end) - span.start;
  if (longest.duration < LONG_WAIT && (longest.duration < WAIT || total < SHARE * whole)) return [];
  const usual = tracker.readRoundTrip.result() ?? tracker.ackRoundTrip.result();
  // Where all answers are as slow, the path may be as slow as the responder.
  const isService = usual !== undefined && usual.min * 5 < longest.duration;
  const { requester, responder } = subject;
  const meanwhile = [direction, peer].some(({ counts }) => counts.goBacks > 0) ? ' meanwhile' : '';
  const often = waits.length === 1 ? '' : ` ${waits.length} times`;
  return [
    {
      kind: 'slow-responder',
      severity: 'warning',
      rank: Rank.COSTS,
      weight: waits.length / 2,
      certainty: isService ? 'likely' : 'not-known',
      text: isService
        ? `${responder} answered late${often}: up to ${formatDuration(longest.duration)}, at best ${formatDuration(usual.min)}; nothing was retransmitted${meanwhile}.`
        : `Answers of ${responder}, or the path to it, are slow: up to ${formatDuration(longest.duration)}.`,
      culprit: isService ? responder : undefined,
      chain: [
        ...event(longest.after, `the last packet before; ${requester} waits`),
        ...event(longest.frame, `${responder} answers after ${formatDuration(longest.duration)}`),
      ],
      explains: ['stalls'],
      finding: findingOf(
        subject,
        `${counted(waits.length, 'answer')} late, by up to ${formatDuration(longest.duration)}, and nothing was retransmitted meanwhile`,
        'The responder takes that long: look at its load, at interrupts, and at what the application does before it answers.',
        waits.map(({ frame }) => frame),
      ),
    },
  ];
}

const isWithin = ({ start, duration }: Pick<Stall, 'start' | 'duration'>, time: number): boolean =>
  time >= start && time <= start + duration + WAIT;

export const slowResponder = rule({
  kinds: [
    {
      kind: 'slow-responder',
      title: 'Slow responder',
      when: 'answers came late, and nothing was retransmitted meanwhile',
    },
  ],
  stage: Stage.OTHER,
  cause: causes,
});
