/** The times of a bandwidth run, and the figures that follow from them (perftest_parameters.c, print_report_bw). */
import type { BandwidthFigures } from '../dialogue/fields.ts';
import type { Plan } from '../plan.ts';

/** Bytes a second that are one MiB/s. */
const MIB = 2 ** 20;
/** Bytes a second that are one Gb/s. */
const GIGABIT = 125_000_000;

/** Notes when messages were posted and done; with a duration, counts those that were done between the margins. */
export class Meter {
  readonly #plan: Plan;
  readonly #total: number;
  readonly #posted: Float64Array | undefined;
  readonly #completed: Float64Array | undefined;
  #start = 0;
  #end = 0;
  #from = 0;
  #until = 0;
  #counted = 0;

  /** @param peak whether this side posts the messages, so that a peak can be found */
  constructor(plan: Plan, peak: boolean) {
    this.#plan = plan;
    this.#total = plan.iters * plan.qps;
    if (!peak || !plan.peak) return;
    this.#posted = new Float64Array(this.#total);
    this.#completed = new Float64Array(this.#total);
  }

  /** The first message is about to be posted, or has come. */
  begin(): void {
    this.#start = performance.now();
    const { duration = 0, margin } = this.#plan;
    this.#from = this.#start + margin * 1000;
    this.#until = this.#start + (duration - margin) * 1000;
  }

  /** Whether the duration has passed. */
  get over(): boolean {
    const { duration } = this.#plan;
    return duration !== undefined && this.#start > 0 && performance.now() - this.#start >= duration * 1000;
  }

  /** Message `number` (0, 1, … over all queue pairs) is about to be posted. */
  posting(number: number): void {
    if (this.#posted !== undefined) this.#posted[number] = performance.now();
  }

  /** `count` more messages are done, `total` in all. */
  done(total: number, count: number): void {
    if (this.#completed !== undefined) this.#completed[Math.min(total, this.#total) - 1] = performance.now();
    else if (this.#plan.duration !== undefined) {
      const now = performance.now();
      if (now >= this.#from && now < this.#until) this.#counted += count;
    }
  }

  /** All messages are done. */
  finish(): void {
    this.#end = performance.now();
  }

  /** Seconds that the figures are about. */
  get seconds(): number {
    if (this.#plan.duration !== undefined) return (this.#until - this.#from) / 1000;
    const start = this.#posted?.[0] ?? this.#start;
    // A side that receives as well ends later than its own messages.
    const end = this.#completed?.[this.#total - 1] ?? this.#end;
    return Math.max(end - start, 1e-6) / 1000;
  }

  /** @param size bytes of a message */
  figures(size: number, gigabits: boolean): BandwidthFigures {
    const iterations = this.#plan.duration === undefined ? this.#total : this.#counted;
    const unit = gigabits ? GIGABIT : MIB;
    const rate = iterations / this.seconds;
    const least = this.#shortest();
    return {
      size,
      iterations,
      peak: least === undefined ? 0 : (size * 1000) / least / unit,
      average: (size * rate) / unit,
      messageRate: rate / 1e6,
    };
  }

  /** The shortest time per message, ms, from the posting of one to the completion of it or a later one. */
  #shortest(): number | undefined {
    const posted = this.#posted;
    const completed = this.#completed;
    if (posted === undefined || completed === undefined) return undefined;
    return shortest(posted, completed);
  }
}

/**
 * The least (completed[j] − posted[i]) / (j − i + 1) over all i ≤ j, by Dinkelbach's method: each pass finds the pair that is
 * furthest below the ratio so far. 0 in `completed` stands for a message without a completion of its own.
 */
function shortest(posted: Float64Array, completed: Float64Array): number | undefined {
  let best = Number.POSITIVE_INFINITY;
  for (let ratio = completed[completed.length - 1] - posted[0]; ratio < best; ) {
    best = ratio;
    let least = 0;
    let start = 0;
    let latest = Number.NEGATIVE_INFINITY;
    for (let j = 0; j < completed.length; j++) {
      const gain = posted[j] - best * j;
      if (gain > latest) {
        latest = gain;
        start = j;
      }
      if (completed[j] === 0) continue;
      const below = completed[j] - best * (j + 1) - latest;
      if (below >= least) continue;
      least = below;
      ratio = (completed[j] - posted[start]) / (j - start + 1);
    }
  }
  return best > 0 && Number.isFinite(best) ? best : undefined;
}

/** A report in Gb/s or MiB/s, whichever its sender printed: size and message rate show which. perftest does not look. */
export function inUnit(figures: BandwidthFigures, gigabits: boolean): BandwidthFigures {
  const { size, peak, average, messageRate } = figures;
  const bytes = size * messageRate * 1e6;
  const [own, other] = gigabits ? [GIGABIT, MIB] : [MIB, GIGABIT];
  const distance = (unit: number) => Math.abs(Math.log((average * unit) / bytes));
  if (!(bytes > 0 && average > 0) || distance(own) <= distance(other)) return figures;
  return { ...figures, peak: (peak * other) / own, average: (average * other) / own };
}
