/** The intervals of `roce perf --interval` and `--json-stream`: what a test did in each of them. */
import type { PerfProgress } from '@node-roce/perf';

/** One interval of a run. */
export interface Interval {
  /** Bytes of a message. */
  size: number;
  /** Seconds since the run began. */
  start: number;
  end: number;
  /** Messages that completed in it. */
  messages: number;
  /** Payload, in the unit of the test; of latencies, messages per second. */
  rate: number;
  unit: 'MiB/s' | 'Gb/s' | 'messages/s';
}

/** Turns reports of progress, which count from the beginning of a run, into intervals. */
export class Intervals {
  readonly #unit: Interval['unit'];
  #run = -1;
  #messages = 0;
  #ms = 0;

  constructor(unit: Interval['unit']) {
    this.#unit = unit;
  }

  /** The interval that ends with this report; undefined at the beginning of a run, and at a side that does not measure. */
  next({ run, size, messages, ms }: PerfProgress): Interval | undefined {
    if (messages === undefined || ms === undefined) return undefined;
    const isFirst = run !== this.#run || ms === 0;
    const [before, since] = isFirst ? [0, 0] : [this.#messages, this.#ms];
    this.#run = run;
    this.#messages = messages;
    this.#ms = ms;
    if (ms <= since) return undefined;
    const count = messages - before;
    const seconds = (ms - since) / 1000;
    const rate = { 'MiB/s': (count * size) / 2 ** 20, 'Gb/s': (count * size * 8) / 1e9, 'messages/s': count };
    return {
      size,
      start: since / 1000,
      end: ms / 1000,
      messages: count,
      rate: rate[this.#unit] / seconds,
      unit: this.#unit,
    };
  }
}

/** A line of the table of intervals. */
export function intervalLine({ size, start, end, messages, rate, unit }: Interval): string {
  const time = `${start.toFixed(2)} … ${end.toFixed(2)} s`;
  const figure = unit === 'messages/s' ? rate.toFixed(0) : rate.toFixed(2);
  return `${time.padStart(18)}  ${`${size}`.padStart(8)} bytes  ${`${messages}`.padStart(9)} messages  ${figure.padStart(10)} ${unit}`;
}
