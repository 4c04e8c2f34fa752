/** Compares the retransmissions and causes of an analysis with the truth. */
import type { Analyzed } from './analyze.ts';
import type { Captured } from './run.ts';
import type { TrueFrame } from './truth.ts';

/**
 * By the cause: retransmitted packets; those named for certain; those named as likely, rightly and wrongly. Of the rest no
 * cause is shown.
 */
export type Tally = Record<string, { packets: number; certain: number; likely: number; unlikely: number }>;

export interface Judgement {
  /** Errors in words; nothing if all is right. */
  faults: string[];
  /** Wrong verdicts on packets on the way that can't be known to be retransmissions or not. */
  mistaken: number;
}

/**
 * Whether a retransmitted packet can be distinguished from a late one or a copy. At its sender no packet is late; on the way, an
 * Identification of its own shows when it was sent.
 */
const canTell = ({ addressing }: Captured, { event, isSoon }: TrueFrame) =>
  addressing === 'ipv4' || (event === 'sent' && !isSoon);

export function judge(
  run: Captured,
  truth: readonly TrueFrame[],
  analyzed: Analyzed,
  tallies: Record<TrueFrame['event'], Tally>,
): Judgement {
  const faults: string[] = [];
  let mistaken = 0;
  const counts = new Map<string, number>();
  for (const [i, frame] of truth.entries()) {
    const { direction, psn, cause, isCopy, isBehind } = frame;
    const told = analyzed.causes[i];
    // Damaged packets count, too, while no ICRC of their sender was right.
    if (told !== undefined) counts.set(direction, (counts.get(direction) ?? 0) + 1);
    if (frame.corrupt || !frame.isRequest) continue;
    const again = cause !== undefined && !isCopy && isBehind;
    const line = `frame ${i + 1} (${frame.event}, ${direction}, PSN ${psn})`;
    // A sender's first packets count as sent though they are damaged, until one with a right ICRC comes: that shows why it is sent again.
    const isOfDamaged = !again && frame.isShownDamaged && told === cause;
    if (again !== (told !== undefined) && !isOfDamaged) {
      if (!canTell(run, frame)) mistaken++;
      else faults.push(`${line}: ${again ? `retransmitted (${cause})` : 'new'}, reported: ${told ?? 'new'}`);
      continue;
    }
    if (!again) continue;
    const tally = tallies[frame.event];
    tally[cause] ??= { packets: 0, certain: 0, likely: 0, unlikely: 0 };
    tally[cause].packets++;
    if (analyzed.grades[i] === 'likely') tally[cause][told === cause ? 'likely' : 'unlikely']++;
    else if (told === cause) tally[cause].certain++;
    else if (told !== 'unknown') faults.push(`${line}: retransmitted for ${cause}, reported: ${told}`);
  }
  return { faults: [...faults, ...compareSums(counts, analyzed)], mistaken };
}

/** The verdicts on single packets add up to the connections' counts. */
function compareSums(counts: ReadonlyMap<string, number>, { directions }: Analyzed): string[] {
  return directions.flatMap(({ direction, counts: { retransmitted, retransmitCauses } }) => {
    const sum = Object.values(retransmitCauses).reduce((a, b) => a + b, 0);
    const said = counts.get(direction) ?? 0;
    if (sum === retransmitted && said === retransmitted) return [];
    return [`${direction}: ${said} retransmitted packets, counted ${retransmitted}, by cause ${sum}`];
  });
}
