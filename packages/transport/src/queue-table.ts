/**
 * Queue pairs and completion queues by number: what the control path does with them (ibv_create_qp(3),
 * ibv_modify_qp(3), ibv_query_qp(3), ibv_destroy_qp(3), ibv_create_cq(3)).
 */
import { GSI_QPN, sourcePortForConnection } from '@node-roce/wire';
import { isMulticastGid } from './addresses.ts';
import { CompletionQueue } from './completion-queue.ts';
import { QpStateCode, type QpType } from './constants.ts';
import type { Context } from './context.ts';
import {
  type AhAttr,
  type CqCreated,
  type GidEntry,
  isEmptyGid,
  type QpAttr,
  type QpCap,
  type QpCreated,
  type QpInit,
  type QpQuery,
} from './control.ts';
import { addCounters, QpCounters } from './counters.ts';
import { invalid, RoceError } from './errors.ts';
import { checkAddressVector, checkModify, isIpv4, plainAttributes, queryAttributes } from './modify.ts';
import type { QpAttributes } from './qp/attributes.ts';
import { QueuePair } from './qp/queue-pair.ts';
import { RecentNumbers } from './recent-numbers.ts';
import { powerOfTwo } from './rings.ts';
import type { SharedReceiveQueue } from './srq.ts';
import { SrqTable } from './srq-table.ts';

/** QP0, QP1 and the multicast QPN are not to be given out. */
const FIRST_QPN = 2;
const LAST_QPN = 0xff_fffe;

/** Bytes of an IP header without options. */
const IPV4_BYTES = 20;
const IPV6_BYTES = 40;

const QP_TYPES: readonly QpType[] = ['RC', 'UC', 'UD', 'GSI'];

export interface QueueTableOptions {
  random: () => number;
  gids: readonly GidEntry[];
  activeMtu: number;
}

/** The queue pairs and completion queues of an adapter, by number and handle. */
export class QueueTable {
  readonly #context: Context;
  readonly #options: QueueTableOptions;
  readonly #qps = new Map<number, QueuePair>();
  readonly #cqs = new Map<number, CompletionQueue>();
  /** Shared receive queues. */
  readonly srqs: SrqTable;
  /** Counters of destroyed queue pairs. */
  readonly retired = new QpCounters();
  readonly #recentQpns = new RecentNumbers();
  #lastQp: QueuePair | undefined;
  #nextHandle = 1;

  constructor(context: Context, options: QueueTableOptions) {
    this.#context = context;
    this.#options = options;
    this.srqs = new SrqTable(context, () => this.#nextHandle++);
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
    const { maxCq } = this.#context.limits;
    this.#checkCqe(cqe);
    if (this.#cqs.size >= maxCq) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no completion queue left', { errno: 'ENOMEM' });
    }
    const cq = new CompletionQueue(this.#nextHandle++, cqe, this.#context.newRing);
    this.#cqs.set(cq.handle, cq);
    return cq.created;
  }

  /** ibv_resize_cq(3): at least `cqe` entries, and room for what was not polled. */
  resizeCq(handle: number, cqe: number): CqCreated {
    const cq = this.#cq(handle, 'cq');
    this.#checkCqe(cqe);
    const { outstanding } = cq;
    if (powerOfTwo(cqe) < outstanding) {
      throw invalid('cqe', `${cqe} is less than the ${outstanding} completions that were not polled`);
    }
    return cq.resize(cqe);
  }

  #checkCqe(cqe: number): void {
    const { maxCqe } = this.#context.limits;
    if (!Number.isInteger(cqe) || cqe < 1 || cqe > maxCqe) throw invalid('cqe', `${cqe}`, `1 … ${maxCqe}`);
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

  // ------------------------------------------------ address handles and groups

  /** ibv_create_ah(3). */
  createAh(pd: number, attr: AhAttr): number {
    checkAddressVector(attr, this.#options.gids);
    const handle = this.#context.addresses.createAh(pd, attr);
    try {
      this.#context.memory.holdPd(pd, 1);
    } catch (error) {
      this.#context.addresses.destroyAh(handle);
      throw error;
    }
    return handle;
  }

  /** ibv_attach_mcast(3): to a group on the interface of the first GID of its IP version. */
  attachMcast(qpn: number, group: Uint8Array): void {
    const qp = this.#datagramQp(qpn);
    if (!(group instanceof Uint8Array) || group.length !== 16 || !isMulticastGid(group)) {
      throw invalid('gid', 'not the GID of a group', 'ff00::/8 or ::ffff:224.0.0.0/4');
    }
    const sgidIndex = this.#options.gids.findIndex(
      (entry) => !isEmptyGid(entry) && isIpv4(entry.gid) === isIpv4(group),
    );
    if (sgidIndex < 0) throw invalid('gid', 'the device has no address of this IP version');
    this.#context.addresses.attach(qp, group, sgidIndex);
  }

  /** ibv_detach_mcast(3). */
  detachMcast(qpn: number, group: Uint8Array): void {
    const attached = this.#context.addresses.detach(this.#datagramQp(qpn), group);
    if (!attached) throw invalid('gid', 'the queue pair is not attached to the group');
  }

  #datagramQp(qpn: number): QueuePair {
    const qp = this.get(qpn);
    if (!qp.datagram)
      throw invalid(
        'qp',
        `${qp.type === 'RC' ? 'an' : 'a'} ${qp.type} queue pair takes part in no group`,
        'UD',
      );
    return qp;
  }

  // -------------------------------------------------------------- queue pairs

  /** ibv_create_qp(3). The queue pair starts in RESET. */
  createQp(init: QpInit): QpCreated {
    if (!QP_TYPES.includes(init.type)) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `type: ${init.type} queue pairs are not offered`, {
        errno: 'EOPNOTSUPP',
        attribute: 'type',
        expected: QP_TYPES.join(', '),
      });
    }
    const srq = init.srq === undefined ? undefined : this.srqs.get(init.srq);
    const cap = this.#checkCap(init.cap, srq);
    const sendCq = this.#cq(init.sendCq, 'sendCq');
    const recvCq = this.#cq(init.recvCq, 'recvCq');
    // Queue pair 1 takes no place: a stranger's packet may have opened it.
    const places = this.#context.limits.maxQp + (this.#qps.has(GSI_QPN) ? 1 : 0);
    if (init.type !== 'GSI' && this.#qps.size >= places) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no queue pair left', { errno: 'ENOMEM' });
    }
    if (init.type === 'GSI' && this.#qps.has(GSI_QPN)) {
      throw new RoceError('ERR_ROCE_BUSY', 'QP1 is there already', { errno: 'EBUSY', attribute: 'type' });
    }
    this.#context.memory.holdPd(init.pd, 1);
    const qp = new QueuePair(this.#context, {
      qpn: init.type === 'GSI' ? GSI_QPN : this.#randomQpn(),
      type: init.type,
      pd: init.pd,
      sendCq,
      recvCq,
      srq,
      cap,
      sqSigAll: init.sqSigAll,
      activeMtu: this.#options.activeMtu,
    });
    this.#qps.set(qp.qpn, qp);
    return { qpn: qp.qpn, cap: { ...qp.cap }, sendQueue: qp.sq.shape, recvQueue: qp.rq.shape };
  }

  /** ibv_modify_qp(3). Either all of it happens or nothing. */
  modifyQp(qpn: number, attr: QpAttr, now: number): void {
    const qp = this.get(qpn);
    const context = this.#context;
    context.begin(now);
    const { gids, activeMtu } = this.#options;
    const to = checkModify(qp, attr, { gids, activeMtu, limits: this.#context.limits });
    const changes = plainAttributes(attr);
    const path = this.#path(qp, attr);
    const { peer } = qp.attributes;
    qp.setAttributes({ ...changes, ...path });
    if (attr.ahAttr && peer >= 0) context.addresses.removePeer(peer);
    if (attr.maxDestRdAtomic !== undefined) qp.responder.setResources(attr.maxDestRdAtomic);
    if (attr.rqPsn !== undefined) qp.responder.start(attr.rqPsn);
    if (attr.sqPsn !== undefined) qp.requester.start(attr.sqPsn);
    if (attr.qpState !== undefined) qp.enter(QpStateCode[to]);
    context.publish();
  }

  /** Whether the ACKs of a queue pair carry credits, from the next one on; until its RESET. */
  setCredits(qpn: number, credits: boolean): void {
    this.get(qpn).setCredits(credits);
  }

  /** ibv_query_qp(3). */
  queryQp(qpn: number): QpQuery {
    return queryAttributes(this.get(qpn));
  }

  /** ibv_destroy_qp(3): what is outstanding is discarded without completions. */
  destroyQp(qpn: number, now: number): void {
    const qp = this.get(qpn);
    if (this.#context.addresses.isAttached(qp)) {
      throw new RoceError('ERR_ROCE_BUSY', 'the queue pair is attached to a multicast group', {
        errno: 'EBUSY',
      });
    }
    this.#context.begin(now);
    qp.destroy();
    this.#context.memory.unbindQp(qpn);
    addCounters(this.retired, qp.counters);
    this.#qps.delete(qpn);
    if (qpn !== GSI_QPN) this.#recentQpns.add(qpn);
    if (this.#lastQp === qp) this.#lastQp = undefined;
    this.#context.memory.holdPd(qp.pd, -1);
  }

  #cq(handle: number, attribute: string): CompletionQueue {
    const cq = this.#cqs.get(handle);
    if (!cq) throw invalid(attribute, 'no such completion queue');
    return cq;
  }

  /** With an SRQ what is said of the receive queue counts for nothing (ibv_create_qp(3)). */
  #checkCap(asked: QpCap, srq: SharedReceiveQueue | undefined): QpCap {
    const cap = srq ? { ...asked, maxRecvWr: 0, maxRecvSge: 0 } : asked;
    const { maxQpWr, maxSge, maxInlineData } = this.#context.limits;
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
      maxRecvWr: srq ? 0 : Math.max(1, cap.maxRecvWr),
      maxSendSge: Math.max(1, cap.maxSendSge),
      maxRecvSge: srq ? 0 : Math.max(1, cap.maxRecvSge),
      maxInlineData: cap.maxInlineData,
    };
  }

  /** 24 random bits that no queue pair has or had lately, and that the host does not keep back. */
  #randomQpn(): number {
    for (;;) {
      const qpn = this.#options.random() & 0xff_ffff;
      const given = qpn >= FIRST_QPN && qpn <= LAST_QPN;
      if (!given || this.#qps.has(qpn) || this.#recentQpns.has(qpn)) continue;
      if (!this.#context.isReserved(qpn)) return qpn;
    }
  }

  /** The route of a modify call's address vector and peer QPN; a new peer is held. */
  #path(qp: QueuePair, attr: QpAttr): Partial<QpAttributes> {
    const ah = attr.ahAttr;
    if (!ah) return {};
    const { grh } = ah;
    // They come together in the step to RTR; later the address vector may change alone.
    const destQpn = attr.destQpNum ?? qp.attributes.destQpn;
    return {
      peer: this.#context.addresses.addPeer(ah),
      local: grh.sgidIndex,
      trafficClass: grh.trafficClass,
      ah: { ...ah, grh: { ...grh, dgid: grh.dgid.slice() } },
      source: new Uint32Array(grh.dgid.slice().buffer),
      ipBytes: isIpv4(grh.dgid) ? IPV4_BYTES : IPV6_BYTES,
      sourcePort: sourcePortForConnection(grh.flowLabel, qp.qpn, destQpn),
    };
  }
}
