/** A packet, or the answer to it, was lost and retransmitted. */
import { counted } from '../../units.ts';
import type { DirectionCounts, MissingPacket } from '../facts.ts';
import { type OpenRecovery, reasonOf } from '../record/recoveries.ts';
import type { Direction } from '../track/direction.ts';
import { event } from './chain.ts';
import {
  closed,
  network,
  ofThemCertain,
  psnOf,
  RECOVERED,
  sendersOf,
  sent,
  type Telling,
  textOfShare,
} from './recovery-row.ts';
import { rule } from './rule.ts';

/** A verdict has no more. */
const MAX_WORDS = 20;

const DROPS =
  'Look at drops in switches and NICs between them: buffers, PFC, ECN, CRC errors, paths that reorder.';
const ALIKE =
  'Loss, damage, reordering and delay look the same from here: a capture at the other end shows which it is.';
const ALIKE_GONE = 'Loss and damage look the same from here: a capture at the other end shows which it is.';
const SLOW =
  'The capture shows no loss, and some answers came late for certain: raise the ACK timeout, or find out what delays answers.';

/** A capture that goes on for so long after the last recovery would show a packet that was only delayed; ns. */
const LATEST = 100e6;

/** Packets that the text calls lost may still be on their way where the capture ends. */
const mayCome = (telling: Telling): boolean =>
  fateOf(telling) === Fate.LOST &&
  telling.captureEnd - Math.max(...telling.recoveries.map(({ time }) => time)) < LATEST;

/** Recoveries for which the capture shows what was missing, and on which side. */
const proven = ({ recoveries }: Telling): number =>
  recoveries.filter(
    ({ side, missing, grade }) => side !== 'unknown' && missing !== 'either' && grade === 'certain',
  ).length;

/** The counts of both directions of the connection. */
const countsOf = ({ direction }: Telling): DirectionCounts[] =>
  [direction.counts, direction.peer?.counts].filter((counts) => counts !== undefined);

/** Packets of either direction, not all of one, that have a wrong ICRC. */
const damagedHere = (telling: Telling): number =>
  countsOf(telling).reduce((sum, { icrcBad, icrcTaken }) => sum + Math.max(0, icrcBad - icrcTaken), 0);

const directionsOf = ({ direction }: Telling): Direction[] =>
  direction.peer === undefined ? [direction] : [direction, direction.peer];

const lateHere = (telling: Telling): number =>
  directionsOf(telling).reduce((sum, { record }) => sum + (record.events.get('late')?.count ?? 0), 0);

/** How packets may have got lost: behind the capture point, or where the place is not known, more than one way looks the same. */
const Fate = { LOST: 'lost', GONE: 'gone', DELAYED: 'delayed', UNSEEN: 'unseen' } as const;
type Fate = (typeof Fate)[keyof typeof Fate];

/** Of the paths to several hosts; `LOST` has the title of the kind. */
const TITLES: Readonly<Record<Fate, string | undefined>> = {
  [Fate.LOST]: undefined,
  [Fate.GONE]: 'Packets lost or damaged',
  [Fate.DELAYED]: 'Packets delayed or lost',
  [Fate.UNSEEN]: 'Packets missing or late',
};

/**
 * The packet was lost on its way to the capture point: those before it and behind it came. A response that is only late comes, too, later
 * than the one to the retransmission.
 */
const isBefore = ({ missing, side }: OpenRecovery, isTwice: boolean): boolean =>
  (missing === 'request' && side === 'requester') ||
  (missing === 'response' && side === 'responder' && !isTwice);

/** The answer passed, and the requester asked again: it was lost, damaged or late behind the capture point. */
const isAnsweredHere = ({ missing, side }: OpenRecovery): boolean =>
  missing === 'response' && side === 'requester';

/** Packets that came late would be answered, too: more than one answer to a packet. */
const isAnsweredTwice = (telling: Telling): boolean =>
  directionsOf(telling).some(
    ({ acknowledgedTwice, counts: { repeatedResponses } }) => acknowledgedTwice + repeatedResponses > 0,
  );

const lostBefore = (telling: Telling): number => {
  const isTwice = isAnsweredTwice(telling);
  return telling.recoveries.filter((recovery) => isBefore(recovery, isTwice)).length;
};

/** A third of the connection's recoveries was needless, as answers came late, and nothing shows a loss: no gap, no NAK, no missing response. */
function isDelayed(telling: Telling): boolean {
  const all = directionsOf(telling).flatMap(({ record, isDoubled }) =>
    record.recoveries.kept.map((recovery) => ({ recovery, reason: reasonOf(recovery, isDoubled).reason })),
  );
  const isShown = all.some(({ recovery }) => recovery.cause !== 'timeout' || recovery.missing === 'request');
  const needless = all.filter(({ reason }) => reason === 'spurious').length;
  return !isShown && 3 * needless >= all.length;
}

function fateOf(telling: Telling): Fate {
  const { recoveries, shown } = telling;
  const known = recoveries.filter(({ side }) => side !== 'unknown');
  const isTwice = isAnsweredTwice(telling);
  const before = lostBefore(telling);
  const isMost = known.length * 2 >= recoveries.length;
  if (isMost && before > 0 && before === known.length && shown.side !== 'unknown') return Fate.LOST;
  // A path that loses packets in one direction, and neither damages nor reorders any, loses those in the other, too.
  const isReordered = lateHere(telling) > 0;
  const isClean = damagedHere(telling) === 0 && !isReordered;
  const share = isOnePlace(telling) ? 4 : 2;
  if (isClean && before * share >= recoveries.length) return Fate.LOST;
  if (isClean && isDelayed(telling)) return Fate.DELAYED;
  const isGone = isMost && !known.some(isAnsweredHere);
  return isGone && !isReordered && !isTwice ? Fate.GONE : Fate.UNSEEN;
}

/** What the capture shows of packets of the connection comes first: the others may have had the same fate. */
function unseenOf(telling: Telling): string {
  const shown: [string, number][] = [
    ['lost', lostBefore(telling)],
    ['damaged', damagedHere(telling)],
    ['reordered', lateHere(telling)],
    ['delayed', 0],
  ];
  const [first, second, third, last] = shown.toSorted((x, y) => y[1] - x[1]).map(([fate]) => fate);
  return `${first}, ${second}, ${third} or ${last}`;
}

const FATES: Readonly<Record<Fate, (telling: Telling) => string>> = {
  [Fate.LOST]: () => 'lost',
  [Fate.GONE]: () => 'lost or damaged',
  [Fate.DELAYED]: () => 'delayed or lost',
  [Fate.UNSEEN]: unseenOf,
};

/** The ends next to which packets were lost, seen from the capture point. */
const nearOf = ({ parts }: Telling): Set<string> =>
  new Set(
    parts.flatMap(({ recoveries, requester, responder }) =>
      recoveries
        .filter(({ side }) => side !== 'unknown')
        .map(({ side }) => (side === 'requester' ? requester : responder)),
    ),
  );

const isOnePlace = (telling: Telling): boolean =>
  telling.shown.side !== 'unknown' && nearOf(telling).size === 1;

/** Where packets were lost. */
function placeOf(telling: Telling): string {
  const { requester, responder } = telling;
  const near = nearOf(telling);
  const [only] = near;
  if (isOnePlace(telling)) return `path between ${only} and the capture point`;
  return near.size > 1
    ? `path between ${requester} and ${responder}`
    : `network, somewhere between ${requester} and ${responder},`;
}

/** How many of the missing packets are of a kind. */
const missingOf = ({ recoveries }: Telling, kind: MissingPacket): number =>
  recoveries.filter(({ missing }) => missing === kind).length;

/** Requests, answers, or packets of either kind. */
function whatOf(telling: Telling): string {
  const [requests, answers] = [missingOf(telling, 'request'), missingOf(telling, 'response')];
  const others = telling.recoveries.length - requests - answers;
  const senders = sendersOf(telling, ({ missing }) => missing === 'request' || missing === 'response');
  const both = senders.size > 1 ? ' in both directions' : '';
  if (requests > 0 && answers > 0) return `${PACKETS}${both}`;
  const [kind, count] = answers > 0 ? ['answers', answers] : ['requests', requests];
  if (others === 0) return `${kind}${both}`;
  return both === '' && count > others ? `${PACKETS}, mostly ${kind}` : `${PACKETS}${both}`;
}

const PACKETS = 'packets';

const lost = (telling: Telling, what = whatOf(telling)): string =>
  `${placeOf(telling)} ${FATES[fateOf(telling)](telling)} ${what}`;

/** `3 of 5 recoveries`; where a part of them shows the place, `3 of 5 recoveries, probably all`. */
function shareIn(telling: Telling): string {
  const { recoveries, share } = telling;
  const known = recoveries.filter(({ side }) => side !== 'unknown').length;
  if (!isOnePlace(telling) || known === share.count) return textOfShare(share);
  return `${textOfShare({ ...share, count: known })}, probably ${share.count === share.kept ? 'all' : share.count}`;
}

/** The verdict: as much as its length allows. */
function textOf(telling: Telling): string {
  const texts = [shareIn(telling), textOfShare(telling.share)].flatMap((share) =>
    [whatOf(telling), PACKETS].flatMap((what) => [
      `The ${lost(telling, what)}; this explains ${share}.`,
      `The ${lost(telling, what)} (${share}).`,
    ]),
  );
  return texts.find((text) => text.split(' ').length <= MAX_WORDS) ?? texts.at(-1)!;
}

/** A finding's subject names both ends. */
function withoutAddresses(telling: Telling): Telling {
  const ends = { requester: 'the requester', responder: 'the responder' };
  return { ...telling, ...ends, parts: telling.parts.map((part) => ({ ...part, ...ends })) };
}

function adviceOf(telling: Telling): string {
  const fate = fateOf(telling);
  if (fate === Fate.DELAYED) return SLOW;
  const parts = [DROPS];
  const either = missingOf(telling, 'either');
  if (either > 0)
    parts.push(
      `${counted(either, 'recovery', 'recoveries')} may be for a request or for its answer: which one does not show here.`,
    );
  if (fate !== Fate.LOST) parts.push(fate === Fate.GONE ? ALIKE_GONE : ALIKE, ...shownBefore(telling));
  return parts.join(' ');
}

/** What the capture shows of other packets on their way to the capture point. */
function shownBefore(telling: Telling): string[] {
  const late = lateHere(telling);
  const damaged = damagedHere(telling);
  const before = lostBefore(telling);
  if (late + damaged === 0) return [];
  const seen = [
    ...(late > 0 ? [`${counted(late, 'packet')} reordered`] : []),
    ...(damaged > 0 ? [`${counted(damaged, 'packet')} damaged (wrong ICRC)`] : []),
    ...(before > 0 ? [`${counted(before, 'recovery', 'recoveries')} for lost packets`] : []),
  ];
  return [`Seen on the way to the capture point: ${seen.join(', ')}. Behind it the same may happen.`];
}

export const packetsLost = rule({
  kinds: [
    {
      kind: 'packets-lost',
      title: 'Packets lost',
      when: 'a packet, or the answer to it, was lost and retransmitted',
    },
  ],
  recovery: {
    reason: 'lost',
    kind: 'packets-lost',
    culprit: network,
    certainty: (telling) =>
      proven(telling) === telling.recoveries.length && !mayCome(telling) ? 'certain' : 'likely',
    isOfBoth: true,
    title: (telling) => TITLES[fateOf(telling)],
    text: textOf,
    chain: (telling) => [
      ...sent(telling),
      ...event(
        telling.shown.gapFrame,
        `${psnOf(telling.shown)} is missing: packets sent after it come without it`,
      ),
      ...event(
        telling.shown.answeredFrame,
        `${telling.responder} answers, and ${telling.requester} does not get the answer ${telling.shown.cause === 'implied-nak' ? 'before later ones' : 'in time'}`,
      ),
      ...closed(telling),
    ],
    finding: (telling) => ({
      statement: `the ${lost(withoutAddresses(telling))}: ${shareIn(telling)}${ofThemCertain(proven(telling), telling)}`,
      hint: adviceOf(telling),
    }),
    explains: RECOVERED,
  },
});
