/** The offset of two clocks, from packets that passed both taps. */
import type { ClockOffset } from './comparison.ts';
import type { PacketSamples, Sample } from './samples.ts';

const SECOND = 1e9;
/** Parts of the captures' common time, each with its own estimate, from which a drift is found. */
const PARTS = 64;
/** A drift is estimated of captures that are so long; the jitter of shorter ones would pass for one. */
const MIN_DRIFT_NANOSECONDS = 60 * SECOND;
/** Parts with samples in both directions that a drift needs. */
const MIN_DRIFT_PARTS = 8;

/** The clock's offset, and the side of each sender. */
export interface ClockEstimate extends ClockOffset {
  /** When the estimate starts, by clock A: `offset` holds here. */
  seconds: number;
  nanoseconds: number;
  /** Senders by address: `a` if their packets pass tap A first. */
  sides: Map<string, 'a' | 'b'>;
}

interface Point {
  /** By clock A, since the first sample. */
  time: number;
  /** Clock B's time minus clock A's of the same packet: offset plus delay, or offset minus delay. */
  difference: number;
  source: string;
}

/**
 * Estimates clock B minus clock A. Packets from A's side show the offset plus their delay, packets from B's side the offset minus
 * theirs; the least delays are taken as equal, as NTP does (RFC 5905 §8). Undefined if the captures have no packet in common.
 */
export function estimateClock(a: PacketSamples, b: PacketSamples): ClockEstimate | undefined {
  const pairs = [...a.common(b)];
  if (pairs.length === 0) return undefined;
  const [start] = pairs.reduce((least, pair) => (compareTimes(pair[0], least[0]) < 0 ? pair : least));
  const points = pairs.map(([inA, inB]) => ({
    time: elapsed(start, inA),
    difference: elapsed(inA, inB),
    source: inA.source,
  }));
  const sides = sidesOf(points);
  const forward = points.filter(({ source }) => sides.get(source) === 'a');
  const backward = points.filter(({ source }) => sides.get(source) === 'b');
  const drift = driftOf(forward, backward);
  const straight = ({ time, difference }: Point) => difference - drift * time;
  const leastForward = least(forward.map(straight));
  const leastBackward = least(backward.map((point) => -straight(point)));
  const both = leastForward !== undefined && leastBackward !== undefined;
  const offset = both ? (leastForward - leastBackward) / 2 : (leastForward ?? -(leastBackward ?? 0));
  return {
    offset,
    drift: drift * SECOND,
    uncertainty: both ? Math.max(0, (leastForward + leastBackward) / 2) : undefined,
    samples: points.length,
    seconds: start.seconds,
    nanoseconds: start.nanoseconds,
    sides,
  };
}

const elapsed = (from: Sample, to: Sample): number =>
  (to.seconds - from.seconds) * SECOND + (to.nanoseconds - from.nanoseconds);

const compareTimes = (x: Sample, y: Sample): number => x.seconds - y.seconds || x.nanoseconds - y.nanoseconds;

function least(values: readonly number[]): number | undefined {
  return values.length === 0 ? undefined : values.reduce((x, y) => Math.min(x, y));
}

/**
 * Which senders are on A's side: their packets' differences lie above those of the other side by a round trip. The senders are
 * sorted by their median difference, and cut at the widest gap; one sender alone is on A's side if B's clock shows the later time.
 */
function sidesOf(points: readonly Point[]): Map<string, 'a' | 'b'> {
  const bySource = new Map<string, number[]>();
  for (const { source, difference } of points) {
    const known = bySource.get(source);
    if (known === undefined) bySource.set(source, [difference]);
    else known.push(difference);
  }
  const medians = [...bySource]
    .map(([source, values]) => ({ source, median: values.sort((x, y) => x - y)[values.length >> 1] }))
    .sort((x, y) => x.median - y.median);
  if (medians.length === 1) return new Map([[medians[0].source, medians[0].median >= 0 ? 'a' : 'b']]);
  let cut = 1;
  for (let i = 1; i < medians.length; i++) {
    const gap = medians[i].median - medians[i - 1].median;
    if (gap > medians[cut].median - medians[cut - 1].median) cut = i;
  }
  return new Map(medians.map(({ source }, i) => [source, i < cut ? 'b' : 'a']));
}

/** Nanoseconds that clock B gains in a nanosecond: the median slope (Theil and Sen) of the estimates of all parts. */
function driftOf(forward: readonly Point[], backward: readonly Point[]): number {
  const end = Math.max(
    0,
    ...[forward, backward].map((points) => points.reduce((t, p) => Math.max(t, p.time), 0)),
  );
  if (end < MIN_DRIFT_NANOSECONDS) return 0;
  const part = end / PARTS;
  const above = leastByPart(forward, part, 1);
  const below = leastByPart(backward, part, -1);
  const estimates: { time: number; offset: number }[] = [];
  for (let i = 0; i <= PARTS; i++) {
    if (above[i] === undefined || below[i] === undefined) continue;
    estimates.push({ time: (i + 0.5) * part, offset: (above[i] - below[i]) / 2 });
  }
  if (estimates.length < MIN_DRIFT_PARTS) return 0;
  const slopes: number[] = [];
  for (const [i, x] of estimates.entries())
    for (const y of estimates.slice(i + 1)) slopes.push((y.offset - x.offset) / (y.time - x.time));
  return slopes.sort((x, y) => x - y)[slopes.length >> 1];
}

/** The least of `sign · difference` in each part; holes where there is no sample. */
function leastByPart(points: readonly Point[], part: number, sign: 1 | -1): number[] {
  const parts: number[] = [];
  for (const { time, difference } of points) {
    const index = Math.floor(time / part);
    parts[index] = Math.min(parts[index] ?? Number.POSITIVE_INFINITY, sign * difference);
  }
  return parts;
}
