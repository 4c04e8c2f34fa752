/** Which senders have right ICRCs: of those a wrong one is damage, and of the others none can be judged by it. */
import type { Addresses, RocePacket } from '../../read/packet.ts';
import { IcrcTrial } from './icrc-trial.ts';

/** Messages of the connection manager from a sender whose ICRCs are all wrong. */
export interface WrongCm {
  source: string;
  trial: IcrcTrial;
  frame: number;
}

interface Ends {
  readonly source: number;
  readonly destination: number;
}

/** Two addresses as one number: address numbers have 16 bits. */
const pairKey = ({ source, destination }: Ends): number => source * 65_536 + destination;

/** Address pairs that a packet with a right ICRC, or one that was not checked, was seen between. */
export class RightIcrcs {
  readonly #right = new Set<number>();
  /** The first sender of messages of the connection manager whose ICRCs are wrong. */
  #cmTrial: { source: number; key: number; frame: number; trial: IcrcTrial } | undefined;

  note(ends: Ends): void {
    this.#right.add(pairKey(ends));
  }

  has(ends: Ends): boolean {
    return this.#right.has(pairKey(ends));
  }

  /** A message of the connection manager with a wrong ICRC, of a sender that has had no right one. */
  tryCm(packet: RocePacket): void {
    const { source, frame } = packet;
    this.#cmTrial ??= { source, key: pairKey(packet), frame, trial: new IcrcTrial() };
    if (this.#cmTrial.source === source) this.#cmTrial.trial.try(packet);
  }

  wrongCm(addresses: Addresses): WrongCm | undefined {
    const found = this.#cmTrial;
    if (found === undefined || this.#right.has(found.key)) return undefined;
    return { source: addresses.text(found.source), trial: found.trial, frame: found.frame };
  }
}
