/** The offset of two clocks, from packets that passed both taps. */
import type { ClockOffset } from './comparison.ts';
import type { PacketSamples, Sample } from './samples.ts';
import { divideBySide, type Passage } from './sides.ts';
import type { Side } from './transit.ts';

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
  sides: Map<string, Side>;
}

interface Point extends Passage {
  /** By clock A, since the first sample. */
  time: number;
  /** Clock B's time minus clock A's of the same packet: offset plus delay, or offset minus delay. */
  difference: number;
}

/** Points by the side of their sender: `a` shows the offset plus a delay, `b` the offset minus one. */
type Points = Record<Side, Point[]>;

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
    destination: inA.destination,
  }));
  const divided = divide(points);
  const { offset, drift, uncertainty } = fit(divided);
  return {
    offset,
    drift: drift * SECOND,
    uncertainty,
    samples: points.length,
    seconds: start.seconds,
    nanoseconds: start.nanoseconds,
    sides: new Map(
      (['a', 'b'] as const).flatMap((side) => divided[side].map(({ source }) => [source, side])),
    ),
  };
}

/** @returns the offset at time 0; its drift is of nanoseconds a nanosecond */
function fit({ a, b }: Points): Pick<ClockOffset, 'offset' | 'drift' | 'uncertainty'> {
  const drift = driftOf(a, b);
  const leastForward = least(a.map((point) => straight(point, drift)));
  const leastBackward = least(b.map((point) => -straight(point, drift)));
  if (leastForward === undefined || leastBackward === undefined)
    return { offset: leastForward ?? 0 - (leastBackward ?? 0), drift, uncertainty: undefined };
  return {
    offset: (leastForward - leastBackward) / 2,
    drift,
    uncertainty: Math.max(0, (leastForward + leastBackward) / 2),
  };
}

const straight = ({ time, difference }: Point, drift: number): number => difference - drift * time;

/**
 * Hosts that send to each other are on opposite sides, and the differences of A's side lie above those of B's by a round trip. Hosts
 * that only send are on A's side if their packets show later times by B's clock, corrected by what the others reveal of it.
 */
function divide(points: readonly Point[]): Points {
  const divided: Points = { a: [], b: [] };
  const oneWay: Point[][] = [];
  for (const [one, other] of divideBySide(points)) {
    if (one.length === 0 || other.length === 0) {
      oneWay.push(one.concat(other));
      continue;
    }
    const isForward = medianDifference(one) >= medianDifference(other);
    divided.a = divided.a.concat(isForward ? one : other);
    divided.b = divided.b.concat(isForward ? other : one);
  }
  const { offset, drift } = fit(divided);
  for (const part of oneWay) {
    const side = medianDifference(part, drift) >= offset ? 'a' : 'b';
    divided[side] = divided[side].concat(part);
  }
  return divided;
}

const medianDifference = (points: readonly Point[], drift = 0): number =>
  points.map((point) => straight(point, drift)).sort((x, y) => x - y)[points.length >> 1];

const elapsed = (from: Sample, to: Sample): number =>
  (to.seconds - from.seconds) * SECOND + (to.nanoseconds - from.nanoseconds);

const compareTimes = (x: Sample, y: Sample): number => x.seconds - y.seconds || x.nanoseconds - y.nanoseconds;

function least(values: readonly number[]): number | undefined {
  return values.length === 0 ? undefined : values.reduce((x, y) => Math.min(x, y));
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
