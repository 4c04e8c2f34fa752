/** Times in which requests waited and nothing happened, longest first. */
import { counted, formatDuration } from '../../units.ts';
import type { FindingOf, StallEnd } from '../facts.ts';
import { moment, ofSubject, rule, type Subject } from './rule.ts';

/** Shown of each direction. */
const SHOWN = 3;

const ENDS: Readonly<Record<StallEnd, string>> = {
  timeout: 'an ACK timeout',
  'sequence-nak': 'a retransmission for a sequence NAK',
  'implied-nak': 'a retransmission for a missing response',
  rnr: 'a retransmission after an RNR wait',
  probe: 'a probe',
  unknown: 'a retransmission',
  answer: 'an answer',
  request: 'a request',
};

/** Times in which requests waited and nothing happened. */
function find(subject: Subject): FindingOf<'stalls'>[] {
  const watch = subject.direction.requester?.stalls;
  if (watch === undefined || watch.count === 0) return [];
  const { longest, count, total } = watch;
  const shown = longest
    .slice(0, SHOWN)
    .map(
      ({ start, duration, after, frame, end }) =>
        `${formatDuration(duration)} ${moment(start)} (frames ${after} → ${frame}), ended by ${ENDS[end]}`,
    );
  const more = count > shown.length ? '; …' : '';
  const sum = count > 1 ? `, ${formatDuration(total)} in total` : '';
  return [
    ofSubject(
      subject,
      'stalls',
      'warning',
      `${counted(count, 'stall')} with requests outstanding${sum}: ${shown.join('; ')}${more}`,
      'The event that ended a stall points to its cause: an ACK timeout to a lost packet or ACK, an RNR wait to a missing receive, an answer to a slow responder.',
      {
        start: Math.min(...longest.map(({ start }) => start)),
        end: Math.max(...longest.map(({ start, duration }) => start + duration)),
        frames: longest.map(({ frame }) => frame),
        frameCount: count,
      },
    ),
  ];
}

export const stalls = rule({
  kinds: [
    {
      kind: 'stalls',
      title: 'Stalls',
      when: 'requests were outstanding and nothing happened for a long time',
    },
  ],
  find,
});
