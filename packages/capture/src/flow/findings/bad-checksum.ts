/** Packets have a wrong IPv4 or UDP checksum. */
import { counted } from '../../units.ts';
import type { ChainEvent } from '../facts.ts';
import type { Direction } from '../track/direction.ts';
import { event, inOrder } from './chain.ts';
import { type Cause, findingOf, Rank, rule, SILENCE, type Silence, Stage, type Subject } from './rule.ts';

/** The wrong checksums of one direction; undefined: there are none. */
function wrongOf(direction: Direction) {
  const { checked, badIp, badUdp, zeroIp, firstBad } = direction.path.facts;
  const bad = badIp + badUdp;
  if (bad + zeroIp === 0) return undefined;
  return {
    checked,
    firstBad,
    count: Math.max(badIp + zeroIp, badUdp),
    which: badUdp > badIp + zeroIp ? 'UDP' : 'IPv4 header',
    // A checksum of 0 alone proves nothing: adapters fill it in behind the tap of a sending host.
    isZero: bad === 0,
    isSilent: bad > 0 && direction.isUnanswered,
  };
}

type Wrong = NonNullable<ReturnType<typeof wrongOf>>;

const firstOf = ({ firstBad, which, isZero }: Wrong, sender: string): ChainEvent[] =>
  event(
    firstBad,
    `the first packet of ${sender} with ${isZero ? 'an IPv4 header checksum of 0' : `a wrong ${which} checksum`}`,
  );

function textOf(
  { direction, requester, responder }: Subject,
  wrong: Wrong,
  other: Wrong | undefined,
): string {
  const { isZero, isSilent, which } = wrong;
  const who = other === undefined ? `${requester} sends` : `${requester} and ${responder} send`;
  const { peer, counts } = direction;
  const isTaken =
    peer !== undefined &&
    counts.retransmitted + peer.counts.retransmitted === 0 &&
    counts.responses + peer.counts.responses > 0;
  const adapters = other === undefined ? 'its adapter fills' : 'adapters fill';
  if (isZero)
    return isTaken
      ? `${who} IPv4 header checksums of 0; as nothing is sent again, ${adapters} them in later, or nobody checks them.`
      : `${who} IPv4 header checksums of 0: hosts drop such packets, unless ${adapters} them in later.`;
  const takers = other === undefined ? `${responder} takes` : 'both take';
  const effect = isSilent
    ? 'hosts drop such packets'
    : isTaken
      ? `${takers} them all the same`
      : 'adapters may take such packets, hosts drop them';
  const count = wrong.count + (other?.count ?? 0);
  const checked = wrong.checked + (other?.checked ?? 0);
  return `${who} wrong ${which} checksums (${count} of ${checked} checked); ${effect}.`;
}

function causes(subject: Subject): Cause<'bad-checksum', Silence>[] {
  const { direction, requester, responder } = subject;
  const wrong = wrongOf(direction);
  if (wrong === undefined) return [];
  const { which, count, checked, isZero, isSilent, firstBad } = wrong;
  const opposite = direction.peer && wrongOf(direction.peer);
  // Both ends do the same: told once.
  const isOfBoth =
    opposite !== undefined &&
    [opposite.which, opposite.isZero, opposite.isSilent].join() === [which, isZero, isSilent].join();
  const other = isOfBoth ? opposite : undefined;
  const sum = count + (other?.count ?? 0);
  return [
    {
      kind: 'bad-checksum',
      severity: isSilent ? 'error' : isZero ? 'note' : 'warning',
      rank: isSilent ? Rank.ENDS : Rank.NOTE,
      weight: 7,
      certainty: isSilent || isZero || sum < 3 ? 'likely' : 'certain',
      text: textOf(subject, wrong, other),
      culprit: requester,
      chain: inOrder([
        ...firstOf(wrong, requester),
        ...(other === undefined ? [] : firstOf(other, responder)),
      ]),
      explains: isSilent ? SILENCE : [],
      isSaid: isOfBoth && direction.from === 'b',
      finding: findingOf(
        subject,
        `${count} of ${counted(checked, 'packet')} that were checked have ${isZero ? 'an IPv4 header checksum of 0' : `a wrong ${which} checksum`}`,
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
