/** Causes of recoveries: damage, loss, reordering, needless repeats, a host that stood still. */
import { counted, formatDuration, formatPsn } from '../../units.ts';
import type { Certainty, ChainEvent, EpisodeReason } from '../analysis.ts';
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
  for (const recovery of direction.record.recoveries.kept) {
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
    const total = direction.record.recoveries.kept.length;
    const isUnchecked = direction.counts.icrcUnchecked + (direction.peer?.counts.icrcUnchecked ?? 0) > 0;
    return [...groups.values()].flatMap((group) => {
      const row = ROWS[group.reason];
      if (row === undefined) return [];
      const cause = causeOf(row, tellingOf(context, group, total));
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

/** A group with what texts about it need. */
interface Telling extends Group {
  context: Context;
  requester: string;
  responder: string;
  /** `3 of 5 recoveries`. */
  share: string;
  /** `; nothing was lost`, where the group has all recoveries. */
  nothingLost: string;
}

const tellingOf = (context: Context, group: Group, total: number): Telling => ({
  ...group,
  ...endsOf(context, group.direction),
  context,
  share: shareOf(group, total),
  nothingLost: group.recoveries.length === total ? '; nothing was lost' : '',
});

/** The verdict of a reason in words, and its proof. */
interface Row {
  kind: FindingKind;
  /** The address at fault, or the network. */
  culprit: (telling: Telling) => string;
  /** Unless given: certain, if an episode of the group is. */
  certainty?: (telling: Telling) => Certainty;
  text: (telling: Telling) => string;
  /** In any order, without those that the capture has no frame of. */
  chain: (telling: Telling) => ChainEvent[];
  /** Kinds of findings that it explains, in addition to those of all recoveries. */
  explains?: readonly FindingKind[];
  /** The finding, where no other part makes it. */
  finding?: (telling: Telling) => { statement: string; hint: string; frames?: readonly number[] };
}

function causeOf(row: Row, telling: Telling): Cause {
  const { context, direction, recoveries, isCertain } = telling;
  const found = row.finding?.(telling);
  return {
    kind: row.kind,
    severity: 'warning',
    rank: Rank.COSTS,
    weight: recoveries.length,
    certainty: row.certainty?.(telling) ?? (isCertain ? 'certain' : 'likely'),
    text: row.text(telling),
    culprit: row.culprit(telling),
    chain: inOrder(row.chain(telling)),
    explains: [...EXPLAINED, ...(row.explains ?? [])],
    finding:
      found && findingOf(context, direction, found.statement, found.hint, found.frames ?? framesOf(telling)),
  };
}

const network = (): string => 'network';
const theResponder = ({ responder }: Telling): string => responder;

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

const sent = ({ shown, requester }: Telling): ChainEvent[] =>
  event(shown.sentFrame, `${requester} sends ${psnOf(shown)}`);
const closed = ({ shown, requester, responder }: Telling): ChainEvent[] =>
  closing(shown, requester, responder);

/** Causes of recoveries by their reason; the other reasons give none. */
const ROWS: Partial<Record<EpisodeReason, Row>> = {
  damaged: {
    kind: 'damaged-on-the-way',
    culprit: network,
    text: ({ shown, requester, responder, share }) => {
      const isAnswer = shown.missing === 'response' && shown.cause !== 'sequence-nak';
      const [from, to] = isAnswer ? [responder, requester] : [requester, responder];
      return `The network damaged packets from ${from} to ${to} (wrong ICRC); this explains ${share}.`;
    },
    chain: (telling) => [
      ...event(
        telling.shown.damagedFrame,
        `${psnOf(telling.shown)} is damaged: wrong ICRC, the receiver drops it`,
      ),
      ...closed(telling),
    ],
    explains: ['icrc-bad'],
    finding: ({ recoveries, share }) => {
      const frames = recoveries.flatMap(({ damaged }) => damaged ?? []);
      return {
        statement: `${counted(frames.length, 'packet')} with a wrong ICRC made ${share} necessary: the receiver dropped them, and the requester sent them again`,
        hint: 'Look at CRC errors and FEC counters of the links and NICs on the way: cables, transceivers, switch memory.',
        frames,
      };
    },
  },
  reordered: {
    kind: 'reordering',
    culprit: network,
    text: ({ requester, responder, share, nothingLost }) =>
      `The network reordered packets from ${requester} to ${responder}; this explains ${share}${nothingLost}.`,
    chain: (telling) => [
      ...event(
        telling.shown.lateFrame,
        `${psnOf(telling.shown)} arrives behind packets that were sent after it`,
      ),
      ...sent(telling),
      ...closed(telling),
    ],
  },
  lost: {
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
  },
  spurious: {
    kind: 'spurious-retransmission',
    culprit: theResponder,
    text: ({ requester, responder, share, nothingLost }) =>
      `${requester} retransmitted packets that ${responder} had: answers came late; ${share}${nothingLost}.`,
    chain: (telling) => [
      ...sent(telling),
      ...event(telling.shown.answeredFrame, `${telling.responder} answers`),
      ...closed(telling),
      ...event(
        telling.shown.repeated > 0 ? telling.shown.lastAnswerFrame : 0,
        `${telling.responder} answers the other copy, too: both arrived`,
      ),
    ],
    explains: ['ghost-acks'],
    finding: ({ recoveries }) => ({
      statement: `${counted(recoveries.length, 'recovery', 'recoveries')} for packets that had arrived: the ACK timeout is shorter than the answer takes`,
      hint: 'Raise the ACK timeout of the requester, or find out why the responder answers late.',
    }),
  },
  'stood-still': {
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
    explains: ['ghost-acks'],
    finding: ({ shown }) => ({
      statement: `the responder answered nothing for ${formatDuration(shown.silence)}, and then every copy: it stood still, or the path held the packets`,
      hint: 'Look at the host: its scheduler, a debugger, a virtual machine that was paused, memory pressure. No packet was lost.',
    }),
  },
  'not-ready': {
    kind: 'rnr',
    culprit: theResponder,
    certainty: () => 'certain',
    text: ({ direction, recoveries, requester, responder, nothingLost }) => {
      const waits = direction.requester?.rnrWait.result();
      const waited =
        waits === undefined ? '' : `; ${requester} waited ${formatDuration(waits.mean * waits.count)}`;
      return `${responder} had no receive posted ${counted(recoveries.length, 'time')} (RNR)${waited}${nothingLost}.`;
    },
    chain: (telling) => [
      ...sent(telling),
      ...event(telling.shown.evidenceFrame, `${telling.responder} has no receive posted (RNR NAK)`),
      ...event(
        telling.shown.frame,
        `${telling.requester} sends ${psnOf(telling.shown)} again after the wait`,
      ),
      ...event(telling.shown.answerFrame, `${telling.responder} answers`),
    ],
    explains: ['rnr'],
  },
};

function inOrder(events: ChainEvent[]): ChainEvent[] {
  const seen = new Set<number>();
  return events
    .filter(({ frame }) => frame !== undefined && !seen.has(frame) && seen.add(frame))
    .sort((x, y) => x.frame! - y.frame!);
}
