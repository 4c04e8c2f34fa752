/** How long the messages of one requester took. */
import type { Message } from '../facts.ts';
import { DistributionBuilder } from './distribution.ts';
import { LatencyClasses } from './latency-classes.ts';
import { LatencySeries } from './series.ts';

/** The same latencies three times: over time, all together, and by operation and size. */
export class Latencies {
  readonly series = new LatencySeries();
  readonly completion = new DistributionBuilder();
  readonly classes = new LatencyClasses();

  /** A message that was answered counts in all three, another one in none. */
  add({ id, start, bytes, operation, latency, ackRoundTrip }: Message): void {
    if (latency === undefined) return;
    this.series.add({ time: start + latency, nanoseconds: latency, ackRoundTrip, message: id, operation });
    this.completion.add(latency);
    this.classes.add(operation, bytes ?? 0, latency);
  }
}
