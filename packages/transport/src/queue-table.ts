/**
 * Queue pairs and completion queues by number: what the control path does with them (ibv_create_qp(3),
 * ibv_modify_qp(3), ibv_query_qp(3), ibv_destroy_qp(3), ibv_create_cq(3)).
 */
import { sourcePortForConnection } from '@node-roce/wire';
import { checkDrained } from './completer.ts';
import { CompletionQueue } from './completion-queue.ts';
import { QpStateCode, type QpType } from './constants.ts';
import type { CqCreated, GidEntry, QpAttr, QpCap, QpCreated, QpInit, QpQuery } from './control.ts';
import type { Core } from './core.ts';
import { invalid, RoceError } from './errors.ts';
import { applyPlain, checkModify, queryAttributes } from './modify.ts';
import { Inbound, QueuePair } from './qp.ts';
import { readChunkFor, receiveCharge, startRequester } from './requester.ts';

/** The link's table of peers, as the engine uses it. */
export interface PeerTable {
  /** An index for a destination: 16-byte GID, index of the local GID, TTL or hop limit. */
  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number;
  remove(peer: number): void;
}

const DEFAULT_HOP_LIMIT = 64;
/** QP0, QP1 and the multicast QPN are not to be given out. */
const FIRST_QPN = 2;
const LAST_QPN = 0xff_fffe;

export interface QueueTableOptions {
  random: () => number;
  peers: PeerTable;
  gids: readonly GidEntry[];
  activeMtu: number;
  /** Bytes of receive buffer that READ responses may take. */
  receiveBudget: number;
}

export class QueueTable {
  readonly #core: Core;
  readonly #options: QueueTableOptions;
  readonly #qps = new Map<number, QueuePair>();
  readonly #cqs = new Map<number, CompletionQueue>();
  #lastQp: QueuePair | undefined;
  #nextCq = 1;

  constructor(core: Core, options: QueueTableOptions) {
    this.#core = core;
    this.#options = options;
  }

  /** The queue pair with this QPN, if there is one. */
  find(qpn: number): QueuePair | undefined {
    if (this.#lastQp?.qpn === qpn) return this.#lastQp;
    const qp = this.#qps.get(qpn);
    if (qp) this.#lastQp = qp;
    return qp;
  }

  /** All of them. */
  queuePairs(): Iterable<QueuePair> {
    return this.#qps.values();
  }

  /** The queue pair with this QPN; EINVAL without one. */
  get(qpn: number): QueuePair {
    const qp = this.#qps.get(qpn);
    if (!qp) throw invalid('qp', `no queue pair ${qpn}`);
    return qp;
  }

  /** ibv_create_cq(3): at least `cqe` entries. */
  createCq(cqe: number): CqCreated {
    const { maxCqe, maxCq } = this.#core.limits;
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
    if (this.#qps.size >= this.#core.limits.maxQp) {
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
      (view) => this.#core.regions.add(view),
    );
    sendCq.users++;
    recvCq.users++;
    this.#qps.set(qp.qpn, qp);
    qp.sq.sleep(0);
    return { qpn: qp.qpn, cap: { ...qp.cap }, sendQueue: qp.sq.shape, recvQueue: qp.rq.shape };
  }

  /** ibv_modify_qp(3). Either all of it happens or nothing. */
  modifyQp(qpn: number, attr: QpAttr, now: number): void {
    const qp = this.get(qpn);
    const core = this.#core;
    core.now = now;
    const { gids, activeMtu } = this.#options;
    const to = checkModify(qp, attr, { gids, activeMtu, limits: this.#core.limits });
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
      qp.readChunk = readChunkFor(qp.pathMtu, this.#options.receiveBudget);
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
    return queryAttributes(this.get(qpn));
  }

  /** ibv_destroy_qp(3): what is outstanding is discarded without completions. */
  destroyQp(qpn: number, now: number): void {
    const qp = this.get(qpn);
    this.#core.now = now;
    this.#resetQp(qp);
    qp.destroyed = true;
    this.#qps.delete(qpn);
    if (this.#lastQp === qp) this.#lastQp = undefined;
    this.#core.regions.remove(qp.sqRegion);
    qp.sendCq.users--;
    qp.recvCq.users--;
    this.#core.memory.holdPd(qp.pd, -1);
  }

  #cq(handle: number, attribute: string): CompletionQueue {
    const cq = this.#cqs.get(handle);
    if (!cq) throw invalid(attribute, 'no such completion queue');
    return cq;
  }

  #checkCap(cap: QpCap): QpCap {
    const { maxQpWr, maxSge, maxInlineData } = this.#core.limits;
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
