/**
 * The structs that verbs make, with the members that programs read. Each stands before an object of
 * `@node-roce/verbs-api`, its member `verbs`, for what libibverbs has no call for.
 */
import type { NetworkInterface } from '@node-roce/link';
import { invalid, QpStateCode, type QpType } from '@node-roce/transport';
import {
  type AddressHandle,
  type CompletionChannel,
  type CompletionQueue,
  type Device,
  type EventElement,
  type MemoryRegion,
  type MemoryWindow,
  NullMemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type SharedReceiveQueue,
  type XrcDomain,
  XrcTarget,
} from '@node-roce/verbs-api';
import { described } from '@node-roce/verbs-api/options';
import {
  IBV_NODE_CA,
  IBV_QPT_RAW_PACKET,
  IBV_QPT_RC,
  IBV_QPT_UC,
  IBV_QPT_UD,
  IBV_QPT_XRC_RECV,
  IBV_QPT_XRC_SEND,
  IBV_TRANSPORT_IB,
} from './constants.ts';

/** From an object of verbs-api to the struct before it: completion and async events name the former. */
const madeStructs = new WeakMap<EventElement, ibv_cq | ibv_qp | ibv_srq>();

/** The struct before an object that an event is about; undefined if it was not made by this package. */
export function structOf(element: EventElement): ibv_cq | ibv_qp | ibv_srq | undefined {
  return madeStructs.get(element);
}

/** `enum ibv_qp_type` of what can be created. */
export const QP_TYPE_CODES: Partial<Record<QpType, number>> = {
  RC: IBV_QPT_RC,
  UC: IBV_QPT_UC,
  UD: IBV_QPT_UD,
  RAW_PACKET: IBV_QPT_RAW_PACKET,
  XRC_INI: IBV_QPT_XRC_SEND,
  XRC_TGT: IBV_QPT_XRC_RECV,
};

/** A network interface that a device can be opened on. */
export class ibv_device {
  readonly node_type = IBV_NODE_CA;
  readonly transport_type = IBV_TRANSPORT_IB;
  readonly interface: NetworkInterface;

  constructor(nic: NetworkInterface) {
    this.interface = nic;
  }

  /** The interface's name: `eth0`. */
  get name(): string {
    return this.interface.name;
  }
}

/** `struct ibv_context`: a device that is open. */
export class ibv_context {
  readonly device: ibv_device;
  readonly num_comp_vectors = 1;
  readonly verbs: Device;

  constructor(device: ibv_device, verbs: Device) {
    this.device = device;
    this.verbs = verbs;
  }
}

/** `struct ibv_pd`. */
export class ibv_pd {
  readonly context: ibv_context;
  readonly verbs: ProtectionDomain;
  /** Regions by lkey: a scatter/gather element that gives memory finds its address there. */
  readonly regions: Map<number, ibv_mr>;

  constructor(context: ibv_context, verbs: ProtectionDomain, regions = new Map<number, ibv_mr>()) {
    this.context = context;
    this.verbs = verbs;
    this.regions = regions;
  }

  /** An object was made with it; the engine counts those of a protection domain. @internal */
  made(_object: object): void {}

  /** The object is destroyed. @internal */
  gone(_object: object): void {}
}

/** `struct ibv_mr`. */
export class ibv_mr {
  readonly context: ibv_context;
  pd: ibv_pd;
  readonly #verbs: MemoryRegion | NullMemoryRegion;

  constructor(pd: ibv_pd, verbs: MemoryRegion | NullMemoryRegion) {
    this.context = pd.context;
    this.pd = pd;
    this.#verbs = verbs;
    if (!(verbs instanceof NullMemoryRegion)) pd.regions.set(verbs.lkey, this);
    pd.made(this);
  }

  /** Throws EINVAL for a null region (`ibv_alloc_null_mr`): there is `nullRegion`. */
  get verbs(): MemoryRegion {
    const verbs = this.#verbs;
    if (verbs instanceof NullMemoryRegion) throw invalid('mr', 'a null region', 'a region of memory');
    return verbs;
  }

  /** Of `ibv_alloc_null_mr`; null for the others. */
  get nullRegion(): NullMemoryRegion | null {
    return this.#verbs instanceof NullMemoryRegion ? this.#verbs : null;
  }

  /** Address of the first byte, a bigint: synthetic, as memory has no address in JavaScript (docs/memory.md). Of a null region 0. */
  get addr(): bigint {
    return this.nullRegion ? 0n : this.verbs.addr;
  }

  /** The same in the terms of `ibv_sge.addr` and of peers; other than `addr` where it was chosen. */
  get iova(): bigint {
    return this.nullRegion ? 0n : this.verbs.iova;
  }

  get length(): number {
    return this.#verbs.length;
  }

  get lkey(): number {
    return this.#verbs.lkey;
  }

  /** Of a null region 0, which opens nothing. */
  get rkey(): number {
    return this.nullRegion ? 0 : this.verbs.rkey;
  }
}

/** `struct ibv_mw`. */
export class ibv_mw {
  readonly context: ibv_context;
  readonly pd: ibv_pd;
  readonly verbs: MemoryWindow;

  constructor(pd: ibv_pd, verbs: MemoryWindow) {
    this.context = pd.context;
    this.pd = pd;
    this.verbs = verbs;
    pd.made(this);
  }

  get handle(): number {
    return this.verbs.handle;
  }

  get type(): number {
    return this.verbs.type;
  }

  /** The key of the last bind. A program that posts IBV_WR_BIND_MW may set it, as in C; it is set already. */
  get rkey(): number {
    return this.verbs.rkey;
  }

  set rkey(rkey: number) {
    this.verbs.rkey = rkey;
  }
}

/** `struct ibv_comp_channel`. */
export class ibv_comp_channel {
  readonly context: ibv_context;
  readonly verbs: CompletionChannel;

  constructor(context: ibv_context, verbs: CompletionChannel) {
    this.context = context;
    this.verbs = verbs;
  }

  get refcnt(): number {
    return this.verbs.users;
  }
}

/** `struct ibv_cq`. */
export class ibv_cq {
  readonly context: ibv_context;
  readonly channel: ibv_comp_channel | null;
  readonly verbs: CompletionQueue;
  /** Of `ibv_create_cq_ex`. */
  readonly parent_domain: ibv_pd | null;

  constructor(
    context: ibv_context,
    channel: ibv_comp_channel | null,
    verbs: CompletionQueue,
    parent_domain: ibv_pd | null = null,
  ) {
    this.context = context;
    this.channel = channel;
    this.verbs = verbs;
    this.parent_domain = parent_domain;
    parent_domain?.made(this);
    madeStructs.set(verbs, this);
  }

  get handle(): number {
    return this.verbs.handle;
  }

  get cq_context(): unknown {
    return this.verbs.context;
  }

  get cqe(): number {
    return this.verbs.cqe;
  }
}

/** `struct ibv_srq`. */
export class ibv_srq {
  readonly context: ibv_context;
  readonly pd: ibv_pd;
  readonly verbs: SharedReceiveQueue;

  constructor(pd: ibv_pd, verbs: SharedReceiveQueue) {
    this.context = pd.context;
    this.pd = pd;
    this.verbs = verbs;
    pd.made(this);
    madeStructs.set(verbs, this);
  }

  get handle(): number {
    return this.verbs.handle;
  }

  get srq_context(): unknown {
    return this.verbs.context;
  }
}

/** `struct ibv_xrcd`. */
export class ibv_xrcd {
  readonly context: ibv_context;
  readonly verbs: XrcDomain;

  constructor(context: ibv_context, verbs: XrcDomain) {
    this.context = context;
    this.verbs = verbs;
  }
}

/** `struct ibv_qp`. Of IBV_QPT_XRC_RECV `pd`, `send_cq` and `recv_cq` are NULL; of IBV_QPT_XRC_SEND `recv_cq` may be. */
export class ibv_qp {
  readonly context: ibv_context;
  readonly pd: ibv_pd;
  readonly send_cq: ibv_cq;
  readonly recv_cq: ibv_cq;
  readonly srq: ibv_srq | null;
  readonly #verbs: QueuePair | XrcTarget;

  /** @param pd of a target, which has none, its context */
  constructor(
    pd: ibv_pd | ibv_context,
    send_cq: ibv_cq | null,
    recv_cq: ibv_cq | null,
    srq: ibv_srq | null,
    verbs: QueuePair | XrcTarget,
  ) {
    this.context = pd instanceof ibv_context ? pd : pd.context;
    // NULL, as in C, where programs do not look.
    this.pd = (pd instanceof ibv_context ? null : pd) as ibv_pd;
    this.send_cq = send_cq as ibv_cq;
    this.recv_cq = recv_cq as ibv_cq;
    this.srq = srq;
    this.#verbs = verbs;
    this.pd?.made(this);
    madeStructs.set(verbs, this);
  }

  /** Throws EINVAL for IBV_QPT_XRC_RECV, to which nothing is posted: there is `target`. */
  get verbs(): QueuePair {
    const verbs = this.#verbs;
    if (verbs instanceof XrcTarget)
      throw invalid('qp', 'IBV_QPT_XRC_RECV has no queues', 'a queue pair of another type');
    return verbs;
  }

  /** Of IBV_QPT_XRC_RECV; null for the others. */
  get target(): XrcTarget | null {
    return this.#verbs instanceof XrcTarget ? this.#verbs : null;
  }

  get qp_context(): unknown {
    return this.#verbs.context;
  }

  get handle(): number {
    return this.#verbs.qpNum;
  }

  get qp_num(): number {
    return this.#verbs.qpNum;
  }

  get qp_type(): number {
    return QP_TYPE_CODES[this.#verbs.type] ?? 0;
  }

  /** The state now, not only after the last modify. */
  get state(): number {
    return QpStateCode[this.#verbs.state];
  }
}

/** `struct ibv_ah`. */
export class ibv_ah {
  readonly context: ibv_context;
  readonly pd: ibv_pd;
  readonly verbs: AddressHandle;

  constructor(pd: ibv_pd, verbs: AddressHandle) {
    this.context = pd.context;
    this.pd = pd;
    this.verbs = verbs;
    pd.made(this);
  }

  get handle(): number {
    return this.verbs.handle;
  }
}

const HANDLES = {
  context: ibv_context,
  pd: ibv_pd,
  mr: ibv_mr,
  mw: ibv_mw,
  channel: ibv_comp_channel,
  cq: ibv_cq,
  srq: ibv_srq,
  qp: ibv_qp,
  ah: ibv_ah,
  xrcd: ibv_xrcd,
};
type Handles = { [K in keyof typeof HANDLES]: InstanceType<(typeof HANDLES)[K]> };

/**
 * The object behind a struct. Throws EINVAL for NULL, which a call before may have returned, and for a struct of another
 * kind.
 */
export function verbsOf<K extends keyof Handles>(
  kind: K,
  struct: Handles[K],
  name: string = kind,
): Handles[K]['verbs'] {
  checkKind(name, struct, HANDLES[kind]);
  return struct.verbs;
}

/** The queue pair behind a struct, also of type IBV_QPT_XRC_RECV: for what is not posting. */
export function stateOf(qp: ibv_qp): QueuePair | XrcTarget {
  checkKind('qp', qp, ibv_qp);
  return qp.target ?? qp.verbs;
}

/** Throws EINVAL for NULL and for a struct of another kind. */
export function checkKind(
  name: string,
  struct: object,
  kind: abstract new (...args: never[]) => object,
): void {
  if (!(struct instanceof kind)) throw invalid(name, struct ? described(struct) : 'NULL', kind.name);
}

/** A struct that a call reads. Throws EINVAL for NULL. */
export function given<T extends object>(name: string, struct: T): T {
  if (typeof struct !== 'object' || struct === null) throw invalid(name, 'NULL', `a struct ${name}`);
  return struct;
}
