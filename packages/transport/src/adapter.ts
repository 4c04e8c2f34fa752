import { bthPsn, opcodeInfo } from '@node-roce/wire';
import type { AdapterOptions } from './adapter-options.ts';
import { Admission } from './admission.ts';
import { copyBatch, EFAULT, RegionTable, type RxBatch, TX_SLOT_WORDS, Tx, type TxBatch } from './batch.ts';
import { WcStatus } from './constants.ts';
import { Context } from './context.ts';
import {
  type AhAttr,
  type CqContents,
  type CqCreated,
  DEVICE_LIMITS,
  type DeviceLimits,
  type MrCreated,
  type MrInit,
  type MwCreated,
  type MwType,
  type NullMrCreated,
  type QpAttr,
  type QpCreated,
  type QpInit,
  type QpQuery,
  type QpResized,
  RECOVERY_DEFAULTS,
  type SrqAttr,
  type SrqCreated,
  type SrqInit,
  type SrqModified,
  type SrqOp,
  type XrcdInit,
  type XrcTargetOpened,
} from './control.ts';
import { type AdapterCounts, addCounters, QpCounters } from './counters.ts';
import { RoceBug } from './errors.ts';
import { QueuePairs } from './queue-pairs.ts';
import type { FrameCount, FrameRule } from './raw/frames.ts';
import { checkRecovery } from './recovery.ts';
import { DOORBELL_RECV, type NewRing, type Ring, type RingShape } from './rings.ts';
import { unfoldRuns } from './run-slots.ts';
import type { Clock } from './times.ts';

/** Queue pairs whose timers one call of `advance` runs. */
const TIMERS_PER_CALL = 4096;

/**
 * A channel adapter without I/O: packets and randomness are arguments, and the caller sets its `clock`. It has four kinds of methods:
 *
 * - Data path, in this order, as often as the caller likes (a call with nothing to do does nothing):
 *   `receive` for each batch that the link brings, until it brings none; `advance`; then `transmit` into a batch,
 *   the batch to the link, and `sent` when the link has looked at every packet of it, until `transmit` returns 0.
 *   `advance` after `receive`, so that a timer never counts a retry while its ACK waits in the socket.
 * - Conditions to wait for: `nextDeadline`, `wantsToSend`, and the ring `doorbells`, which a posting thread rings.
 * - Control path: create, modify, query and destroy, as the verbs of these names. Each ends before it returns.
 * - For tests and tools: `checkInvariants`, `counters`, `qpCounters`.
 *
 * The rings that the control path returns are shared with the program; callbacks of `Host` are called inside of
 * these calls and must not call back.
 */
export class Adapter {
  readonly regions: RegionTable;
  readonly limits: DeviceLimits;
  /** The time, µs, at index 0: the caller sets it before a call. It may stand still, and never goes back. */
  readonly clock: Clock;
  /** One-word entries: the QPN whose queue has something new, with DOORBELL_RECV for the receive queue. */
  readonly doorbells: RingShape;
  readonly #doorbells: Ring;
  readonly #context: Context;
  readonly #queues: QueuePairs;
  readonly #admission: Admission;

  constructor(options: AdapterOptions) {
    const given = Object.entries(options.limits ?? {}).filter(([, limit]) => limit !== undefined);
    this.limits = { ...DEVICE_LIMITS, ...Object.fromEntries(given) };
    this.regions = options.regions ?? new RegionTable();
    // Some of the buffer is left to requests and to peers that were not asked.
    const receiveBudget = Math.floor((options.receiveBuffer ?? 212_992) * 0.9);
    this.#context = new Context({
      host: options,
      random: options.random,
      limits: this.limits,
      regions: this.regions,
      copy: options.copy ?? copyBatch,
      readBudget: receiveBudget,
      credits: options.credits ?? false,
      sharedRings: options.sharedRings ?? true,
      recovery: { ...RECOVERY_DEFAULTS, ...checkRecovery(options.recovery, 'recovery') },
      throwBugs: options.throwBugs ?? false,
      clockOrigin: options.clockOrigin ?? 0,
    });
    this.clock = this.#context.clock;
    this.#queues = new QueuePairs(this.#context, options);
    this.#admission = new Admission(this.#context, this.#queues);
    this.#doorbells = this.#context.newRing(Math.max(1024, 2 * this.limits.maxQp), 1);
    this.doorbells = this.#doorbells.shape;
  }

  // ---------------------------------------------------------------- data path

  /** Takes packets in. Completions show, and memory holds the data, when it returns. */
  receive(batch: RxBatch): void {
    const context = this.#context;
    context.beginBatch(batch.slab);
    if (context.stamps.inUse) this.#receiveStamped(batch);
    else for (let i = 0; i < batch.count; ) i += this.#admission.receive(batch, i, batch.count - i);
    context.publish();
  }

  /** Takes packets in, whose completions get the times of their arrival. */
  #receiveStamped(batch: RxBatch): void {
    const { stamps } = this.#context;
    for (let i = 0; i < batch.count; i++) {
      stamps.packet(batch, i);
      this.#admission.receive(batch, i, 1);
    }
    stamps.none();
  }

  /**
   * Runs the timers that are due, a bounded number of queue pairs a call: `nextDeadline` stays in the past while more
   * are due.
   */
  advance(): void {
    const context = this.#context;
    context.deadlines.run(TIMERS_PER_CALL);
    context.publish();
  }

  /** Appends the packets that may be sent to the batch; returns their number. */
  transmit(batch: TxBatch): number {
    const context = this.#context;
    this.#answerDoorbells();
    const before = batch.count;
    // From here on: a request that fails after some packets withdraws them.
    context.batches.open(batch);
    if (context.farewells.waiting) context.farewells.transmit(batch);
    context.scheduler.fill(batch);
    context.publish();
    if (batch.count === 0) context.batches.close(batch);
    const added = batch.count - before;
    context.counters.sentPackets += added;
    return added;
  }

  /** Whether there are raw packet queue pairs: `runFrames` has to be called as well as `receive` and `transmit`. */
  get usesFrames(): boolean {
    return this.#queues.raws.size > 0;
  }

  /** Sends and takes in whole frames, as far as the ports of raw packet queue pairs go. */
  runFrames(): void {
    for (const qp of this.#queues.raws) qp.run();
    this.#context.publish();
  }

  /** Closes the ports of raw packet queue pairs: the last call for them. */
  closeFrames(): void {
    this.#queues.closeFrames();
  }

  /** When `advance` has to be called at the latest, µs; Infinity if never. May be early, never late. */
  nextDeadline(): number {
    return this.#context.deadlines.next[0];
  }

  /** Looks for a timer that is due: then `advance` has to be called now. If there is none, `nextDeadline` is later. @returns whether there is one */
  findDue(): boolean {
    const { deadlines } = this.#context;
    return deadlines.next[0] <= this.clock[0] && deadlines.findDue();
  }

  /** True if a call of `transmit` may add something now. */
  get wantsToSend(): boolean {
    const { scheduler, farewells } = this.#context;
    return scheduler.busy || farewells.waiting || this.#doorbells.used > 0;
  }

  /**
   * The link has looked at every slot of the batch: what UC and UD sent is done, and the ACK timers start. A packet that it
   * refused as too large for its way fails its work request (the path MTU was set too large), one whose memory
   * went away too; any other reason is a lost packet, which the timers of RC see to, and so is a reply that was refused.
   */
  sent(batch: TxBatch): void {
    const context = this.#context;
    const { slots } = batch;
    for (let i = 0, w = 0; i < batch.count; i++, w += TX_SLOT_WORDS) {
      if (slots[w + Tx.STATUS] !== 0) this.#refused(batch, w);
    }
    context.batchClosed(batch);
    if (context.farewells.leaving) context.farewells.taken();
    context.publish();
  }

  #refused(batch: TxBatch, w: number): void {
    unfoldRuns(batch);
    const { slots, headers } = batch;
    const tag = slots[w + Tx.QPN];
    this.#context.counters.sendErrors++;
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
   * Checks the promises of each owner of state, for every queue pair: for tests and the simulator, after each
   * call. Throws `RoceBug`, or fails the queue pair, where a promise is broken.
   */
  checkInvariants(): void {
    const { deadlines, farewells, readBudget } = this.#context;
    let held = 0;
    for (const qp of this.#queues.queuePairs()) {
      qp.checkInvariants();
      held += qp.readsHeld;
    }
    const broken = deadlines.check() ?? farewells.check();
    if (broken !== undefined) throw new RoceBug(broken);
    if (held + readBudget.left !== readBudget.total) {
      throw new RoceBug(`READs hold ${held} of ${readBudget.total} bytes, ${readBudget.left} are left`);
    }
  }

  /** Something was posted to a queue pair in the engine's own thread: in place of a doorbell, which has one writer. */
  posted(qpn: number): void {
    this.#queues.posted(qpn);
  }

  #answerDoorbells(): void {
    const ring = this.#doorbells;
    const { consumer, producer } = ring;
    const end = ring.end(consumer);
    for (let i = consumer; i !== end; i = (i + 1) | 0) {
      const value = ring.words[ring.wordOf(i)];
      this.#queues.posted(value & ~DOORBELL_RECV);
    }
    // A count that can't be: which rang is not known, so all are looked at.
    if (end !== producer) {
      for (const qp of this.#queues.queuePairs()) qp.posted();
    }
    ring.release(producer);
  }

  // ------------------------------------------------------------- control path

  allocPd(): number {
    return this.#context.memory.allocPd();
  }

  deallocPd(pd: number): void {
    this.#context.memory.deallocPd(pd);
  }

  registerMr(init: MrInit): MrCreated {
    return this.#context.memory.register(init);
  }

  allocNullMr(pd: number): NullMrCreated {
    return this.#context.memory.allocNullMr(pd);
  }

  deregisterMr(handle: number): void {
    this.#context.memory.deregister(handle);
  }

  reregisterMr(handle: number, init: MrInit, newKeys: boolean): MrCreated {
    return this.#context.memory.reregister(handle, init, newKeys);
  }

  allocMw(pd: number, type: MwType): MwCreated {
    return this.#context.memory.allocMw(pd, type);
  }

  deallocMw(handle: number): void {
    this.#context.memory.deallocMw(handle);
  }

  createCq(cqe: number, contents?: CqContents, newRing?: NewRing): CqCreated {
    return this.#queues.cqs.create(cqe, contents, newRing);
  }

  resizeCq(handle: number, cqe: number): CqCreated {
    return this.#queues.cqs.resize(handle, cqe);
  }

  destroyCq(handle: number): void {
    this.#queues.cqs.destroy(handle);
  }

  createSrq(init: SrqInit): SrqCreated {
    return this.#queues.createSrq(init);
  }

  modifySrq(handle: number, attr: SrqAttr): SrqModified {
    return this.#queues.srqs.modify(handle, attr);
  }

  querySrq(handle: number): Required<SrqAttr> & { maxSge: number } {
    return this.#queues.srqs.query(handle);
  }

  /** ibv_post_srq_ops(3), one operation. @returns the handle of a buffer that was added, else 0 */
  postSrqOp(handle: number, op: SrqOp): number {
    return this.#queues.postSrqOp(handle, op);
  }

  destroySrq(handle: number): void {
    this.#queues.destroySrq(handle);
  }

  createAh(pd: number, attr: AhAttr): number {
    return this.#queues.createAh(pd, attr);
  }

  destroyAh(handle: number): void {
    this.#context.memory.holdPd(this.#context.addresses.destroyAh(handle), -1);
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

  openXrcd(init: XrcdInit): number {
    return this.#queues.xrc.open(init);
  }

  closeXrcd(handle: number): void {
    this.#queues.xrc.close(handle);
  }

  createXrcTarget(xrcd: number): XrcTargetOpened {
    return this.#queues.createXrcTarget(xrcd);
  }

  openXrcTarget(xrcd: number, qpn: number): XrcTargetOpened {
    return this.#queues.openXrcTarget(xrcd, qpn);
  }

  closeXrcTarget(handle: number): void {
    this.#queues.closeXrcTarget(handle);
  }

  modifyQp(qpn: number, attr: QpAttr): QpResized | undefined {
    return this.#queues.modifyQp(qpn, attr);
  }

  /** Whether the ACKs of a queue pair carry the count of posted receives, until its RESET. */
  setCredits(qpn: number, credits: boolean): void {
    this.#queues.setCredits(qpn, credits);
  }

  /** Sets what a raw packet queue pair takes in; as `RawQueuePair.setFilter`. EINVAL for another type. */
  setFrameFilter(qpn: number, rules: readonly FrameRule[] | undefined, counts = false): FrameCount[] {
    return this.#queues.raw(qpn).setFilter(rules, counts);
  }

  /** Frames that a raw packet queue pair took in, by the rules of its filter. */
  frameCounts(qpn: number): FrameCount[] {
    return this.#queues.raw(qpn).frameCounts();
  }

  /**
   * The peer's requester retransmits only the missing packets when it sees an ACK ahead of them (`recovery.selective`), as ours does. A queue pair
   * whose `keepEarly` is `auto` acknowledges ahead until its RESET.
   */
  acknowledgeAhead(qpn: number): void {
    this.#queues.acknowledgeAhead(qpn);
  }

  queryQp(qpn: number): QpQuery {
    return this.#queues.queryQp(qpn);
  }

  destroyQp(qpn: number): void {
    this.#queues.destroyQp(qpn);
  }

  /** The adapter's counts, and those of every queue pair that there is or was. */
  counters(): AdapterCounts {
    const sums = new QpCounters();
    addCounters(sums, this.#queues.retired);
    for (const { counters } of this.#queues.queuePairs()) addCounters(sums, counters);
    return { ...sums, acceptedPackets: sums.receivedPackets, ...this.#context.counters };
  }

  qpCounters(qpn: number): QpCounters {
    return { ...this.#queues.get(qpn).counters };
  }
}

const EMSGSIZE = 90;
