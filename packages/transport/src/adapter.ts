/**
 * The channel adapter: sans-IO. Packets, time and randomness come in as arguments; packets, completions
 * and deadlines go out.
 *
 * The run loop calls, in this order, as often as it likes (spurious calls do nothing):
 *
 * 1. `receive(batch, now)` — what a link took in. Until the link has no more: so that a stalled thread
 *    finds the ACKs that wait for it before it looks at its timers.
 * 2. `advance(now)` — the timers that are due: retry, RNR, probe, pacing.
 * 3. `transmit(batch, now)` — fills a batch with what may go: round robin over queue pairs, each in a
 *    run, so that equal-sized packets to one peer stand together. Then the link sends, and
 *    `sent(batch)` has to follow before the next batch: it completes what UC and UD sent.
 * 4. `nextDeadline()` — when to call `advance` at the latest.
 *
 * Control calls (create, modify, query, register, destroy) come between these, never inside. `now` is a
 * number of microseconds from any origin and never goes back.
 */
import {
  BTH_BYTES,
  bthDestQp,
  bthOpcode,
  bthPad,
  bthPkey,
  bthPsn,
  bthTver,
  opcodeInfo,
  Transport,
} from '@node-roce/wire';
import type { PeerTable } from './addresses.ts';
import {
  type CopyBatch,
  copyBatch,
  Icrc,
  RegionTable,
  RX_SLOT_WORDS,
  Rx,
  type RxBatch,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
} from './batch.ts';
import { receiveResponse } from './completer.ts';
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
import { InboundPacket } from './inbound.ts';
import type { QueuePair } from './qp.ts';
import { QueueTable } from './queue-table.ts';
import { failHead, requesterTimers } from './recovery.ts';
import { transmitReplies } from './replies.ts';
import { transmitProbe, transmitRequests } from './requester.ts';
import { receiveRequest } from './responder.ts';
import { createRing, DOORBELL_RECV, Ring, type RingShape } from './rings.ts';
import { confirmSent, receiveDatagram, receiveUnreliable } from './unreliable.ts';

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
  readonly #packet = new InboundPacket();

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
    );
    this.#queues = new QueueTable(this.#core, { ...options, receiveBudget });
    this.doorbells = createRing(Math.max(1024, 2 * this.limits.maxQp), 1);
    this.#doorbells = new Ring(this.doorbells);
  }

  // ---------------------------------------------------------------- data path

  /** Takes packets in. Completions show, and memory holds the data, when it returns. */
  receive(batch: RxBatch, now: number): void {
    const core = this.#core;
    core.now = now;
    core.slab = batch.slab;
    for (let i = 0; i < batch.count; i++) this.#receiveOne(batch, i);
    core.publish();
  }

  #receiveOne(batch: RxBatch, index: number): void {
    const { slab, slots } = batch;
    const { counters } = this.#core;
    const w = index * RX_SLOT_WORDS;
    counters.receivedPackets++;
    const verdict = slots[w + Rx.VERDICT];
    if (verdict !== Icrc.OK) {
      if (verdict === Icrc.BAD) counters.icrcErrors++;
      else counters.icrcOutOfWindow++;
      return;
    }
    const at = slots[w + Rx.OFFSET];
    const length = slots[w + Rx.LENGTH];
    if (length < BTH_BYTES) {
      counters.malformed++;
      return;
    }
    const opcode = bthOpcode(slab, at);
    const info = opcodeInfo(opcode);
    if (!info || bthTver(slab, at) !== 0) {
      counters.malformed++;
      return;
    }
    if (info.transport === Transport.CNP) {
      counters.cnpReceived++;
      const notified = this.#queues.find(bthDestQp(slab, at));
      if (notified) notified.counters.cnpReceived++;
      return;
    }
    const pad = bthPad(slab, at);
    const payload = length - info.headerLength - pad;
    // A READ or atomic that brings payload has a fault of its length, which is answered (§9.7.4.1.6).
    const bare = !info.hasPayload && !info.isReadRequest && !info.isAtomic;
    if (payload < 0 || (length & 3) !== 0 || (bare && (payload !== 0 || pad !== 0))) {
      counters.malformed++;
      return;
    }
    const destQp = bthDestQp(slab, at);
    const group = this.#core.addresses.members(slots[w + Rx.LOCAL]);
    const qp = group ? undefined : this.#queues.find(destQp);
    const forGroup = group !== undefined && destQp === MULTICAST_QPN && info.transport === Transport.UD;
    if (qp?.transport !== info.transport && !forGroup) {
      counters.unknownQp++;
      return;
    }
    if ((bthPkey(slab, at) & 0x7fff) !== 0x7fff) {
      counters.badPkey++;
      return;
    }
    const packet = this.#packet;
    packet.info = info;
    packet.slab = slab;
    packet.at = at;
    packet.psn = bthPsn(slab, at);
    packet.payload = payload;
    packet.batch = batch;
    packet.index = index;
    if (!qp) for (let i = 0; i < group!.length; i++) this.#receiveDatagram(group![i]);
    else if (qp.datagram) this.#receiveDatagram(qp);
    else this.#receiveConnected(qp);
  }

  /** UD takes from everybody who knows the Q_Key. */
  #receiveDatagram(qp: QueuePair): void {
    if (!RECEIVES.has(qp.state)) {
      this.#core.counters.wrongState++;
      return;
    }
    this.#count(qp);
    receiveDatagram(this.#core, qp, this.#packet);
  }

  /** RC and UC take from their peer alone. */
  #receiveConnected(qp: QueuePair): void {
    const { counters } = this.#core;
    const { info, batch, index } = this.#packet;
    const { state } = qp;
    const open = info.isRequest
      ? RECEIVES.has(state) && (state !== QpStateCode.SQE || !qp.reliable)
      : state === QpStateCode.RTS || state === QpStateCode.SQD;
    if (!open) {
      counters.wrongState++;
      return;
    }
    const sources = batch.sourceWords;
    const s = index * 4;
    const { source } = qp;
    if (
      sources[s] !== source[0] ||
      sources[s + 1] !== source[1] ||
      sources[s + 2] !== source[2] ||
      sources[s + 3] !== source[3] ||
      batch.slots[index * RX_SLOT_WORDS + Rx.LOCAL] !== qp.local
    ) {
      counters.wrongSource++;
      return;
    }
    this.#count(qp);
    if (!qp.established) {
      qp.established = true;
      if (state === QpStateCode.RTR) this.#core.event({ type: 'COMM_EST', qpn: qp.qpn });
    }
    if (!qp.reliable) receiveUnreliable(this.#core, qp, this.#packet);
    else if (info.isRequest) receiveRequest(this.#core, qp, this.#packet);
    else receiveResponse(this.#core, qp, this.#packet);
  }

  /** The queue pair takes the packet in hand. */
  #count({ counters }: QueuePair): void {
    const { batch, index } = this.#packet;
    counters.receivedPackets++;
    if ((batch.slots[index * RX_SLOT_WORDS + Rx.TRAFFIC_CLASS] & ECN_MASK) === ECN_CE) counters.ecnMarked++;
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
      sent += transmitReplies(core, qp, batch, TURN_PACKETS);
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
    return this.#queues.createSrq(init);
  }

  modifySrq(handle: number, attr: SrqAttr): SrqModified {
    return this.#queues.modifySrq(handle, attr);
  }

  querySrq(handle: number): Required<SrqAttr> & { maxSge: number } {
    return this.#queues.querySrq(handle);
  }

  destroySrq(handle: number): void {
    this.#queues.destroySrq(handle);
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

/** States in which requests are taken. */
const RECEIVES = new Set<number>([QpStateCode.RTR, QpStateCode.RTS, QpStateCode.SQD, QpStateCode.SQE]);
/** Destination QPN of a datagram to a group (IBTA vol 1 §10.5.1). */
const MULTICAST_QPN = 0xff_ffff;
/** ECN bits of a traffic class, and Congestion Experienced (RFC 3168 §5). */
const ECN_MASK = 3;
const ECN_CE = 3;
const EMSGSIZE = 90;
const EFAULT = 14;
