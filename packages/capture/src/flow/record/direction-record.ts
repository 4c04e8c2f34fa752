/** The record of a direction: what findings, plots and the ladder are made from. */
import type { DirectionCounts } from '../facts.ts';
import { EventLog } from './events.ts';
import { Ladder, LadderBudget } from './ladder.ts';
import { Latencies } from './latencies.ts';
import { RecoveryBudget, RecoveryLog } from './recoveries.ts';
import { BinnedSums, PlotSeries, PointBudget } from './series.ts';

/** Bounds that all directions of a capture share. */
export class Budgets {
  readonly ladder = new LadderBudget();
  readonly recoveries = new RecoveryBudget();
  readonly points = new PointBudget();
}

/** The record of one direction; each part has a bound. */
export class DirectionRecord {
  readonly events = new EventLog();
  readonly latencies = new Latencies();
  readonly throughput = new BinnedSums();
  readonly plot: PlotSeries;
  readonly ladder: Ladder;
  readonly recoveries: RecoveryLog;
  #again: BinnedSums | undefined;

  constructor(counts: DirectionCounts, budgets: Budgets) {
    this.plot = new PlotSeries(budgets.points);
    this.ladder = new Ladder(budgets.ladder);
    this.recoveries = new RecoveryLog(counts, this.events, budgets.recoveries);
  }

  /** Payload of retransmissions; undefined without any. */
  get again(): BinnedSums | undefined {
    return this.#again;
  }

  /** Payload that was sent before. */
  sentAgain(time: number, bytes: number): void {
    this.#again ??= new BinnedSums();
    this.#again.add(time, bytes);
  }
}
