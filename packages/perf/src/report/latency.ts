/** The figures of a latency run, as perftest takes them from the times (perftest_parameters.c, print_report_lat). */
import type { LatencyTimes } from '../measure/latency.ts';

/** The longest ones that perftest leaves out of all figures but the greatest. */
const TAIL = 2;

export interface LatencyFigures {
  /** Bytes of a message. */
  size: number;
  iterations: number;
  /** µs; of SEND and WRITE half of a round trip. All but the average are missing with a duration. */
  min?: number;
  max?: number;
  /** The median. */
  typical?: number;
  average: number;
  deviation?: number;
  percentiles?: Record<'50' | '90' | '99' | '99.9' | '99.99', number>;
  /** With a duration: messages a second. */
  rate?: number;
}

/** A range of a histogram: from `from` µs on, to twice that. */
export interface Bucket {
  from: number;
  count: number;
}

/**
 * @param legs messages of a measured time: 1 of READ and atomics, 2 of a round trip
 */
export function latencyFigures(
  times: LatencyTimes,
  size: number,
  iterations: number,
  legs: 1 | 2,
): LatencyFigures {
  const { posted, counted, seconds } = times;
  if (posted.length === 0) {
    const average = counted === 0 ? 0 : (seconds * 1e6) / counted / legs;
    return { size, iterations: counted, average, rate: counted / seconds };
  }
  const sorted = latencies(times, legs).sort();
  const count = sorted.length - TAIL;
  const kept = sorted.subarray(0, count);
  const average = kept.reduce((sum, value) => sum + value, 0) / count;
  const variance = kept.reduce((sum, value) => sum + (value - average) ** 2, 0) / count;
  const at = (percent: number) => sorted[Math.ceil((count * percent) / 100)];
  const middle = count >> 1;
  const typical = count % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {
    ...{ size, iterations, average },
    min: sorted[0],
    max: sorted[count],
    typical,
    deviation: Math.sqrt(variance),
    percentiles: { '50': typical, '90': at(90), '99': at(99), '99.9': at(99.9), '99.99': at(99.99) },
  };
}

/** µs of each message, in the order of the run. */
export function latencies({ posted }: LatencyTimes, legs: 1 | 2): Float64Array {
  const each = new Float64Array(posted.length - 1);
  for (let i = 0; i < each.length; i++) each[i] = ((posted[i + 1] - posted[i]) * 1000) / legs;
  return each;
}

/** Counts by powers of two of a microsecond, without empty ranges at both ends. */
export function histogram(values: Float64Array): Bucket[] {
  const counts = new Map<number, number>();
  for (const value of values) {
    const power = Math.floor(Math.log2(Math.max(value, 2 ** -10)));
    counts.set(power, (counts.get(power) ?? 0) + 1);
  }
  const powers = [...counts.keys()].sort((a, b) => a - b);
  const buckets: Bucket[] = [];
  for (let power = powers[0]; power <= powers[powers.length - 1]; power++)
    buckets.push({ from: 2 ** power, count: counts.get(power) ?? 0 });
  return buckets;
}
