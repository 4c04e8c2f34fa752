/**
 * Hosts whose programs make, use and end connections all the time, some at once and one after another, over a bad
 * network and links that have no room now and then.
 */
import {
  decodePacket,
  type EndpointKind,
  EngineDevice,
  ModelDevice,
  type ModelPacket,
  Network,
  rowOf,
  type SimDevice,
  type SimHost,
  type SimPacket,
  type WireOptions,
} from '@node-roce/sim';
import type { Congestion, Recovery } from '@node-roce/transport';
import {
  AethKind,
  aethKind,
  aethValue,
  bthOpcode,
  createRandom,
  gidEquals,
  gidFromText,
  Opcode,
  type Random,
  rnrTimerMicroseconds,
} from '@node-roce/wire';
import { require } from '../../../packages/sim/src/network/workload-checks.ts';
import { drawCongestion, withMarks } from '../draw-congestion.ts';
import { drawRecovery } from '../draw-recovery.ts';
import { SharedInbox } from './inbox.ts';
import { LooseSession } from './loose-session.ts';
import { MemoryBook, SECRET } from './memory-book.ts';
import type { LifeProfile } from './profile.ts';
import { type LifeHost, Session, type Side, type Spare } from './session.ts';
import { Tally } from './tally.ts';

export interface LifeOptions {
  profile: LifeProfile;
  seed: number;
  /** The kind of the first and third host, and of the second. */
  a: EndpointKind;
  b: EndpointKind;
}

/** Receives of each SRQ. */
const SRQ_SLOTS = 12;
/** Work requests and receives that a queue has room for. */
const DEPTH = 128;
/** Longest time that a link has no room, µs: less than all retries of a peer take. */
const MAX_BLOCK = 12_000;
/** No run takes longer, µs. */
const MAX_VIRTUAL_TIME = 600e6;

interface Lane {
  service: 'RC' | 'UC' | 'UD';
  inOrder: boolean;
  hosts: readonly [LifeHost, LifeHost];
  lossless: boolean;
  session: Session | LooseSession | undefined;
  left: number;
  spares: [Spare | undefined, Spare | undefined];
}

/** One run of a life workload: three hosts, their sessions, and the checks of memory. */
export class Life {
  readonly network: Network;
  readonly tally = new Tally();
  readonly #profile: LifeProfile;
  readonly #random: Random;
  readonly #hosts: LifeHost[];
  readonly #lanes: Lane[];
  readonly #wires: readonly WireOptions[];
  /** AETHs carry the count of receives. */
  readonly #credits: boolean;
  /** Of each queue pair that there is or was: its host. */
  readonly #owners = new Map<number, Uint8Array>();
  readonly #sides = new Map<number, Side>();
  readonly #blocked = new Map<SimDevice, number>();
  readonly #wrapping = new Set<number>();
  #nextTick = 0;

  constructor({ profile, seed, a, b }: LifeOptions) {
    this.#profile = profile;
    this.#random = createRandom(seed);
    this.network = new Network(seed);
    this.network.record = false;
    this.network.observer = (event, packet, host) => this.#observe(event, packet, host);
    const kinds = [a, b, a];
    this.#credits = this.#random.chance(0.3);
    const congestion = drawCongestion(seed, kinds);
    this.#hosts = kinds.map((kind, i) =>
      this.#host(kind, i + 1, drawRecovery(seed, i + 1, kinds), congestion[i]),
    );
    for (const { device } of this.#hosts) this.network.add(device);
    this.network.add(this.#clock());
    this.#wires = this.#hosts.map(() => withMarks(this.#random.pick(profile.wires), congestion));
    this.#lanes = Array.from({ length: profile.lanes }, (_, i) => this.#lane(i));
  }

  #host(kind: EndpointKind, number: number, recovery: Recovery, congestion: Partial<Congestion>): LifeHost {
    const random = this.#random;
    const gid = gidFromText(`10.0.0.${number}`);
    const firstIndex = this.#profile.firstIndices ? random.pick(this.#profile.firstIndices) : 0;
    const common = { gid, arenaBytes: 8 };
    const device =
      kind === 'model'
        ? new ModelDevice({ ...common, qpn: number << 20, notifies: true })
        : new EngineDevice({
            ...common,
            seed: random.next(),
            depth: DEPTH,
            credits: this.#credits,
            // Small enough that a READ is asked for in parts, now and then.
            receiveBuffer: random.pick([8192, 32_768, 212_992]),
            batchPackets: random.pick([4, 16, 64, 512]),
            recovery,
            congestion,
            ...(this.#profile.firstIndices ? { firstIndex } : {}),
          });
    const book = new MemoryBook(device, random);
    return { device, book, shared: new SharedInbox(book, SRQ_SLOTS, device.createSrq()) };
  }

  /** The programs' clock: a host that sends nothing. */
  #clock(): SimHost {
    return {
      gid: gidFromText('0.0.0.0'),
      receive: () => {},
      transmit: () => [],
      advance: (now) => {
        if (now >= this.#nextTick) this.#tick(now);
      },
      nextDeadline: () => this.#nextTick,
    };
  }

  #lane(index: number): Lane {
    const ways = [
      [0, 1],
      [0, 2],
      [2, 1],
    ];
    const [i, j] = ways[index % ways.length];
    const hosts = [this.#hosts[i], this.#hosts[j]] as const;
    // Lanes between the same hosts have one wire.
    const wire = this.#wires[index % ways.length];
    this.network.link(hosts[0].device, hosts[1].device, wire);
    this.network.link(hosts[1].device, hosts[0].device, wire);
    const { services, sessions } = this.#profile;
    return {
      hosts,
      service: services[index % services.length],
      lossless: wire.loss === undefined && wire.burst === undefined && wire.corrupt === undefined,
      inOrder: wire.reorder === undefined && wire.duplicate === undefined,
      session: undefined,
      left: sessions,
      spares: [undefined, undefined],
    };
  }

  /** Runs until every lane is through. @throws Error */
  run(): void {
    const done = this.network.run(() => this.#step(), MAX_VIRTUAL_TIME);
    require(done, 'the run came to an end before its sessions did', { now: this.network.now });
    for (const { book } of this.#hosts) book.finish();
    for (const { device } of this.#hosts) if (device instanceof EngineDevice) this.#count(device);
  }

  /** Adds the events of its recovery and its congestion control to the tally. */
  #count({ adapter }: EngineDevice): void {
    const { keptPackets, probes, cnpHandled } = adapter.counters();
    this.tally.add('early packets kept', keptPackets);
    this.tally.add('probes', probes);
    this.tally.add('congestion notifications obeyed', cnpHandled);
  }

  #step(): boolean {
    let isDone = true;
    for (const lane of this.#lanes) {
      lane.session?.step();
      if (lane.session?.isOver !== false) {
        this.#note(lane.session);
        lane.session = undefined;
        if (lane.left > 0) {
          lane.left--;
          lane.session = this.#start(lane);
        }
      }
      isDone &&= lane.session === undefined;
    }
    return isDone;
  }

  #start(lane: Lane): Session | LooseSession {
    const session = lane.service === 'RC' ? this.#startReliable(lane) : this.#startLoose(lane, lane.service);
    for (const { qp, host } of session.sides) this.#owners.set(qp.info.qpn, host.device.gid);
    return session;
  }

  #startLoose({ hosts, inOrder }: Lane, service: 'UC' | 'UD'): LooseSession {
    return new LooseSession({
      network: this.network,
      hosts,
      profile: this.#profile,
      random: this.#random,
      tally: this.tally,
      service,
      inOrder,
      block: ({ device }) => this.#block(device),
    });
  }

  #startReliable({ hosts, lossless, spares }: Lane): Session {
    const session = new Session({
      network: this.network,
      hosts,
      profile: this.#profile,
      random: this.#random,
      tally: this.tally,
      lossless,
      credits: this.#credits,
      spares,
      block: ({ device }) => this.#block(device),
    });
    for (const side of session.sides) this.#sides.set(side.qp.info.qpn, side);
    return session;
  }

  #note(session: Session | LooseSession | undefined): void {
    if (!(session instanceof Session)) return;
    for (const { firstIndex, stream, qp } of session.sides) {
      if (this.#sides.get(qp.info.qpn)?.stream === stream) this.#sides.delete(qp.info.qpn);
      if (firstIndex === undefined) continue;
      const to = (firstIndex + stream.posted) | 0;
      if (firstIndex >= 0 && to < 0) this.tally.add('ring indices passed 2^31');
      if (firstIndex < 0 && to >= 0) this.tally.add('ring indices passed 2^32');
    }
  }

  #tick(now: number): void {
    this.#nextTick = now + this.#random.between(20, 400);
    for (const { device, book } of this.#hosts) {
      book.check(now);
      if (this.#random.chance(this.#profile.block)) this.#block(device);
    }
    for (const { shared } of this.#hosts) {
      if (this.#random.chance(this.#profile.scarce ? 0.4 : 1)) shared.post();
    }
    for (const { session } of this.#lanes) session?.tick();
  }

  #block(device: SimDevice): void {
    const { now } = this.network;
    if ((this.#blocked.get(device) ?? 0) > now) return;
    const until = now + this.#random.between(200, MAX_BLOCK);
    device.block(until, this.#random.between(0, 6));
    // Between two blocks the peers hear something.
    this.#blocked.set(device, until + MAX_BLOCK);
    this.tally.add('links without room');
  }

  #observe(event: 'sent' | 'arrived', packet: SimPacket, host: SimHost): void {
    const decoded = decodePacket(packet.bytes);
    if (!decoded.ok) {
      if (bthOpcode(packet.bytes, 0) === Opcode.CNP) return;
      require(packet.corrupt, 'a packet was sent that cannot be decoded', { reason: decoded.reason });
      return;
    }
    if (event === 'sent') this.#sent(packet, decoded.packet);
    else if (!packet.corrupt) this.#arrived(packet, decoded.packet, host);
  }

  #sent(packet: SimPacket, { destQpn, payload, psn, aeth, opcode }: ModelPacket): void {
    const owner = this.#owners.get(destQpn);
    const right = owner !== undefined && gidEquals(owner, packet.destination);
    require(right, 'a packet was sent to another host', { destQpn, opcode, psn });
    const leaked = payload.length >= 8 && payload.every((byte) => byte === SECRET);
    require(!leaked, 'memory was sent that nobody asked to send', { destQpn, opcode, psn });
    if (aeth !== undefined && aethKind(aeth.syndrome) === AethKind.RNR_NAK) {
      this.tally.add('RNR NAKs');
      const peer = this.#sides.get(destQpn);
      if (peer) peer.rnrUntil = this.network.now + rnrTimerMicroseconds(aethValue(aeth.syndrome));
    }
    if (psn > 0xff_ff00) this.#wrapping.add(destQpn);
    else if (psn < 0x1000 && this.#wrapping.delete(destQpn)) this.tally.add('PSNs wrapped');
  }

  #arrived(packet: SimPacket, decoded: ModelPacket, host: SimHost): void {
    const side = this.#sides.get(decoded.destQpn);
    if (side === undefined || side.host.device !== host) return;
    const row = rowOf(decoded);
    if (!row.isRequest) return;
    const again = packet.retransmission !== undefined;
    if (again && (row.isReadRequest || row.isAtomic)) this.tally.add('READs and atomics repeated');
    const copy = side.arrived.has(packet.serial!);
    side.arrived.add(packet.serial!);
    // The peer waits: what arrives now was on its way before.
    const waits = side.peerRnrUntil() > this.network.now;
    if (waits && (copy || again)) this.tally.add('copies of requests during an RNR wait');
  }
}
