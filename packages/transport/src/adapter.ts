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
 *    `notSent(batch)` looks at what it could not send.
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
  sourcePortForConnection,
  Transport,
} from '@node-roce/wire';
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
import { checkDrained, receiveResponse } from './completer.ts';
import { CompletionQueue } from './completion-queue.ts';
import { QpStateCode, type QpType, WcStatus } from './constants.ts';
import {
  type CqCreated,
  DEVICE_LIMITS,
  type DeviceLimits,
  type GidEntry,
  type MrCreated,
  type MrInit,
  type QpAttr,
  type QpCap,
  type QpCreated,
  type QpInit,
  type QpQuery,
} from './control.ts';
import { Core, type DeviceCounters, type Host } from './core.ts';
import { invalid, RoceError } from './errors.ts';
import { InboundPacket } from './inbound.ts';
import { applyPlain, checkModify, queryAttributes } from './modify.ts';
import { Inbound, type QpCounters, QueuePair } from './qp.ts';
import { transmitReplies } from './replies.ts';
import {
  failHead,
  readChunkFor,
  receiveCharge,
  requesterTimers,
  startRequester,
  transmitProbe,
  transmitRequests,
} from './requester.ts';
import { receiveRequest } from './responder.ts';
import { createRing, DOORBELL_RECV, Ring, type RingShape } from './rings.ts';

/** The link's table of peers, as the engine uses it. */
export interface PeerTable {
  /** An index for a destination: 16-byte GID, index of the local GID, TTL or hop limit. */
  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number;
  remove(peer: number): void;
}

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

/** Packets that one queue pair may add in one turn. */
const TURN_PACKETS = 128;
const DEFAULT_HOP_LIMIT = 64;
/** Q_Key, QP0, QP1 and the multicast QPN are not to be given out. */
const FIRST_QPN = 2;
const LAST_QPN = 0xff_fffe;

export class Adapter {
  readonly regions: RegionTable;
  readonly limits: DeviceLimits;
  /** One-word entries: the QPN whose queue has something new, with DOORBELL_RECV for the receive queue. */
  readonly doorbells: RingShape;
  readonly #doorbells: Ring;
  readonly #options: AdapterOptions;
  readonly #core: Core;
  readonly #receiveBudget: number;
  readonly #packet = new InboundPacket();
  readonly #qps = new Map<number, QueuePair>();
  readonly #cqs = new Map<number, CompletionQueue>();
  #lastQp: QueuePair | undefined;
  #nextCq = 1;

  constructor(options: AdapterOptions) {
    this.#options = options;
    this.limits = { ...DEVICE_LIMITS, ...options.limits };
    this.regions = options.regions ?? new RegionTable();
    // Some of the buffer is left to requests and to peers that were not asked.
    this.#receiveBudget = Math.floor((options.receiveBuffer ?? 212_992) * 0.9);
    this.#core = new Core(
      options,
      options.random,
      this.limits,
      this.regions,
      options.copy ?? copyBatch,
      this.#receiveBudget,
      options.credits ?? false,
    );
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
      return;
    }
    const pad = bthPad(slab, at);
    const payload = length - info.headerLength - pad;
    if (payload < 0 || (length & 3) !== 0 || (!info.hasPayload && (payload !== 0 || pad !== 0))) {
      counters.malformed++;
      return;
    }
    const qp = this.#lookup(bthDestQp(slab, at));
    if (qp?.type !== 'RC' || info.transport !== Transport.RC) {
      counters.unknownQp++;
      return;
    }
    if ((bthPkey(slab, at) & 0x7fff) !== 0x7fff) {
      counters.badPkey++;
      return;
    }
    const { state } = qp;
    const sends = state === QpStateCode.RTS || state === QpStateCode.SQD;
    if (!(sends || (state === QpStateCode.RTR && info.isRequest))) {
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
      slots[w + Rx.LOCAL] !== qp.local
    ) {
      counters.wrongSource++;
      return;
    }
    qp.counters.receivedPackets++;
    if (!qp.established) {
      qp.established = true;
      if (state === QpStateCode.RTR) this.#core.event({ type: 'COMM_EST', qpn: qp.qpn });
    }
    const packet = this.#packet;
    packet.info = info;
    packet.slab = slab;
    packet.at = at;
    packet.psn = bthPsn(slab, at);
    packet.payload = payload;
    if (info.isRequest) receiveRequest(this.#core, qp, packet);
    else receiveResponse(this.#core, qp, packet);
  }

  #lookup(qpn: number): QueuePair | undefined {
    if (this.#lastQp?.qpn === qpn) return this.#lastQp;
    const qp = this.#qps.get(qpn);
    if (qp) this.#lastQp = qp;
    return qp;
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
      let sent = transmitReplies(core, qp, batch, TURN_PACKETS);
      if (qp.probing) sent += transmitProbe(core, qp, batch);
      sent += transmitRequests(core, qp, batch, TURN_PACKETS - sent);
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
   * Looks at the slots that the link refused. A packet too large for its way fails its work request
   * (the path MTU was set too large); any other reason is a lost packet, which the timers see to.
   */
  notSent(batch: TxBatch): void {
    const core = this.#core;
    for (let i = 0; i < batch.count; i++) {
      const w = i * TX_SLOT_WORDS;
      const status = batch.slots[w + Tx.STATUS];
      if (status === 0) continue;
      core.counters.sendErrors++;
      const qp = this.#qps.get(batch.slots[w + Tx.QPN]);
      if (!qp) continue;
      qp.counters.sendErrors++;
      const sending = qp.state === QpStateCode.RTS || qp.state === QpStateCode.SQD;
      if (status === EMSGSIZE && sending && qp.sqHead !== qp.sqStarted)
        failHead(core, qp, WcStatus.LOC_LEN_ERR);
      else if (status === EFAULT && sending && qp.sqHead !== qp.sqStarted) {
        failHead(core, qp, WcStatus.LOC_PROT_ERR);
      }
    }
    core.publish();
  }

  #answerDoorbells(): void {
    const ring = this.#doorbells;
    const core = this.#core;
    const { producer } = ring;
    for (let i = ring.consumer; i !== producer; i = (i + 1) | 0) {
      const value = ring.words[ring.wordOf(i)];
      const qp = this.#qps.get(value & ~DOORBELL_RECV);
      if (!qp) continue;
      if (qp.state === QpStateCode.ERR) core.flush(qp);
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

  /** ibv_create_cq(3): at least `cqe` entries. */
  createCq(cqe: number): CqCreated {
    const { maxCqe, maxCq } = this.limits;
    if (!Number.isInteger(cqe) || cqe < 1 || cqe > maxCqe) throw invalid('cqe', `${cqe}`, `1 … ${maxCqe}`);
    if (this.#cqs.size >= maxCq) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no completion queue left', { errno: 'ENOMEM' });
    }
    const cq = new CompletionQueue(this.#nextCq++, cqe);
    this.#cqs.set(cq.handle, cq);
    return cq.created;
  }

  /** ibv_destroy_cq(3): EBUSY while a queue pair completes there. */
  destroyCq(handle: number): void {
    const cq = this.#cq(handle, 'cq');
    if (cq.users > 0) {
      throw new RoceError('ERR_ROCE_BUSY', `${cq.users} queues complete on the completion queue`, {
        errno: 'EBUSY',
      });
    }
    this.#cqs.delete(handle);
  }

  /** ibv_create_qp(3). The queue pair starts in RESET. */
  createQp(init: QpInit): QpCreated {
    const types: QpType[] = ['RC'];
    if (!types.includes(init.type)) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `type: ${init.type} queue pairs are not offered`, {
        errno: 'EOPNOTSUPP',
        attribute: 'type',
        expected: types.join(', '),
      });
    }
    const cap = this.#checkCap(init.cap);
    const sendCq = this.#cq(init.sendCq, 'sendCq');
    const recvCq = this.#cq(init.recvCq, 'recvCq');
    if (this.#qps.size >= this.limits.maxQp) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no queue pair left', { errno: 'ENOMEM' });
    }
    this.#core.memory.holdPd(init.pd, 1);
    const qp = new QueuePair(
      this.#randomQpn(),
      init.type,
      init.pd,
      sendCq,
      recvCq,
      cap,
      init.sqSigAll,
      (view) => this.regions.add(view),
    );
    sendCq.users++;
    recvCq.users++;
    this.#qps.set(qp.qpn, qp);
    qp.sq.sleep(0);
    return { qpn: qp.qpn, cap: { ...qp.cap }, sendQueue: qp.sq.shape, recvQueue: qp.rq.shape };
  }

  /** ibv_modify_qp(3). Either all of it happens or nothing. */
  modifyQp(qpn: number, attr: QpAttr, now: number): void {
    const qp = this.#qp(qpn);
    const core = this.#core;
    core.now = now;
    const { gids, activeMtu } = this.#options;
    const to = checkModify(qp, attr, { gids, activeMtu, limits: this.limits });
    if (attr.ahAttr) this.#setPath(qp, attr.ahAttr);
    applyPlain(qp, attr);
    if (attr.maxDestRdAtomic !== undefined) {
      qp.maxDestRdAtomic = attr.maxDestRdAtomic;
      qp.replies.reset(attr.maxDestRdAtomic);
    }
    if (attr.rqPsn !== undefined) qp.expectedPsn = attr.rqPsn;
    if (attr.sqPsn !== undefined) startRequester(qp, attr.sqPsn);
    if (attr.pathMtu !== undefined) {
      qp.readCharge = receiveCharge(qp.pathMtu);
      qp.readChunk = readChunkFor(qp.pathMtu, this.#receiveBudget);
    }
    if (attr.qpState !== undefined) this.#enter(qp, QpStateCode[to]);
    core.publish();
  }

  #enter(qp: QueuePair, state: number): void {
    const core = this.#core;
    if (state === QpStateCode.ERR) {
      core.toError(qp);
      return;
    }
    if (state === QpStateCode.RESET) {
      this.#resetQp(qp);
      return;
    }
    if (state === QpStateCode.RTR && qp.ah) {
      const { flowLabel } = qp.ah.grh;
      qp.sourcePort = sourcePortForConnection(flowLabel, qp.qpn, qp.destQpn);
    }
    qp.setState(state);
    if (state === QpStateCode.RTS) {
      qp.drained = false;
      core.schedule(qp);
    } else if (state === QpStateCode.SQD) checkDrained(core, qp);
  }

  /** ibv_query_qp(3). */
  queryQp(qpn: number): QpQuery {
    return queryAttributes(this.#qp(qpn));
  }

  /** ibv_destroy_qp(3): what is outstanding is discarded without completions. */
  destroyQp(qpn: number, now: number): void {
    const qp = this.#qp(qpn);
    this.#core.now = now;
    this.#resetQp(qp);
    qp.destroyed = true;
    this.#qps.delete(qpn);
    if (this.#lastQp === qp) this.#lastQp = undefined;
    this.regions.remove(qp.sqRegion);
    qp.sendCq.users--;
    qp.recvCq.users--;
    this.#core.memory.holdPd(qp.pd, -1);
  }

  /** The device's counts, and every queue pair's added up. */
  counters(): Record<string, number> {
    const sums: Record<string, number> = { ...(this.#core.counters as DeviceCounters) };
    for (const qp of this.#qps.values()) {
      for (const [name, value] of Object.entries(qp.counters)) {
        if (name !== 'sentPackets' && name !== 'receivedPackets' && name !== 'sendErrors') {
          sums[name] = (sums[name] ?? 0) + value;
        }
      }
    }
    return sums;
  }

  qpCounters(qpn: number): QpCounters {
    return { ...this.#qp(qpn).counters };
  }

  // ------------------------------------------------------------------ helpers

  #qp(qpn: number): QueuePair {
    const qp = this.#qps.get(qpn);
    if (!qp) throw invalid('qp', `no queue pair ${qpn}`);
    return qp;
  }

  #cq(handle: number, attribute: string): CompletionQueue {
    const cq = this.#cqs.get(handle);
    if (!cq) throw invalid(attribute, 'no such completion queue');
    return cq;
  }

  #checkCap(cap: QpCap): QpCap {
    const { maxQpWr, maxSge, maxInlineData } = this.limits;
    const limits: [keyof QpCap, number][] = [
      ['maxSendWr', maxQpWr],
      ['maxRecvWr', maxQpWr],
      ['maxSendSge', maxSge],
      ['maxRecvSge', maxSge],
      ['maxInlineData', maxInlineData],
    ];
    for (const [name, limit] of limits) {
      const value = cap[name];
      if (!Number.isInteger(value) || value < 0 || value > limit) {
        throw invalid(`cap.${name}`, `${value} can't be had`, `0 … ${limit}`);
      }
    }
    return {
      maxSendWr: Math.max(1, cap.maxSendWr),
      maxRecvWr: Math.max(1, cap.maxRecvWr),
      maxSendSge: Math.max(1, cap.maxSendSge),
      maxRecvSge: Math.max(1, cap.maxRecvSge),
      maxInlineData: cap.maxInlineData,
    };
  }

  /** 24 random bits that no queue pair has. */
  #randomQpn(): number {
    for (;;) {
      const qpn = this.#options.random() & 0xff_ffff;
      if (qpn >= FIRST_QPN && qpn <= LAST_QPN && !this.#qps.has(qpn)) return qpn;
    }
  }

  #setPath(qp: QueuePair, ah: NonNullable<QpAttr['ahAttr']>): void {
    const { grh } = ah;
    const peer = this.#options.peers.add(grh.dgid, grh.sgidIndex, grh.hopLimit || DEFAULT_HOP_LIMIT);
    if (qp.peer >= 0) this.#options.peers.remove(qp.peer);
    qp.peer = peer;
    qp.local = grh.sgidIndex;
    qp.trafficClass = grh.trafficClass;
    qp.ah = { ...ah, grh: { ...grh, dgid: grh.dgid.slice() } };
    qp.source.set(new Uint32Array(grh.dgid.slice().buffer));
    if (qp.destQpn !== 0) qp.sourcePort = sourcePortForConnection(grh.flowLabel, qp.qpn, qp.destQpn);
  }

  /** RESET: as just created; what is posted is forgotten (IBTA vol 1 §10.3.1.2). */
  #resetQp(qp: QueuePair): void {
    const core = this.#core;
    core.stopTimers(qp);
    core.releaseReads(qp);
    qp.setState(QpStateCode.RESET);
    qp.sqHead = qp.sq.producer;
    qp.sq.release(qp.sqHead);
    qp.sqCursor = qp.sqStarted = qp.sqHead;
    qp.cursorPacket = 0;
    qp.rqHead = qp.rq.producer;
    qp.rq.release(qp.rqHead);
    qp.sq.sleep(qp.sqHead);
    qp.failedStatus = 0;
    qp.probing = false;
    qp.inbound = Inbound.NONE;
    qp.receiving = false;
    qp.writeMr = undefined;
    qp.nakOut = false;
    qp.established = false;
    qp.msn = 0;
    qp.replies.reset(0);
    if (qp.peer >= 0) this.#options.peers.remove(qp.peer);
    qp.peer = -1;
    qp.ah = undefined;
    qp.rateLimit = 0;
    qp.notifyDrained = false;
  }
}

const EMSGSIZE = 90;
const EFAULT = 14;
