/** Packets that packets sent after them have overtaken. */
import { counted, formatDuration, formatShare } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { event } from './chain.ts';
import { closed, network, psnOf, RECOVERED, sent } from './recovery-row.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

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
      'Several paths are used at once (adaptive routing, ECMP by packet, bonding); a receiver that does not take packets out of order answers with NAKs.',
    ),
  ];
}

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
    text: ({ requester, responder, whoseShare, nothingLost }) =>
      `The network reordered packets from ${requester} to ${responder}; this explains ${whoseShare}${nothingLost}.`,
    chain: (telling) => [
      ...event(
        telling.shown.lateFrame,
        `${psnOf(telling.shown)} arrives behind packets that were sent after it`,
      ),
      ...sent(telling),
      ...closed(telling),
    ],
    explains: RECOVERED,
  },
});
