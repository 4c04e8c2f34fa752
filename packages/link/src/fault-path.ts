/** One direction of a faulty link: what becomes of each packet, and the packets that are on their way. */
import { invalid } from '@node-roce/transport';
import { createRandom } from '@node-roce/wire';
import { checkFaults, type Faults, Impairment, type PacketHandling } from './impairment.ts';

/** Faults of a device's packets (`openDevice({ faults })`), of those it sends and those it receives. */
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

/** Packets held at once; more are lost, as in a router. */
const MAX_HELD = 16_384;

/** @throws RoceError (EINVAL) naming what is wrong */
export function checkFaultOptions(options: FaultOptions): void {
  checkFaults(options);
  const { direction = 'both' } = options;
  if (!['both', 'inbound', 'outbound'].includes(direction)) {
    throw invalid('faults.direction', `${direction}`, 'both, inbound or outbound');
  }
}

/** One direction of a `FaultLink`: drops, duplicates, corrupts and delays packets. */
export class FaultPath {
  readonly #impairment: Impairment<HeldPacket>;
  /** By the time they are due, then in their order. */
  readonly #held: { packet: HeldPacket; due: number }[] = [];
  #overflowed = 0;

  constructor(faults: Faults, seed: number, handling: PacketHandling<HeldPacket>) {
    this.#impairment = new Impairment(faults, createRandom(seed), handling);
  }

  get counts(): Record<string, number> {
    const { counts } = this.#impairment;
    return { ...counts, lost: counts.lost + this.#overflowed };
  }

  /** When the next packet is due; Infinity if none is held. */
  get next(): number {
    return this.#held[0]?.due ?? Number.POSITIVE_INFINITY;
  }

  /** Decides over a packet. */
  offer(packet: HeldPacket, now: number): void {
    for (const { packet: carried, time } of this.#impairment.carry(packet, now)) this.#hold(carried, time);
  }

  #hold(packet: HeldPacket, due: number): void {
    if (this.#held.length >= MAX_HELD) {
      this.#overflowed++;
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
}
