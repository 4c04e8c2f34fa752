/** Packets that packets sent after them have overtaken. */
import { counted, formatDuration, formatShare } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { event } from './chain.ts';
import {
  closed,
  network,
  pathOf,
  psnOf,
  RECOVERED,
  sent,
  type Telling,
  textOfShare,
} from './recovery-row.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

const HINT =
  'Several paths are used at once (adaptive routing, ECMP by packet, bonding); a receiver that does not take packets out of order answers with NAKs.';

function find(subject: Subject): FindingOf<'reordering'>[] {
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
      HINT,
    ),
  ];
}

/** The capture has each of the packets that were overtaken: they came to it late. */
const isShown = ({ recoveries }: Telling): boolean =>
  recoveries.every(({ episode }) => (episode?.lateFrame ?? 0) > 0);

export const reordering = rule({
  kinds: [
    {
      kind: 'reordering',
      title: 'Packets out of order',
      when: 'packets were overtaken by packets sent after them',
    },
  ],
  find,
  recovery: {
    reason: 'reordered',
    kind: 'reordering',
    culprit: network,
    isOfBoth: true,
    text: (telling) =>
      `The ${pathOf(telling, isShown(telling))} reordered packets; this explains ${textOfShare(telling.share)}${telling.nothingLost}.`,
    chain: (telling) => {
      const { psn, missingPsn, lateFrame, latePsn, frame, again, lastAnswerFrame } = telling.shown;
      const isOwn = latePsn === psn || latePsn === missingPsn;
      const name = psnOf(lateFrame > 0 ? { psn: latePsn } : telling.shown);
      const late =
        lateFrame > frame && isOwn
          ? `the first copy of ${name} arrives: it was late, not lost`
          : `${name} arrives behind packets that were sent after it`;
      return [
        ...event(lateFrame, late),
        ...sent(telling),
        ...closed(telling),
        ...event(
          again > 0 ? lastAnswerFrame : 0,
          `${telling.responder}'s answer comes twice: the first one was only late`,
        ),
      ];
    },
    hint: HINT,
    explains: RECOVERED,
  },
});
