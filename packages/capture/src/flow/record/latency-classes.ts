/** Latencies of messages by operation and size: a READ of a megabyte is not comparable with SENDs of a few bytes. */
import type { LatencyClass } from '../facts.ts';
import { DistributionBuilder } from './distribution.ts';

/** Bytes up to which a message is of a class; longer messages are of the last one. */
const SIZES = [256, 4096, 65_536, 1_048_576, Number.POSITIVE_INFINITY] as const;

/** Collects latencies of one direction. */
export class LatencyClasses {
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
