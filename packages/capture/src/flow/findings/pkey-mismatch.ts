/** The two ends send with P_Keys that do not match. */
import { event } from './chain.ts';
import { type Cause, findingOf, Rank, rule, SILENCE, type Silence, Stage, type Subject } from './rule.ts';

function causes(subject: Subject): Cause<'pkey-mismatch', Silence>[] {
  const { direction } = subject;
  const {
    peer,
    path: { facts },
  } = direction;
  // Once a connection.
  if (peer === undefined || direction.from !== 'a') return [];
  const [one, other] = [facts.pkey, peer.path.facts.pkey];
  if (one < 0 || other < 0) return [];
  const isOther = (one & 0x7fff) !== (other & 0x7fff);
  const areLimited = !isOther && (one & 0x8000) === 0 && (other & 0x8000) === 0;
  if (!isOther && !areLimited) return [];
  const { requester, responder } = subject;
  const hex = (value: number) => `0x${value.toString(16).padStart(4, '0')}`;
  const isSilent = direction.isUnanswered || peer.isUnanswered || direction.counts.retransmitted > 0;
  const what = isOther ? 'different P_Keys' : 'limited members of one partition only';
  return [
    {
      kind: 'pkey-mismatch',
      severity: isSilent ? 'error' : 'warning',
      rank: isSilent ? Rank.ENDS : Rank.NOTE,
      weight: 5,
      certainty: isSilent ? 'likely' : 'certain',
      text: `${requester} and ${responder} use ${what}: ${hex(one)} against ${hex(other)}${isSilent ? '; such packets are dropped' : ''}.`,
      culprit: requester,
      chain: [
        ...event(direction.span.firstFrame, `${requester} sends with P_Key ${hex(one)}`),
        ...event(peer.span.firstFrame, `${responder} sends with P_Key ${hex(other)}`),
      ],
      explains: isSilent ? SILENCE : [],
      finding: findingOf(
        subject,
        `${what}: ${hex(one)} against ${hex(other)}`,
        'Give both queue pairs the same P_Key (pkey_index): a receiver drops packets of another partition silently. RoCE normally has 0xffff.',
        [direction.span.firstFrame, peer.span.firstFrame],
      ),
    },
  ];
}

export const pkeyMismatch = rule({
  kinds: [
    {
      kind: 'pkey-mismatch',
      title: 'Different P_Keys',
      when: 'the two ends send with P_Keys that do not match',
    },
  ],
  stage: Stage.PATH,
  cause: causes,
});
