/** Causes that ended a connection: refused, never answered, never ready, stopped. */
import { counted, formatDuration, formatPsn } from '../../units.ts';
import type { Message } from '../analysis.ts';
import { moment } from '../findings/finding.ts';
import type { FatalNakName, FindingKind } from '../findings/kinds.ts';
import type { Direction } from '../track/direction.ts';
import { type Cause, type Context, endsOf, event, findingOf, Rank } from './cause.ts';

const ALL_SAID: readonly FindingKind[] = ['stalls', 'retransmissions', 'one-direction'];
/** A requester that sends nothing for so long inside a message has stopped; ns. */
const STOPPED = 1e9;

const FATAL: Readonly<Record<FatalNakName, (requester: string, responder: string, what: string) => string>> =
  {
    'invalid-request': (a, b, what) =>
      `${b} refused ${what} of ${a} as an invalid request; the connection ended.`,
    'remote-access-error': (a, b, what) =>
      `${a} has no right to the memory at ${b} (${what}: remote access error); the connection ended.`,
    'remote-operational-error': (a, b, what) =>
      `${b} could not carry out ${what} of ${a} (remote operational error); the connection ended.`,
    'invalid-rd-request': (a, b) =>
      `${b} does not support Reliable Datagram; it refused the request of ${a}.`,
    'reserved-nak': (a, b, what) =>
      `${b} refused ${what} of ${a} with a reserved NAK code; the connection ended.`,
  };

export function endCauses(context: Context): Cause[] {
  return context.directions.flatMap((direction) => [
    ...refused(context, direction),
    ...unanswered(context, direction),
    ...stopped(context, direction),
  ]);
}

const nameOf = ({ operation }: Message): string => operation.replaceAll('_', ' ').replace('RDMA ', '');

function refused(context: Context, direction: Direction): Cause[] {
  const { connection } = context;
  const { requester, responder } = endsOf(context, direction);
  return (Object.keys(FATAL) as FatalNakName[]).flatMap((nak) => {
    const events = direction.peer?.record.events.get(`nak-${nak}`);
    if (events === undefined) return [];
    const failed = connection.messages.find(
      ({ failure, from }) => failure === nak && from === direction.from,
    );
    const what = failed === undefined ? 'a request' : `a ${nameOf(failed)}`;
    const psn = failed === undefined ? '' : ` (PSN ${formatPsn(failed.firstPsn)})`;
    return [
      {
        kind: `nak-${nak}`,
        severity: 'error',
        rank: Rank.ENDS,
        weight: 1,
        certainty: 'certain',
        text: FATAL[nak](requester, responder, what),
        culprit: nak === 'remote-operational-error' ? responder : requester,
        chain: [
          ...event(failed?.firstFrame, `${requester} sends ${what}${psn}`),
          ...event(events.frames[0], `${responder} refuses it: NAK ${nak.replaceAll('-', ' ')}`),
        ],
        explains: ALL_SAID,
      } satisfies Cause,
    ];
  });
}

function unanswered(context: Context, direction: Direction): Cause[] {
  const { connection } = context;
  const {
    ended: { failure: lastFailure },
    peer,
    requester: tracker,
  } = direction;
  const last = connection.messages.find(
    ({ failure, from }) =>
      from === direction.from && (failure === 'retries-exceeded' || failure === 'rnr-retries-exceeded'),
  );
  if (lastFailure === undefined || last === undefined) return [];
  const { requester, responder } = endsOf(context, direction);
  const { sends, rnrNaks, failure, isShown } = lastFailure;
  const given = isShown ? `; ${requester} gave up` : '';
  const chain = [
    ...event(last.firstFrame, `${requester} sends ${nameOf(last)} (PSN ${formatPsn(last.firstPsn)})`),
    ...event(last.lastFrame, `${requester} sends it for the last time, ${counted(sends, 'time')} in all`),
  ];
  const base = { severity: 'error', rank: Rank.ENDS, weight: 0, chain, explains: ALL_SAID } as const;
  if (failure === 'rnr-retries-exceeded') {
    const text = `${responder} posted no receive: it refused ${nameOf(last)} ${counted(rnrNaks, 'time')} (RNR)${given}.`;
    const naks = peer?.record.events.get('rnr-nak')?.frames.at(-1);
    return [
      {
        ...base,
        kind: failure,
        certainty: 'certain',
        text,
        culprit: responder,
        chain: [...chain, ...event(naks, `${responder} has no receive posted (RNR NAK)`)],
        explains: [...ALL_SAID, 'rnr'],
      },
    ];
  }
  if (peer === undefined || peer.counts.packets === 0) {
    const text = `${responder} did not answer ${requester}: ${counted(sends, 'copy', 'copies')}${given}; the capture shows one direction only.`;
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
      certainty: isShown ? 'certain' : 'likely',
      text: `${responder} ${since}: ${counted(sends, 'copy', 'copies')} unanswered${given}.`,
      culprit: responder,
      chain: [...event(answered ? peer.span.lastFrame : 0, `the last packet of ${responder}`), ...chain],
    },
  ];
}

/** rxe goes silent inside a message when an ACK for its last packet crosses a retransmission (docs/quirks.md). */
function stopped(context: Context, direction: Direction): Cause[] {
  const { requester: tracker, peer, connection: state } = direction;
  if (tracker === undefined || peer === undefined || !direction.reliable || direction.ended.isOver) return [];
  const { duration } = context.summary;
  const quiet = duration - Math.max(direction.span.end, peer.span.end);
  const timeout = tracker.classifier.ackTimeout;
  if (context.exchange?.isDisconnected === true || state.second === undefined) return [];
  if (quiet < Math.max(STOPPED, 8 * timeout)) return [];
  const crossing = tracker.stoppedInside;
  if (crossing === undefined) return [];
  const { requester, responder } = endsOf(context, direction);
  const { frame, answerFrame, lastFrame } = crossing;
  return [
    {
      kind: 'requester-stopped',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 0,
      certainty: 'likely',
      text: `${requester} stopped inside a message after an ACK crossed its retransmission; ${responder} had acknowledged everything.`,
      culprit: requester,
      chain: [
        ...event(frame, `${requester} sends packets again`),
        ...event(answerFrame, `${responder} had them, and acknowledges`),
        ...event(lastFrame, `the last packet of ${requester}; nothing follows for ${formatDuration(quiet)}`),
      ].sort((x, y) => x.frame! - y.frame!),
      explains: ALL_SAID,
      finding: findingOf(
        context,
        direction,
        `the last message is not complete, all of its packets are acknowledged, and nothing follows for ${formatDuration(quiet)}`,
        'A quirk of rxe: give its queue pairs a longer ACK timeout (perftest -u 18). A program that was killed looks the same.',
        [frame, answerFrame, lastFrame],
      ),
    },
  ];
}
