/**
 * Hosts joined by links, in virtual time: nothing waits, and the same seed gives the same run.
 *
 * A step goes to the next moment at which anything happens; there every host takes what arrived, then
 * runs the timers that are due, then sends: the order of the real run loop.
 */

import { createRandom } from '@node-roce/link';
import { gidEquals } from '@node-roce/wire';
import { type SimPacket, Wire, type WireOptions } from './wire.ts';

/** An adapter, or a model, on the network. Times are µs. */
export interface SimHost {
  /** 16 bytes. */
  readonly gid: Uint8Array;
  /** Multicast groups that it takes packets of. */
  readonly groups?: readonly Uint8Array[];
  receive(packets: SimPacket[], now: number): void;
  advance(now: number): void;
  /** All that may be sent now. */
  transmit(now: number): SimPacket[];
  nextDeadline(): number;
}

/** A packet as it was sent or as it arrived. */
export interface TracedPacket extends SimPacket {
  /** µs. */
  time: number;
  event: 'sent' | 'arrived';
}

export class Network {
  now = 0;
  /** Every packet sent and arrived, in order, while `record` is set. */
  readonly trace: TracedPacket[] = [];
  record = true;
  readonly #seed: number;
  readonly #hosts: SimHost[] = [];
  readonly #wires = new Map<string, Wire>();
  readonly #stalled = new Map<SimHost, number>();
  /** In order of time. */
  #flying: { packet: SimPacket; time: number; host: SimHost }[] = [];

  constructor(seed = 1) {
    this.#seed = seed;
  }

  add(host: SimHost): void {
    this.#hosts.push(host);
  }

  /** Sets what the way from one host to another does; until then, and by default, it only delays. */
  link(from: SimHost, to: SimHost, options: WireOptions): void {
    const [i, j] = [this.#hosts.indexOf(from), this.#hosts.indexOf(to)];
    this.#wires.set(`${i} ${j}`, new Wire(options, createRandom(this.#seed * 1009 + i * 31 + j)));
  }

  /** Steps until `done`, or until nothing more can happen before `until` µs. True if `done`. */
  run(done: () => boolean, until = 60e6): boolean {
    while (!done()) {
      this.#send(); // what `done` posted
      const next = Math.min(...this.#hosts.map((host) => this.#wakeTime(host)));
      if (!(next <= until)) return false;
      this.now = Math.max(this.now, next);
      this.#step();
    }
    return true;
  }

  /** The host's thread does nothing before `until` µs: what arrives for it waits, its timers run late. */
  stall(host: SimHost, until: number): void {
    this.#stalled.set(host, until);
  }

  #stalledUntil(host: SimHost): number {
    return this.#stalled.get(host) ?? 0;
  }

  /** When a host next has something to do. */
  #wakeTime(host: SimHost): number {
    const arrival = this.#flying.find((flight) => flight.host === host)?.time ?? Number.POSITIVE_INFINITY;
    return Math.max(this.#stalledUntil(host), Math.min(arrival, host.nextDeadline()));
  }

  /** Lets this much time pass, µs. */
  pass(microseconds: number): void {
    const end = this.now + microseconds;
    this.run(() => false, end);
    this.now = end;
  }

  #step(): void {
    for (const host of this.#hosts) {
      if (this.#stalledUntil(host) > this.now) continue;
      const arrived = this.#takeArrived(host);
      if (arrived.length > 0) host.receive(arrived, this.now);
      host.advance(this.now);
    }
    this.#send();
  }

  #takeArrived(host: SimHost): SimPacket[] {
    const due = this.#flying.filter((flight) => flight.host === host && flight.time <= this.now);
    if (due.length === 0) return [];
    this.#flying = this.#flying.filter((flight) => !(flight.host === host && flight.time <= this.now));
    if (this.record) {
      for (const { packet, time } of due) this.trace.push({ ...packet, time, event: 'arrived' });
    }
    return due.map(({ packet }) => packet);
  }

  #send(): void {
    for (const from of this.#hosts) {
      if (this.#stalledUntil(from) > this.now) continue;
      for (const packet of from.transmit(this.now)) {
        if (this.record) this.trace.push({ ...packet, time: this.now, event: 'sent' });
        for (const host of this.#hosts.filter((host) => host !== from && hears(host, packet.destination))) {
          for (const { packet: carried, time } of this.#wire(from, host).carry(packet, this.now)) {
            this.#fly({ packet: carried, time, host });
          }
        }
      }
    }
  }

  /** Keeps the order of time; packets of one time keep the order in which they were sent. */
  #fly(flight: { packet: SimPacket; time: number; host: SimHost }): void {
    let at = this.#flying.length;
    while (at > 0 && this.#flying[at - 1].time > flight.time) at--;
    this.#flying.splice(at, 0, flight);
  }

  #wire(from: SimHost, to: SimHost): Wire {
    const key = `${this.#hosts.indexOf(from)} ${this.#hosts.indexOf(to)}`;
    let wire = this.#wires.get(key);
    if (wire === undefined) {
      wire = new Wire({}, createRandom(this.#seed));
      this.#wires.set(key, wire);
    }
    return wire;
  }
}

function hears({ gid, groups = [] }: SimHost, destination: Uint8Array): boolean {
  return [gid, ...groups].some((own) => gidEquals(own, destination));
}
