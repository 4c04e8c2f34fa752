/**
 * Hosts joined by links, in virtual time: nothing waits, and the same seed gives the same run.
 *
 * A step goes to the next moment at which anything happens; there every host takes what arrived, then
 * runs the timers that are due, then sends: the order of the real run loop.
 */
import { bthDestQp, createRandom, gidEquals } from '@node-roce/wire';
import { Slowness, type SlowOptions } from './slowness.ts';
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

/** A packet as it was sent, as it passed between two segments of its way, or as it arrived. */
export interface TracedPacket extends SimPacket {
  /** µs. */
  time: number;
  event: 'sent' | 'passed' | 'arrived';
}

/** A packet on its way to a host, with the segments that are still before it. */
interface Flight {
  packet: SimPacket;
  time: number;
  host: SimHost;
  ahead: readonly Wire[];
}

/** A simulated network: hosts, the ways between them, virtual time, and a trace of packets. */
export class Network {
  now = 0;
  /** Every packet sent and arrived, in order, while `record` is set. */
  readonly trace: TracedPacket[] = [];
  record = true;
  /** Sees each packet as it is sent and as it arrives. */
  observer: ((event: 'sent' | 'arrived', packet: SimPacket, host: SimHost) => void) | undefined;
  /** Whether each packet of a host has an IPv4 Identification of its own, as Linux gives it; else all have 0. */
  countsIpIds = true;
  readonly #seed: number;
  readonly #hosts: SimHost[] = [];
  /** The segments between two hosts, by their numbers. */
  readonly #ways = new Map<string, readonly Wire[]>();
  #serial = 0;
  readonly #ipIds = new Map<SimHost, number>();
  readonly #stalled = new Map<SimHost, number>();
  readonly #slow = new Map<SimHost, Slowness>();
  /** In order of time. */
  #flying: Flight[] = [];

  constructor(seed = 1) {
    this.#seed = seed;
  }

  add(host: SimHost): void {
    this.#hosts.push(host);
  }

  /**
   * Sets the faults of the way from one host to another; by default it only delays. With several segments
   * the packets pass a place between each two, where the trace sees them. Several ways may share a `Wire`: a switch's port.
   */
  link(from: SimHost, to: SimHost, ...segments: (WireOptions | Wire)[]): void {
    const [i, j] = [this.#hosts.indexOf(from), this.#hosts.indexOf(to)];
    const random = (k: number) => createRandom(this.#seed * 1009 + i * 31 + j + k * 7919);
    const wires = segments.map((options, k) =>
      options instanceof Wire ? options : new Wire(options, random(k)),
    );
    this.#ways.set(`${i} ${j}`, wires);
  }

  /** Steps until `done`, or until nothing more can happen before `until` µs. True if `done`. */
  run(done: () => boolean, until = 60e6): boolean {
    while (!done()) {
      this.#send(); // what `done` posted
      const next = Math.min(this.#passTime(), ...this.#hosts.map((host) => this.#wakeTime(host)));
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

  /** The host takes its time from now on: what it has to send waits as well. The same seed gives the same pauses. */
  slow(host: SimHost, options: SlowOptions): void {
    const random = createRandom(this.#seed * 1013 + this.#hosts.indexOf(host));
    this.#slow.set(host, new Slowness(options, random));
  }

  /** Packets on their way to a queue pair. */
  flyingTo(host: SimHost, qpn: number): number {
    return this.#flying.filter((flight) => flight.host === host && bthDestQp(flight.packet.bytes, 0) === qpn)
      .length;
  }

  #stalledUntil(host: SimHost): number {
    return this.#stalled.get(host) ?? 0;
  }

  /** When a host next has something to do. */
  #wakeTime(host: SimHost): number {
    const arrival = this.#flying.find((flight) => flight.host === host && flight.ahead.length === 0)?.time;
    const until = this.#stalledUntil(host);
    // It may have answers to send then.
    if (until > this.now && this.#slow.has(host)) return until;
    return Math.max(until, Math.min(arrival ?? Number.POSITIVE_INFINITY, host.nextDeadline()));
  }

  /** When a packet next comes to the end of a segment with another before it. */
  #passTime(): number {
    return this.#flying.find(({ ahead }) => ahead.length > 0)?.time ?? Number.POSITIVE_INFINITY;
  }

  /** Lets this much time pass, µs. */
  pass(microseconds: number): void {
    const end = this.now + microseconds;
    this.run(() => false, end);
    this.now = end;
  }

  #step(): void {
    this.#pass();
    // A slow host sends the answers that it has worked out before it takes more.
    if (this.#slow.size > 0) this.#send();
    for (const host of this.#hosts) {
      if (this.#stalledUntil(host) > this.now) continue;
      const arrived = this.#takeArrived(host);
      if (arrived.length > 0) host.receive(arrived, this.now);
      host.advance(this.now);
      const slow = this.#slow.get(host);
      if (slow && arrived.length > 0) this.stall(host, this.now + slow.timeFor(arrived.length));
    }
    this.#send();
  }

  /** Takes packets on from one segment to the next. */
  #pass(): void {
    while (this.#passTime() <= this.now) {
      const at = this.#flying.findIndex(({ ahead }) => ahead.length > 0);
      const [{ packet, time, host, ahead }] = this.#flying.splice(at, 1);
      if (this.record) this.trace.push({ ...packet, time, event: 'passed' });
      this.#carry(packet, time, host, ahead);
    }
  }

  #takeArrived(host: SimHost): SimPacket[] {
    const isDue = (flight: Flight) =>
      flight.host === host && flight.time <= this.now && flight.ahead.length === 0;
    const due = this.#flying.filter(isDue).slice(0, this.#slow.get(host)?.batch);
    if (due.length === 0) return [];
    const taken = new Set(due);
    this.#flying = this.#flying.filter((flight) => !taken.has(flight));
    for (const { packet, time } of due) {
      if (this.record) this.trace.push({ ...packet, time, event: 'arrived' });
      this.observer?.('arrived', packet, host);
    }
    return due.map(({ packet }) => packet);
  }

  #send(): void {
    for (const from of this.#hosts) {
      if (this.#stalledUntil(from) > this.now) continue;
      for (const packet of from.transmit(this.now)) {
        packet.serial = ++this.#serial;
        packet.ipId = this.#nextIpId(from);
        if (this.record) this.trace.push({ ...packet, time: this.now, event: 'sent' });
        this.observer?.('sent', packet, from);
        for (const host of this.#hosts.filter((host) => host !== from && hears(host, packet.destination))) {
          this.#carry(packet, this.now, host, this.#way(from, host));
        }
      }
    }
  }

  #nextIpId(host: SimHost): number {
    if (!this.countsIpIds) return 0;
    const id = ((this.#ipIds.get(host) ?? this.#seed * 4093) + 1) & 0xffff;
    this.#ipIds.set(host, id);
    return id;
  }

  #carry(packet: SimPacket, now: number, host: SimHost, [wire, ...ahead]: readonly Wire[]): void {
    for (const carried of wire.carry(packet, now)) this.#fly({ ...carried, host, ahead });
  }

  /** Keeps the order of time; packets of one time keep the order in which they were sent. */
  #fly(flight: Flight): void {
    let at = this.#flying.length;
    while (at > 0 && this.#flying[at - 1].time > flight.time) at--;
    this.#flying.splice(at, 0, flight);
  }

  #way(from: SimHost, to: SimHost): readonly Wire[] {
    const key = `${this.#hosts.indexOf(from)} ${this.#hosts.indexOf(to)}`;
    let way = this.#ways.get(key);
    if (way === undefined) {
      way = [new Wire({}, createRandom(this.#seed))];
      this.#ways.set(key, way);
    }
    return way;
  }
}

function hears({ gid, groups = [] }: SimHost, destination: Uint8Array): boolean {
  return [gid, ...groups].some((own) => gidEquals(own, destination));
}
