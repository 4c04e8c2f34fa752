/** Making a queue pair: the checks of ibv_create_qp(3), and what each type is made of. */
import { GSI_QPN } from '@node-roce/wire';
import { CompletionQueue } from '../completion-queue.ts';
import type { CompletionQueues } from '../completion-queues.ts';
import { type Congestion, checkCongestion, resolveCongestion } from '../congestion/options.ts';
import type { QpType } from '../constants.ts';
import type { Context } from '../context.ts';
import type { QpInit } from '../control.ts';
import { invalid, RoceError } from '../errors.ts';
import { named } from '../modify.ts';
import type { FrameHost } from '../raw/frames.ts';
import { RawQueuePair, type RawQueuePairInit } from '../raw/raw-queue-pair.ts';
import { checkRecovery } from '../recovery.ts';
import { recvStride, sendStride } from '../rings.ts';
import type { SharedReceiveQueue } from '../srq.ts';
import type { SrqTable } from '../srq-table.ts';
import type { XrcTable } from '../xrc/table.ts';
import { checkCap, rendezvousCap } from './cap.ts';
import { isOfXrc, type QueuePairInit } from './init.ts';
import { QueuePair } from './queue-pair.ts';
import type { OwnQueues } from './shell.ts';

/** The protection domain of a target queue pair, which has none of its own. */
const NO_PD = -1;

/** Types that `create` makes; XRC_TGT is made in a domain. */
const QP_TYPES: readonly QpType[] = ['RC', 'UC', 'UD', 'GSI', 'RAW_PACKET', 'XRC_INI'];

export interface MakerOptions {
  activeMtu: number;
  /** Paths may migrate. */
  migrates: boolean;
  /** Of the device. */
  congestion?: Partial<Congestion> | undefined;
  /** Opens ports on the interface; undefined where the link has none. */
  frames?: FrameHost | undefined;
}

/** The tables of what queue pairs use. */
export interface Tables {
  cqs: CompletionQueues;
  srqs: SrqTable;
  xrc: XrcTable;
}

/** The table that a new queue pair has its place and its number in. */
export interface Places {
  /** Throws ENOMEM where there is no place for one more. */
  checkPlace(): void;
  /** Throws EBUSY where queue pair 1 is there. */
  checkGsi(): void;
  /** A number that no queue pair has. */
  newQpn(): number;
}

/** The queues of one that sends packets. An SRQ fills the one entry of its own receive ring; any SRQ of the domain that of an XRC target. */
function queuesOf(context: Context, init: QueuePairInit): OwnQueues {
  const { type, srq, cap, newRing = context.newWorkRing } = init;
  const hasReceives = srq === undefined && !isOfXrc(type);
  const hasSends = !init.rendezvous;
  const newSendRing = hasSends ? newRing : context.newRing;
  const ofSrq = type === 'XRC_TGT' ? context.limits.maxSrqSge : (srq?.maxSge ?? 0);
  const rings = context.newRings(
    () => newSendRing(cap.maxSendWr, sendStride(cap.maxSendSge, cap.maxInlineData)),
    () =>
      hasReceives
        ? newRing(cap.maxRecvWr, recvStride(cap.maxRecvSge))
        : context.newWorkRing(1, recvStride(ofSrq)),
  );
  return { rings, hasReceives, hasSends, newRing };
}

/** Makes queue pairs; they are the caller's. */
export class QueuePairMaker {
  readonly #context: Context;
  readonly #options: MakerOptions;
  readonly #tables: Tables;
  readonly #places: Places;
  /** The options of the device; and the congestion control of queue pairs without options of their own. */
  readonly #congestion: Partial<Congestion>;
  readonly #deviceCongestion: Congestion;
  /** Of target queue pairs, which complete nothing themselves. */
  readonly #nobodysCq: CompletionQueue;

  constructor(context: Context, options: MakerOptions, tables: Tables, places: Places) {
    this.#context = context;
    this.#options = options;
    this.#tables = tables;
    this.#places = places;
    this.#congestion = checkCongestion(options.congestion, 'congestion');
    this.#deviceCongestion = resolveCongestion(this.#congestion, {}, 'congestion');
    this.#nobodysCq = new CompletionQueue(0, 1, context.newRing);
  }

  /** ibv_create_qp(3). The queue pair starts in RESET. */
  create(init: QpInit): QueuePair | RawQueuePair {
    const { type, pd } = init;
    if (!QP_TYPES.includes(type)) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `type: ${type} queue pairs are not offered`, {
        errno: 'EOPNOTSUPP',
        attribute: 'type',
        expected: QP_TYPES.join(', '),
      });
    }
    const { cqs, xrc } = this.#tables;
    if (type === 'XRC_INI') xrc.check('type');
    const srq = this.#srqOf(init);
    const { limits } = this.#context;
    const cap = checkCap(limits, init.cap, srq !== undefined || type === 'XRC_INI');
    const tags = srq?.tags;
    // Buffers are of the SRQ's domain, and READs into them of the queue pair's.
    const rendezvous = tags !== undefined && init.cap.maxSendWr === 0 && srq?.pd === pd;
    const sendCq = cqs.get(init.sendCq, 'sendCq');
    const recvCq = cqs.get(init.recvCq, 'recvCq');
    if (type === 'GSI') this.#places.checkGsi();
    else this.#places.checkPlace();
    const { recovery } = this.#context;
    const own = init.recovery && checkRecovery(init.recovery, 'recovery');
    const congestion = this.#congestionOf(init);
    const { sqSigAll, newRing } = init;
    const common = { type, pd, sendCq, recvCq, srq, sqSigAll, ...(newRing ? { newRing } : {}) };
    return this.#inDomain(pd, () => {
      const qpn = type === 'GSI' ? GSI_QPN : this.#places.newQpn();
      if (type === 'RAW_PACKET') return this.#newRaw({ ...common, qpn, cap });
      const made: QueuePairInit = {
        ...common,
        qpn,
        cap: rendezvous ? rendezvousCap(cap, tags.maxSge) : cap,
        rendezvous,
        recovery: own ? { ...recovery, ...own } : recovery,
        congestion,
        activeMtu: this.#options.activeMtu,
        migrates: this.#options.migrates,
      };
      return new QueuePair(this.#context, made, queuesOf(this.#context, made));
    });
  }

  /** ibv_create_qp_ex(3) with IBV_QPT_XRC_RECV: a target queue pair, which belongs to all who open it. */
  createTarget(xrcd: number): QueuePair {
    const domain = this.#tables.xrc.domain(xrcd);
    this.#places.checkPlace();
    const nobody = this.#nobodysCq;
    const made: QueuePairInit = {
      qpn: this.#places.newQpn(),
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
      migrates: this.#options.migrates,
    };
    return new QueuePair(this.#context, made, queuesOf(this.#context, made));
  }

  /** Throws EOPNOTSUPP where the link has no frames, EPERM without CAP_NET_RAW. */
  #newRaw(init: Omit<RawQueuePairInit, 'port' | 'frames'>): RawQueuePair {
    const { frames } = this.#options;
    if (frames === undefined) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', 'type: the link has no frames of an interface', {
        errno: 'EOPNOTSUPP',
        attribute: 'type',
        expected: 'the udp link for RAW_PACKET',
      });
    }
    const port = frames.open();
    try {
      return new RawQueuePair(this.#context, { ...init, port, frames: frames.batch });
    } catch (error) {
      port.close();
      throw error;
    }
  }

  /** Holds the domain of a queue pair that can be made. */
  #inDomain<Made>(pd: number, make: () => Made): Made {
    const { memory } = this.#context;
    memory.holdPd(pd, 1);
    try {
      return make();
    } catch (error) {
      memory.holdPd(pd, -1);
      throw error;
    }
  }

  #congestionOf({ congestion }: QpInit): Congestion {
    if (congestion === undefined) return this.#deviceCongestion;
    return resolveCongestion(this.#congestion, checkCongestion(congestion, 'congestion'), 'congestion');
  }

  #srqOf({ type, srq }: QpInit): SharedReceiveQueue | undefined {
    if (srq === undefined) return undefined;
    const { srqs, xrc } = this.#tables;
    if (type === 'XRC_INI') throw invalid('srq', 'an XRC_INI queue pair receives nothing', 'none');
    if (type !== 'RC' && srqs.get(srq).tags) throw invalid('srq', `${named(type)} matches no tags`, 'RC');
    if (xrc.has(srq)) {
      throw invalid(
        'srq',
        'of an XRC domain: requests name it by its number',
        'one that pd.createSrq made without',
      );
    }
    return srqs.get(srq);
  }
}
