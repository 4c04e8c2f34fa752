/** A sample of a capture's packets: of both captures the same ones, in bounded memory. */
import type { RocePacket } from '../read/packet.ts';
import type { PacketReader } from '../read/reader.ts';
import { hashOf, identityOf } from './identity.ts';

export interface Sample {
  /** Since the epoch, in two parts: nanoseconds of it do not fit a number. */
  seconds: number;
  nanoseconds: number;
  source: string;
  destination: string;
}

/** Identities that are kept. */
const MAX_SAMPLES = 1 << 16;

/**
 * Keeps the packets whose identity's hash is a multiple of 2^level; the level rises as the room fills. Two captures of the same packets
 * then agree on what they keep, whatever their lengths are.
 */
export class PacketSamples {
  /** `null`: the identity came more than once, so it identifies no packet. */
  readonly #samples = new Map<string, Sample | null>();
  #mask = 0;

  add(packet: RocePacket, reader: PacketReader): void {
    const { record, addresses } = reader;
    if (!record.hasTimestamp) return;
    const identity = identityOf(packet, reader);
    if ((hashOf(identity) & this.#mask) !== 0) return;
    const { seconds, nanoseconds } = record;
    const source = addresses.text(packet.source);
    const destination = addresses.text(packet.destination);
    const sample = this.#samples.has(identity) ? null : { seconds, nanoseconds, source, destination };
    this.#samples.set(identity, sample);
    if (this.#samples.size > MAX_SAMPLES) this.#thin(this.#mask * 2 + 1);
  }

  #thin(mask: number): void {
    this.#mask = mask;
    for (const identity of this.#samples.keys())
      if ((hashOf(identity) & mask) !== 0) this.#samples.delete(identity);
  }

  /** The samples that both have once: each with its times in this capture, and in the other. */
  *common(other: PacketSamples): Generator<[Sample, Sample]> {
    for (const [identity, sample] of this.#samples) {
      const theirs = other.#samples.get(identity);
      if (sample !== null && theirs !== undefined && theirs !== null) yield [sample, theirs];
    }
  }
}
