/** A packet, or the answer to it, was lost and retransmitted. */
import type { Episode } from '../track/episodes.ts';
import { certaintyOf, event } from './chain.ts';
import { closed, network, RECOVERED, sent, type Telling } from './recovery-row.ts';
import { rule } from './rule.ts';

/** Whether the packets were lost behind the capture point, and where, in words; no words: not known. */
function placeOf(
  { missing, side }: Episode,
  requester: string,
  responder: string,
): [isBehind: boolean, where: string] {
  if (side === 'unknown') return [true, ''];
  const isAnswer = missing === 'response';
  const near = side === 'requester' ? requester : responder;
  const isBefore = isAnswer ? side === 'responder' : side === 'requester';
  return isBefore
    ? [false, `from ${near} to the capture point`]
    : [true, `from the capture point to ${near}`];
}

/** Packets, answers, or either, and the ways in which they may have got lost: behind the capture point, all look the same. */
function lossOf({
  recoveries,
  shown,
  requester,
  responder,
}: Telling): [what: string, where: string, fate: string] {
  const kinds = new Set(recoveries.map(({ missing }) => missing));
  const [only] = kinds;
  const isOne = kinds.size === 1 && only !== 'either' && only !== 'unknown';
  const what = isOne ? (only === 'response' ? 'answers' : 'packets') : 'packets or answers';
  const [isBehind, where] = placeOf(shown, requester, responder);
  const fate = where === '' ? 'lost or delayed' : isBehind ? 'lost, damaged or delayed' : 'lost';
  return [what, where || `between ${requester} and ${responder}`, fate];
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
    certainty: ({ shown }) =>
      shown.side === 'unknown' || shown.missing === 'either' ? 'likely' : certaintyOf(shown.grade),
    text: (telling) => {
      const [what, where, fate] = lossOf(telling);
      return `The path ${where} ${fate} ${what}; this explains ${telling.share}.`;
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
      const [what, , fate] = lossOf(telling);
      const [, where] = placeOf(telling.shown, 'the requester', 'the responder');
      return {
        statement: `the path ${where || 'between both ends'} ${fate} ${what}: ${telling.share}`,
        hint: 'Look at drops in switches and NICs between them: buffers, PFC, ECN, and paths that reorder behind the capture point.',
      };
    },
    explains: RECOVERED,
  },
});
