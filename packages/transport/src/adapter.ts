import { bthPsn, opcodeInfo } from '@node-roce/wire';
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
import { WcStatus } from './constants.ts';
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
import { RoceBug } from './errors.ts';
import { QueueTable } from './queue-table.ts';
import { createRing, DOORBELL_RECV, Ring, type RingShape } from './rings.ts';

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
/** Queue pairs whose timers one call of `advance` runs. */
const TIMERS_PER_CALL = 4096;

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
    this.#queues = new QueueTable(this.#core, options);
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

  /**
   * Runs the timers that are due, a bounded number of queue pairs a call: `nextDeadline` stays in the past while more
   * are due.
   */
  advance(now: number): void {
    const core = this.#core;
    core.now = now;
    core.deadlines.run(now, TIMERS_PER_CALL);
    core.publish();
  }

  /** Appends what may be sent to the batch; returns how many packets that were. */
  transmit(batch: TxBatch, now: number): number {
    const core = this.#core;
    core.now = now;
    this.#answerDoorbells();
    const before = batch.count;
    if (core.farewells.waiting) core.farewells.transmit(batch);
    // With one queue pair busy, an answering program's message leaves before the ACK of what it answers: the
    // peer waits for it. Otherwise ACKs go first: they wait for no one's turn.
    if (core.bulk.length <= 1) this.#transmitBulk(batch);
    this.#transmitReplies(batch);
    if (core.bulk.length > 0) this.#transmitBulk(batch);
    core.publish();
    const added = batch.count - before;
    core.counters.sentPackets += added;
    if (added > 0) core.batchOpened(batch);
    return added;
  }

  /** ACKs, NAKs and atomic results: each queue pair that owes some has one turn. */
  #transmitReplies(batch: TxBatch): void {
    const { replies, bulk } = this.#core;
    for (let turns = replies.length; turns > 0 && !batch.full; turns--) {
      const qp = replies.shift();
      if (qp.destroyed) continue;
      qp.responder.transmit(batch, TURN_PACKETS, false);
      if (qp.responder.owed === 0) continue;
      // A READ response is next, which waits among the requests; or the batch is full.
      if (batch.full) replies.push(qp.replyTurn);
      else bulk.push(qp.bulkTurn);
    }
  }

  /** Requests and READ responses: each queue pair has one turn a round; who had nothing to send leaves. */
  #transmitBulk(batch: TxBatch): void {
    const { bulk } = this.#core;
    let round = batch.count;
    let turns = bulk.length;
    while (turns-- > 0 && !batch.full) {
      const qp = bulk.shift();
      if (qp.destroyed) continue;
      const requests = qp.requester.transmit(batch, TURN_PACKETS);
      const sent = requests + qp.responder.transmit(batch, TURN_PACKETS, true);
      // A batch that is full may be why nothing was added.
      if (sent > 0 || batch.full) bulk.push(qp.bulkTurn);
      if (turns > 0 || batch.count === round) continue;
      round = batch.count;
      turns = bulk.length;
    }
  }

  /** When `advance` has to be called at the latest, µs; Infinity if never. May be early, never late. */
  nextDeadline(): number {
    return this.#core.deadlines.next;
  }

  /** True if a call of `transmit` may add something now. */
  get wantsToSend(): boolean {
    const { bulk, replies, farewells } = this.#core;
    return bulk.length > 0 || replies.length > 0 || farewells.waiting || this.#doorbells.used > 0;
  }

  /**
   * The link has looked at every slot of the batch: what UC and UD sent is done, and the ACK timers start. A packet that it
   * refused as too large for its way fails its work request (the path MTU was set too large), one whose memory
   * went away too; any other reason is a lost packet, which the timers of RC see to, and so is a reply that was refused.
   *
   * @param now when that was, µs; without it, the time of the last call
   */
  sent(batch: TxBatch, now = this.#core.now): void {
    const core = this.#core;
    core.now = now;
    const { slots } = batch;
    for (let i = 0, w = 0; i < batch.count; i++, w += TX_SLOT_WORDS) {
      if (slots[w + Tx.STATUS] !== 0) this.#refused(batch, w);
    }
    core.batchClosed(batch);
    core.farewells.taken();
    core.publish();
  }

  #refused({ slots, headers }: TxBatch, w: number): void {
    const tag = slots[w + Tx.QPN];
    this.#core.counters.sendErrors++;
    const qp = this.#queues.find(tag & 0xff_ffff);
    // Destroyed, or reset, since the packet was added.
    if (!qp || qp.slotTag !== tag) return;
    qp.counters.sendErrors++;
    const errno = slots[w + Tx.STATUS];
    const bth = slots[w + Tx.HEADER_OFFSET];
    if ((errno !== EMSGSIZE && errno !== EFAULT) || !opcodeInfo(headers[bth])?.isRequest) return;
    const status = errno === EMSGSIZE ? WcStatus.LOC_LEN_ERR : WcStatus.LOC_PROT_ERR;
    qp.requester.refused(slots[w + Tx.ENTRY] | 0, bthPsn(headers, bth), status);
  }

  /**
   * Checks what each owner of state promises, for every queue pair: for tests and the simulator, after each
   * call. Throws `RoceBug`, or fails the queue pair, where a promise is broken.
   */
  checkInvariants(): void {
    const { deadlines, readBudget } = this.#core;
    let held = 0;
    for (const qp of this.#queues.queuePairs()) {
      qp.checkInvariants();
      held += qp.requester.reads.held;
    }
    const broken = deadlines.check();
    if (broken !== undefined) throw new RoceBug(broken);
    if (held + readBudget.left !== readBudget.total) {
      throw new RoceBug(`READs hold ${held} of ${readBudget.total} bytes, ${readBudget.left} are left`);
    }
  }

  #answerDoorbells(): void {
    const ring = this.#doorbells;
    const { producer } = ring;
    for (let i = ring.consumer; i !== producer; i = (i + 1) | 0) {
      const value = ring.words[ring.wordOf(i)];
      const qp = this.#queues.find(value & ~DOORBELL_RECV);
      qp?.posted();
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
