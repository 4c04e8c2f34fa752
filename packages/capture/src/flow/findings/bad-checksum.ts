/** Packets have a wrong IPv4 or UDP checksum. */
import { counted } from '../../units.ts';
import { event } from './chain.ts';
import { type Cause, findingOf, Rank, rule, SILENCE, type Silence, Stage, type Subject } from './rule.ts';

function causes(subject: Subject): Cause<'bad-checksum', Silence>[] {
  const { direction } = subject;
  const { checked, badIp, badUdp, zeroIp, firstBad } = direction.path.facts;
  const bad = badIp + badUdp;
  if (bad + zeroIp === 0) return [];
  const { requester, responder } = subject;
  // A checksum of 0 alone proves nothing: adapters fill it in behind the tap of a sending host.
  const isSilent = bad > 0 && direction.isUnanswered;
  const { peer, counts } = direction;
  const isTaken =
    peer !== undefined &&
    counts.retransmitted + peer.counts.retransmitted === 0 &&
    counts.responses + peer.counts.responses > 0;
  const which = badUdp > badIp + zeroIp ? 'UDP' : 'IPv4 header';
  const count = Math.max(badIp + zeroIp, badUdp);
  const text =
    bad === 0
      ? `${requester} sends IPv4 header checksums of 0: hosts drop such packets, unless its adapter fills them in later.`
      : `${requester} sends wrong ${which} checksums (${count} of ${checked} checked); ${isSilent ? 'hosts drop such packets' : isTaken ? `${responder} takes them all the same` : 'adapters may take such packets, hosts drop them'}.`;
  return [
    {
      kind: 'bad-checksum',
      severity: isSilent ? 'error' : bad > 0 ? 'warning' : 'note',
      rank: isSilent ? Rank.ENDS : Rank.NOTE,
      weight: 7,
      certainty: isSilent || bad < 3 ? 'likely' : 'certain',
      text,
      culprit: requester,
      chain: event(firstBad, `the first packet with a wrong ${which} checksum`),
      explains: isSilent ? SILENCE : [],
      finding: findingOf(
        subject,
        `${count} of ${counted(checked, 'packet')} that were checked have ${bad === 0 ? 'an IPv4 header checksum of 0' : `a wrong ${which} checksum`}`,
        'At a tap on the sending host the adapter fills checksums in later. Elsewhere: damage, or a program that computes them wrongly.',
        [firstBad],
        count,
      ),
    },
  ];
}

export const badChecksum = rule({
  kinds: [
    { kind: 'bad-checksum', title: 'Wrong checksums', when: 'packets have a wrong IPv4 or UDP checksum' },
  ],
  stage: Stage.PATH,
  cause: causes,
});
