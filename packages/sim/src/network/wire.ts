/** One direction of a link: what becomes of a packet between two hosts. */
import { type Faults, Impairment, type PacketHandling } from '@node-roce/link';
import type { RetransmitCause } from '@node-roce/transport';
import type { Random } from '@node-roce/wire';

/** A packet on its way: the bytes from the BTH through the pad. */
export interface SimPacket {
  bytes: Uint8Array;
  /** 16 bytes each. */
  source: Uint8Array;
  destination: Uint8Array;
  /** DSCP << 2 | ECN. */
  trafficClass: number;
  sourcePort: number;
  /** The ICRC would be wrong. */
  corrupt: boolean;
  /** It was sent before, and is retransmitted for this cause: the sender's own word. */
  retransmission?: RetransmitCause;
  /** Counts the packets sent on the network, from 1: two arrivals with one number are one packet that came twice. */
  serial?: number;
  /** IPv4 Identification. */
  ipId?: number;
}

/** The behaviour of a link: `delay` is 10 µs by default, `reorderBy` five times the delay. */
export interface WireOptions extends Faults {
  delay?: number;
  /** Packets this returns true for are lost: for scenarios. `index` counts the packets sent, from 0. */
  drop?: (packet: SimPacket, index: number) => boolean;
}

const HANDLING: PacketHandling<SimPacket> = {
  length: ({ bytes }) => bytes.length,
  trafficClass: ({ trafficClass }) => trafficClass,
  withTrafficClass: (packet, trafficClass) => ({ ...packet, trafficClass }),
  damaged: (packet, random) => {
    const bytes = packet.bytes.slice();
    bytes[random.between(0, bytes.length - 1)] ^= 1 << random.between(0, 7);
    return { ...packet, bytes, corrupt: true };
  },
};

/** One direction of a way between hosts: loss, reordering, delay, rate and marks from a seed. */
export class Wire {
  readonly #impairment: Impairment<SimPacket>;
  readonly #drop: WireOptions['drop'];
  #sent = 0;

  constructor({ drop, ...faults }: WireOptions, random: Random) {
    const { delay = 10, reorderBy = 5 * delay } = faults;
    this.#impairment = new Impairment({ ...faults, delay, reorderBy }, random, HANDLING);
    this.#drop = drop;
  }

  /** Packets lost, duplicated, corrupted, reordered and marked so far; without those that `drop` took. */
  get counts(): Readonly<Record<string, number>> {
    return this.#impairment.counts;
  }

  /** Bytes that wait to be sent. */
  queued(now: number): number {
    return this.#impairment.queued(now);
  }

  /** The copies that arrive of a packet sent now: nothing, it, or it twice, each with its time, µs. */
  carry(packet: SimPacket, now: number): { packet: SimPacket; time: number }[] {
    if (this.#drop?.(packet, this.#sent++)) return [];
    return this.#impairment.carry(packet, now);
  }
}
