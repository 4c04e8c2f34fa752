/** The receiver missed a packet that came with a wrong ICRC. */
import { counted } from '../../units.ts';
import { event } from './chain.ts';
import { closed, network, ofThemCertain, pathOf, psnOf, RECOVERED, textOfShare } from './recovery-row.ts';
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
    isOfBoth: true,
    text: (telling) =>
      `The ${pathOf(telling, true, ({ damaged }) => damaged !== undefined)} damaged packets (wrong ICRC); this explains ${textOfShare(telling.share)}.`,
    chain: (telling) => [
      ...event(
        telling.shown.damagedFrame || telling.recoveries[0].damaged,
        `${psnOf(telling.shown)} is damaged: wrong ICRC, the receiver drops it`,
      ),
      ...closed(telling),
    ],
    explains: [...RECOVERED, 'icrc-bad'],
    finding: (telling) => {
      const { recoveries, share, certain } = telling;
      const frames = recoveries.flatMap(({ damaged }) => damaged ?? []);
      return {
        statement: `${counted(frames.length, 'packet')} with a wrong ICRC made ${textOfShare(share)} necessary${ofThemCertain(certain, telling)}: the receiver dropped them, and the requester sent them again`,
        hint: 'Look at CRC errors and FEC counters of the links and NICs on the way: cables, transceivers, switch memory.',
        frames,
      };
    },
  },
});
