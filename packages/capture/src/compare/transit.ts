/** Follows packets from tap to tap: matches packets that both captures have, and classifies the others (lost, late, copied). */
import { DistributionBuilder } from '../flow/record/distribution.ts';
import { IcrcVerdict } from '../read/packet.ts';
import type { Transit, TransitEvent, TransitFate } from './comparison.ts';

export type Side = 'a' | 'b';

/** A packet at one tap. */
export interface Sighting {
  tap: Side;
  identity: string;
  frame: number;
  /** By clock A, since its first frame: for tap B corrected. */
  time: number;
  icrc: number;
  source: string;
  destination: string;
  opcode: string;
  destQp: number;
  psn: number;
}

/** The time that a packet waits for its sighting at the other tap; no network holds a packet longer. */
const PATIENCE_NANOSECONDS = 2e9;
/** Limit of packets that wait at once, and of identities that are kept to recognize duplicates. */
const MAX_WAITING = 1 << 18;
const MAX_EVENTS = 5000;
/** Bound of the error of the corrected clocks: a packet may seem to arrive so much before it left. */
const TOLERANCE_NANOSECONDS = 1e6;

interface Waiting extends Sighting {
  /** Its place among the packets of its direction at the tap near the sender. */
  order: number;
}

class TransitBuilder {
  readonly counts = { sent: 0, arrived: 0, lost: 0, damaged: 0, duplicated: 0, unseen: 0, reordered: 0 };
  readonly delay = new DistributionBuilder();
  order = 0;
  newest = -1;
  fastest = 0;

  result(from: Side): Transit {
    return { from, ...this.counts, delay: this.delay.result() };
  }
}

/** Takes sightings of both taps in the order of their corrected times. */
export class TransitFollower {
  readonly events: TransitEvent[] = [];
  eventCount = 0;
  unplaced = 0;
  readonly #sides: ReadonlyMap<string, Side>;
  /** The time that both captures cover: what only one of them has outside of it, the other could not see. */
  readonly #start: number;
  readonly #end: number;
  readonly outside = { a: 0, b: 0 };
  readonly #transits = { a: new TransitBuilder(), b: new TransitBuilder() };
  /** By identity, at the tap near the sender and at the other; oldest first. */
  readonly #near = new Map<string, Waiting[]>();
  readonly #far = new Map<string, Waiting[]>();
  /** All that wait, in the order of their times. Those that were matched meanwhile are in `#settled`. */
  #queue: Waiting[] = [];
  #head = 0;
  readonly #settled = new Set<Waiting>();
  /** Identities that have arrived, the oldest first. */
  readonly #arrived = new Map<string, number>();

  constructor(sides: ReadonlyMap<string, Side>, start: number, end: number) {
    this.#sides = sides;
    this.#start = start;
    this.#end = end;
  }

  add(sighting: Sighting): void {
    const from = this.#sides.get(sighting.source);
    if (from === undefined) {
      this.unplaced++;
      return;
    }
    this.#expire(sighting.time - PATIENCE_NANOSECONDS);
    const transit = this.#transits[from];
    const isNear = sighting.tap === from;
    const waiting: Waiting = { ...sighting, order: isNear ? transit.order++ : -1 };
    const partner = isNear
      ? this.#take(this.#far, waiting.identity, (far) => far.time >= waiting.time - TOLERANCE_NANOSECONDS)
      : this.#takeNear(waiting);
    if (partner !== undefined) {
      const [near, far] = isNear ? [waiting, partner] : [partner, waiting];
      this.#arrive(transit, near, far);
    } else if (!isNear && this.#arrived.has(waiting.identity)) {
      this.#note(transit, 'duplicated', undefined, waiting);
    } else {
      const map = isNear ? this.#near : this.#far;
      const others = map.get(waiting.identity);
      if (others === undefined) map.set(waiting.identity, [waiting]);
      else others.push(waiting);
      this.#queue.push(waiting);
    }
  }

  finish(): { aToB: Transit; bToA: Transit } {
    this.#expire(Number.POSITIVE_INFINITY);
    this.events.sort((x, y) => x.time - y.time);
    return { aToB: this.#transits.a.result('a'), bToA: this.#transits.b.result('b') };
  }

  /**
   * The copy that arrived. Where copies share an identity (IPv6), the newest one that can have come so quickly: a retransmission is sent when
   * the first copy should have been answered.
   */
  #takeNear(far: Waiting): Waiting | undefined {
    const { fastest } = this.#transits[far.tap === 'a' ? 'b' : 'a'];
    const latest = far.time - fastest + TOLERANCE_NANOSECONDS;
    return this.#take(this.#near, far.identity, (near) => near.time <= latest);
  }

  /** Removes the newest that waits under this identity and that `suits`. */
  #take(
    map: Map<string, Waiting[]>,
    identity: string,
    suits: (one: Waiting) => boolean,
  ): Waiting | undefined {
    const all = map.get(identity);
    const index = all?.findLastIndex(suits) ?? -1;
    if (all === undefined || index < 0) return undefined;
    const [found] = all.splice(index, 1);
    if (all.length === 0) map.delete(identity);
    this.#settled.add(found);
    return found;
  }

  #arrive(transit: TransitBuilder, near: Waiting, far: Waiting): void {
    this.#arrived.delete(near.identity);
    this.#arrived.set(near.identity, far.time);
    if (this.#arrived.size > MAX_WAITING) this.#arrived.delete(this.#arrived.keys().next().value as string);
    const { counts } = transit;
    const delay = far.time - near.time;
    if (counts.arrived === 0 || delay < transit.fastest) transit.fastest = delay;
    counts.sent++;
    counts.arrived++;
    transit.delay.add(delay);
    if (near.order < transit.newest) counts.reordered++;
    else transit.newest = near.order;
    if (near.icrc === IcrcVerdict.OK && far.icrc === IcrcVerdict.BAD)
      this.#note(transit, 'damaged', near, far);
  }

  /** Gives up on packets that wait since before `time`. */
  #expire(time: number): void {
    while (this.#head < this.#queue.length) {
      const oldest = this.#queue[this.#head];
      const full = this.#queue.length - this.#head - this.#settled.size > MAX_WAITING;
      if (oldest.time >= time && !full && !this.#settled.has(oldest)) break;
      this.#head++;
      if (this.#settled.delete(oldest)) continue;
      this.#forget(oldest);
      this.#miss(oldest);
    }
    if (this.#head > 4096 && this.#head * 2 > this.#queue.length) {
      this.#queue = this.#queue.slice(this.#head);
      this.#head = 0;
    }
  }

  #forget(one: Waiting): void {
    const map = one.order >= 0 ? this.#near : this.#far;
    const left = map.get(one.identity)?.filter((other) => other !== one) ?? [];
    if (left.length === 0) map.delete(one.identity);
    else map.set(one.identity, left);
  }

  /** A packet that one tap saw and the other did not. */
  #miss(one: Waiting): void {
    if (!this.#isInside(one)) {
      this.outside[one.tap]++;
      return;
    }
    const isNear = one.order >= 0;
    const transit = this.#transits[isNear ? one.tap : one.tap === 'a' ? 'b' : 'a'];
    if (isNear) transit.counts.sent++;
    this.#note(transit, isNear ? 'lost' : 'unseen', isNear ? one : undefined, isNear ? undefined : one);
  }

  #isInside({ time }: Sighting): boolean {
    return time >= this.#start && time <= this.#end;
  }

  #note(
    transit: TransitBuilder,
    fate: TransitFate,
    near: Sighting | undefined,
    far: Sighting | undefined,
  ): void {
    transit.counts[fate]++;
    this.eventCount++;
    if (this.events.length >= MAX_EVENTS) return;
    const { time, source, destination, opcode, destQp, psn } = (near ?? far) as Sighting;
    const frameAt = (tap: Side) =>
      near?.tap === tap ? near.frame : far?.tap === tap ? far.frame : undefined;
    const [frameA, frameB] = [frameAt('a'), frameAt('b')];
    this.events.push({ fate, frameA, frameB, time, source, destination, opcode, destQp, psn });
  }
}
