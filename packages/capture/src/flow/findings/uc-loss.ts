/** PSNs of an unreliable connection are missing. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { event } from './chain.ts';
import { type Cause, finding, moment, Rank, rule, Stage, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'uc-loss'>[] {
  const { direction } = subject;
  const { events } = direction.record;
  const lost = events.get('lost');
  if (lost === undefined) return [];
  return [
    finding(
      subject,
      lost,
      'uc-loss',
      'warning',
      `${counted(lost.count, 'PSN')} never came, the first ${moment(lost.start)}; UC retransmits nothing, so their messages are lost`,
      'Packets are lost on the way, or the capture dropped them: compare with the counters of the capture and of the NICs.',
    ),
  ];
}

function causes(subject: Subject): Cause<'uc-loss', never>[] {
  const { direction } = subject;
  const lost = direction.record.events.get('lost');
  if (lost === undefined) return [];
  const { requester, responder } = subject;
  const bad = direction.counts.icrcBad;
  const were = lost.count === 1 ? 'was' : 'were';
  return [
    {
      kind: 'uc-loss',
      severity: 'warning',
      rank: Rank.COSTS,
      weight: lost.count,
      certainty: 'likely',
      text:
        bad > 0
          ? `${counted(lost.count, 'packet')} from ${requester} to ${responder} ${were} lost, ${bad} damaged; UC retransmits nothing.`
          : `${counted(lost.count, 'packet')} from ${requester} to ${responder} ${were} lost before the capture point; UC retransmits nothing.`,
      culprit: 'network',
      chain: event(lost.frames[0], 'the packet behind the first missing one'),
      explains: [],
    },
  ];
}

export const ucLoss = rule({
  kinds: [
    { kind: 'uc-loss', title: 'Packets lost on UC', when: 'PSNs of an unreliable connection are missing' },
  ],
  find,
  stage: Stage.OTHER,
  cause: causes,
});
