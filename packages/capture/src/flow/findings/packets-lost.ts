/** A packet, or the answer to it, was lost and retransmitted. */
import { event } from './chain.ts';
import { closed, network, ofThemCertain, RECOVERED, sent, type Telling } from './recovery-row.ts';
import { rule } from './rule.ts';

/** A verdict has no more. */
const MAX_WORDS = 20;

const ALIKE =
  'Loss, damage, reordering and delay look the same from here: a capture at the other end shows which it is.';
const DAMAGED =
  'Packets of this connection come to the capture point with a wrong ICRC: behind it they may be damaged, too.';

const DROPS =
  'Look at drops in switches and NICs between them: buffers, PFC, ECN, CRC errors, paths that reorder.';

/** A capture that goes on for so long after the last recovery would show a packet that was only delayed; ns. */
const LATEST = 100e6;

/** Packets that the text calls lost may still be on their way where the capture ends. */
const mayCome = (telling: Telling): boolean =>
  placeOf(telling, '', '')[1] === 'lost' &&
  telling.captureEnd - Math.max(...telling.recoveries.map(({ time }) => time)) < LATEST;

/** Recoveries for which the capture shows what was missing, and on which side. */
const proven = ({ recoveries }: Telling): number =>
  recoveries.filter(
    ({ side, missing, grade }) => side !== 'unknown' && missing !== 'either' && grade === 'certain',
  ).length;

/** Some packets of either direction, not all of one, have a wrong ICRC. */
const isDamagedHere = ({ direction }: Telling): boolean =>
  [direction.counts, direction.peer?.counts].some(
    (counts) => counts !== undefined && counts.icrcBad > counts.icrcTaken,
  );

/** Behind the capture point, or where the place is not known, the capture does not show which. */
const UNSEEN = 'lost, damaged, reordered or delayed';

/** Where packets were lost, and how they may have got lost: behind the capture point, all ways look the same. */
function placeOf({ recoveries, shown }: Telling, requester: string, responder: string): [string, string] {
  const both = `between ${requester} and ${responder}`;
  if (shown.side === 'unknown') return [both, UNSEEN];
  const known = recoveries.filter(({ side }) => side !== 'unknown');
  const isBehind = known.some(({ missing, side }) => (missing === 'response') === (side === 'requester'));
  const near = shown.side === 'requester' ? requester : responder;
  const isOnePlace = known.every(({ side }) => side === shown.side);
  return [isOnePlace ? `between ${near} and the capture point` : both, isBehind ? UNSEEN : 'lost'];
}

/** Requests, answers, or packets of either. */
function whatOf({ recoveries }: Telling): string {
  const kinds = new Set(recoveries.map(({ missing }) => missing));
  const [only] = kinds;
  const isOne = kinds.size === 1 && only !== 'either' && only !== 'unknown';
  return isOne ? (only === 'response' ? 'answers' : 'requests') : 'packets';
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
    text: (telling) => {
      const [where, fate] = placeOf(telling, telling.requester, telling.responder);
      const lost = `The path ${where} ${fate} ${whatOf(telling)}`;
      const text = `${lost}; this explains ${telling.whoseShare}.`;
      return text.split(' ').length <= MAX_WORDS ? text : `${lost} (${telling.whoseShare}).`;
    },
    chain: (telling) => [
      ...sent(telling),
      ...event(
        telling.shown.answeredFrame,
        `${telling.responder} answers, and ${telling.requester} does not get the answer in time`,
      ),
      ...closed(telling),
    ],
    finding: (telling) => {
      const [where, fate] = placeOf(telling, 'the requester', 'the responder');
      return {
        statement: `the path ${where} ${fate} ${whatOf(telling)}: ${telling.share}${ofThemCertain(proven(telling), telling)}`,
        hint: fate === 'lost' ? DROPS : `${DROPS} ${ALIKE}${isDamagedHere(telling) ? ` ${DAMAGED}` : ''}`,
      };
    },
    explains: RECOVERED,
  },
});
