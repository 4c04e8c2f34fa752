/**
 * Queue pairs by number: what the control path does with them (ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3), ibv_destroy_qp(3)).
 */
import { GSI_QPN } from '@node-roce/wire';
import { isIpv4, isMulticastGid } from './addresses.ts';
import { CompletionQueue } from './completion-queue.ts';
import { CompletionQueues } from './completion-queues.ts';
import { type Congestion, checkCongestion, resolveCongestion } from './congestion/options.ts';
import { type Experimental, QpStateCode, type QpType } from './constants.ts';
import type { Context } from './context.ts';
import {
  type AhAttr,
  type GidEntry,
  isEmptyGid,
  type QpAttr,
  type QpCap,
  type QpCreated,
  type QpInit,
  type QpQuery,
  type QpResized,
  type SrqCreated,
  type SrqInit,
  type SrqOp,
  type XrcTargetOpened,
} from './control.ts';
import { addCounters, QpCounters } from './counters.ts';
import { invalid, RoceError } from './errors.ts';
import { checkAddressVector, checkModify, named, plainAttributes, queryAttributes } from './modify.ts';
import type { QpAttributes } from './qp/attributes.ts';
import { checkCap, rendezvousCap } from './qp/cap.ts';
import { Paths } from './qp/paths.ts';
import { QueuePair, type QueuePairInit } from './qp/queue-pair.ts';
import type { FrameHost } from './raw/frames.ts';
import type { RawQueuePair } from './raw/raw-queue-pair.ts';
import { RawTable } from './raw/raw-table.ts';
import { RecentNumbers } from './recent-numbers.ts';
import { checkRecovery } from './recovery.ts';
import { EVERY_NUMBER, intoClass, type ResidueClass } from './residue-class.ts';
import type { SharedReceiveQueue } from './srq.ts';
import { SrqTable } from './srq-table.ts';
import { executeOperation } from './tags/operations.ts';
import { XrcTable } from './xrc/table.ts';

/** QP0, QP1 and the multicast QPN are not to be given out. */
const FIRST_QPN = 2;
const LAST_QPN = 0xff_fffe;
/**
 * Set in the QPNs of adapters that share their address, and in no others: without it, a sender may put packets for several queue pairs
 * into one super-packet (native/src/send.cc), and the kernel of a shared address looks at the first packet alone.
 */
const SHARED_QPN = 0x80_0000;

/** The protection domain of a target queue pair, which has none of its own. */
const NO_PD = -1;

/** Types that `createQp` makes; XRC_TGT is made in a domain. */
const QP_TYPES: readonly QpType[] = ['RC', 'UC', 'UD', 'GSI', 'RAW_PACKET', 'XRC_INI'];

export interface QueuePairsOptions {
  random: () => number;
  gids: readonly GidEntry[];
  activeMtu: number;
  frames?: FrameHost | undefined;
  congestion?: Partial<Congestion>;
  experimental?: readonly Experimental[] | undefined;
  numbers?: ResidueClass | undefined;
}

/** The queue pairs of an adapter, by number; with the tables of what they use. */
export class QueuePairs {
  readonly #context: Context;
  readonly #options: QueuePairsOptions;
  /** The options of the device; and the congestion control of queue pairs without options of their own. */
  readonly #congestion: Partial<Congestion>;
  readonly #deviceCongestion: Congestion;
  readonly #qps = new Map<number, QueuePair>();
  /** Completion queues. */
  readonly cqs: CompletionQueues;
  /** Shared receive queues. */
  readonly srqs: SrqTable;
  /** XRC domains, the numbers of their SRQs, and openings of target queue pairs. */
  readonly xrc: XrcTable;
  /** Raw packet queue pairs. */
  readonly raws: RawTable;
  /** Counters of destroyed queue pairs. */
  readonly retired = new QpCounters();
  readonly #recentQpns = new RecentNumbers();
  /** Of target queue pairs, which complete nothing themselves. */
  readonly #nobodysCq: CompletionQueue;
  readonly #paths: Paths;
  /** Paths may migrate. */
  readonly #migrates: boolean;
  #lastQp: QueuePair | undefined;
  #nextHandle = 1;

  constructor(context: Context, options: QueuePairsOptions) {
    this.#context = context;
    this.#options = options;
    this.#congestion = checkCongestion(options.congestion, 'congestion');
    this.#deviceCongestion = resolveCongestion(this.#congestion, {}, 'congestion');
    const nextHandle = () => this.#nextHandle++;
    this.cqs = new CompletionQueues(context, nextHandle);
    this.srqs = new SrqTable(context, nextHandle);
    this.#paths = new Paths(context.addresses);
    const { random, experimental = [] } = options;
    this.xrc = new XrcTable({ enabled: experimental.includes('xrc'), random, nextHandle });
    this.#migrates = experimental.includes('apm');
    this.#nobodysCq = new CompletionQueue(0, 1, context.newRing);
    this.raws = new RawTable(context, options.frames);
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
    if (!qp.datagram) throw invalid('qp', `${named(qp.type)} takes part in no group`, 'UD');
    return qp;
  }

  // ------------------------------------------------------------------- SRQs

  /** ibv_create_srq(3), and for XRC ibv_create_srq_ex(3). */
  createSrq(init: SrqInit): SrqCreated {
    if (init.tags && init.xrc) throw invalid('tags', 'an SRQ of an XRC domain matches none', 'xrc or tags');
    if (init.tags) return this.srqs.create(init, this.cqs.get(init.tags.cq, 'tags.cq')).created;
    if (!init.xrc) return this.srqs.create(init).created;
    const { domain, cq } = init.xrc;
    this.xrc.domain(domain);
    const receiveCq = this.cqs.get(cq, 'cq');
    const srq = this.srqs.create(init);
    return { ...srq.created, number: this.xrc.enter(srq, domain, receiveCq) };
  }

  /** ibv_post_srq_ops(3), one operation. */
  postSrqOp(handle: number, op: SrqOp): number {
    const { tags } = this.srqs.get(handle);
    if (!tags) throw invalid('srq', 'it matches no tags', 'one that pd.createSrq made with tags');
    const added = executeOperation(this.#context, tags, op);
    this.#context.publish();
    return added;
  }

  /** ibv_destroy_srq(3): EBUSY while a queue pair takes from it. One of an XRC domain just goes. */
  destroySrq(handle: number): void {
    this.srqs.destroy(handle);
    this.xrc.remove(handle);
  }

  // -------------------------------------------------------------- queue pairs

  #congestionOf({ congestion }: QpInit): Congestion {
    if (congestion === undefined) return this.#deviceCongestion;
    return resolveCongestion(this.#congestion, checkCongestion(congestion, 'congestion'), 'congestion');
  }

  /** ibv_create_qp(3). The queue pair starts in RESET. */
  createQp(init: QpInit): QpCreated {
    if (!QP_TYPES.includes(init.type)) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `type: ${init.type} queue pairs are not offered`, {
        errno: 'EOPNOTSUPP',
        attribute: 'type',
        expected: QP_TYPES.join(', '),
      });
    }
    if (init.type === 'XRC_INI') this.xrc.check('type');
    const srq = this.#srqOf(init);
    const { limits } = this.#context;
    const cap = checkCap(limits, init.cap, srq !== undefined || init.type === 'XRC_INI');
    const tags = srq?.tags;
    // Buffers are of the SRQ's domain, and READs into them of the queue pair's.
    const rendezvous = tags !== undefined && init.cap.maxSendWr === 0 && srq?.pd === init.pd;
    const sendCq = this.cqs.get(init.sendCq, 'sendCq');
    const recvCq = this.cqs.get(init.recvCq, 'recvCq');
    if (init.type !== 'GSI') this.#checkPlace();
    if (init.type === 'GSI' && this.#qps.has(GSI_QPN)) {
      throw new RoceError('ERR_ROCE_BUSY', 'QP1 is there already', { errno: 'EBUSY', attribute: 'type' });
    }
    const { recovery } = this.#context;
    const own = init.recovery && checkRecovery(init.recovery, 'recovery');
    const congestion = this.#congestionOf(init);
    this.#context.memory.holdPd(init.pd, 1);
    if (init.type === 'RAW_PACKET') {
      try {
        const { pd, sqSigAll, newRing } = init;
        const qpn = this.#randomQpn();
        return this.raws.create({ qpn, pd, sendCq, recvCq, srq, cap, sqSigAll, newRing });
      } catch (error) {
        this.#context.memory.holdPd(init.pd, -1);
        throw error;
      }
    }
    const qp = this.#newQp({
      qpn: init.type === 'GSI' ? GSI_QPN : this.#randomQpn(),
      type: init.type,
      pd: init.pd,
      sendCq,
      recvCq,
      srq,
      cap: rendezvous ? rendezvousCap(cap, tags.maxSge) : cap,
      rendezvous,
      sqSigAll: init.sqSigAll,
      recovery: own ? { ...recovery, ...own } : recovery,
      congestion,
      activeMtu: this.#options.activeMtu,
      migrates: this.#migrates,
      ...(init.newRing ? { newRing: init.newRing } : {}),
    });
    this.#qps.set(qp.qpn, qp);
    const { selective } = qp.recovery;
    return { qpn: qp.qpn, cap: { ...qp.cap }, sendQueue: qp.sq.shape, recvQueue: qp.rq.shape, selective };
  }

  /** A queue pair, whose domain is held. */
  #newQp(init: QueuePairInit): QueuePair {
    try {
      return new QueuePair(this.#context, init);
    } catch (error) {
      this.#context.memory.holdPd(init.pd, -1);
      throw error;
    }
  }

  /** ENOMEM where there are `maxQp`. Queue pair 1 takes no place: a stranger's packet may have opened it. */
  #checkPlace(): void {
    const places = this.#context.limits.maxQp + (this.#qps.has(GSI_QPN) ? 1 : 0);
    if (this.#qps.size + this.raws.size >= places) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no queue pair left', { errno: 'ENOMEM' });
    }
  }

  #srqOf({ type, srq }: QpInit): SharedReceiveQueue | undefined {
    if (srq === undefined) return undefined;
    if (type === 'XRC_INI') throw invalid('srq', 'an XRC_INI queue pair receives nothing', 'none');
    if (type !== 'RC' && this.srqs.get(srq).tags)
      throw invalid('srq', `${named(type)} matches no tags`, 'RC');
    if (this.xrc.has(srq)) {
      throw invalid(
        'srq',
        'of an XRC domain: requests name it by its number',
        'one that pd.createSrq made without',
      );
    }
    return this.srqs.get(srq);
  }

  /** ibv_create_qp_ex(3) with IBV_QPT_XRC_RECV: a target queue pair, which belongs to all who open it. */
  createXrcTarget(xrcd: number): XrcTargetOpened {
    const domain = this.xrc.domain(xrcd);
    this.#checkPlace();
    const nobody = this.#nobodysCq;
    const qp = new QueuePair(this.#context, {
      qpn: this.#randomQpn(),
      type: 'XRC_TGT',
      pd: NO_PD,
      sendCq: nobody,
      recvCq: nobody,
      srq: undefined,
      cap: { maxSendWr: 1, maxRecvWr: 0, maxSendSge: 0, maxRecvSge: 0, maxInlineData: 0 },
      sqSigAll: false,
      recovery: this.#context.recovery,
      congestion: this.#deviceCongestion,
      activeMtu: this.#options.activeMtu,
      domain,
      migrates: this.#migrates,
    });
    this.#qps.set(qp.qpn, qp);
    return { qpn: qp.qpn, handle: this.xrc.share(qp.qpn, xrcd), sendQueue: qp.sq.shape };
  }

  /** ibv_open_qp(3): opens a target queue pair of the domain. EINVAL for any other number. */
  openXrcTarget(xrcd: number, qpn: number): XrcTargetOpened {
    this.xrc.checkTarget(qpn, xrcd);
    return { qpn, handle: this.xrc.share(qpn, xrcd), sendQueue: this.get(qpn).sq.shape };
  }

  /** Closes an opening of a target queue pair; the queue pair goes with the last one. */
  closeXrcTarget(handle: number): void {
    const qpn = this.xrc.unshare(handle);
    if (qpn !== undefined) this.#destroy(this.get(qpn));
  }

  /** ibv_modify_qp(3). Either all of it happens or nothing. @returns the rings of a resize (`cap`) */
  modifyQp(qpn: number, attr: QpAttr): QpResized | undefined {
    const context = this.#context;
    const { gids, activeMtu } = this.#options;
    const { limits } = context;
    const port = { gids, activeMtu, limits, migrates: this.#migrates };
    const raw = this.raws.find(qpn);
    if (raw) {
      raw.followProgram();
      const to = checkModify(raw, attr, port);
      const cap = attr.cap && checkCap(limits, attr.cap, !raw.hasReceives);
      if (cap) raw.checkResize(cap);
      const resized = cap && raw.resize(cap);
      raw.modify(attr, to);
      context.publish();
      return resized;
    }
    const qp = this.get(qpn);
    qp.followProgram();
    const to = checkModify(qp, attr, port);
    if (attr.cap && !qp.hasSends) throw invalid('cap', 'the send queue is for rendezvous', 'none');
    const cap = attr.cap && checkCap(limits, attr.cap, !qp.hasReceives);
    if (cap) qp.checkResize(cap);
    const { peer, alternate } = qp.attributes;
    if (attr.pathMigState) qp.migration?.check(attr.pathMigState, attr.altAhAttr ?? alternate?.ah);
    const changes = plainAttributes(attr);
    const paths = this.#paths.of(qp, attr);
    const resized = cap && this.#resize(qp, cap, paths);
    qp.setAttributes({ ...changes, ...paths });
    if (attr.ahAttr && peer >= 0) context.addresses.removePeer(peer);
    if (attr.altAhAttr && alternate) context.addresses.removePeer(alternate.peer);
    if (attr.pathMigState) qp.migration?.enter(attr.pathMigState);
    if (attr.maxDestRdAtomic !== undefined) qp.responder.setResources(attr.maxDestRdAtomic);
    if (attr.rqPsn !== undefined) qp.responder.start(attr.rqPsn);
    if (attr.sqPsn !== undefined) qp.requester.start(attr.sqPsn);
    if (attr.qpState !== undefined) qp.enter(QpStateCode[to]);
    context.publish();
    return resized;
  }

  /** The peer's requester knows the meaning of ACKs ahead; until RESET. */
  acknowledgeAhead(qpn: number): void {
    this.get(qpn).acknowledgeAhead();
  }

  /** Whether the ACKs of a queue pair carry credits, from the next one on; until its RESET. */
  setCredits(qpn: number, credits: boolean): void {
    this.get(qpn).setCredits(credits);
  }

  /** ibv_query_qp(3). */
  queryQp(qpn: number): QpQuery {
    return this.raws.find(qpn)?.query() ?? queryAttributes(this.get(qpn));
  }

  /** ibv_destroy_qp(3): what is outstanding is discarded without completions. */
  destroyQp(qpn: number): void {
    const raw = this.raws.find(qpn);
    if (raw) {
      this.raws.destroy(raw, this.retired);
      this.#recentQpns.add(qpn);
      this.#context.memory.holdPd(raw.pd, -1);
      return;
    }
    const qp = this.get(qpn);
    if (this.#context.addresses.isAttached(qp)) {
      throw new RoceError('ERR_ROCE_BUSY', 'the queue pair is attached to a multicast group', {
        errno: 'EBUSY',
      });
    }
    if (qp.type === 'XRC_TGT') throw invalid('qp', `${qpn} is shared`, 'an opening of it, to be closed');
    this.#destroy(qp);
    this.#context.memory.holdPd(qp.pd, -1);
  }

  #destroy(qp: QueuePair): void {
    const { qpn } = qp;
    qp.destroy();
    this.#context.memory.unbindQp(qpn);
    addCounters(this.retired, qp.counters);
    this.#qps.delete(qpn);
    if (qpn !== GSI_QPN) this.#recentQpns.add(qpn);
    if (this.#lastQp === qp) this.#lastQp = undefined;
  }

  /** The raw packet queue pair with this QPN; EINVAL for another type. */
  raw(qpn: number): RawQueuePair {
    const raw = this.raws.find(qpn);
    if (!raw) throw invalid('qp', `${qpn} takes no frames`, 'a RAW_PACKET queue pair');
    return raw;
  }

  /** A random number of the adapter's class that no queue pair has or had lately, and that the host does not keep back. */
  #randomQpn(): number {
    const { random, numbers = EVERY_NUMBER } = this.#options;
    const shared = numbers.modulus > 1 ? SHARED_QPN : 0;
    for (;;) {
      const qpn = intoClass(random() & (SHARED_QPN - 1), numbers) | shared;
      const given = qpn >= FIRST_QPN && qpn <= LAST_QPN;
      if (!given || this.#qps.has(qpn) || this.raws.find(qpn) || this.#recentQpns.has(qpn)) continue;
      if (!this.#context.isReserved(qpn)) return qpn;
    }
  }

  /** Makes the rings of a modify call; where they can't be had, its paths let go of their peers. */
  #resize(qp: QueuePair, cap: QpCap, { peer, alternate }: Partial<QpAttributes>): QpResized {
    try {
      return qp.resize(cap);
    } catch (error) {
      if (peer !== undefined) this.#context.addresses.removePeer(peer);
      if (alternate) this.#context.addresses.removePeer(alternate.peer);
      throw error;
    }
  }
}
