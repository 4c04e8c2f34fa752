/** Packets are marked as congested. */
import { counted, formatDuration, formatShare } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import type { Direction } from '../track/direction.ts';
import { event } from './chain.ts';
import { type Cause, finding, moment, Rank, rule, Stage, type Subject } from './rule.ts';

/** A receiver may answer a few marks with one CNP, which the capture may have missed. */
const MANY_MARKS = 8;

function find(subject: Subject): FindingOf<'ecn-marked'>[] {
  const { direction } = subject;
  const { counts, peer, record } = direction;
  const marked = record.events.get('ecn-marked');
  if (marked === undefined) return [];
  const cnps = peer?.record.events.get('cnp');
  const share = formatShare(counts.ecnMarked, counts.packets);
  const isSilent = cnps === undefined && peer !== undefined;
  const delay = direction.path.congestion.delay.result();
  const answer =
    cnps === undefined
      ? isSilent
        ? 'no CNP came back'
        : unpairedAnswer(direction, subject.capture.lone)
      : `${counted(cnps.count, 'CNP')} came back${delay === undefined ? '' : `, ${formatDuration(delay.p50)} after the mark (median)`}`;
  return [
    finding(
      subject,
      marked,
      'ecn-marked',
      isSilent ? 'warning' : 'note',
      `${counted(counts.ecnMarked, 'packet')} (${share}) marked as congested, the first ${moment(marked.start)}; ${answer}`,
      isSilent
        ? 'The receiver does not answer marks (DCQCN off, or rxe): the sender will not slow down.'
        : 'A queue on the way is past its ECN threshold: look for incast or a slower link.',
    ),
  ];
}

/** CNPs to the sender of a direction that has no other one, as far as the capture shows. */
function unpairedAnswer(
  { key: { source, destination, vni }, search: { sourceQp } }: Direction,
  lone: readonly Direction[],
): string {
  // A datagram names its sender's queue pair, which its CNPs go to.
  const back = lone.filter(
    (one) =>
      one.key.source === destination &&
      one.key.destination === source &&
      one.key.vni === vni &&
      (sourceQp < 0 || one.key.destQp === sourceQp),
  );
  if (back.length === 0) return 'the capture does not show whether CNPs came back';
  const count = back.reduce((sum, { counts }) => sum + counts.cnps, 0);
  const which = sourceQp < 0 ? ' to this host, for which queue pair the capture does not show' : '';
  return `${counted(count, 'CNP')} came back${which}`;
}

function causes(subject: Subject): Cause<'ecn-marked', 'ecn-marked'>[] {
  const { direction } = subject;
  const {
    counts,
    peer,
    record: { events },
  } = direction;
  const marked = events.get('ecn-marked');
  if (marked === undefined || peer === undefined) return [];
  const { requester, responder } = subject;
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

export const ecnMarked = rule({
  kinds: [{ kind: 'ecn-marked', title: 'Congestion marks', when: 'packets are marked as congested' }],
  find,
  stage: Stage.OTHER,
  cause: causes,
});
