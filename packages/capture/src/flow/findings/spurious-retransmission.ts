/** Packets were retransmitted that had arrived. */
import { counted } from '../../units.ts';
import { event } from './chain.ts';
import { closed, ofThemCertain, RECOVERED, sent, textOfShare, theResponder } from './recovery-row.ts';
import { rule } from './rule.ts';

export const spuriousRetransmission = rule({
  kinds: [
    {
      kind: 'spurious-retransmission',
      title: 'Needless retransmissions',
      when: 'packets were retransmitted that had arrived: their answers came before, or came twice',
    },
  ],
  recovery: {
    reason: 'spurious',
    kind: 'spurious-retransmission',
    culprit: theResponder,
    text: ({ requester, responder, share, nothingLost }) =>
      `${requester} retransmitted packets that ${responder} had: answers came late; ${textOfShare(share)}${nothingLost}.`,
    chain: (telling) => [
      ...sent(telling),
      ...event(telling.shown.answeredFrame, `${telling.responder} answers`),
      ...closed(telling),
      ...event(
        telling.shown.repeated > 0 ? telling.shown.lastAnswerFrame : 0,
        `${telling.responder} answers the other copy, too: both arrived`,
      ),
    ],
    explains: [...RECOVERED, 'ghost-acks'],
    finding: (telling) => ({
      statement: `${counted(telling.recoveries.length, 'recovery', 'recoveries')} for packets that had arrived${ofThemCertain(telling.certain, telling)}: the ACK timeout is shorter than the answer takes`,
      hint: 'Raise the ACK timeout of the requester, or find out why the responder answers late.',
    }),
  },
});
