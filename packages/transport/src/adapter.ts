import type { PeerTable } from './addresses.ts';
import { Admission } from './admission.ts';
import {
  type CopyBatch,
  copyBatch,
  RegionTable,
  type RxBatch,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
} from './batch.ts';
import { QpStateCode, WcStatus } from './constants.ts';
import {
  type AhAttr,
  type CqCreated,
  DEVICE_LIMITS,
  type DeviceLimits,
  type GidEntry,
  type MrCreated,
  type MrInit,
  type MwCreated,
  type MwType,
  type QpAttr,
  type QpCreated,
  type QpInit,
  type QpQuery,
  type SrqAttr,
  type SrqCreated,
  type SrqInit,
  type SrqModified,
} from './control.ts';
import { Core, type Host } from './core.ts';
import { type AdapterCounts, addCounters, QpCounters } from './counters.ts';
import { QueueTable } from './queue-table.ts';
import { failHead, requesterTimers } from './recovery.ts';
import { checkRequester, transmitProbe, transmitRequests } from './requester.ts';
import { createRing, DOORBELL_RECV, Ring, type RingShape } from './rings.ts';
import { confirmSent } from './unreliable.ts';

export interface AdapterOptions extends Host {
  /** Uniform unsigned 32-bit numbers that nobody can predict: keys, QPNs and addresses come from it. */
  random: () => number;
  peers: PeerTable;
  gids: readonly GidEntry[];
  /** Largest path MTU of the port, bytes. */
  activeMtu: number;
  regions?: RegionTable;
  /** Copies payload into regions; plain JavaScript unless the link brings something better. */
  copy?: CopyBatch;
  limits?: Partial<DeviceLimits>;
  /** Bytes of the receive socket's buffer as the kernel counts them: READs ask for no more at once. */
  receiveBuffer?: number;
  /** Whether ACKs carry the count of posted receives; otherwise 31, no limit. */
  credits?: boolean;
  /** Throws `RoceBug` where an invariant of the engine is broken; otherwise that is counted and fails the queue pair. */
  throwBugs?: boolean;
}

/** Requests, and replies, that one queue pair may add in one turn. */
const TURN_PACKETS = 128;

export class Adapter {
  readonly regions: RegionTable;
  readonly limits: DeviceLimits;
  /** One-word entries: the QPN whose queue has something new, with DOORBELL_RECV for the receive queue. */
  readonly doorbells: RingShape;
  readonly #doorbells: Ring;
  readonly #core: Core;
  readonly #queues: QueueTable;
  readonly #admission: Admission;

  constructor(options: AdapterOptions) {
    this.limits = { ...DEVICE_LIMITS, ...options.limits };
    this.regions = options.regions ?? new RegionTable();
    // Some of the buffer is left to requests and to peers that were not asked.
    const receiveBudget = Math.floor((options.receiveBuffer ?? 212_992) * 0.9);
    this.#core = new Core(
      options,
      options.random,
      this.limits,
      this.regions,
      options.copy ?? copyBatch,
      receiveBudget,
      options.credits ?? false,
      options.throwBugs ?? false,
    );
    this.#queues = new QueueTable(this.#core, { ...options, receiveBudget });
    this.#admission = new Admission(this.#core, this.#queues);
    this.doorbells = createRing(Math.max(1024, 2 * this.limits.maxQp), 1);
    this.#doorbells = new Ring(this.doorbells);
  }

  // ---------------------------------------------------------------- data path

  /** Takes packets in. Completions show, and memory holds the data, when it returns. */
  receive(batch: RxBatch, now: number): void {
    const core = this.#core;
    core.now = now;
    core.slab = batch.slab;
    for (let i = 0; i < batch.count; i++) this.#admission.receive(batch, i);
    core.publish();
  }

  /** Runs the timers that are due. */
  advance(now: number): void {
    const core = this.#core;
    core.now = now;
    for (;;) {
      const qp = core.deadlines.due(now);
      if (!qp) break;
      requesterTimers(core, qp);
      core.deadlines.update(qp);
    }
    core.publish();
  }

  /** Appends what may go to the batch; returns how many packets that were. */
  transmit(batch: TxBatch, now: number): number {
    const core = this.#core;
    core.now = now;
    this.#answerDoorbells();
    const before = batch.count;
    // Each queue pair has one turn a round; who had nothing to say in its turn leaves.
    const { active } = core;
    let turns = active.length;
    while (turns-- > 0 && !batch.full) {
      const qp = active.shift()!;
      qp.active = false;
      if (qp.destroyed) continue;
      // An answering program's message goes before the ACK of what it answers: the peer waits for it.
      let sent = qp.probing ? transmitProbe(core, qp, batch) : 0;
      sent += transmitRequests(core, qp, batch, TURN_PACKETS - sent);
      sent += qp.responder.transmit(batch, TURN_PACKETS);
      // A batch that is full may be why nothing was added.
      if (sent > 0 || batch.full) core.schedule(qp);
      if (turns === 0 && batch.count > before) turns = active.length;
    }
    core.publish();
    const added = batch.count - before;
    core.counters.sentPackets += added;
    return added;
  }

  /** When `advance` has to be called at the latest, µs; Infinity if never. May be early, never late. */
  nextDeadline(): number {
    return this.#core.deadlines.next;
  }

  /** True if a call of `transmit` may add something now. */
  get wantsToSend(): boolean {
    return this.#core.active.length > 0 || this.#doorbells.used > 0;
  }

  /**
   * The link has looked at every slot of the batch: what UC and UD sent is done. A packet that it refused
   * as too large for its way fails its work request (the path MTU was set too large), one whose memory
   * went away too; any other reason is a lost packet, which the timers of RC see to.
   */
  sent(batch: TxBatch): void {
    const core = this.#core;
    const { slots } = batch;
    for (let i = 0, w = 0; i < batch.count; i++, w += TX_SLOT_WORDS) {
      if (slots[w + Tx.STATUS] !== 0) this.#refused(slots, w);
    }
    const { unconfirmed } = core;
    if (unconfirmed.length > 0) {
      for (let i = 0; i < unconfirmed.length; i++) confirmSent(core, unconfirmed[i]);
      unconfirmed.length = 0;
    }
    core.publish();
  }

  #refused(slots: Uint32Array, w: number): void {
    const core = this.#core;
    core.counters.sendErrors++;
    const qp = this.#queues.find(slots[w + Tx.QPN]);
    if (!qp) return;
    qp.counters.sendErrors++;
    const errno = slots[w + Tx.STATUS];
    if (errno !== EMSGSIZE && errno !== EFAULT) return;
    const status = errno === EMSGSIZE ? WcStatus.LOC_LEN_ERR : WcStatus.LOC_PROT_ERR;
    if ((qp.state !== QpStateCode.RTS && qp.state !== QpStateCode.SQD) || qp.sqHead === qp.sqStarted) return;
    if (qp.reliable) {
      failHead(core, qp, status);
    } else if (qp.failedStatus === 0 || ((slots[w + Tx.ENTRY] - qp.failedIndex) | 0) < 0) {
      qp.failedIndex = slots[w + Tx.ENTRY] | 0;
      qp.failedStatus = status;
    }
  }

  /**
   * Checks what each owner of state promises, for every queue pair: for tests and the simulator, after each
   * call. Throws `RoceBug`, or fails the queue pair, where a promise is broken.
   */
  checkInvariants(): void {
    for (const qp of this.#queues.queuePairs()) {
      checkRequester(this.#core, qp);
      qp.receives.checkInvariants();
      qp.responder.checkInvariants();
    }
  }

  #answerDoorbells(): void {
    const ring = this.#doorbells;
    const core = this.#core;
    const { producer } = ring;
    for (let i = ring.consumer; i !== producer; i = (i + 1) | 0) {
      const value = ring.words[ring.wordOf(i)];
      const qp = this.#queues.find(value & ~DOORBELL_RECV);
      if (!qp) continue;
      if (qp.state === QpStateCode.ERR) core.flush(qp);
      else if (qp.state === QpStateCode.SQE) core.flushSends(qp);
      else core.schedule(qp);
    }
    ring.release(producer);
  }

  // ------------------------------------------------------------- control path

  allocPd(): number {
    return this.#core.memory.allocPd();
  }

  deallocPd(pd: number): void {
    this.#core.memory.deallocPd(pd);
  }

  registerMr(init: MrInit): MrCreated {
    return this.#core.memory.register(init);
  }

  deregisterMr(handle: number): void {
    this.#core.memory.deregister(handle);
  }

  reregisterMr(handle: number, init: MrInit, newKeys: boolean): MrCreated {
    return this.#core.memory.reregister(handle, init, newKeys);
  }

  allocMw(pd: number, type: MwType): MwCreated {
    return this.#core.memory.allocMw(pd, type);
  }

  deallocMw(handle: number): void {
    this.#core.memory.deallocMw(handle);
  }

  createCq(cqe: number): CqCreated {
    return this.#queues.createCq(cqe);
  }

  resizeCq(handle: number, cqe: number): CqCreated {
    return this.#queues.resizeCq(handle, cqe);
  }

  destroyCq(handle: number): void {
    this.#queues.destroyCq(handle);
  }

  createSrq(init: SrqInit): SrqCreated {
    return this.#queues.srqs.create(init);
  }

  modifySrq(handle: number, attr: SrqAttr): SrqModified {
    return this.#queues.srqs.modify(handle, attr);
  }

  querySrq(handle: number): Required<SrqAttr> & { maxSge: number } {
    return this.#queues.srqs.query(handle);
  }

  destroySrq(handle: number): void {
    this.#queues.srqs.destroy(handle);
  }

  createAh(pd: number, attr: AhAttr): number {
    return this.#queues.createAh(pd, attr);
  }

  destroyAh(handle: number): void {
    this.#core.memory.holdPd(this.#core.addresses.destroyAh(handle), -1);
  }

  attachMcast(qpn: number, group: Uint8Array): void {
    this.#queues.attachMcast(qpn, group);
  }

  detachMcast(qpn: number, group: Uint8Array): void {
    this.#queues.detachMcast(qpn, group);
  }

  createQp(init: QpInit): QpCreated {
    return this.#queues.createQp(init);
  }

  modifyQp(qpn: number, attr: QpAttr, now: number): void {
    this.#queues.modifyQp(qpn, attr, now);
  }

  queryQp(qpn: number): QpQuery {
    return this.#queues.queryQp(qpn);
  }

  destroyQp(qpn: number, now: number): void {
    this.#queues.destroyQp(qpn, now);
  }

  /** The adapter's counts, and those of every queue pair that there is or was. */
  counters(): AdapterCounts {
    const sums = new QpCounters();
    addCounters(sums, this.#queues.retired);
    for (const { counters } of this.#queues.queuePairs()) addCounters(sums, counters);
    return { ...sums, acceptedPackets: sums.receivedPackets, ...this.#core.counters };
  }

  qpCounters(qpn: number): QpCounters {
    return { ...this.#queues.get(qpn).counters };
  }
}

const EMSGSIZE = 90;
const EFAULT = 14;
