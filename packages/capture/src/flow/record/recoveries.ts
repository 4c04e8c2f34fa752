/** The recoveries of a direction: times at which its requester went back, each with its cause, grade and evidence. */
import type { DirectionCounts, EpisodeReason, Grade, Recovery, RetransmitCause } from '../facts.ts';
import type { Episode } from '../track/episodes.ts';
import type { Verdict } from '../track/verdict.ts';
import type { EventLog } from './events.ts';
import { fitsTimer } from './timers.ts';

/** Recoveries kept of a direction, and of a capture. */
const MAX_RECOVERIES = 200;
const MAX_KEPT = 20_000;

/** Recoveries that may still be kept, for all directions of a capture. */
export class RecoveryBudget {
  left = MAX_KEPT;
}

const RANK: Readonly<Record<Grade, number>> = { certain: 2, likely: 1, 'not-shown': 0 };

/** A recovery whose end is not known until connections are built. */
export type OpenRecovery = Omit<Recovery, 'from' | 'reason'> & { episode: Episode | undefined };

/** The reason of a recovery, as far as its end shows it. @param isDoubled the network duplicates packets of the connection */
export function reasonOf(
  { episode, cause, grade, missing, damaged }: OpenRecovery,
  isDoubled: boolean,
): { reason: EpisodeReason; certainty: Grade } {
  const judged = episode?.judgeRecovery(cause, grade, missing, isDoubled);
  const { reason, certainty } = judged ?? { reason: 'not-known', certainty: 'not-shown' };
  return { reason: damaged === undefined ? reason : 'damaged', certainty };
}

/** Counts recoveries by cause and grade, and keeps the first of them. */
export class RecoveryLog {
  readonly kept: OpenRecovery[] = [];
  readonly #counts: DirectionCounts;
  readonly #events: EventLog;
  readonly #budget: RecoveryBudget;
  #open: OpenRecovery | undefined;

  constructor(counts: DirectionCounts, events: EventLog, budget: RecoveryBudget) {
    this.#counts = counts;
    this.#events = events;
    this.#budget = budget;
  }

  /**
   * A retransmitted packet.
   * @param migReq of the packet: names the timers of its sender
   */
  add(verdict: Verdict, psn: number, frame: number, time: number, migReq: boolean): void {
    if (verdict.begins && !this.#isOf(verdict)) {
      this.close();
      this.#open = newRecovery(verdict, psn, frame, time, migReq);
      return;
    }
    const open = this.#open;
    if (open === undefined) return;
    open.packets++;
    open.lastFrame = frame;
    // Its first packet may have been late itself; what follows shows the cause.
    if (verdict.cause === open.cause && RANK[verdict.grade] > RANK[open.grade]) open.grade = verdict.grade;
  }

  /** The network changed the order of packets: one NAK makes a sender go back once. */
  #isOf({ cause, evidenceFrame }: Verdict): boolean {
    const asked = cause === 'sequence-nak' || cause === 'implied-nak';
    return asked && evidenceFrame > 0 && this.#open?.evidence === evidenceFrame && this.#open.cause === cause;
  }

  /** The recovery under way is at its end. */
  close(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    const { cause, grade, frame, time } = open;
    this.#counts.goBacks++;
    this.#counts.goBackCauses[cause][grade]++;
    this.#events.add(`go-back-${cause}`, frame, time, open.wait);
    if (open.damaged !== undefined) this.#events.add('damage-recovery', open.damaged, time, 1);
    if (this.kept.length >= MAX_RECOVERIES || this.#budget.left === 0) return;
    this.#budget.left--;
    this.kept.push(open);
  }
}

function newRecovery(
  verdict: Verdict,
  psn: number,
  frame: number,
  time: number,
  migReq: boolean,
): OpenRecovery {
  const { cause, grade, evidenceFrame, damagedFrame, wait, missing, side, episode } = verdict;
  const timeout = cause === 'timeout' ? fitsTimer(wait, migReq) : -1;
  return {
    cause,
    grade,
    frame,
    time,
    psn,
    lastFrame: frame,
    packets: 1,
    evidence: evidenceFrame > 0 ? evidenceFrame : undefined,
    damaged: damagedFrame > 0 ? damagedFrame : undefined,
    wait,
    timeout: timeout < 0 ? undefined : timeout,
    missing,
    side,
    episode,
  };
}

/** Counts by grade, all 0. */
export const newGrades = (): Record<Grade, number> => ({ certain: 0, likely: 0, 'not-shown': 0 });

/** Counts by cause, all 0. */
export const newCauses = (): Record<RetransmitCause, number> => ({
  timeout: 0,
  'sequence-nak': 0,
  'implied-nak': 0,
  rnr: 0,
  probe: 0,
  unknown: 0,
});

/** Counts by cause and grade, all 0. */
export const newGoBackCauses = (): Record<RetransmitCause, Record<Grade, number>> => ({
  timeout: newGrades(),
  'sequence-nak': newGrades(),
  'implied-nak': newGrades(),
  rnr: newGrades(),
  probe: newGrades(),
  unknown: newGrades(),
});
