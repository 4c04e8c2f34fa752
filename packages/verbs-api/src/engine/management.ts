/**
 * Queue pair 1 of an engine, and the connection manager that speaks through it. Runs next to the adapter, in its thread:
 * the pump calls it in each turn, so that peers are answered while the program is busy.
 */
import { type CmCounters, type CmEvent, type CmSize, Connections, type Route } from '@node-roce/cm';
import type { LinkSharing } from '@node-roce/link';
import {
  Access,
  type Adapter,
  Cqe,
  type GidEntry,
  RecvWqe,
  Ring,
  SendFlags,
  WcStatus,
  WrOpcode,
} from '@node-roce/transport';
import { GSI_QKEY, GSI_QPN, gidEquals, gidFromIpBytes, MAD_BYTES } from '@node-roce/wire';
import { addressVector } from '../address-vector.ts';
import {
  writeDestination,
  writeElement,
  writeExtent,
  writeInlineBytes,
  writeOperation,
  writeReceive,
} from '../posting/entries.ts';

const GRH_BYTES = 40;
/** MADs that may wait between two turns. */
const RECEIVES = 512;
/** MADs that may wait for the link; more are lost, and repeated by their timers. */
const SENDS = 1024;
const RECEIVE_BYTES = GRH_BYTES + MAD_BYTES;
/** Names the buffer of the receives; programs' buffers are counted from 1. */
const BACKING = -1;
const HOP_LIMIT = 64;
/** EUI-64: assigned locally, not by a vendor. */
const LOCAL_GUID = 0x0200_0000_0000_0000n;

/** Counts of MADs that did not reach the connection manager, or the link. */
export interface ManagementCounters {
  /** Not from queue pair 1, not of 256 bytes, or to an address that is not this adapter's. */
  dropped: number;
  /** No room in the send queue, or no route. */
  unsent: number;
}

/** All of them, and the connections held at the moment. */
export interface ManagementReport extends CmCounters, ManagementCounters, CmSize {
  /** Ids and QPNs of connections that have ended, and are not used again yet. */
  kept: number;
}

export interface ManagementOptions {
  adapter: Adapter;
  gids: readonly GidEntry[];
  random: () => number;
  onEvent(event: CmEvent): void;
  /** Whether requests for XRC are taken. */
  xrc: boolean;
  /** Whether alternate paths are taken. */
  apm: boolean;
  /** The other devices at its addresses. */
  sharing: LinkSharing | undefined;
}

/** Creates queue pair 1 and its resources: all of it, or throws and leaves nothing. */
function openParts(adapter: Adapter, memory: Uint8Array<ArrayBuffer>) {
  const undo: (() => void)[] = [];
  try {
    const pd = adapter.allocPd();
    undo.push(() => adapter.deallocPd(pd));
    const cq = adapter.createCq(RECEIVES + SENDS);
    undo.push(() => adapter.destroyCq(cq.handle));
    const mr = adapter.registerMr({
      pd,
      backing: BACKING,
      buffer: memory.buffer,
      offset: 0,
      length: memory.length,
      access: Access.LOCAL_WRITE,
    });
    undo.push(() => adapter.deregisterMr(mr.handle));
    const cap = {
      maxSendWr: SENDS,
      maxRecvWr: RECEIVES,
      maxSendSge: 1,
      maxRecvSge: 1,
      maxInlineData: MAD_BYTES,
    };
    const qp = adapter.createQp({
      pd,
      sendCq: cq.handle,
      recvCq: cq.handle,
      cap,
      sqSigAll: true,
      type: 'GSI',
    });
    return { pd, cq, mr, qp };
  } catch (error) {
    for (const step of undo.reverse()) step();
    throw error;
  }
}

/** The connection manager's part of an engine: its MADs, timers and events. */
export class Management {
  readonly connections: Connections;
  readonly counters: ManagementCounters = { dropped: 0, unsent: 0 };
  readonly #adapter: Adapter;
  readonly #gids: readonly GidEntry[];
  readonly #pd: number;
  readonly #cq: number;
  readonly #mr: number;
  readonly #completions: Ring;
  readonly #sq: Ring;
  readonly #rq: Ring;
  readonly #memory = new Uint8Array(RECEIVES * RECEIVE_BYTES);
  readonly #lkey: number;
  readonly #base: bigint;
  /** Address handles of sends that are not complete, in their order. */
  readonly #handles: number[] = [];

  /** Opens queue pair 1. EBUSY where the program has it. */
  constructor({ adapter, gids, random, xrc, apm, sharing, onEvent }: ManagementOptions) {
    this.#adapter = adapter;
    this.#gids = gids;
    const { pd, cq, mr, qp } = openParts(adapter, this.#memory);
    this.#pd = pd;
    this.#cq = cq.handle;
    this.#completions = new Ring(cq.ring);
    this.#sq = Ring.of(qp.sendQueue);
    this.#rq = Ring.of(qp.recvQueue);
    this.#mr = mr.handle;
    this.#lkey = mr.lkey;
    this.#base = mr.addr;
    adapter.modifyQp(GSI_QPN, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: GSI_QKEY });
    for (let slot = 0; slot < RECEIVES; slot++) this.#post(slot);
    adapter.modifyQp(GSI_QPN, { qpState: 'RTR' });
    adapter.modifyQp(GSI_QPN, { qpState: 'RTS', sqPsn: random() & 0xff_ffff });
    this.connections = new Connections({
      random,
      caGuid: (BigInt(random()) << 32n) | BigInt(random()) | LOCAL_GUID,
      gids,
      xrc,
      apm,
      numbers: sharing?.numbers,
      claim: (service) => sharing?.claim(service),
      release: (service) => sharing?.release(service),
      send: (mad, route) => this.#send(mad, route),
      event: onEvent,
    });
  }

  /** Takes in the messages that came, and runs the timers. */
  run(now: number): void {
    const ring = this.#completions;
    if (ring.used > 0) this.#poll(now);
    if (this.connections.nextDeadline() <= now) this.connections.advance(now);
  }

  nextDeadline(): number {
    return this.connections.nextDeadline();
  }

  /** Whether the ACKs of a queue pair carry credits: both sides of its connection asked for that. */
  setCredits(qpn: number, credits: boolean): void {
    this.#adapter.setCredits(qpn, credits);
  }

  /** Counts, and the connections held at the moment. */
  report(): ManagementReport {
    const { counters, size, kept } = this.connections;
    return { ...counters, ...this.counters, ...size, kept };
  }

  close(now: number): void {
    this.connections.close(now);
  }

  /** Gives queue pair 1 back. False while the connection manager has something to do. */
  release(): boolean {
    if (!this.connections.idle) return false;
    this.#adapter.destroyQp(GSI_QPN);
    for (const handle of this.#handles.splice(0)) this.#adapter.destroyAh(handle);
    this.#adapter.deregisterMr(this.#mr);
    this.#adapter.destroyCq(this.#cq);
    this.#adapter.deallocPd(this.#pd);
    return true;
  }

  #poll(now: number): void {
    const ring = this.#completions;
    const { words, consumer } = ring;
    const end = ring.end(consumer);
    for (let i = consumer; i !== end; i = (i + 1) | 0) {
      const w = ring.wordOf(i);
      // A send completes in the order in which it was posted.
      if (words[w + Cqe.WR_ID_LOW] === RECEIVES) this.#adapter.destroyAh(this.#handles.shift()!);
      else if (words[w + Cqe.STATUS] === WcStatus.SUCCESS) this.#receive(w, now);
      ring.release((i + 1) | 0);
    }
  }

  #receive(w: number, now: number): void {
    const { words } = this.#completions;
    const slot = words[w + Cqe.WR_ID_LOW];
    const at = slot * RECEIVE_BYTES;
    const route = this.#routeBack(at);
    const whole = words[w + Cqe.BYTE_LEN] === RECEIVE_BYTES;
    if (route && whole && words[w + Cqe.SRC_QP] === GSI_QPN)
      this.connections.receive(this.#memory, at + GRH_BYTES, route, now);
    else this.counters.dropped++;
    this.#post(slot);
  }

  /** The way to the sender, from the IP header before the MAD. */
  #routeBack(at: number): Route | undefined {
    const memory = this.#memory;
    const v6 = memory[at] >> 4 === 6;
    const [from, bytes] = v6 ? [at + 8, 16] : [at + 32, 4];
    const gid = gidFromIpBytes(memory.slice(from, from + bytes));
    const own = gidFromIpBytes(memory.slice(from + bytes, from + 2 * bytes));
    const sgidIndex = this.#gids.findIndex((entry) => gidEquals(entry.gid, own));
    if (sgidIndex < 0) return undefined;
    const trafficClass = v6 ? ((memory[at] & 0xf) << 4) | (memory[at + 1] >> 4) : memory[at + 21];
    return { sgidIndex, gid, trafficClass, hopLimit: HOP_LIMIT, flowLabel: 0 };
  }

  #post(slot: number): void {
    const ring = this.#rq;
    const { producer, words } = ring;
    const w = ring.wordOf(producer);
    writeReceive(words, w, slot, 1, RECEIVE_BYTES);
    const address = this.#base + BigInt(slot * RECEIVE_BYTES);
    writeElement(words, w + RecvWqe.SGE, address, RECEIVE_BYTES, this.#lkey);
    ring.publish((producer + 1) | 0);
  }

  #send(mad: Uint8Array, route: Route): void {
    const ring = this.#sq;
    if (ring.used >= SENDS || this.#handles.length >= SENDS) {
      this.counters.unsent++;
      return;
    }
    let handle: number;
    try {
      handle = this.#adapter.createAh(this.#pd, addressVector(route));
    } catch {
      // The address went away meanwhile, or no handle is left.
      this.counters.unsent++;
      return;
    }
    this.#handles.push(handle);
    const { producer, words } = ring;
    const w = ring.wordOf(producer);
    writeOperation(words, w, WrOpcode.SEND, SendFlags.INLINE | SendFlags.SIGNALED, RECEIVES);
    writeExtent(words, w, 0, MAD_BYTES);
    writeInlineBytes(ring, w, 0, mad);
    writeDestination(words, w, handle, GSI_QPN, GSI_QKEY);
    ring.publish((producer + 1) | 0);
    this.#adapter.posted(GSI_QPN);
  }
}
