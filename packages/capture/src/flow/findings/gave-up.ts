/** The last request was never answered, or refused as not ready each time. */
import { counted, formatPsn } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import type { LastFailure } from '../track/last-failure.ts';
import type { UnnumberedMessage } from '../track/messages.ts';
import { event, inOrder } from './chain.ts';
import {
  ALL_SAID,
  type AllSaid,
  type Cause,
  moment,
  ofSubject,
  Rank,
  rule,
  Stage,
  type Subject,
} from './rule.ts';

type GaveUp = LastFailure['failure'];

const LAST_HINTS: Readonly<Record<LastFailure['failure'], string>> = {
  'rnr-retries-exceeded':
    'The receiver posts too few receives, or too late: post more, or raise rnr_retry (7 means no limit) and min_rnr_timer.',
  'retries-exceeded':
    'Does the peer get the packets (ping, UDP port 4791, PFC, path MTU), and is its queue pair in RTR or RTS with the same addresses, QPNs and PSNs?',
};

const nameOf = ({ operation, firstPsn }: UnnumberedMessage): string =>
  `${operation} (PSN ${formatPsn(firstPsn)})`;

/** `sent 4 times and refused with RNR NAK each time`. */
function refusals({ sends, rnrNaks }: LastFailure): string {
  const refused = rnrNaks === sends ? 'RNR NAK each time' : counted(rnrNaks, 'RNR NAK');
  return `sent ${counted(sends, 'time')} and refused with ${refused}`;
}

function find(subject: Subject): FindingOf<GaveUp>[] {
  const { direction } = subject;
  const { peer } = direction;
  const lastFailure = direction.ended.failure;
  const last = lastFailure && direction.requester?.messages.endedBy(lastFailure.failure);
  if (last === undefined || lastFailure === undefined) return [];
  const { failure, isShown } = lastFailure;
  const hint = isShown
    ? ''
    : 'The capture ends before another retry was due: the requester may have gone on. ';
  const packets = counted(last.retransmitted + last.packets, 'packet');
  const answer =
    peer === undefined ? 'has no answer in the capture, which shows one direction' : 'was never answered';
  return [
    ofSubject(
      subject,
      failure,
      'error',
      failure === 'rnr-retries-exceeded'
        ? `${nameOf(last)} was ${refusals(lastFailure)}; the last ${moment(last.end)}`
        : `${nameOf(last)} ${answer}: ${packets} sent for it, the last ${moment(last.end)}`,
      hint + LAST_HINTS[failure],
      {
        start: last.start,
        end: last.end,
        frames: [last.firstFrame, last.lastFrame],
        frameCount: last.retransmitted + last.packets,
      },
    ),
  ];
}

const wordsOf = ({ operation }: UnnumberedMessage): string =>
  operation.replaceAll('_', ' ').replace('RDMA ', '');

function causes(subject: Subject): Cause<GaveUp, AllSaid | 'rnr'>[] {
  const {
    ended: { failure: lastFailure },
    peer,
    requester: tracker,
  } = subject.direction;
  const last = lastFailure && tracker?.messages.endedBy(lastFailure.failure);
  if (lastFailure === undefined || last === undefined) return [];
  const { requester, responder } = subject;
  const { sends, rnrNaks, failure, isShown, isCertain } = lastFailure;
  const given = isShown ? `; ${requester} gave up` : '';
  // Its host is there, and the way to it: only this queue pair is silent. One that was heard before the last copy alone may have crashed since.
  const isThere = subject.capture.heardAt(subject.direction.key.destination) > last.end;
  const alive = isThere ? '; its host still sends' : '';
  const chain = [
    ...event(last.firstFrame, `${requester} sends ${wordsOf(last)} (PSN ${formatPsn(last.firstPsn)})`),
    ...event(last.lastFrame, `${requester} sends it for the last time, ${counted(sends, 'time')} in all`),
  ];
  const base = { severity: 'error', rank: Rank.ENDS, weight: 0, chain, explains: ALL_SAID } as const;
  if (failure === 'rnr-retries-exceeded') {
    const text = `${responder} posted no receive: it refused ${wordsOf(last)} ${counted(rnrNaks, 'time')} (RNR)${given}.`;
    const naks = peer?.record.events.get('rnr-nak')?.frames.at(-1);
    return [
      {
        ...base,
        kind: failure,
        certainty: isCertain ? 'certain' : 'likely',
        text,
        culprit: responder,
        chain: [...chain, ...event(naks, `${responder} has no receive posted (RNR NAK)`)],
        explains: [...ALL_SAID, 'rnr'],
      },
    ];
  }
  if (peer === undefined || peer.counts.packets === 0) {
    const text = `${responder} sent no answer that was captured: ${requester} sent ${counted(sends, 'copy', 'copies')}${given}${isThere ? alive : '; the capture shows one direction only'}.`;
    return [{ ...base, kind: failure, certainty: 'likely', text, culprit: responder }];
  }
  const answered = tracker?.hasProgress === true || peer.counts.responses > 0;
  const since = answered
    ? `stopped answering ${requester} ${moment(peer.span.end)}`
    : `never answered ${requester}`;
  return [
    {
      ...base,
      kind: failure,
      // A cut wire looks the same.
      certainty: 'likely',
      text: `${responder} ${since}: ${counted(sends, 'copy', 'copies')} unanswered${given}${alive}.`,
      culprit: responder,
      chain: inOrder([
        ...event(answered ? peer.span.lastFrame : 0, `the last packet of ${responder}`),
        ...chain,
      ]),
    },
  ];
}

export const gaveUp = rule({
  kinds: [
    {
      kind: 'retries-exceeded',
      title: 'Never answered',
      when: 'the last request was retransmitted and never answered',
    },
    {
      kind: 'rnr-retries-exceeded',
      title: 'Receiver never ready',
      when: 'the last request was refused with RNR NAK each time',
    },
  ],
  find,
  stage: Stage.END,
  cause: causes,
});
