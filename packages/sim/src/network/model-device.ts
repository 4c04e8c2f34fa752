/** The model on the network. */
import { Access } from '@node-roce/transport';
import { flowLabelFromQpns, sourcePortForUd, sourcePortFromFlowLabel } from '@node-roce/wire';
import { grhArea } from '../model/grh.ts';
import type { ModelMemory } from '../model/memory.ts';
import { ModelGroups } from '../model/multicast.ts';
import { decodePacket, encodePacket } from '../model/packet.ts';
import { createReceiveQueue, type ReceiveQueue } from '../model/receive-queue.ts';
import { ModelXrcDomain, type ModelXrcSrq, type XrcReceipt } from '../model/xrc-qp.ts';
import type {
  SimDevice,
  SimEvent,
  SimQp,
  SimQpOptions,
  SimReceive,
  SimRegion,
  SimSrq,
  SimWindow,
  SimXrcSrq,
} from './endpoint.ts';
import type { ModelDeviceOptions, ModelHost } from './model-host.ts';
import { ModelQueuePair, type Outgoing, receiveRequest } from './model-queue-pair.ts';
import { Notifications } from './notification-point.ts';
import type { SimPacket } from './wire.ts';

const ALL_ACCESS =
  Access.LOCAL_WRITE |
  Access.REMOTE_WRITE |
  Access.REMOTE_READ |
  Access.REMOTE_ATOMIC |
  Access.MW_BIND |
  Access.FLUSH_GLOBAL;

const HOP_LIMIT = 64;

/** The model's adapter as a host of the simulated network. */
export class ModelDevice implements SimDevice {
  readonly gid: Uint8Array;
  readonly arena: Uint8Array;
  readonly groups: Uint8Array[] = [];
  readonly #host: ModelHost;
  readonly #qps: ModelQueuePair[] = [];
  readonly #srqs: ModelSrq[] = [];
  readonly #xrc = new ModelXrcDomain();
  #xrcSrqs = 0;
  readonly #attached = new ModelGroups();
  /** Of each source of events, how many were polled. */
  readonly #polled = new Map<object, number>();
  /** Answers that destroyed or reset queue pairs still owed. */
  readonly #owed: SimPacket[] = [];
  readonly #notifications: Notifications;
  #created = 0;
  #registered = 0;
  #blockedUntil = 0;
  #room = 0;

  constructor(options: ModelDeviceOptions) {
    this.gid = options.gid;
    this.arena = new Uint8Array(options.arenaBytes);
    const region = {
      rkey: 0x4000 + options.qpn,
      // A base that is aligned and needs both words of an address.
      base: 0x7f00_0000_0000n + BigInt(options.qpn) * 0x1000_0000n,
      bytes: this.arena,
      access: ALL_ACCESS,
      invalidatable: false,
    };
    const memory = { regions: [region] };
    this.#host = { options, arena: this.arena, region, memory, windows: [] };
    const peerQpn = (qpn: number) => this.#qps.find(({ info }) => info.qpn === qpn)?.connectedTo;
    this.#notifications = new Notifications(this.gid, peerQpn);
  }

  createQp(options: SimQpOptions): ModelQueuePair {
    const receives = (options.srq as ModelSrq | undefined)?.queue ?? createReceiveQueue();
    const qpn = options.service === 'GSI' ? 1 : this.#host.options.qpn + this.#created++;
    const qp = new ModelQueuePair(this.#host, qpn, options, receives, this.#xrc);
    qp.onReset = (owed) => this.#owed.push(...owed.map((packet) => this.#packet(qp, packet)));
    this.#qps.push(qp);
    return qp;
  }

  /** §10.6.7.2.4: type 2B windows end with the queue pair that they were bound through. */
  destroyQp(qp: SimQp): void {
    const { memory } = this.#host;
    this.#owed.push(...(qp as ModelQueuePair).owed().map((owed) => this.#packet(qp, owed)));
    this.#qps.splice(this.#qps.indexOf(qp as ModelQueuePair), 1);
    memory.regions = memory.regions.filter(({ qpn }) => qpn !== qp.info.qpn);
  }

  register(bytes: Uint8Array<ArrayBuffer>, access: number): SimRegion {
    const number = ++this.#registered;
    const region = {
      rkey: 0x10_0000 + ((this.#host.options.qpn & 0xff) << 24) + number,
      base: 0x7000_0000_0000n + (BigInt(this.#host.options.qpn) << 36n) + BigInt(number) * 0x100_0000n,
      bytes,
      access,
      invalidatable: false,
    };
    this.#host.memory.regions.push(region);
    return region;
  }

  deregister(region: SimRegion): void {
    const { memory } = this.#host;
    memory.regions = memory.regions.filter((other) => other !== (region as unknown));
  }

  freeWindow({ handle }: SimWindow): void {
    const { memory, windows } = this.#host;
    memory.regions = memory.regions.filter((region) => region !== windows[handle].bound);
  }

  block(until: number, room = 0): void {
    this.#blockedUntil = until;
    this.#room = room;
  }

  /** The model makes no packet that it can't send. */
  waiting(): number {
    return 0;
  }

  createSrq(): ModelSrq {
    const srq = new ModelSrq(this.#host.memory, this.arena);
    this.#srqs.push(srq);
    return srq;
  }

  createXrcSrq(): ModelXrcReceives {
    const { memory, options } = this.#host;
    const srq = this.#xrc.create(0x10_0000 + options.qpn * 0x100 + this.#xrcSrqs++, memory);
    return new ModelXrcReceives(srq, this.arena);
  }

  allocWindow(type: 1 | 2): SimWindow {
    const { windows, options } = this.#host;
    const rkey = ((0x8000 + options.qpn * 0x100 + windows.length) << 8) >>> 0;
    windows.push({ type, rkey });
    return { handle: windows.length - 1, rkey };
  }

  attach(group: Uint8Array, qp: SimQp): void {
    this.groups.push(group);
    this.#attached.attach(group, qp.info.qpn);
  }

  pollEvents(): SimEvent[] {
    const limits = this.#srqs.flatMap(({ queue }) =>
      this.#fresh(queue, new Array<SimEvent>(queue.limitEvents).fill('SRQ_LIMIT_REACHED')),
    );
    return [...limits, ...this.#qps.flatMap((qp) => this.#fresh(qp, qp.events))];
  }

  #fresh(source: object, events: readonly SimEvent[]): SimEvent[] {
    const polled = this.#polled.get(source) ?? 0;
    this.#polled.set(source, events.length);
    return events.slice(polled);
  }

  receive(packets: SimPacket[], now: number): void {
    for (const packet of packets) {
      const { bytes, source, destination, trafficClass, corrupt } = packet;
      if (corrupt) continue; // what a wrong ICRC does
      if (this.#host.options.notifies) this.#notifications.receive(packet, now);
      const decoded = decodePacket(bytes);
      if (!decoded.ok) continue;
      const grh = grhArea({ source, destination, trafficClass, hopLimit: HOP_LIMIT }, bytes.length);
      for (const qpn of this.#attached.addressees(destination, decoded.packet.destQpn)) {
        const qp = this.#qps.find(({ info }) => info.qpn === qpn);
        if (qp?.hears(source)) qp.receive(decoded.packet, grh, now);
      }
    }
  }

  advance(now: number): void {
    for (const qp of this.#qps) qp.advance(now);
  }

  transmit(now: number): SimPacket[] {
    if (now >= this.#blockedUntil) this.#blockedUntil = 0;
    const packets: SimPacket[] =
      this.#blockedUntil === 0 ? [...this.#notifications.take(), ...this.#owed.splice(0)] : [];
    for (const qp of this.#qps) {
      while (now >= this.#blockedUntil || this.#room > 0) {
        const next = qp.next(now);
        if (next === undefined) break;
        if (now < this.#blockedUntil) this.#room--;
        packets.push(this.#packet(qp, next));
      }
    }
    return packets;
  }

  #packet(qp: SimQp, { packet, destination, ...again }: Outgoing): SimPacket {
    const { qpn } = qp.info;
    const datagram = packet.deth !== undefined;
    const sourcePort = datagram
      ? sourcePortForUd(qpn)
      : sourcePortFromFlowLabel(flowLabelFromQpns(qpn, packet.destQpn));
    const bytes = encodePacket(packet);
    return { ...again, bytes, source: this.gid, destination, trafficClass: 0, sourcePort, corrupt: false };
  }

  nextDeadline(): number {
    const deadlines = this.#qps.map((qp) => qp.nextDeadline());
    return Math.min(this.#blockedUntil || Number.POSITIVE_INFINITY, ...deadlines);
  }
}

/** A shared receive queue of the model. */
export class ModelSrq implements SimSrq {
  readonly queue: ReceiveQueue;
  readonly #memory: ModelMemory;
  readonly #arena: Uint8Array;

  constructor(memory: ModelMemory, arena: Uint8Array, queue = createReceiveQueue(true)) {
    this.queue = queue;
    this.#memory = memory;
    this.#arena = arena;
  }

  postReceive(receive: SimReceive): void {
    this.queue.waiting.push(receiveRequest(this.#memory, receive, this.#arena));
  }

  get waiting(): number {
    return this.queue.waiting.length;
  }

  setLimit(limit: number): void {
    this.queue.limit = limit;
  }
}

/** The same in an XRC domain. */
export class ModelXrcReceives extends ModelSrq implements SimXrcSrq {
  readonly #srq: ModelXrcSrq;

  constructor(srq: ModelXrcSrq, arena: Uint8Array) {
    super(srq.memory, arena, srq.queue);
    this.#srq = srq;
  }

  get number(): number {
    return this.#srq.number;
  }

  pollReceive(): XrcReceipt[] {
    return this.#srq.receipts.splice(0);
  }
}
