/**
 * Impairments of packets: loss by itself and in bursts, a rate and a queue, ECN marks, duplicates,
 * corruption, delay and reordering. Pure: time comes in, and what happens follows from the random source alone.
 * The fault link and the simulator's wires both are made of it.
 */
import { invalid } from '@node-roce/transport';
import { ECN_CE, ECN_MASK, type Random } from '@node-roce/wire';

/** Probabilities are 0 … 1, times µs. Absent faults do not happen. */
export interface Faults {
  /** A packet vanishes, each by itself. */
  loss?: number;
  /** Losses in bursts (Gilbert's model): the chances that a packet has to begin and to end one. */
  burst?: { begin: number; end: number };
  /** A packet comes twice. */
  duplicate?: number;
  /** A bit turns over: the ICRC is wrong. */
  corrupt?: number;
  /** A packet takes `reorderBy` longer, so that others overtake it. */
  reorder?: number;
  /** Default 200 µs. */
  reorderBy?: number;
  /** Every packet takes so long: a time, or a least and a greatest. */
  delay?: number | readonly [least: number, greatest: number];
  /** Bits per second, headers down to Ethernet's counted; without it a packet takes no time to send. */
  rate?: number;
  /** Bytes that wait for the rate at most; more is lost. */
  queue?: number;
  /**
   * Bytes waiting from which on ECN-capable packets are marked "congestion experienced" (RFC 3168 §5). Or as switches do it (RED): from
   * `least` on some packets, with a chance that grows to `chance` at `greatest`, and from there on every one.
   */
  markAt?: number | readonly [least: number, greatest: number, chance: number];
}

/** How to look at, and to change, whatever a packet is. Changes give a copy. */
export interface PacketHandling<P> {
  /** Bytes from the BTH through the pad. */
  length(packet: P): number;
  /** DSCP << 2 | ECN. */
  trafficClass(packet: P): number;
  withTrafficClass(packet: P, trafficClass: number): P;
  /** With one bit turned over; undefined where that comes to a loss. */
  damaged(packet: P, random: Random): P | undefined;
}

const DEFAULT_REORDER_BY = 200;
/** Bytes of Ethernet, IPv4, UDP and ICRC round what `length` counts. */
const OVERHEAD = 14 + 20 + 8 + 4;

/** Seeded decisions about packets: loss, duplicates, corruption, delay. */
export class Impairment<P> {
  readonly counts = { lost: 0, duplicated: 0, corrupted: 0, reordered: 0, marked: 0 };
  readonly #faults: Faults;
  readonly #random: Random;
  readonly #handling: PacketHandling<P>;
  #inBurst = false;
  /** When the packets accepted so far will have been sent. */
  #busyUntil = 0;

  constructor(faults: Faults, random: Random, handling: PacketHandling<P>) {
    this.#faults = faults;
    this.#random = random;
    this.#handling = handling;
  }

  /** Bytes that wait for the rate. */
  queued(now: number): number {
    return (Math.max(0, this.#busyUntil - now) * (this.#faults.rate ?? 0)) / 8e6;
  }

  /** The copies that arrive of a packet sent now: nothing, it, or it twice, each with its time. */
  carry(packet: P, now: number): { packet: P; time: number }[] {
    if (this.#isLost()) return this.#lose();
    const sent = this.#send(packet, now);
    if (sent === undefined) return this.#lose();
    const twice = this.#random.chance(this.#faults.duplicate ?? 0);
    if (twice) this.counts.duplicated++;
    const arrivals: { packet: P; time: number }[] = [];
    for (let copy = 0; copy < (twice ? 2 : 1); copy++) {
      const carried = this.#damage(sent.packet);
      const time = sent.time + this.#delay();
      if (carried === undefined) this.counts.lost++;
      else arrivals.push({ packet: carried, time });
    }
    return arrivals;
  }

  #lose(): [] {
    this.counts.lost++;
    return [];
  }

  #isLost(): boolean {
    const { loss, burst } = this.#faults;
    if (burst !== undefined) {
      this.#inBurst = this.#random.chance(this.#inBurst ? 1 - burst.end : burst.begin);
      if (this.#inBurst) return true;
    }
    return this.#random.chance(loss ?? 0);
  }

  /** The sender's queue: when the packet has left, marked if others waited; nothing if there was no room. */
  #send(packet: P, now: number): { packet: P; time: number } | undefined {
    const { rate, queue, markAt } = this.#faults;
    if (rate === undefined) return { packet, time: now };
    const start = Math.max(now, this.#busyUntil);
    const waiting = ((start - now) * rate) / 8e6;
    const bytes = this.#handling.length(packet) + OVERHEAD;
    if (queue !== undefined && waiting + bytes > queue) return undefined;
    this.#busyUntil = start + (bytes * 8e6) / rate;
    const trafficClass = this.#handling.trafficClass(packet);
    const capable = (trafficClass & ECN_MASK) !== 0;
    if (markAt === undefined || !capable || !this.#marks(markAt, waiting)) {
      return { packet, time: this.#busyUntil };
    }
    this.counts.marked++;
    return { packet: this.#handling.withTrafficClass(packet, trafficClass | ECN_CE), time: this.#busyUntil };
  }

  #marks(markAt: NonNullable<Faults['markAt']>, waiting: number): boolean {
    if (typeof markAt === 'number') return waiting >= markAt;
    const [least, greatest, chance] = markAt;
    if (waiting < least || waiting >= greatest) return waiting >= greatest;
    return this.#random.chance((chance * (waiting - least)) / (greatest - least));
  }

  #damage(packet: P): P | undefined {
    if (!this.#random.chance(this.#faults.corrupt ?? 0)) return packet;
    const damaged = this.#handling.damaged(packet, this.#random);
    if (damaged !== undefined) this.counts.corrupted++;
    return damaged;
  }

  #delay(): number {
    const { delay = 0, reorder = 0, reorderBy = DEFAULT_REORDER_BY } = this.#faults;
    const time = typeof delay === 'number' ? delay : delay[0] + this.#random.unit() * (delay[1] - delay[0]);
    if (!this.#random.chance(reorder)) return time;
    this.counts.reordered++;
    return time + reorderBy;
  }
}

/** @throws RoceError (EINVAL) naming what is wrong */
export function checkFaults(faults: Faults): void {
  const { burst, delay = 0, reorderBy = 0, rate = 1, queue = 0, markAt = 0 } = faults;
  const shares: [string, number | undefined][] = [
    ...(['loss', 'duplicate', 'corrupt', 'reorder'] as const).map((name): [string, number | undefined] => [
      name,
      faults[name],
    ]),
    ['burst', burst?.begin],
    ['burst', burst?.end],
    ['markAt', typeof markAt === 'number' ? 0 : (markAt[2] ?? Number.NaN)],
  ];
  for (const [name, value = 0] of shares) {
    if (!(value >= 0 && value <= 1)) throw invalid(`faults.${name}`, `${value}`, 'a probability of 0 … 1');
  }
  const amounts: [string, number, string][] = [
    ['reorderBy', reorderBy, 'microseconds, 0 or more'],
    ...[delay].flat().map((time): [string, number, string] => ['delay', time, 'microseconds, 0 or more']),
    ['queue', queue, 'bytes, 0 or more'],
    ...[markAt].flat().map((bytes): [string, number, string] => ['markAt', bytes, 'bytes, 0 or more']),
  ];
  for (const [name, value, expected] of amounts) {
    if (!(value >= 0 && value < Number.POSITIVE_INFINITY))
      throw invalid(`faults.${name}`, `${value}`, expected);
  }
  if (!(rate > 0)) throw invalid('faults.rate', `${rate}`, 'bits per second, more than 0');
}
