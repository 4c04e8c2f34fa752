/** One direction of a faulty link: draws what happens to each packet, and holds those that are late. */
import { invalid } from '@node-roce/transport';

/** Probabilities are 0 … 1, times µs. */
export interface Faults {
  /** A packet vanishes. */
  loss?: number;
  /** A packet comes twice. */
  duplicate?: number;
  /** A bit turns over: the ICRC is wrong. A packet on its way out is lost instead, as its receiver does. */
  corrupt?: number;
  /** A packet is held back for `reorderBy`, so that others overtake it. */
  reorder?: number;
  /** Default 200 µs. */
  reorderBy?: number;
  /** Every packet comes later by so much: a time, or a least and a greatest. */
  delay?: number | readonly [least: number, greatest: number];
}

export interface FaultOptions extends Faults {
  /** Any 32-bit number; 1 unless given. */
  seed?: number;
  /** Default both. */
  direction?: 'both' | 'inbound' | 'outbound';
}

/** A packet with memory of its own. */
export interface HeldPacket {
  bytes: Uint8Array;
  slot: Uint32Array;
  source: Uint8Array | undefined;
}

const DEFAULT_REORDER_BY = 200;
/** Packets held at once; more are lost, as in a router. */
const HELD_LIMIT = 16_384;

/** @throws RoceError (EINVAL) naming what is wrong */
export function checkFaults(options: FaultOptions): void {
  for (const name of ['loss', 'duplicate', 'corrupt', 'reorder'] as const) {
    const value = options[name] ?? 0;
    if (!(value >= 0 && value <= 1)) throw invalid(`faults.${name}`, `${value}`, 'a probability of 0 … 1');
  }
  for (const value of [options.reorderBy ?? 0, ...[options.delay ?? 0].flat()]) {
    if (!(value >= 0 && value < Number.POSITIVE_INFINITY)) {
      throw invalid('faults.delay', `${value}`, 'microseconds, 0 or more');
    }
  }
  const { direction = 'both' } = options;
  if (!['both', 'inbound', 'outbound'].includes(direction)) {
    throw invalid('faults.direction', `${direction}`, 'both, inbound or outbound');
  }
}

export class FaultPath {
  readonly counts = { lost: 0, duplicated: 0, corrupted: 0, reordered: 0 };
  readonly #faults: Faults;
  readonly #least: number;
  readonly #greatest: number;
  /** By the time they are due, then in their order. */
  readonly #held: { packet: HeldPacket; due: number }[] = [];
  #state: number;

  constructor(faults: Faults, seed: number) {
    this.#faults = faults;
    const { delay = 0 } = faults;
    [this.#least, this.#greatest] = typeof delay === 'number' ? [delay, delay] : delay;
    this.#state = seed >>> 0;
  }

  /** When the next packet is due; Infinity if none is held. */
  get next(): number {
    return this.#held[0]?.due ?? Number.POSITIVE_INFINITY;
  }

  /**
   * Decides over a packet. Six draws for each, whatever they come to: so one fault that is switched on
   * does not change what the others do.
   *
   * @param spoil damages a packet; without it a packet to be damaged is lost
   */
  offer(
    packet: HeldPacket,
    now: number,
    spoil: ((packet: HeldPacket, random: number) => void) | undefined,
  ): void {
    const {
      loss = 0,
      corrupt = 0,
      duplicate = 0,
      reorder = 0,
      reorderBy = DEFAULT_REORDER_BY,
    } = this.#faults;
    const lost = this.#draw() < loss;
    const spoilt = this.#draw() < corrupt;
    const bit = Math.floor(this.#draw() * 0x1_0000_0000);
    const twice = this.#draw() < duplicate;
    const late = this.#draw() < reorder;
    const delay = this.#least + this.#draw() * (this.#greatest - this.#least);
    if (lost || (spoilt && !spoil)) {
      this.counts.lost++;
      return;
    }
    if (spoilt && spoil) {
      this.counts.corrupted++;
      spoil(packet, bit);
    }
    if (late) this.counts.reordered++;
    const due = now + delay;
    this.#hold(packet, late ? due + reorderBy : due);
    if (!twice) return;
    this.counts.duplicated++;
    this.#hold(packet, due);
  }

  #hold(packet: HeldPacket, due: number): void {
    if (this.#held.length >= HELD_LIMIT) {
      this.counts.lost++;
      return;
    }
    let at = this.#held.length;
    while (at > 0 && this.#held[at - 1].due > due) at--;
    this.#held.splice(at, 0, { packet, due });
  }

  /** The first packet if it is due. */
  peek(now: number): HeldPacket | undefined {
    const first = this.#held[0];
    return first && first.due <= now ? first.packet : undefined;
  }

  /** Takes it. */
  take(now: number): HeldPacket | undefined {
    const packet = this.peek(now);
    if (packet) this.#held.shift();
    return packet;
  }

  /** 0 ≤ x < 1; mulberry32, which is the same on every machine. */
  #draw(): number {
    this.#state = (this.#state + 0x6d2b_79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 0x1_0000_0000;
  }
}
