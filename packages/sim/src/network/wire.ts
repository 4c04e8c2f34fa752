/** One direction of a link: what becomes of a packet between two hosts. */

import type { Random } from './random.ts';

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
}

/** What a link does to packets. Everything that is left out does not happen. Probabilities are 0 … 1. */
export interface WireOptions {
  /** µs; 10 by default. */
  delay?: number;
  /** Probability that a packet is lost, each by itself. */
  loss?: number;
  /** Losses in bursts (Gilbert's model): the chances a packet has to begin and to end one. */
  burst?: { begin: number; end: number };
  /** Probability that a packet is overtaken: it takes `reorderBy` µs longer (5 × `delay` by default). */
  reorder?: number;
  reorderBy?: number;
  duplicate?: number;
  /** Probability that a bit is flipped. */
  corrupt?: number;
  /** Bits per second; without it a packet takes no time to send. */
  rate?: number;
  /** Bytes that wait for the rate at most; more is dropped. */
  queue?: number;
  /** Bytes waiting from which on ECN-capable packets are marked (RFC 3168). */
  markAt?: number;
  /** Packets this returns true for are lost: for scenarios. `index` counts the packets sent, from 0. */
  drop?: (packet: SimPacket, index: number) => boolean;
}

/** Bytes of Ethernet, IP, UDP and ICRC round what `SimPacket.bytes` holds. */
const OVERHEAD = 14 + 20 + 8 + 4;

const ECN_CE = 3;

export class Wire {
  readonly options: WireOptions;
  readonly #random: Random;
  #sent = 0;
  #inBurst = false;
  /** When the packets accepted so far will have been sent. */
  #busyUntil = 0;

  constructor(options: WireOptions, random: Random) {
    this.options = options;
    this.#random = random;
  }

  /** What arrives of a packet sent now: nothing, it, or it twice, each with its time, µs. */
  carry(packet: SimPacket, now: number): { packet: SimPacket; time: number }[] {
    const { options } = this;
    const index = this.#sent++;
    if (options.drop?.(packet, index) || this.#isLost()) return [];
    const sent = this.#send(packet, now);
    if (sent === undefined) return [];
    const copies = this.#random.chance(options.duplicate ?? 0) ? 2 : 1;
    return Array.from({ length: copies }, () => ({
      packet: this.#damage(sent.packet),
      time: sent.time + this.#delay(),
    }));
  }

  #isLost(): boolean {
    const { loss, burst } = this.options;
    if (burst !== undefined) {
      this.#inBurst = this.#random.chance(this.#inBurst ? 1 - burst.end : burst.begin);
      if (this.#inBurst) return true;
    }
    return this.#random.chance(loss ?? 0);
  }

  /** The sender's queue: when the packet has left, marked if others waited; nothing if there was no room. */
  #send(packet: SimPacket, now: number): { packet: SimPacket; time: number } | undefined {
    const { rate, queue, markAt } = this.options;
    if (rate === undefined) return { packet, time: now };
    const start = Math.max(now, this.#busyUntil);
    const waiting = ((start - now) * rate) / 8e6;
    const bytes = packet.bytes.length + OVERHEAD;
    if (queue !== undefined && waiting + bytes > queue) return undefined;
    this.#busyUntil = start + (bytes * 8e6) / rate;
    const capable = (packet.trafficClass & 3) !== 0;
    const marked = markAt !== undefined && waiting >= markAt && capable;
    return {
      packet: marked ? { ...packet, trafficClass: packet.trafficClass | ECN_CE } : packet,
      time: this.#busyUntil,
    };
  }

  #delay(): number {
    const { delay = 10, reorder = 0, reorderBy = 5 * delay } = this.options;
    return this.#random.chance(reorder) ? delay + reorderBy : delay;
  }

  #damage(packet: SimPacket): SimPacket {
    if (!this.#random.chance(this.options.corrupt ?? 0)) return packet;
    const bytes = packet.bytes.slice();
    bytes[this.#random.between(0, bytes.length - 1)] ^= 1 << this.#random.between(0, 7);
    return { ...packet, bytes, corrupt: true };
  }
}
