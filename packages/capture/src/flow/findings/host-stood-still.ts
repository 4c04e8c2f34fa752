/** A host answered nothing for a while, and then every copy. */
import { counted, formatDuration } from '../../units.ts';
import { event } from './chain.ts';
import { psnOf, RECOVERED, theResponder } from './recovery-row.ts';
import { rule } from './rule.ts';

export const hostStoodStill = rule({
  kinds: [
    {
      kind: 'host-stood-still',
      title: 'Host stood still',
      when: 'a host answered nothing for a while, and then every copy',
    },
  ],
  recovery: {
    reason: 'stood-still',
    kind: 'host-stood-still',
    culprit: theResponder,
    certainty: () => 'likely',
    text: ({ responder, shown, nothingLost }) =>
      `${responder} stood still for ${formatDuration(shown.silence)}; it answered everything afterwards${nothingLost}.`,
    chain: ({ shown, requester, responder }) => [
      ...event(shown.sentFrame, `${requester} sends ${psnOf(shown)}; nothing comes from ${responder}`),
      ...event(shown.frame, `${requester} sends it again (${counted(shown.recoveries, 'retransmission')})`),
      ...event(shown.answerFrame, `${responder} answers after ${formatDuration(shown.silence)}`),
      ...event(
        shown.lastAnswerFrame,
        `${counted(shown.repeated + 1, 'answer')} to ${counted(shown.packets + 1, 'copy', 'copies')}: all had arrived`,
      ),
    ],
    explains: [...RECOVERED, 'ghost-acks'],
    finding: ({ shown }) => ({
      statement: `the responder answered nothing for ${formatDuration(shown.silence)}, and then every copy: it stood still, or the path held the packets`,
      hint: 'Look at the host: its scheduler, a debugger, a virtual machine that was paused, memory pressure. No packet was lost.',
    }),
  },
});
