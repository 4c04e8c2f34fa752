/** The data of plots: points and sums over time, thinned while they come in. */
import type { LatencyPoint, PlotPoint, RetransmitCause } from '../facts.ts';

/** Points that each list of a direction may have in any case: first transmissions, retransmissions, NAKs and CNPs. */
const SURE_POINTS = 1024;
/** … and as long as the budget lasts. */
const MAX_POINTS = 16_384;
/** Points beyond the sure ones, of all lists of a capture: 6 MB. */
const BUDGET = 200_000;
const BINS = 256;
const LATENCIES = 1024;

export const PLOT_KINDS = [
  'request',
  'retransmission',
  'response',
  'ack',
  'nak',
  'rnr',
  'cnp',
  'marked',
] as const satisfies readonly PlotPoint['kind'][];

/** Indices into `PLOT_KINDS`. */
export const PlotKind = {
  REQUEST: 0,
  RETRANSMISSION: 1,
  RESPONSE: 2,
  ACK: 3,
  NAK: 4,
  RNR: 5,
  CNP: 6,
  MARKED: 7,
} as const;

/** In the order in which points number them. */
export const PLOT_CAUSES = [
  'unknown',
  'timeout',
  'sequence-nak',
  'implied-nak',
  'rnr',
  'probe',
] as const satisfies readonly RetransmitCause[];

/** Numbers of a point: time, PSN, frame, kind; of a retransmission, kind and eight times the cause. */
const WORDS = 4;
const KIND_COUNT = PLOT_KINDS.length;
const NO_POINTS = new Float64Array(0);
const NO_BINS = new Float64Array(0);

/** Points that lists may still have beyond those that are sure, for all directions of a capture. */
export class PointBudget {
  #left = BUDGET;

  take(count: number): boolean {
    if (count > this.#left) return false;
    this.#left -= count;
    return true;
  }
}

/** Every n-th of the points given; n doubles whenever there are too many. The first one stays. */
class ThinnedPoints {
  words = NO_POINTS;
  length = 0;
  readonly #budget: PointBudget;
  #skip = 0;
  #stride = 1;

  constructor(budget: PointBudget) {
    this.#budget = budget;
  }

  add(time: number, psn: number, frame: number, kind: number): void {
    if (this.#skip > 0) {
      this.#skip--;
      return;
    }
    this.#skip = this.#stride - 1;
    if (this.length * WORDS === this.words.length) this.#makeRoom();
    const at = this.length++ * WORDS;
    this.words[at] = time;
    this.words[at + 1] = psn;
    this.words[at + 2] = frame;
    this.words[at + 3] = kind;
  }

  #makeRoom(): void {
    const { words, length } = this;
    if (length < SURE_POINTS || (length < MAX_POINTS && this.#budget.take(length))) {
      this.words = new Float64Array(Math.max(2, 2 * length) * WORDS);
      this.words.set(words);
      return;
    }
    for (let i = 0; 2 * i < length; i++) {
      words.copyWithin(i * WORDS, 2 * i * WORDS, (2 * i + 1) * WORDS);
    }
    this.length = length >> 1;
    this.#stride *= 2;
  }
}

/** The PSNs of one direction over time. */
export class PlotSeries {
  readonly #common: ThinnedPoints;
  readonly #again: ThinnedPoints;
  readonly #rare: ThinnedPoints;
  #lastTime = 0;
  #lastPsn = 0;
  #lastFrame = 0;
  #lastKind = -1;

  constructor(budget: PointBudget) {
    this.#common = new ThinnedPoints(budget);
    this.#again = new ThinnedPoints(budget);
    this.#rare = new ThinnedPoints(budget);
  }

  /** A retransmitted packet. */
  addRetransmission(time: number, psn: number, frame: number, cause: RetransmitCause): void {
    const kind = PlotKind.RETRANSMISSION + KIND_COUNT * PLOT_CAUSES.indexOf(cause);
    this.add(time, psn, frame, kind);
  }

  add(time: number, psn: number, frame: number, kind: number): void {
    // A NAK can send thousands of packets again, which are not to crowd it out.
    this.#listOf(kind).add(time, psn, frame, kind);
    this.#lastTime = time;
    this.#lastPsn = psn;
    this.#lastFrame = frame;
    this.#lastKind = kind;
  }

  #listOf(kind: number): ThinnedPoints {
    if (kind % KIND_COUNT === PlotKind.RETRANSMISSION || kind === PlotKind.MARKED) return this.#again;
    return kind === PlotKind.NAK || kind === PlotKind.RNR || kind === PlotKind.CNP
      ? this.#rare
      : this.#common;
  }

  /**
   * @param own whose PSNs requests carry; responses carry the other's
   * @param shift what to add to PSNs of responses, to count them as the other end does
   */
  points(own: 'a' | 'b', shift: number): PlotPoint[] {
    const other = own === 'a' ? 'b' : 'a';
    const made: PlotPoint[] = [];
    const add = (time: number, psn: number, frame: number, code: number) => {
      const kind = code % KIND_COUNT;
      const name = PLOT_KINDS[kind];
      const isRequest =
        kind === PlotKind.REQUEST || kind === PlotKind.RETRANSMISSION || kind === PlotKind.MARKED;
      made.push({
        time,
        psn: isRequest ? psn : psn + shift,
        requester: isRequest ? own : other,
        kind: name,
        frame,
        ...(kind === PlotKind.RETRANSMISSION && { cause: PLOT_CAUSES[Math.floor(code / KIND_COUNT)] }),
      });
    };
    for (const { words, length } of [this.#common, this.#again, this.#rare]) {
      for (let at = 0; at < length * WORDS; at += WORDS) {
        add(words[at], words[at + 1], words[at + 2], words[at + 3]);
      }
    }
    const last = this.#lastKind;
    const kept = made.some(
      ({ frame, kind }) => frame === this.#lastFrame && kind === PLOT_KINDS[last % KIND_COUNT],
    );
    if (last >= 0 && !kept) add(this.#lastTime, this.#lastPsn, this.#lastFrame, last);
    return made;
  }
}

/** Sums in equal spans of time that begin at multiples of their length; the length doubles as time goes on. */
export class BinnedSums {
  /** Nanoseconds of a span. */
  span = 1024;
  /** Number of the first span: `first * span` is where it begins. */
  first = 0;
  #bins = NO_BINS;
  #used = 0;

  add(time: number, amount: number): void {
    let bin = Math.floor(time / this.span);
    if (this.#used === 0) this.first = bin;
    while (bin - this.first >= BINS) {
      this.widen();
      bin = Math.floor(time / this.span);
    }
    const at = Math.max(0, bin - this.first);
    if (at >= this.#bins.length) {
      const grown = new Float64Array(Math.min(BINS, Math.max(2, 2 ** Math.ceil(Math.log2(at + 1)))));
      grown.set(this.#bins);
      this.#bins = grown;
    }
    this.#bins[at] += amount;
    if (at >= this.#used) this.#used = at + 1;
  }

  /** Doubles the spans. */
  widen(): void {
    const bins = this.#bins;
    const first = Math.floor(this.first / 2);
    for (let i = 0; i < this.#used; i++) {
      const amount = bins[i];
      bins[i] = 0;
      bins[Math.floor((this.first + i) / 2) - first] += amount;
    }
    this.#used = this.#used === 0 ? 0 : Math.floor((this.first + this.#used - 1) / 2) - first + 1;
    this.first = first;
    this.span *= 2;
  }

  /** The sums of spans `first` … `last`. */
  sums(first: number, last: number): number[] {
    return Array.from({ length: last - first + 1 }, (_, i) => this.#bins[first + i - this.first] ?? 0);
  }

  get last(): number {
    return this.first + Math.max(0, this.#used - 1);
  }

  get isEmpty(): boolean {
    return this.#used === 0;
  }
}

/** Sums of several lists in the same spans; those of a list that is absent or empty are 0. */
export function commonSums(lists: readonly (BinnedSums | undefined)[]): {
  span: number;
  start: number;
  sums: number[][];
} {
  const filled = lists.filter((sums) => sums !== undefined && !sums.isEmpty) as BinnedSums[];
  if (filled.length === 0) return { span: 0, start: 0, sums: lists.map(() => []) };
  const range = () => [
    Math.min(...filled.map(({ first }) => first)),
    Math.max(...filled.map(({ last }) => last)),
  ];
  const span = Math.max(...filled.map((sums) => sums.span));
  for (const sums of filled) while (sums.span < span) sums.widen();
  let [first, last] = range() as [number, number];
  while (last - first >= BINS) {
    for (const sums of filled) sums.widen();
    [first, last] = range() as [number, number];
  }
  const empty = () => new Array<number>(last - first + 1).fill(0);
  return {
    span: filled[0].span,
    start: first * filled[0].span,
    sums: lists.map((sums) => (sums === undefined || sums.isEmpty ? empty() : sums.sums(first, last))),
  };
}

/** Latencies over time, thinned as points are; the largest of those that share a place is kept. */
export class LatencySeries {
  #points: LatencyPoint[] = [];
  #stride = 1;
  #inStride = 0;

  add(point: LatencyPoint): void {
    const last = this.#points.at(-1);
    if (this.#inStride > 0 && last !== undefined) {
      if (point.nanoseconds > last.nanoseconds) this.#points[this.#points.length - 1] = point;
    } else {
      this.#points.push(point);
    }
    this.#inStride = (this.#inStride + 1) % this.#stride;
    if (this.#points.length <= LATENCIES) return;
    const points = this.#points;
    this.#points = [];
    for (let i = 0; i < points.length; i += 2) {
      const [one, two] = [points[i], points[i + 1]];
      this.#points.push(two !== undefined && two.nanoseconds > one.nanoseconds ? two : one);
    }
    this.#stride *= 2;
    this.#inStride = 0;
  }

  get points(): LatencyPoint[] {
    return this.#points;
  }
}
