/** How long the messages of one requester took. */
import type { LatencyClass, Message } from '../facts.ts';
import { DistributionBuilder } from './distribution.ts';
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

/** Bytes up to which a message is of a class; longer messages are of the last one. */
const SIZES = [256, 4096, 65_536, 1_048_576, Number.POSITIVE_INFINITY] as const;

/** Collects latencies of one direction. */
class LatencyClasses {
  /** Made with the first message of a class: most directions have one or two. */
  readonly #builders = new Map<string, DistributionBuilder[]>();

  add(operation: string, bytes: number, nanoseconds: number): void {
    let sizes = this.#builders.get(operation);
    if (sizes === undefined) {
      sizes = [];
      this.#builders.set(operation, sizes);
    }
    const size = SIZES.findIndex((most) => bytes <= most);
    sizes[size] ??= new DistributionBuilder();
    sizes[size].add(nanoseconds);
  }

  results(from: 'a' | 'b'): LatencyClass[] {
    return [...this.#builders].flatMap(([operation, sizes]) =>
      sizes.flatMap((builder, i) => {
        const distribution = builder.result();
        const mostBytes = Number.isFinite(SIZES[i]) ? SIZES[i] : undefined;
        return distribution === undefined ? [] : [{ from, operation, mostBytes, ...distribution }];
      }),
    );
  }
}
