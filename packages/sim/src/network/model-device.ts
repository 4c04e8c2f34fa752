/** The model on the network. */

import { Access } from '@node-roce/transport';
import { flowLabelFromQpns, sourcePortForUd, sourcePortFromFlowLabel } from '@node-roce/wire';
import { grhArea } from '../model/grh.ts';
import type { ModelMemory, ModelRegion } from '../model/memory.ts';
import { ModelGroups } from '../model/multicast.ts';
import { decodePacket, encodePacket } from '../model/packet.ts';
import { createReceiveQueue, type ReceiveQueue } from '../model/receive-queue.ts';
import type { ModelWindow } from '../model/windows.ts';
import type { SimDevice, SimEvent, SimQp, SimQpOptions, SimReceive, SimSrq, SimWindow } from './endpoint.ts';
import { ModelQueuePair, type Outgoing } from './model-queue-pair.ts';
import type { SimPacket } from './wire.ts';

export interface ModelDeviceOptions {
  gid: Uint8Array;
  /** Of the first queue pair; the others count up. */
  qpn: number;
  arenaBytes: number;
  /** PSNs of a reliable connection that may be out. */
  window?: number;
  timerFactor?: number;
}

const ALL_ACCESS =
  Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.MW_BIND;

const HOP_LIMIT = 64;

/** What the queue pairs of a device share. */
export interface ModelHost {
  options: ModelDeviceOptions;
  arena: Uint8Array;
  region: ModelRegion;
  memory: ModelMemory;
  windows: ModelWindow[];
}

export class ModelDevice implements SimDevice {
  readonly gid: Uint8Array;
  readonly arena: Uint8Array;
  readonly groups: Uint8Array[] = [];
  readonly #host: ModelHost;
  readonly #qps: ModelQueuePair[] = [];
  readonly #srqs: ModelSrq[] = [];
  readonly #attached = new ModelGroups();
  #eventsPolled = 0;

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
  }

  createQp(options: SimQpOptions): ModelQueuePair {
    const receives = (options.srq as ModelSrq | undefined)?.queue ?? createReceiveQueue();
    const qpn = options.service === 'GSI' ? 1 : this.#host.options.qpn + this.#qps.length;
    const qp = new ModelQueuePair(this.#host, qpn, options, receives);
    this.#qps.push(qp);
    return qp;
  }

  createSrq(): ModelSrq {
    const srq = new ModelSrq(this.arena);
    this.#srqs.push(srq);
    return srq;
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
      new Array<SimEvent>(queue.limitEvents).fill('SRQ_LIMIT_REACHED'),
    );
    const all = [...limits, ...this.#qps.flatMap(({ events }) => events)];
    const fresh = all.length - this.#eventsPolled;
    this.#eventsPolled = all.length;
    return fresh === 0 ? [] : all.slice(-fresh);
  }

  receive(packets: SimPacket[], now: number): void {
    for (const { bytes, source, destination, trafficClass, corrupt } of packets) {
      if (corrupt) continue; // what a wrong ICRC does
      const decoded = decodePacket(bytes);
      if (!decoded.ok) continue;
      const grh = grhArea({ source, destination, trafficClass, hopLimit: HOP_LIMIT }, bytes.length);
      for (const qpn of this.#attached.addressees(destination, decoded.packet.destQpn)) {
        this.#qps.find(({ info }) => info.qpn === qpn)?.receive(decoded.packet, grh, now);
      }
    }
  }

  advance(now: number): void {
    for (const qp of this.#qps) qp.advance(now);
  }

  transmit(now: number): SimPacket[] {
    return this.#qps.flatMap((qp) => qp.transmit(now).map((outgoing) => this.#packet(qp, outgoing)));
  }

  #packet(qp: ModelQueuePair, { packet, destination, ...again }: Outgoing): SimPacket {
    const { qpn } = qp.info;
    const datagram = packet.deth !== undefined;
    const sourcePort = datagram
      ? sourcePortForUd(qpn)
      : sourcePortFromFlowLabel(flowLabelFromQpns(qpn, packet.destQpn));
    const bytes = encodePacket(packet);
    return { ...again, bytes, source: this.gid, destination, trafficClass: 0, sourcePort, corrupt: false };
  }

  nextDeadline(): number {
    return Math.min(Number.POSITIVE_INFINITY, ...this.#qps.map((qp) => qp.nextDeadline()));
  }
}

/** A shared receive queue of the model. */
export class ModelSrq implements SimSrq {
  readonly queue: ReceiveQueue = createReceiveQueue(true);
  readonly #arena: Uint8Array;

  constructor(arena: Uint8Array) {
    this.#arena = arena;
  }

  postReceive({ wrId, offset, length, broken }: SimReceive): void {
    this.queue.waiting.push({ wrId, local: this.#arena.subarray(offset, offset + length), broken });
  }

  setLimit(limit: number): void {
    this.queue.limit = limit;
  }
}
