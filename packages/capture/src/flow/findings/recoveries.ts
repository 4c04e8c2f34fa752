/** Causes of recoveries: the recoveries of a direction by their reason, each in the words of its rule. */
import type { EpisodeReason } from '../facts.ts';
import { type OpenRecovery, reasonOf } from '../record/recoveries.ts';
import type { Episode } from '../track/episodes.ts';
import { inOrder } from './chain.ts';
import { type FindingKind, RULES } from './index.ts';
import type { RecoveryRow, Share, Telling } from './recovery-row.ts';
import { type Cause, findingOf, Rank, type Subject } from './rule.ts';

type AnyCause = Cause<FindingKind, FindingKind>;
type AnyRow = RecoveryRow<FindingKind, FindingKind>;

const ROWS = new Map<EpisodeReason, AnyRow>(
  RULES.flatMap(({ recovery }) => (recovery === undefined ? [] : [[recovery.reason, recovery] as const])),
);

/** The recoveries of a direction with one reason, and the episode that shows it best. */
interface Group {
  subject: Subject;
  reason: EpisodeReason;
  recoveries: OpenRecovery[];
  shown: Episode;
  certain: number;
}

function groupsOf(subject: Subject): Group[] {
  const groups = new Map<EpisodeReason, Group & { clearest: number }>();
  const { isDoubled } = subject.direction;
  for (const recovery of keptOf(subject)) {
    const { episode } = recovery;
    if (episode === undefined) continue;
    const { reason, certainty } = reasonOf(recovery, isDoubled);
    const isCertain = certainty === 'certain';
    const clearness = clearnessOf(recovery, episode, reason, isCertain);
    const group = groups.get(reason) ?? {
      subject,
      reason,
      recoveries: [],
      shown: episode,
      certain: 0,
      clearest: clearness,
    };
    group.recoveries.push(recovery);
    if (clearness > group.clearest) {
      group.shown = episode;
      group.clearest = clearness;
    }
    if (isCertain) group.certain++;
    groups.set(reason, group);
  }
  return [...groups.values()];
}

/** The clearest one is shown: certain, and with the longest silence of those; of losses, with the packets around the missing one. */
function clearnessOf(
  { missing }: OpenRecovery,
  { gapFrame, silence }: Episode,
  reason: EpisodeReason,
  isCertain: boolean,
): number {
  if (reason === 'stood-still') return Number(isCertain) * 1e18 + silence;
  const isShown = reason === 'lost' && gapFrame > 0 && missing === 'request';
  return 2 * Number(isShown) + Number(isCertain);
}

const keptOf = ({ direction }: Subject): readonly OpenRecovery[] => direction.record.recoveries.kept;

/** The recoveries of one end, or of both. */
type Total = Omit<Share, 'count'>;

const totalOf = (subjects: readonly Subject[]): Total => ({
  kept: subjects.reduce((sum, subject) => sum + keptOf(subject).length, 0),
  all: subjects.reduce((sum, { direction: { counts } }) => sum + counts.goBacks, 0),
});

/** The causes of a connection's recoveries. Both ends may go back for one cause, if the network is that: it is told once. */
export function recoveryCauses(subjects: readonly Subject[]): AnyCause[] {
  const total = totalOf(subjects);
  const groups = subjects.flatMap(groupsOf);
  const isUnchecked = subjects.some(({ direction }) => direction.counts.icrcUnchecked > 0);
  return groups.flatMap((group, i) => {
    const row = ROWS.get(group.reason);
    if (row === undefined) return [];
    const alike = row.isOfBoth === true ? groups.filter(({ reason }) => reason === group.reason) : [group];
    const isFirst = groups.findIndex(({ reason }) => reason === group.reason) === i;
    const cause = causeOf(row, group, tellingOf(alike, total));
    cause.isSaid = alike.length > 1 && !isFirst;
    // Packets whose ICRC was not checked may be damaged: their PSNs prove nothing.
    if (cause.certainty === 'certain' && isUnchecked) cause.certainty = 'likely';
    return [cause];
  });
}

/** The groups with one reason, of one end or of both; the clearest of them is shown. */
function tellingOf(groups: readonly Group[], total: Total): Telling {
  const [main] = groups.toSorted(
    (x, y) => y.certain - x.certain || y.recoveries.length - x.recoveries.length,
  );
  const { subject, reason, shown } = main!;
  const recoveries = groups.flatMap((group) => group.recoveries);
  return {
    direction: subject.direction,
    reason,
    shown,
    requester: subject.requester,
    responder: subject.responder,
    parts: groups.map(({ subject: { direction, requester, responder }, recoveries: own }) => ({
      direction,
      requester,
      responder,
      recoveries: own,
    })),
    recoveries,
    certain: groups.reduce((sum, { certain }) => sum + certain, 0),
    captureEnd: subject.capture.summary.duration,
    share: { ...total, count: recoveries.length },
    // Recoveries for another cause may be for losses.
    nothingLost: recoveries.length === total.all ? '; nothing was lost' : '',
  };
}

function causeOf(row: AnyRow, group: Group, telling: Telling): AnyCause {
  const { recoveries, certain } = telling;
  const { subject } = group;
  const own = tellingOf([group], totalOf([subject]));
  const found = row.finding?.(own);
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
    title: row.title?.(telling),
    hint: row.hint,
    finding:
      found &&
      findingOf(
        subject,
        found.statement,
        row.finding!(telling).hint,
        found.frames ?? group.recoveries.map(({ frame }) => frame),
      ),
  };
}
