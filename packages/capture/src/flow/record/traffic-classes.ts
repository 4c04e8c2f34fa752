/** Traffic classes of a direction, by the headers of its packets: DSCP, priority, TTL and ECN. */
import type { RocePacket } from '../../read/packet.ts';

/** Combinations that are counted apart; more come together in the last. */
const MAX_CLASSES = 16;

/** Packets with the same DSCP, priority and TTL. */
export interface TrafficClass {
  /** Upper six bits of the traffic class. */
  dscp: number;
  /** Priority of the innermost VLAN tag (PCP); −1: no tag. */
  pcp: number;
  /** TTL or hop limit as captured: a route that changes shows in it. */
  ttl: number;
  packets: number;
}

/** Packets by ECN codepoint (RFC 3168). */
export interface EcnCounts {
  notEct: number;
  ect1: number;
  ect0: number;
  ce: number;
}

/** Counts the classes of one direction's packets; allocates nothing but for a new class. */
export class TrafficClasses {
  readonly classes: TrafficClass[] = [];
  readonly ecn: EcnCounts = { notEct: 0, ect1: 0, ect0: 0, ce: 0 };
  #last: TrafficClass | undefined;

  add(packet: RocePacket): void {
    const { dscp, pcp, hopLimit, ecn } = packet;
    if (ecn === 0) this.ecn.notEct++;
    else if (ecn === 1) this.ecn.ect1++;
    else if (ecn === 2) this.ecn.ect0++;
    else this.ecn.ce++;
    const last = this.#last;
    if (last !== undefined && last.dscp === dscp && last.pcp === pcp && last.ttl === hopLimit) last.packets++;
    else this.#find(dscp, pcp, hopLimit).packets++;
  }

  #find(dscp: number, pcp: number, ttl: number): TrafficClass {
    const { classes } = this;
    let found = classes.find((each) => each.dscp === dscp && each.pcp === pcp && each.ttl === ttl);
    if (found === undefined && classes.length < MAX_CLASSES) {
      found = { dscp, pcp, ttl, packets: 0 };
      classes.push(found);
    }
    this.#last = found ?? classes[MAX_CLASSES - 1];
    return this.#last;
  }
}
