/**
 * Queue pairs by number: what the control path does with them (ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3), ibv_destroy_qp(3)).
 */
import { GSI_QPN } from '@node-roce/wire';
import { checkAddressVector, isEmptyGid, isIpv4, isMulticastGid } from './addresses.ts';
import { CompletionQueues } from './completion-queues.ts';
import type { Congestion } from './congestion/options.ts';
import type { Experimental } from './constants.ts';
import type { Context } from './context.ts';
import type {
  AhAttr,
  GidEntry,
  QpAttr,
  QpCreated,
  QpInit,
  QpQuery,
  QpResized,
  SrqCreated,
  SrqInit,
  SrqOp,
  XrcTargetOpened,
} from './control.ts';
import { addCounters, QpCounters } from './counters.ts';
import { invalid, RoceError } from './errors.ts';
import { checkModify, named, type PortFacts } from './modify.ts';
import { checkCap } from './qp/cap.ts';
import { QueuePairMaker } from './qp/create.ts';
import { Paths } from './qp/paths.ts';
import { QueuePair } from './qp/queue-pair.ts';
import type { FrameHost } from './raw/frames.ts';
import { RawQueuePair } from './raw/raw-queue-pair.ts';
import { RecentNumbers } from './recent-numbers.ts';
import { EVERY_NUMBER, intoClass, type ResidueClass } from './residue-class.ts';
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
  readonly #port: PortFacts;
  /** Of all types. */
  readonly #qps = new Map<number, QueuePair | RawQueuePair>();
  /** Completion queues. */
  readonly cqs: CompletionQueues;
  /** Shared receive queues. */
  readonly srqs: SrqTable;
  /** XRC domains, the numbers of their SRQs, and openings of target queue pairs. */
  readonly xrc: XrcTable;
  /** Those that send and take whole frames. */
  readonly raws: ReadonlySet<RawQueuePair>;
  readonly #raws = new Set<RawQueuePair>();
  /** Counters of destroyed queue pairs. */
  readonly retired = new QpCounters();
  readonly #recentQpns = new RecentNumbers();
  readonly #maker: QueuePairMaker;
  readonly #paths: Paths;
  #lastQp: QueuePair | undefined;
  #nextHandle = 1;

  constructor(context: Context, options: QueuePairsOptions) {
    this.#context = context;
    this.#options = options;
    this.raws = this.#raws;
    const { random, gids, activeMtu, frames, congestion, experimental = [] } = options;
    const nextHandle = () => this.#nextHandle++;
    this.cqs = new CompletionQueues(context, nextHandle);
    this.srqs = new SrqTable(context, nextHandle);
    this.#paths = new Paths(context.addresses);
    this.xrc = new XrcTable({ enabled: experimental.includes('xrc'), random, nextHandle });
    const migrates = experimental.includes('apm');
    this.#port = { gids, activeMtu, limits: context.limits, migrates };
    this.#maker = new QueuePairMaker(context, { activeMtu, migrates, congestion, frames }, this, {
      checkPlace: () => this.#checkPlace(),
      checkGsi: () => this.#checkGsi(),
      newQpn: () => this.#randomQpn(),
    });
  }

  /** The queue pair with this QPN that packets are for, if there is one. */
  find(qpn: number): QueuePair | undefined {
    if (this.#lastQp?.qpn === qpn) return this.#lastQp;
    const qp = this.#qps.get(qpn);
    if (!(qp instanceof QueuePair)) return undefined;
    this.#lastQp = qp;
    return qp;
  }

  /** The queue pair with this QPN has something posted, if it is there. */
  posted(qpn: number): void {
    const qp = this.find(qpn) ?? this.#qps.get(qpn);
    qp?.posted();
  }

  /** All of them. */
  queuePairs(): Iterable<QueuePair | RawQueuePair> {
    return this.#qps.values();
  }

  /** The queue pair with this QPN; EINVAL without one. */
  get(qpn: number): QueuePair | RawQueuePair {
    const qp = this.#qps.get(qpn);
    if (!qp) throw invalid('qp', `no queue pair ${qpn}`);
    return qp;
  }

  /** The same, where packets are for it. */
  #connected(qpn: number): QueuePair {
    const qp = this.find(qpn);
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
    const qp = this.#connected(qpn);
    if (!qp.datagram) throw invalid('qp', `${named(qp.type)} cannot join groups`, 'UD');
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

  /** ibv_create_qp(3). The queue pair starts in RESET. */
  createQp(init: QpInit): QpCreated {
    const qp = this.#maker.create(init);
    this.#qps.set(qp.qpn, qp);
    if (qp instanceof RawQueuePair) this.#raws.add(qp);
    return qp.created;
  }

  /** ENOMEM where there are `maxQp`. Queue pair 1 takes no place: a stranger's packet may have opened it. */
  #checkPlace(): void {
    const places = this.#context.limits.maxQp + (this.#qps.has(GSI_QPN) ? 1 : 0);
    if (this.#qps.size >= places) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no queue pair left', { errno: 'ENOMEM' });
    }
  }

  #checkGsi(): void {
    if (this.#qps.has(GSI_QPN)) {
      throw new RoceError('ERR_ROCE_BUSY', 'queue pair 1 exists already', {
        errno: 'EBUSY',
        attribute: 'type',
      });
    }
  }

  /** ibv_create_qp_ex(3) with IBV_QPT_XRC_RECV: a target queue pair, which belongs to all who open it. */
  createXrcTarget(xrcd: number): XrcTargetOpened {
    const qp = this.#maker.createTarget(xrcd);
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
    const qp = this.get(qpn);
    qp.followProgram();
    try {
      const to = checkModify(qp, attr, this.#port);
      if (attr.cap && !qp.hasSends) throw invalid('cap', 'the send queue is for rendezvous', 'none');
      const cap = attr.cap && checkCap(this.#context.limits, attr.cap, !qp.hasReceives);
      if (cap) qp.checkResize(cap);
      return qp.modify(attr, to, cap, this.#paths);
    } finally {
      // Flushed entries are to be seen, whether the change is refused or not.
      this.#context.publish();
    }
  }

  /** The peer's requester knows the meaning of ACKs ahead; until RESET. */
  acknowledgeAhead(qpn: number): void {
    this.#connected(qpn).acknowledgeAhead();
  }

  /** Whether the ACKs of a queue pair carry credits, from the next one on; until its RESET. */
  setCredits(qpn: number, credits: boolean): void {
    this.#connected(qpn).setCredits(credits);
  }

  /** ibv_query_qp(3). */
  queryQp(qpn: number): QpQuery {
    return this.get(qpn).query();
  }

  /** ibv_destroy_qp(3): what is outstanding is discarded without completions. */
  destroyQp(qpn: number): void {
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

  #destroy(qp: QueuePair | RawQueuePair): void {
    const { qpn } = qp;
    qp.destroy();
    this.#context.memory.unbindQp(qpn);
    addCounters(this.retired, qp.counters);
    this.#qps.delete(qpn);
    if (qp instanceof RawQueuePair) this.#raws.delete(qp);
    if (qpn !== GSI_QPN) this.#recentQpns.add(qpn);
    if (this.#lastQp === qp) this.#lastQp = undefined;
  }

  /** The raw packet queue pair with this QPN; EINVAL for another type. */
  raw(qpn: number): RawQueuePair {
    const raw = this.#qps.get(qpn);
    if (!(raw instanceof RawQueuePair))
      throw invalid('qp', `${qpn} takes no frames`, 'a RAW_PACKET queue pair');
    return raw;
  }

  /** The adapter is at its end: the ports of raw packet queue pairs are closed. */
  closeFrames(): void {
    for (const qp of this.#raws) {
      qp.close();
      this.#qps.delete(qp.qpn);
    }
    this.#raws.clear();
  }

  /** A random number of the adapter's class that no queue pair has or had lately, and that the host does not keep back. */
  #randomQpn(): number {
    const { random, numbers = EVERY_NUMBER } = this.#options;
    const shared = numbers.modulus > 1 ? SHARED_QPN : 0;
    for (;;) {
      const qpn = intoClass(random() & (SHARED_QPN - 1), numbers) | shared;
      const given = qpn >= FIRST_QPN && qpn <= LAST_QPN;
      if (!given || this.#qps.has(qpn) || this.#recentQpns.has(qpn)) continue;
      if (!this.#context.isReserved(qpn)) return qpn;
    }
  }
}
