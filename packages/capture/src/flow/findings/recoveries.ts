/** Causes of recoveries: the recoveries of a direction by their reason, each in the words of its rule. */
import type { EpisodeReason } from '../facts.ts';
import type { OpenRecovery } from '../record/recoveries.ts';
import type { Direction } from '../track/direction.ts';
import type { Episode } from '../track/episodes.ts';
import { inOrder } from './chain.ts';
import { type FindingKind, RULES } from './index.ts';
import type { RecoveryRow, Telling } from './recovery-row.ts';
import { type Cause, findingOf, Rank, type Subject } from './rule.ts';

type AnyCause = Cause<FindingKind, FindingKind>;
type AnyRow = RecoveryRow<FindingKind, FindingKind>;

const ROWS = new Map<EpisodeReason, AnyRow>(
  RULES.flatMap(({ recovery }) => (recovery === undefined ? [] : [[recovery.reason, recovery] as const])),
);

/** The recoveries of a direction with one reason, and the episode that shows it best. */
interface Group {
  direction: Direction;
  reason: EpisodeReason;
  recoveries: OpenRecovery[];
  shown: Episode;
  certain: number;
}

function groupsOf(direction: Direction): Map<EpisodeReason, Group> {
  const groups = new Map<EpisodeReason, Group>();
  for (const recovery of direction.record.recoveries.kept) {
    const { episode, cause, grade, missing, damaged } = recovery;
    if (episode === undefined) continue;
    const { reason: judged, certainty } = episode.judgeRecovery(cause, grade, missing);
    const reason = damaged === undefined ? judged : 'damaged';
    const isCertain = certainty === 'certain';
    const group = groups.get(reason) ?? {
      direction,
      reason,
      recoveries: [],
      shown: episode,
      certain: 0,
    };
    group.recoveries.push(recovery);
    // The clearest one is shown: certain, and with the longest silence of those.
    const hasCertain = group.certain > 0;
    if ((isCertain && !hasCertain) || (isCertain === hasCertain && isClearer(episode, group.shown)))
      group.shown = episode;
    if (isCertain) group.certain++;
    groups.set(reason, group);
  }
  return groups;
}

const isClearer = (one: Episode, other: Episode): boolean =>
  one.judge().reason === 'stood-still' && one.silence > other.silence;

/** The causes of one direction's recoveries. */
export function recoveryCauses(subject: Subject): AnyCause[] {
  const { direction } = subject;
  const total = direction.record.recoveries.kept.length;
  const isUnchecked = direction.counts.icrcUnchecked + (direction.peer?.counts.icrcUnchecked ?? 0) > 0;
  return [...groupsOf(direction).values()].flatMap((group) => {
    const row = ROWS.get(group.reason);
    if (row === undefined) return [];
    const cause = causeOf(row, subject, tellingOf(subject, group, total));
    // Packets whose ICRC was not checked may be damaged: their PSNs prove nothing.
    if (cause.certainty === 'certain' && isUnchecked) cause.certainty = 'likely';
    return [cause];
  });
}

const framesOf = ({ recoveries }: Group): number[] => recoveries.map(({ frame }) => frame);

/** `all 4 recoveries`, `3 of 5 recoveries`; of one end: `3 of 10.0.0.1's 5 recoveries`. */
function shareOf({ recoveries: { length } }: Group, total: number, whose = ''): string {
  if (total === 1) return whose === '' ? '1 recovery' : `${whose}recovery`;
  const all = whose === '' ? 'all' : 'all of';
  return `${length === total ? all : `${length} of`} ${whose}${total} recoveries`;
}

const isOfBoth = ({ direction: { peer } }: Group): boolean => (peer?.record.recoveries.kept.length ?? 0) > 0;

const tellingOf = ({ requester, responder, capture }: Subject, group: Group, total: number): Telling => ({
  ...group,
  requester,
  responder,
  captureEnd: capture.summary.duration,
  share: shareOf(group, total),
  whoseShare: shareOf(group, total, isOfBoth(group) ? `${requester}'s ` : ''),
  // The other end's recoveries may be for losses.
  nothingLost: group.recoveries.length === total && !isOfBoth(group) ? '; nothing was lost' : '',
});

function causeOf(row: AnyRow, subject: Subject, telling: Telling): AnyCause {
  const { recoveries, certain } = telling;
  const found = row.finding?.(telling);
  return {
    kind: row.kind,
    severity: 'warning',
    rank: Rank.COSTS,
    weight: recoveries.length,
    certainty: row.certainty?.(telling) ?? (certain === recoveries.length ? 'certain' : 'likely'),
    text: row.text(telling),
    culprit: row.culprit(telling),
    chain: inOrder(row.chain(telling)),
    explains: row.explains,
    finding: found && findingOf(subject, found.statement, found.hint, found.frames ?? framesOf(telling)),
  };
}
