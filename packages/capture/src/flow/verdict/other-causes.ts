/** Causes without a recovery: slow answers, losses on UC, congestion marks, what the capture does not show. */
import { counted, formatDuration } from '../../units.ts';
import type { Stall } from '../analysis.ts';
import type { Direction } from '../track/direction.ts';
import { type Cause, type Context, endsOf, event, findingOf, ofDirections, Rank } from './cause.ts';

/** Waits that are worth a verdict: so long, or such a share of the connection's time. */
const LONG_WAIT = 50e6;
const WAIT = 5e6;
const SHARE = 0.2;
/** A receiver may answer a few marks with one CNP, which the capture may have missed. */
const MANY_MARKS = 8;

export const otherCauses = (context: Context): Cause[] =>
  ofDirections(context, [slowResponder, unreliableLoss, congestion, unexplained, silentLikeTimeout]);

function slowResponder(context: Context, direction: Direction): Cause[] {
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
  const { requester, responder } = endsOf(context, direction);
  const often = waits.length === 1 ? '' : ` ${waits.length} times`;
  return [
    {
      kind: 'slow-responder',
      severity: 'warning',
      rank: Rank.COSTS,
      weight: waits.length / 2,
      certainty: isService ? 'likely' : 'not-known',
      text: isService
        ? `${responder} answered late${often}: up to ${formatDuration(longest.duration)}, at best ${formatDuration(usual.min)}; nothing was retransmitted.`
        : `Answers of ${responder}, or the path to it, are slow: up to ${formatDuration(longest.duration)}.`,
      culprit: isService ? responder : undefined,
      chain: [
        ...event(longest.after, `the last packet before; ${requester} waits`),
        ...event(longest.frame, `${responder} answers after ${formatDuration(longest.duration)}`),
      ],
      explains: ['stalls'],
      finding: findingOf(
        context,
        direction,
        `${counted(waits.length, 'answer')} late, by up to ${formatDuration(longest.duration)}, and nothing was retransmitted meanwhile`,
        'The responder takes that long: look at its load, at interrupts, and at what the application does before it answers.',
        waits.map(({ frame }) => frame),
      ),
    },
  ];
}

const isWithin = ({ start, duration }: Pick<Stall, 'start' | 'duration'>, time: number): boolean =>
  time >= start && time <= start + duration + WAIT;

function unreliableLoss(context: Context, direction: Direction): Cause[] {
  const lost = direction.record.events.get('lost');
  if (lost === undefined) return [];
  const { requester, responder } = endsOf(context, direction);
  const bad = direction.counts.icrcBad;
  return [
    {
      kind: 'uc-loss',
      severity: 'warning',
      rank: Rank.COSTS,
      weight: lost.count,
      certainty: 'likely',
      text:
        bad > 0
          ? `${counted(lost.count, 'packet')} from ${requester} to ${responder} lost, ${bad} damaged; UC retransmits nothing.`
          : `${counted(lost.count, 'packet')} from ${requester} to ${responder} lost before the capture point; UC retransmits nothing.`,
      culprit: 'network',
      chain: event(lost.frames[0], 'the packet behind the first missing one'),
      explains: [],
    },
  ];
}

function congestion(context: Context, direction: Direction): Cause[] {
  const {
    counts,
    peer,
    record: { events },
  } = direction;
  const marked = events.get('ecn-marked');
  if (marked === undefined || peer === undefined) return [];
  const { requester, responder } = endsOf(context, direction);
  const cnps = peer.record.events.get('cnp');
  const packets = counted(counts.ecnMarked, 'packet');
  return [
    {
      kind: 'ecn-marked',
      severity: cnps === undefined ? 'warning' : 'note',
      rank: cnps === undefined ? Rank.COSTS : Rank.NOTE,
      weight: cnps === undefined ? 1 : 2,
      certainty: cnps === undefined && counts.ecnMarked < MANY_MARKS ? 'likely' : 'certain',
      text:
        cnps === undefined
          ? `${responder} does not answer congestion marks: ${packets} marked, no CNP came back.`
          : `A queue from ${requester} to ${responder} is congested: ${packets} marked, ${counted(cnps.count, 'CNP')} came back.`,
      culprit: cnps === undefined ? responder : 'network',
      chain: [
        ...event(marked.frames[0], 'the first packet with a congestion mark (CE)'),
        ...event(cnps?.frames[0], `the first CNP of ${responder}`),
      ],
      explains: ['ecn-marked'],
    },
  ];
}

/** Retransmissions of which nothing is known. */
function unexplained(context: Context, direction: Direction): Cause[] {
  const {
    counts,
    record: { recoveries },
  } = direction;
  const kept = recoveries.kept.filter(({ episode, damaged }) => {
    const reason = episode?.judge().reason;
    return (
      damaged === undefined && (reason === 'not-known' || reason === 'unanswered' || reason === undefined)
    );
  });
  if (kept.length === 0 || kept.length < recoveries.kept.length / 2) return [];
  const { requester, responder } = endsOf(context, direction);
  return [
    {
      kind: 'retransmissions',
      severity: 'warning',
      rank: Rank.COSTS,
      weight: 0,
      certainty: 'not-known',
      text: `${requester} sent ${counted(counts.retransmitted, 'packet')} to ${responder} again; why is not known.`,
      culprit: undefined,
      chain: event(kept[0].frame, `${requester} sends a packet again`),
      explains: ['retransmissions'],
    },
  ];
}

/** Its first transmission may have been lost before the tap: then a request seems to come out of nothing, after a timeout. */
function silentLikeTimeout(context: Context, direction: Direction): Cause[] {
  const events = direction.record.events.get('idle-like-timeout');
  if (events === undefined) return [];
  const { requester, responder } = endsOf(context, direction);
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
