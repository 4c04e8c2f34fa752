/** The receiver had no receive posted. */
import { counted, formatDuration } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { event } from './chain.ts';
import { psnOf, RECOVERED, sent, theResponder } from './recovery-row.ts';
import { finding, moment, rule, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'rnr'>[] {
  const { direction } = subject;
  const events = direction.peer?.record.events.get('rnr-nak');
  if (events === undefined) return [];
  const waits = direction.requester?.rnrWait.result();
  const waited =
    waits === undefined
      ? ''
      : `; the requester waited ${formatDuration(waits.mean * waits.count)} in total, ${formatDuration(waits.max)} at most`;
  return [
    finding(
      subject,
      events,
      'rnr',
      'warning',
      `${counted(events.count, 'RNR NAK')}, the first ${moment(events.start)}: the receiver had no receive posted${waited}`,
      'Post more receives, or earlier (an SRQ with a limit event helps); min_rnr_timer of the receiver sets the wait.',
    ),
  ];
}

export const rnr = rule({
  kinds: [{ kind: 'rnr', title: 'Receiver not ready', when: 'the receiver had no receive posted' }],
  find,
  recovery: {
    reason: 'not-ready',
    kind: 'rnr',
    culprit: theResponder,
    text: ({ direction, recoveries, requester, responder, nothingLost }) => {
      const waits = direction.requester?.rnrWait.result();
      const waited =
        waits === undefined ? '' : `; ${requester} waited ${formatDuration(waits.mean * waits.count)}`;
      return `${responder} had no receive posted ${counted(recoveries.length, 'time')} (RNR)${waited}${nothingLost}.`;
    },
    chain: (telling) => {
      // The episode may have begun with a timeout: the events are those of its recovery that an RNR NAK asked for, or of a sequence NAK
      // behind an RNR NAK.
      const { shown } = telling;
      const own = telling.recoveries.find(({ cause, episode }) => cause === 'rnr' && episode === shown);
      const naks = telling.direction.peer?.record.events.get('rnr-nak')?.frames ?? [];
      const nak = own?.evidence ?? naks.find((frame) => frame > shown.sentFrame);
      return [
        ...sent(telling),
        ...event(nak, `${telling.responder} has no receive posted (RNR NAK)`),
        ...event(
          own?.frame ?? shown.frame,
          `${telling.requester} sends ${psnOf(shown)} again after the wait`,
        ),
        ...event(shown.answerFrame, `${telling.responder} answers`),
      ];
    },
    explains: [...RECOVERED, 'rnr'],
  },
});
