/** The receiver missed a packet that came with a wrong ICRC. */
import { counted } from '../../units.ts';
import { event } from './chain.ts';
import { closed, network, ofThemCertain, psnOf, RECOVERED } from './recovery-row.ts';
import { rule } from './rule.ts';

export const damagedOnTheWay = rule({
  kinds: [
    {
      kind: 'damaged-on-the-way',
      title: 'Packets damaged on the way',
      when: 'the receiver missed a packet that came with a wrong ICRC, and the requester retransmitted it',
    },
  ],
  recovery: {
    reason: 'damaged',
    kind: 'damaged-on-the-way',
    culprit: network,
    text: ({ shown, requester, responder, whoseShare }) => {
      const isAnswer = shown.missing === 'response' && shown.cause !== 'sequence-nak';
      const [from, to] = isAnswer ? [responder, requester] : [requester, responder];
      return `The network damaged packets from ${from} to ${to} (wrong ICRC); this explains ${whoseShare}.`;
    },
    chain: (telling) => [
      ...event(
        telling.shown.damagedFrame,
        `${psnOf(telling.shown)} is damaged: wrong ICRC, the receiver drops it`,
      ),
      ...closed(telling),
    ],
    explains: [...RECOVERED, 'icrc-bad'],
    finding: (telling) => {
      const { recoveries, share, certain } = telling;
      const frames = recoveries.flatMap(({ damaged }) => damaged ?? []);
      return {
        statement: `${counted(frames.length, 'packet')} with a wrong ICRC made ${share} necessary${ofThemCertain(certain, telling)}: the receiver dropped them, and the requester sent them again`,
        hint: 'Look at CRC errors and FEC counters of the links and NICs on the way: cables, transceivers, switch memory.',
        frames,
      };
    },
  },
});
