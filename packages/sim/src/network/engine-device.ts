/** The engine on the network: an `Adapter` driven through its public face. */
import {
  Access,
  Adapter,
  type Congestion,
  Icrc,
  markRuns,
  NO_PEER,
  type Recovery,
  type RetransmitCause,
  Ring,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  runOf,
  type SrqInit,
  splitRun,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
  unfoldRuns,
} from '@node-roce/transport';
import { createRandom } from '@node-roce/wire';
import type { XrcReceipt } from '../model/xrc-qp.ts';
import {
  ACTIVE_MTU,
  INLINE_BYTES,
  type SimDevice,
  type SimEvent,
  type SimQp,
  type SimQpOptions,
  type SimReceive,
  type SimRegion,
  type SimSrq,
  type SimWindow,
  type SimXrcSrq,
} from './endpoint.ts';
import { EngineLink } from './engine-link.ts';
import {
  type ArenaKeys,
  EngineQp,
  pollReceipts,
  type QpHost,
  type QpRings,
  writeReceive,
} from './engine-queue-pair.ts';
import type { SimPacket } from './wire.ts';

export interface EngineDeviceOptions {
  gid: Uint8Array;
  arenaBytes: number;
  seed: number;
  /** AETHs carry the count of receives. */
  credits?: boolean;
  /** Entries of each queue. */
  depth?: number;
  /** Bytes before and behind the arena in its buffer that no peer may reach. Default 0. */
  guardBytes?: number;
  /** Packets that a batch has room for; 512 by default. */
  batchPackets?: number;
  /** Bytes of the receive buffer: READs ask for no more at once. */
  receiveBuffer?: number;
  /** How reliable connections recover from losses. */
  recovery?: Partial<Recovery>;
  /** Congestion control of connections. */
  congestion?: Partial<Congestion>;
  /** How many calls go by between two checks of the engine's invariants; 1, the default, checks after each. */
  checkEvery?: number;
  /** Index at which the rings of queue pairs begin, 32 bits; 0 by default. */
  firstIndex?: number;
  /** Whether packets that arrive together may be taken as runs, and packets are sent as run slots; by default with every second seed. */
  runs?: boolean;
}

/** ROCE_SIM_RUNS=on, off: with all seeds, whether devices without the option take runs. */
const RUNS = { on: true, off: false }[process.env.ROCE_SIM_RUNS as 'on' | 'off'];

const ALL_ACCESS =
  Access.LOCAL_WRITE |
  Access.REMOTE_WRITE |
  Access.REMOTE_READ |
  Access.REMOTE_ATOMIC |
  Access.MW_BIND |
  Access.FLUSH_GLOBAL;

/** A protection domain, and the parts of the device that its queue pairs need. */
export type Domain = QpHost;

/** The engine's adapter as a host of the simulated network. */
export class EngineDevice implements SimDevice {
  readonly gid: Uint8Array;
  readonly arena: Uint8Array<ArrayBuffer>;
  readonly adapter: Adapter;
  readonly #options: EngineDeviceOptions;
  readonly #link: EngineLink;
  readonly #depth: number;
  readonly #tx: TxBatch;
  /** Slots of the batch that the link has taken. */
  #taken = 0;
  readonly #rx = new RxBatch(256, 2 * 1024 * 1024);
  #unchecked = 0;
  readonly #takesRuns: boolean;
  /** Packets that were sent as part of a run, but for the last of each. */
  runPackets = 0;
  /** Packets that arrived in a run of several. */
  runArrivals = 0;
  readonly #doorbells: Ring;
  readonly #host: Domain;
  readonly #xrcDomain: number;
  #backings = 0;
  readonly #events: SimEvent[] = [];
  /** Of the batch at hand: places of packets that were sent before, and why they are retransmitted. */
  readonly #again = new Map<number, RetransmitCause>();

  constructor(options: EngineDeviceOptions) {
    const { gid, arenaBytes, seed, credits = false, depth = 64, guardBytes = 0 } = options;
    this.gid = gid;
    this.#options = options;
    this.#depth = depth;
    this.#takesRuns = options.runs ?? RUNS ?? (seed & 1) === 0;
    this.#link = new EngineLink(gid);
    this.arena = new Uint8Array(new ArrayBuffer(arenaBytes + 2 * guardBytes), guardBytes, arenaBytes);
    this.adapter = new Adapter({
      random: createRandom(seed).next,
      peers: this.#link,
      gids: [{ gid, address: 'simulated', type: 'RoCE v2' }],
      activeMtu: ACTIVE_MTU,
      credits,
      ...(options.receiveBuffer === undefined ? {} : { receiveBuffer: options.receiveBuffer }),
      ...(options.recovery === undefined ? {} : { recovery: options.recovery }),
      ...(options.congestion === undefined ? {} : { congestion: options.congestion }),
      experimental: ['xrc'],
      throwBugs: true,
      onCompletionEvent: () => {},
      onAsyncEvent: ({ type }) => {
        if (type === 'SRQ_LIMIT_REACHED' || type === 'QP_LAST_WQE_REACHED' || type === 'SQ_DRAINED') {
          this.#events.push(type);
        }
      },
      onRetransmit: (_qpn, _psn, cause) => this.#again.set(this.#tx.count - 1, cause),
    });
    const { batchPackets = 512 } = options;
    // Room for the longest list of fragments, however few packets there are.
    this.#tx = new TxBatch(this.adapter.regions, batchPackets, 4 * batchPackets + 64);
    this.#tx.runs = this.#takesRuns;
    this.#doorbells = new Ring(this.adapter.doorbells);
    this.#host = this.createDomain(this.arena);
    this.#xrcDomain = this.adapter.openXrcd({});
  }

  get groups(): readonly Uint8Array[] {
    return this.#link.groups;
  }

  /** Packets that the link refused: their memory or their peer was gone. */
  get refusedPackets(): number {
    return this.#link.refused;
  }

  /** A protection domain with an arena of its own; the device's own has `arena`. */
  createDomain(arena: Uint8Array<ArrayBuffer>): Domain {
    const pd = this.adapter.allocPd();
    const { buffer, byteOffset: offset, length } = arena;
    const init = { pd, backing: ++this.#backings, buffer, offset, length, access: ALL_ACCESS };
    const { lkey, rkey, addr, iova } = this.adapter.registerMr(init);
    return {
      adapter: this.adapter,
      gid: this.gid,
      pd,
      arena: { lkey, rkey, address: addr, base: iova },
      ringDoorbell: (value) => this.#ringDoorbell(value),
    };
  }

  register(bytes: Uint8Array<ArrayBuffer>, access: number, domain = this.#host): EngineRegion {
    const { buffer, byteOffset: offset, length } = bytes;
    const init = { pd: domain.pd, backing: ++this.#backings, buffer, offset, length, access };
    const { handle, lkey, rkey, addr, iova } = this.adapter.registerMr(init);
    return { bytes, handle, lkey, rkey, address: addr, base: iova };
  }

  deregister(region: SimRegion): void {
    this.adapter.deregisterMr((region as EngineRegion).handle);
    this.#check();
  }

  freeWindow({ handle }: SimWindow): void {
    this.adapter.deallocMw(handle);
    this.#check();
  }

  destroyQp(qp: SimQp): void {
    (qp as EngineQp).dropHandles();
    this.adapter.destroyQp(qp.info.qpn);
    this.#check();
  }

  block(until: number, room = 0): void {
    this.#link.block(until, room);
  }

  createQp(options: SimQpOptions, domain = this.#host): EngineQp {
    const depth = this.#depth;
    const [sendCq, recvCq] = [this.adapter.createCq(depth * 2), this.adapter.createCq(depth * 2)];
    const { service } = options;
    if (service === 'XRC_TGT') {
      const created = this.adapter.createXrcTarget(this.#xrcDomain);
      const send = new Ring(created.sendQueue);
      // Nothing is posted to it, and nothing completes there.
      const rings = { send, receive: send, sendCq: new Ring(sendCq.ring), receiveCq: new Ring(recvCq.ring) };
      return new EngineQp(domain, created, rings, options);
    }
    const cap = {
      maxSendWr: depth,
      maxRecvWr: depth,
      maxSendSge: 1,
      maxRecvSge: 1,
      maxInlineData: INLINE_BYTES,
    };
    const srq = options.srq as EngineSrq | undefined;
    const created = this.adapter.createQp({
      pd: domain.pd,
      type: service,
      sendCq: sendCq.handle,
      recvCq: recvCq.handle,
      cap,
      sqSigAll: false,
      ...(srq === undefined ? {} : { srq: srq.handle }),
    });
    const rings = {
      send: new Ring(created.sendQueue),
      receive: srq?.ring ?? new Ring(created.recvQueue),
      sendCq: new Ring(sendCq.ring),
      receiveCq: new Ring(recvCq.ring),
    };
    const first = this.#options.firstIndex;
    if (first !== undefined && srq === undefined) startRings(this.adapter, created.qpn, rings, first);
    return new EngineQp(domain, created, rings, options);
  }

  createSrq(domain = this.#host): EngineSrq {
    return new EngineSrq(domain, this.#depth);
  }

  createXrcSrq(domain = this.#host): EngineXrcSrq {
    const cq = this.adapter.createCq(this.#depth * 4);
    return new EngineXrcSrq(
      domain,
      this.#depth,
      { domain: this.#xrcDomain, cq: cq.handle },
      new Ring(cq.ring),
    );
  }

  allocWindow(type: 1 | 2, domain = this.#host): SimWindow {
    return this.adapter.allocMw(domain.pd, type);
  }

  attach(group: Uint8Array, qp: SimQp): void {
    this.adapter.attachMcast(qp.info.qpn, group);
  }

  pollEvents(): SimEvent[] {
    return this.#events.splice(0);
  }

  #ringDoorbell(value: number): void {
    const ring = this.#doorbells;
    const index = ring.producer;
    ring.words[ring.wordOf(index)] = value;
    ring.publish((index + 1) | 0);
  }

  receive(packets: SimPacket[], now: number): void {
    this.adapter.clock[0] = now;
    const batch = this.#rx;
    for (let from = 0; from < packets.length; from += batch.capacity) {
      const part = packets.slice(from, from + batch.capacity);
      let offset = 0;
      part.forEach((packet, i) => {
        const w = i * RX_SLOT_WORDS;
        const peer = this.#link.indexOf(packet.source);
        batch.slab.set(packet.bytes, offset);
        batch.sources.set(packet.source, i * 16);
        batch.slots.fill(0, w, w + RX_SLOT_WORDS);
        batch.slots[w + Rx.OFFSET] = offset;
        batch.slots[w + Rx.LENGTH] = packet.bytes.length;
        batch.slots[w + Rx.PEER] = peer < 0 ? NO_PEER : peer;
        batch.slots[w + Rx.LOCAL] = this.#link.localOf(packet.destination);
        batch.slots[w + Rx.TRAFFIC_CLASS] = packet.trafficClass;
        batch.slots[w + Rx.HOP_LIMIT] = 64;
        batch.slots[w + Rx.VERDICT] = packet.corrupt ? Icrc.BAD : Icrc.OK;
        batch.slots[w + Rx.SOURCE_PORT] = packet.sourcePort;
        offset += (packet.bytes.length + 7) & ~7;
      });
      batch.count = part.length;
      if (this.#takesRuns) this.#markRuns(batch);
      this.adapter.receive(batch);
      this.#check();
    }
  }

  #markRuns(batch: RxBatch): void {
    markRuns(batch);
    for (let i = 0; i < batch.count; ) {
      const packets = batch.slots[i * RX_SLOT_WORDS + Rx.RUN];
      if (packets > 1) this.runArrivals += packets;
      i += packets;
    }
  }

  advance(now: number): void {
    this.adapter.clock[0] = now;
    this.adapter.advance();
    this.#check();
  }

  /** As the pump does it: a batch that the link does not take whole is kept, and until it is gone nothing else is sent. */
  transmit(now: number): SimPacket[] {
    this.adapter.clock[0] = now;
    const packets: SimPacket[] = [];
    const batch = this.#tx;
    for (;;) {
      if (batch.count === 0) {
        this.#again.clear();
        this.adapter.transmit(batch);
        this.#check();
      }
      for (; this.#taken < batch.count; this.#taken++) {
        splitRun(batch, this.#taken);
        if (!this.#link.takes(now)) return packets;
        if (runOf(batch, this.#taken) > 1) this.runPackets++;
        const packet = this.#link.gather(batch, this.#taken);
        if (packet === undefined) continue;
        const retransmission = this.#again.get(this.#taken);
        packets.push(retransmission === undefined ? packet : { ...packet, retransmission });
      }
      if (batch.count === 0) return packets;
      this.adapter.sent(batch);
      batch.clear();
      this.#taken = 0;
      this.#check();
    }
  }

  /** Packets of the batch that wait for room, the number of its queue pair or all. */
  waiting(qpn?: number): number {
    let count = 0;
    unfoldRuns(this.#tx);
    for (let i = this.#taken; i < this.#tx.count; i++) {
      const tag = this.#tx.slots[i * TX_SLOT_WORDS + Tx.QPN];
      if (qpn === undefined || (tag & 0xff_ffff) === qpn) count++;
    }
    return count;
  }

  #check(): void {
    if (++this.#unchecked < (this.#options.checkEvery ?? 1)) return;
    this.#unchecked = 0;
    this.adapter.checkInvariants();
  }

  nextDeadline(): number {
    const blocked = this.#tx.count > 0 ? this.#link.blockedUntil : Number.POSITIVE_INFINITY;
    return Math.min(blocked, this.adapter.nextDeadline());
  }
}

/** A region with its keys. */
export interface EngineRegion extends SimRegion, Omit<ArenaKeys, 'rkey' | 'base'> {
  handle: number;
}

/**
 * Lets the send and receive queue of a new queue pair begin at an index: sets both ends of each ring to it, and RESET takes
 * the ends from the ring.
 */
function startRings(adapter: Adapter, qpn: number, { send, receive }: QpRings, first: number): void {
  for (const ring of [send, receive]) {
    ring.publish(first | 0);
    ring.release(first | 0);
  }
  adapter.modifyQp(qpn, { qpState: 'RESET' });
}

/** A shared receive queue of the engine. */
export class EngineSrq implements SimSrq {
  readonly handle: number;
  readonly ring: Ring;
  readonly #host: QpHost;

  /** 24 bits, in an XRC domain. */
  readonly number: number;

  constructor(host: QpHost, maxWr: number, xrc?: SrqInit['xrc']) {
    const created = host.adapter.createSrq({ pd: host.pd, maxWr, maxSge: 1, limit: 0, xrc });
    this.#host = host;
    this.handle = created.handle;
    this.ring = new Ring(created.ring);
    this.number = created.number ?? 0;
  }

  postReceive(request: SimReceive): void {
    writeReceive(this.ring, this.#host.arena, request);
  }

  get waiting(): number {
    return this.ring.used;
  }

  setLimit(limit: number): void {
    this.#host.adapter.modifySrq(this.handle, { limit });
  }
}

/** The same in the device's XRC domain. */
export class EngineXrcSrq extends EngineSrq implements SimXrcSrq {
  readonly #cq: Ring;

  constructor(host: QpHost, maxWr: number, xrc: NonNullable<SrqInit['xrc']>, cq: Ring) {
    super(host, maxWr, xrc);
    this.#cq = cq;
  }

  pollReceive(): XrcReceipt[] {
    return pollReceipts(this.#cq);
  }
}
