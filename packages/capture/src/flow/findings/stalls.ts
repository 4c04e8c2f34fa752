/** Findings of stalls, longest first, and of packets out of order. */
import { counted, formatDuration, formatShare } from '../../units.ts';
import type { Finding, StallEnd } from '../analysis.ts';
import { finding, moment, ofSubject, type Subject } from './finding.ts';

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
export function stalls(subject: Subject): Finding[] {
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

/** Silences with nothing outstanding that are as long as the ACK timeout: what was, may have been lost before the tap. */
export function idleLikeTimeout(subject: Subject): Finding[] {
  const { direction } = subject;
  const events = direction.record.events.get('idle-like-timeout');
  const ackTimeout = direction.requester?.classifier.ackTimeout ?? 0;
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

/** Packets that packets sent after them have overtaken. */
export function reordering(subject: Subject): Finding[] {
  const { direction } = subject;
  const late = direction.record.events.get('late');
  if (late === undefined) return [];
  const { counts, peer } = direction;
  const naks = peer?.counts.naks['psn-sequence-error'] ?? 0;
  const share = formatShare(late.count, counts.requests);
  const answer = naks > 0 ? `; the receiver sent ${counted(naks, 'sequence NAK')}` : '';
  return [
    finding(
      subject,
      late,
      'reordering',
      naks > 0 ? 'warning' : 'note',
      `${counted(late.count, 'packet')} out of order (${share} of the requests sent), the first ${moment(late.start)}: up to ${counted(counts.mostOvertaken, 'PSN')} and ${formatDuration(late.most)} late${answer}`,
      'Several paths are used at once (adaptive routing, ECMP by packet, bonding); a receiver that does not take packets out of order answers with NAKs.',
    ),
  ];
}
