/** The way of a direction, as the headers of its packets show it: classes, marks, checksums, ICRCs. */
import { ECN_CE } from '@node-roce/wire';
import { IcrcVerdict, type RocePacket } from '../../read/packet.ts';
import { DistributionBuilder } from '../record/distribution.ts';
import { PathFacts } from '../record/path-facts.ts';
import { TrafficClasses } from '../record/traffic-classes.ts';
import { IcrcTrial } from './icrc-trial.ts';

/** The way of one direction. While `trial` is there no packet has had a right ICRC. */
export class Path {
  readonly traffic = new TrafficClasses();
  readonly congestion = new CongestionWatch();
  #facts: PathFacts;
  #trial: IcrcTrial | undefined;

  constructor(packet: RocePacket) {
    this.#facts = new PathFacts(packet);
    if (packet.icrc === IcrcVerdict.BAD) this.#trial = new IcrcTrial();
  }

  get facts(): PathFacts {
    return this.#facts;
  }

  /** Its packets have wrong ICRCs, all so far: they are taken all the same, and this looks for the reason. */
  get trial(): IcrcTrial | undefined {
    return this.#trial;
  }

  /** The first packet with a right ICRC: what the ones before it showed is not to be believed. */
  believe(packet: RocePacket): void {
    this.#trial = undefined;
    this.#facts = new PathFacts(packet);
  }

  /** A packet that counts. @returns whether it is marked as congested */
  take(packet: RocePacket): boolean {
    this.#facts.add(packet);
    if (packet.ecn !== ECN_CE) return false;
    this.congestion.marked(packet.time);
    return true;
  }
}

/** Times from the first ECN mark of a direction to the next CNP. */
class CongestionWatch {
  /** From the first mark in this direction to the first CNP against it. */
  readonly delay = new DistributionBuilder();
  #markedAt = Number.NaN;

  /** A packet of this direction has CE. */
  marked(time: number): void {
    if (Number.isNaN(this.#markedAt)) this.#markedAt = time;
  }

  /** The other direction has a CNP. */
  notified(time: number): void {
    if (Number.isNaN(this.#markedAt)) return;
    this.delay.add(time - this.#markedAt);
    this.#markedAt = Number.NaN;
  }
}
