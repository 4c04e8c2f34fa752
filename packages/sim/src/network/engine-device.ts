/** The engine on the network: an `Adapter` driven through its public face. */

import { createRandom } from '@node-roce/link';
import {
  Access,
  Adapter,
  FRAGMENT_WORDS,
  Fragment,
  Icrc,
  NO_PEER,
  type RetransmitCause,
  Ring,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from '@node-roce/transport';
import { gidEquals } from '@node-roce/wire';
import {
  ACTIVE_MTU,
  type SimDevice,
  type SimEvent,
  type SimQp,
  type SimQpOptions,
  type SimReceive,
  type SimSrq,
  type SimWindow,
} from './endpoint.ts';
import { EngineQp, type QpHost, writeReceive } from './engine-queue-pair.ts';
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
}

const ALL_ACCESS =
  Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.MW_BIND;

/** A protection domain, and what queue pairs in it need of their device. */
export type Domain = QpHost;

export class EngineDevice implements SimDevice {
  readonly gid: Uint8Array;
  readonly arena: Uint8Array<ArrayBuffer>;
  readonly adapter: Adapter;
  readonly groups: Uint8Array[] = [];
  readonly #depth: number;
  readonly #tx: TxBatch;
  readonly #rx = new RxBatch(256, 2 * 1024 * 1024);
  readonly #peers: Uint8Array[] = [];
  readonly #doorbells: Ring;
  readonly #host: Domain;
  #backings = 0;
  readonly #events: SimEvent[] = [];
  /** Of the batch at hand: places of packets that were sent before, and why they go again. */
  readonly #again = new Map<number, RetransmitCause>();

  constructor({ gid, arenaBytes, seed, credits = false, depth = 64, guardBytes = 0 }: EngineDeviceOptions) {
    this.gid = gid;
    this.#depth = depth;
    this.arena = new Uint8Array(new ArrayBuffer(arenaBytes + 2 * guardBytes), guardBytes, arenaBytes);
    this.adapter = new Adapter({
      random: createRandom(seed).next,
      peers: {
        add: (dgid) => {
          const known = this.#peers.findIndex((gid) => gidEquals(gid, dgid));
          return known < 0 ? this.#peers.push(dgid.slice()) - 1 : known;
        },
        remove: () => {},
        join: (group) => this.groups.push(group.slice()),
        leave: () => {},
      },
      gids: [{ gid, address: 'simulated', type: 'RoCE v2' }],
      activeMtu: ACTIVE_MTU,
      credits,
      throwBugs: true,
      onCompletionEvent: () => {},
      onAsyncEvent: ({ type }) => {
        if (type === 'SRQ_LIMIT_REACHED' || type === 'QP_LAST_WQE_REACHED') this.#events.push(type);
      },
      onRetransmit: (_qpn, _psn, cause) => this.#again.set(this.#tx.count - 1, cause),
    });
    this.#tx = new TxBatch(this.adapter.regions);
    this.#doorbells = new Ring(this.adapter.doorbells);
    this.#host = this.createDomain(this.arena);
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

  createQp(options: SimQpOptions, domain = this.#host): EngineQp {
    const depth = this.#depth;
    const [sendCq, recvCq] = [this.adapter.createCq(depth * 2), this.adapter.createCq(depth * 2)];
    const cap = { maxSendWr: depth, maxRecvWr: depth, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
    const srq = options.srq as EngineSrq | undefined;
    const created = this.adapter.createQp({
      pd: domain.pd,
      type: options.service,
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
    return new EngineQp(domain, created, rings, options);
  }

  createSrq(domain = this.#host): EngineSrq {
    return new EngineSrq(domain, this.#depth);
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
    const batch = this.#rx;
    for (let from = 0; from < packets.length; from += batch.capacity) {
      const part = packets.slice(from, from + batch.capacity);
      let offset = 0;
      part.forEach((packet, i) => {
        const w = i * RX_SLOT_WORDS;
        batch.slab.set(packet.bytes, offset);
        batch.sources.set(packet.source, i * 16);
        batch.slots.fill(0, w, w + RX_SLOT_WORDS);
        batch.slots[w + Rx.OFFSET] = offset;
        batch.slots[w + Rx.LENGTH] = packet.bytes.length;
        batch.slots[w + Rx.PEER] = this.#peerOf(packet.source);
        batch.slots[w + Rx.LOCAL] = this.#localOf(packet.destination);
        batch.slots[w + Rx.TRAFFIC_CLASS] = packet.trafficClass;
        batch.slots[w + Rx.HOP_LIMIT] = 64;
        batch.slots[w + Rx.VERDICT] = packet.corrupt ? Icrc.BAD : Icrc.OK;
        batch.slots[w + Rx.SOURCE_PORT] = packet.sourcePort;
        offset += (packet.bytes.length + 7) & ~7;
      });
      batch.count = part.length;
      this.adapter.receive(batch, now);
    }
  }

  #peerOf(source: Uint8Array): number {
    const index = this.#peers.findIndex((gid) => gidEquals(gid, source));
    return index < 0 ? NO_PEER : index;
  }

  /** 0 for our own address, from 1 on for groups. */
  #localOf(destination: Uint8Array): number {
    return this.groups.findIndex((group) => gidEquals(group, destination)) + 1;
  }

  advance(now: number): void {
    this.adapter.advance(now);
  }

  transmit(now: number): SimPacket[] {
    const packets: SimPacket[] = [];
    const batch = this.#tx;
    do {
      batch.clear();
      this.#again.clear();
      this.adapter.transmit(batch, now);
      for (let i = 0; i < batch.count; i++) packets.push(this.#gather(batch, i));
      this.adapter.sent(batch);
    } while (batch.count > 0);
    return packets;
  }

  #gather(batch: TxBatch, index: number): SimPacket {
    const slot = batch.slots.subarray(index * TX_SLOT_WORDS, (index + 1) * TX_SLOT_WORDS);
    const headerLength = slot[Tx.HEADER_LENGTH];
    const bytes = new Uint8Array(headerLength + slot[Tx.PAYLOAD_LENGTH] + slot[Tx.PAD]);
    const header = slot[Tx.HEADER_OFFSET];
    bytes.set(batch.headers.subarray(header, header + headerLength));
    let at = headerLength;
    for (let i = 0; i < slot[Tx.FRAGMENT_COUNT]; i++) {
      const f = (slot[Tx.FRAGMENT_FIRST] + i) * FRAGMENT_WORDS;
      const view = batch.regions.views[batch.fragments[f + Fragment.REGION]]!;
      const offset =
        batch.fragments[f + Fragment.OFFSET_HIGH] * 2 ** 32 + batch.fragments[f + Fragment.OFFSET_LOW];
      const length = batch.fragments[f + Fragment.LENGTH];
      bytes.set(view.subarray(offset, offset + length), at);
      at += length;
    }
    const retransmission = this.#again.get(index);
    return {
      ...(retransmission === undefined ? {} : { retransmission }),
      bytes,
      source: this.gid,
      destination: this.#peers[slot[Tx.PEER]],
      trafficClass: slot[Tx.TRAFFIC_CLASS],
      sourcePort: slot[Tx.SOURCE_PORT],
      corrupt: false,
    };
  }

  nextDeadline(): number {
    return this.adapter.nextDeadline();
  }
}

/** A shared receive queue of the engine. */
export class EngineSrq implements SimSrq {
  readonly handle: number;
  readonly ring: Ring;
  readonly #host: QpHost;

  constructor(host: QpHost, maxWr: number) {
    const { handle, ring } = host.adapter.createSrq({ pd: host.pd, maxWr, maxSge: 1, limit: 0 });
    this.#host = host;
    this.handle = handle;
    this.ring = new Ring(ring);
  }

  postReceive(request: SimReceive): void {
    writeReceive(this.ring, this.#host.arena, request);
  }

  setLimit(limit: number): void {
    this.#host.adapter.modifySrq(this.handle, { limit });
  }
}
