/** Causes of recoveries: damage, loss, reordering, needless repeats, a host that stood still. */
import { counted, formatDuration, formatPsn } from '../../units.ts';
import type { ChainEvent, EpisodeReason } from '../analysis.ts';
import type { FindingKind } from '../findings/kinds.ts';
import type { OpenRecovery } from '../record/recoveries.ts';
import type { Direction } from '../track/direction.ts';
import type { Episode } from '../track/episodes.ts';
import { type Cause, type Context, certaintyOf, endsOf, event, findingOf, Rank } from './cause.ts';

const EXPLAINED: readonly FindingKind[] = ['retransmissions', 'stalls'];

/** The recoveries of a direction with one reason, and the episode that shows it best. */
interface Group {
  direction: Direction;
  reason: EpisodeReason;
  recoveries: OpenRecovery[];
  shown: Episode;
  isCertain: boolean;
}

const reasonOf = ({ damaged, episode }: OpenRecovery): EpisodeReason =>
  damaged === undefined ? (episode?.judge().reason ?? 'not-known') : 'damaged';

function groupsOf(direction: Direction): Map<EpisodeReason, Group> {
  const groups = new Map<EpisodeReason, Group>();
  for (const recovery of direction.recoveries.kept) {
    const { episode } = recovery;
    if (episode === undefined) continue;
    const reason = reasonOf(recovery);
    const isCertain = episode.judge().certainty === 'certain';
    const group = groups.get(reason) ?? {
      direction,
      reason,
      recoveries: [],
      shown: episode,
      isCertain: false,
    };
    group.recoveries.push(recovery);
    // The clearest one is shown: certain, and with the longest silence of those.
    if ((isCertain && !group.isCertain) || (isCertain === group.isCertain && isClearer(episode, group.shown)))
      group.shown = episode;
    group.isCertain ||= isCertain;
    groups.set(reason, group);
  }
  return groups;
}

const isClearer = (one: Episode, other: Episode): boolean =>
  one.judge().reason === 'stood-still' && one.silence > other.silence;

/** The causes of one direction's recoveries. */
export function recoveryCauses(context: Context): Cause[] {
  return context.directions.flatMap((direction) => {
    const groups = groupsOf(direction);
    const total = direction.recoveries.kept.length;
    const isUnchecked = direction.counts.icrcUnchecked + (direction.peer?.counts.icrcUnchecked ?? 0) > 0;
    return [...groups.values()].flatMap((group) => {
      const make = MAKERS[group.reason];
      if (make === undefined) return [];
      const cause = make(context, group, total);
      // Packets whose ICRC was not checked may be damaged: their PSNs prove nothing.
      if (cause.certainty === 'certain' && isUnchecked) cause.certainty = 'likely';
      return [cause];
    });
  });
}

const framesOf = ({ recoveries }: Group): number[] => recoveries.map(({ frame }) => frame);

/** `all 4 recoveries`, `3 of 5 recoveries`. */
const shareOf = ({ recoveries: { length } }: Group, total: number): string =>
  length === total
    ? total === 1
      ? '1 recovery'
      : `all ${total} recoveries`
    : `${length} of ${total} recoveries`;

const psnOf = ({ psn }: Episode): string => `PSN ${formatPsn(psn & 0xff_ffff)}`;

/** The NAK, the retransmission and its answer: how a chain ends. */
function closing(episode: Episode, requester: string, responder: string): ChainEvent[] {
  const { cause, evidenceFrame, frame, answerFrame } = episode;
  return [
    ...(cause === 'sequence-nak'
      ? event(evidenceFrame, `${responder} asks for ${psnOf(episode)} again (sequence NAK)`)
      : cause === 'implied-nak'
        ? event(evidenceFrame, `a later response shows that ${psnOf(episode)} is missing`)
        : []),
    ...event(
      frame,
      `${requester} sends ${psnOf(episode)} again${cause === 'timeout' ? ' (ACK timeout)' : ''}`,
    ),
    ...event(answerFrame, `${responder} answers`),
  ];
}

type Maker = (context: Context, group: Group, total: number) => Cause;

const damaged: Maker = (context, group, total) => {
  const { direction, recoveries, shown } = group;
  const { requester, responder } = endsOf(context, direction);
  const frames = recoveries.flatMap(({ damaged: frame }) => frame ?? []);
  const isAnswer = shown.missing === 'response' && shown.cause !== 'sequence-nak';
  const [from, to] = isAnswer ? [responder, requester] : [requester, responder];
  const share = shareOf(group, total);
  return {
    kind: 'damaged-on-the-way',
    severity: 'warning',
    rank: Rank.COSTS,
    weight: recoveries.length,
    certainty: group.isCertain ? 'certain' : 'likely',
    text: `The network damaged packets from ${from} to ${to} (wrong ICRC); this explains ${share}.`,
    culprit: 'network',
    chain: [
      ...event(shown.damagedFrame, `${psnOf(shown)} is damaged: wrong ICRC, the receiver drops it`),
      ...closing(shown, requester, responder),
    ],
    explains: [...EXPLAINED, 'icrc-bad'],
    finding: findingOf(
      context,
      direction,
      `${counted(frames.length, 'packet')} with a wrong ICRC made ${share} necessary: the receiver dropped them, and the requester sent them again`,
      'Look at CRC errors and FEC counters of the links and NICs on the way: cables, transceivers, switch memory.',
      frames,
    ),
  };
};

const reordered: Maker = (context, group, total) => {
  const { direction, recoveries, shown } = group;
  const { requester, responder } = endsOf(context, direction);
  const isAll = recoveries.length === total;
  return {
    kind: 'reordering',
    severity: 'warning',
    rank: Rank.COSTS,
    weight: recoveries.length,
    certainty: group.isCertain ? 'certain' : 'likely',
    text: `The network reordered packets from ${requester} to ${responder}; this explains ${shareOf(group, total)}${isAll ? '; nothing was lost' : ''}.`,
    culprit: 'network',
    chain: inOrder([
      ...event(shown.lateFrame, `${psnOf(shown)} arrives behind packets that were sent after it`),
      ...event(shown.sentFrame, `${requester} sends ${psnOf(shown)}`),
      ...closing(shown, requester, responder),
    ]),
    explains: EXPLAINED,
  };
};

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

const lost: Maker = (context, group, total) => {
  const { direction, recoveries, shown } = group;
  const { requester, responder } = endsOf(context, direction);
  const kinds = new Set(recoveries.map(({ missing }) => missing));
  const [only] = kinds;
  const isOne = kinds.size === 1 && only !== 'either' && only !== 'unknown';
  const what = isOne ? (only === 'response' ? 'answers' : 'packets') : 'packets or answers';
  const [isBehind, where] = placeOf(shown, requester, responder);
  const place = where || `between ${requester} and ${responder}`;
  // Behind the capture point damage, and packets that come late, look the same.
  const fate = where === '' ? 'lost or delayed' : isBehind ? 'lost, damaged or delayed' : 'lost';
  return {
    kind: 'packets-lost',
    severity: 'warning',
    rank: Rank.COSTS,
    weight: recoveries.length,
    certainty: shown.side === 'unknown' || shown.missing === 'either' ? 'likely' : certaintyOf(shown.grade),
    text: `The path ${place} ${fate} ${what}; this explains ${shareOf(group, total)}.`,
    culprit: 'network',
    chain: inOrder([
      ...event(shown.sentFrame, `${requester} sends ${psnOf(shown)}`),
      ...event(shown.answeredFrame, `${responder} answers, and ${requester} does not get the answer in time`),
      ...closing(shown, requester, responder),
    ]),
    explains: EXPLAINED,
    finding: findingOf(
      context,
      direction,
      `the path ${placeOf(shown, 'the requester', 'the responder')[1] || 'between both ends'} ${fate} ${what}: ${shareOf(group, total)}`,
      'Look at drops in switches and NICs between them: buffers, PFC, ECN, and paths that reorder behind the capture point.',
      framesOf(group),
    ),
  };
};

const spurious: Maker = (context, group, total) => {
  const { direction, recoveries, shown } = group;
  const { requester, responder } = endsOf(context, direction);
  const isAll = recoveries.length === total;
  return {
    kind: 'spurious-retransmission',
    severity: 'warning',
    rank: Rank.COSTS,
    weight: recoveries.length,
    certainty: group.isCertain ? 'certain' : 'likely',
    text: `${requester} retransmitted packets that ${responder} had: answers came late; ${shareOf(group, total)}${isAll ? '; nothing was lost' : ''}.`,
    culprit: responder,
    chain: inOrder([
      ...event(shown.sentFrame, `${requester} sends ${psnOf(shown)}`),
      ...event(shown.answeredFrame, `${responder} answers`),
      ...closing(shown, requester, responder),
      ...event(
        shown.repeated > 0 ? shown.lastAnswerFrame : 0,
        `${responder} answers the other copy, too: both arrived`,
      ),
    ]),
    explains: [...EXPLAINED, 'ghost-acks'],
    finding: findingOf(
      context,
      direction,
      `${counted(recoveries.length, 'recovery', 'recoveries')} for packets that had arrived: the ACK timeout is shorter than the answer takes`,
      'Raise the ACK timeout of the requester, or find out why the responder answers late.',
      framesOf(group),
    ),
  };
};

const stoodStill: Maker = (context, group, total) => {
  const { direction, recoveries, shown } = group;
  const { requester, responder } = endsOf(context, direction);
  const silence = formatDuration(shown.silence);
  const copies = shown.packets + 1;
  const isAll = recoveries.length === total;
  return {
    kind: 'host-stood-still',
    severity: 'warning',
    rank: Rank.COSTS,
    weight: recoveries.length,
    certainty: 'likely',
    text: `${responder} stood still for ${silence}; it answered everything afterwards${isAll ? '; nothing was lost' : ''}.`,
    culprit: responder,
    chain: inOrder([
      ...event(shown.sentFrame, `${requester} sends ${psnOf(shown)}; nothing comes from ${responder}`),
      ...event(shown.frame, `${requester} sends it again (${counted(shown.recoveries, 'retransmission')})`),
      ...event(shown.answerFrame, `${responder} answers after ${silence}`),
      ...event(
        shown.lastAnswerFrame,
        `${counted(shown.repeated + 1, 'answer')} to ${counted(copies, 'copy', 'copies')}: all had arrived`,
      ),
    ]),
    explains: [...EXPLAINED, 'ghost-acks'],
    finding: findingOf(
      context,
      direction,
      `the responder answered nothing for ${silence}, and then every copy: it stood still, or the path held the packets`,
      'Look at the host: its scheduler, a debugger, a virtual machine that was paused, memory pressure. No packet was lost.',
      framesOf(group),
    ),
  };
};

const notReady: Maker = (context, { direction, recoveries, shown }, total) => {
  const { requester, responder } = endsOf(context, direction);
  const waits = direction.requester?.rnrWait.result();
  const waited =
    waits === undefined ? '' : `; ${requester} waited ${formatDuration(waits.mean * waits.count)}`;
  const isAll = recoveries.length === total ? '; nothing was lost' : '';
  return {
    kind: 'rnr',
    severity: 'warning',
    rank: Rank.COSTS,
    weight: recoveries.length,
    certainty: 'certain',
    text: `${responder} had no receive posted ${counted(recoveries.length, 'time')} (RNR)${waited}${isAll}.`,
    culprit: responder,
    chain: inOrder([
      ...event(shown.sentFrame, `${requester} sends ${psnOf(shown)}`),
      ...event(shown.evidenceFrame, `${responder} has no receive posted (RNR NAK)`),
      ...event(shown.frame, `${requester} sends ${psnOf(shown)} again after the wait`),
      ...event(shown.answerFrame, `${responder} answers`),
    ]),
    explains: [...EXPLAINED, 'rnr'],
  };
};

/** Causes of recoveries by their reason; the other reasons give none. */
const MAKERS: Partial<Record<EpisodeReason, Maker>> = {
  damaged,
  reordered,
  lost,
  spurious,
  'stood-still': stoodStill,
  'not-ready': notReady,
};

function inOrder(events: ChainEvent[]): ChainEvent[] {
  const seen = new Set<number>();
  return events
    .filter(({ frame }) => frame !== undefined && !seen.has(frame) && seen.add(frame))
    .sort((x, y) => x.frame! - y.frame!);
}
