/** Packets that nobody answers have a TTL of 1. */
import { event } from './chain.ts';
import { type Cause, findingOf, Rank, rule, SILENCE, type Silence, Stage, type Subject } from './rule.ts';

function causes(subject: Subject): Cause<'ttl-too-small', Silence>[] {
  const { direction } = subject;
  const { classes } = direction.path.traffic;
  if (!direction.isUnanswered || classes.some(({ ttl: value }) => value !== 1)) return [];
  const { requester, responder } = subject;
  return [
    {
      kind: 'ttl-too-small',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 4,
      certainty: 'likely',
      text: `${requester} sends with TTL 1, so no router forwards its packets to ${responder}, which does not answer.`,
      culprit: requester,
      chain: event(direction.span.firstFrame, `${requester} sends with TTL 1`),
      explains: SILENCE,
      finding: findingOf(
        subject,
        'all packets have a TTL of 1, and none is answered',
        'Set the hop limit of the queue pair (ah_attr.grh.hop_limit) to 64; ibv_rc_pingpong sets 1. Within one subnet a TTL of 1 is enough.',
        [direction.span.firstFrame],
      ),
    },
  ];
}

export const ttlTooSmall = rule({
  kinds: [
    {
      kind: 'ttl-too-small',
      title: 'TTL of 1',
      when: 'packets that are not answered have a TTL of 1, so that no router forwards them',
    },
  ],
  stage: Stage.PATH,
  cause: causes,
});
