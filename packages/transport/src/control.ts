/**
 * The control path's plain data: what goes into and comes out of the engine's control calls.
 * Everything here survives a structured clone, so that the same calls work from another thread.
 */
import type { Congestion } from './congestion/options.ts';
import type { MigState, QpState, QpType } from './constants.ts';
import type { NewRing, RingShape } from './rings.ts';

/** `struct ibv_qp_cap`: sizes of a queue pair. Those that create returns are at least those asked for. */
export interface QpCap {
  /** Work requests that may be outstanding on the send queue. */
  maxSendWr: number;
  /** Same for the receive queue; ignored with an SRQ. */
  maxRecvWr: number;
  /** Scatter/gather elements of a send request. */
  maxSendSge: number;
  /** Same for a receive request; ignored with an SRQ. */
  maxRecvSge: number;
  /** Bytes that can be posted inline. */
  maxInlineData: number;
}

/** `struct ibv_global_route`. */
export interface GlobalRoute {
  /** 16 bytes; `::ffff:a.b.c.d` for IPv4. */
  dgid: Uint8Array;
  /** 20 bits; 0: the source port comes from the two QPNs. */
  flowLabel: number;
  /** Index of the local GID that packets leave from. */
  sgidIndex: number;
  /** TTL or hop limit, 0 … 255. With 0 as with 1 packets do not leave the subnet (ibv_query_qp(3)). */
  hopLimit: number;
  /** DSCP << 2 | ECN. */
  trafficClass: number;
}

/** `struct ibv_ah_attr`. RoCE always routes by `grh`; the fields of a LID route are kept, not used. */
export interface AhAttr {
  /** The route. */
  grh: GlobalRoute;
  /** True: RoCE has no other routes. */
  isGlobal: boolean;
  /** Kept, not used. */
  dlid: number;
  /** Service level, 0 … 15; kept, not used: priority is the DSCP of `trafficClass`. */
  sl: number;
  /** Kept, not used. */
  srcPathBits: number;
  /** `enum ibv_rate`; kept, not acted on: `rateLimit` is. */
  staticRate: number;
  /** 1. */
  portNum: number;
}

/** `struct ibv_qp_attr`. The attributes that are present are the mask. */
export interface QpAttr {
  /** The state to go to; in a query, the state it is in. */
  qpState?: QpState;
  /** The state that the program takes it to be in: EINVAL where it is not. */
  curQpState?: QpState;
  /** Bytes: 256, 512, 1024, 2048 or 4096. */
  pathMtu?: number;
  /**
   * RC, UC, XRC, on a device with `experimental: ['apm']`: REARM asks the peer to arm the alternate path, MIGRATED goes over to it where
   * the connection is ARMED. EINVAL for ARMED, which the peer's answer brings, for MIGRATED in REARM, and for REARM without an alternate path.
   */
  pathMigState?: MigState;
  /** UD and GSI, 32 bits: what datagrams to it have to bring. */
  qkey?: number;
  /** 24 bits. */
  rqPsn?: number;
  /** 24 bits. */
  sqPsn?: number;
  /** The peer's QPN, 24 bits. */
  destQpNum?: number;
  /** `Access` bits of the remote operations allowed: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC. */
  qpAccessFlags?: number;
  /** The sizes of the queues, which may be changed while they are used (IBV_DEVICE_RESIZE_MAX_WR); not of XRC_TGT. */
  cap?: QpCap;
  /** RC and UC: the way to the peer. */
  ahAttr?: AhAttr;
  /**
   * As `pathMigState`: the alternate path, which comes with the other three attributes `alt…`. In a query while there is one:
   * after a migration it is `ahAttr`.
   */
  altAhAttr?: AhAttr;
  /** 0: the default P_Key is the only one. */
  pkeyIndex?: number;
  /** `pkeyIndex` of the alternate path. */
  altPkeyIndex?: number;
  /** RTS to SQD: raise SQ_DRAINED when what was started is done. */
  enSqdAsyncNotify?: boolean;
  /** In a query in SQD: what was started is not done yet. */
  sqDraining?: boolean;
  /** RC: READs and atomics that this side has out at once, 0 … `maxQpInitRdAtom`. */
  maxRdAtomic?: number;
  /** RC: READs and atomics that it serves at once, 0 … `maxQpRdAtom`. */
  maxDestRdAtomic?: number;
  /** Code 0 … 31. */
  minRnrTimer?: number;
  /** 1. */
  portNum?: number;
  /** Local ACK timeout, code 0 … 31: 4.096 µs · 2^timeout; 0 waits without end for a peer that is silent. Probes ask sooner (`Recovery.probes`). */
  timeout?: number;
  /**
   * RC: 0 … 7 retries after a timeout or sequence NAK, then RETRY_EXC_ERR: a peer that never answers sees 1 + `retryCnt` sends. Probes take
   * none of them, and come in addition once the round trip is known (`Recovery.probes`).
   */
  retryCnt?: number;
  /** RC: 0 … 6 retries after an RNR NAK, then RNR_RETRY_EXC_ERR; 7 is for ever. */
  rnrRetry?: number;
  /** `portNum` of the alternate path. */
  altPortNum?: number;
  /** `timeout` of the alternate path, from the migration on. */
  altTimeout?: number;
  /** kbps; 0 for no limit. */
  rateLimit?: number;
}

/** How a reliable connection recovers from losses. */
export interface Recovery {
  /**
   * When an answer is overdue by the round trip, sends one packet once more (a tail loss probe, RFC 8985): none before the round trip is
   * known, and none after the ACK timer has run out until something is acknowledged. On a connection that lost nothing one for each flight.
   * Where losses were seen, further ones, of two packets, after intervals that double; and to a peer that is known to keep early packets, on
   * a path that loses often, up to 0.7 windows of packets with the first one. False: a peer never sees more than 1 + `retryCnt` sends without
   * an answer. Default true.
   */
  probes: boolean;
  /**
   * Retransmits selectively, where answers show which packets are missing: the requester keeps READ responses that come early and asks for
   * the missing ones, of each request for the first gap and those near it; to a peer that keeps early packets it sends the packets that a NAK
   * names, twice on a path that loses often. Otherwise it retransmits everything from the loss on (go-back-N). Default true.
   */
  selective: boolean;
  /** Whether the responder keeps packets that come before one that is missing. Default auto. */
  keepEarly: KeepEarly;
}

/**
 * `off`: it discards them. `quiet`: it keeps copies, and acknowledges them when the requester has sent them again, so that the
 * requester sees plain go-back-N that loses fewer retransmissions. `ahead`: it acknowledges them as soon as the missing one is there;
 * for requesters that know what to do then, as ours does. It repeats a NAK as long as packets come that ask for an ACK, and to others each
 * costs a retry. `auto`: `quiet`, until the adapter hears that the peer's requester knows (`Adapter.acknowledgeAhead`).
 */
export type KeepEarly = 'auto' | 'off' | 'quiet' | 'ahead';
export const KEEP_EARLY: readonly KeepEarly[] = ['auto', 'off', 'quiet', 'ahead'];

export const RECOVERY_DEFAULTS: Recovery = { probes: true, selective: true, keepEarly: 'auto' };

/** `struct ibv_qp_init_attr`, with handles for the objects. */
export interface QpInit {
  pd: number;
  type: QpType;
  sendCq: number;
  recvCq: number;
  /** Handle of a shared receive queue; without one, the queue pair has a receive queue of its own. */
  srq?: number;
  cap: QpCap;
  sqSigAll: boolean;
  /** RC: what differs from the device's. */
  recovery?: Partial<Recovery>;
  /** RC and UC: what differs from the device's. */
  congestion?: Partial<Congestion>;
  /** Where its rings are made; the adapter's own memory unless given. */
  newRing?: NewRing;
}

/** The result of `createQp`. With an SRQ the program posts there; `recvQueue` is the engine's own. */
export interface QpCreated {
  qpn: number;
  cap: QpCap;
  sendQueue: RingShape;
  recvQueue: RingShape;
  /** RC: of its recovery; the peer gets it, so that it may acknowledge ahead. */
  selective?: boolean;
}

/** The result of a `modifyQp` with `cap`: the rings to post to from now on. */
export type QpResized = Omit<QpCreated, 'qpn' | 'selective'>;

/** `struct ibv_xrcd_init_attr`. */
export interface XrcdInit {
  /** Shared by all who open this name; a domain of one's own without. */
  name?: string | undefined;
  /** Makes a domain of that name if there is none; true. */
  create?: boolean | undefined;
  /** EINVAL if there is one; false. */
  exclusive?: boolean | undefined;
}

/** The result of `createXrcTarget` and `openXrcTarget`: an opening of the queue pair. */
export interface XrcTargetOpened {
  handle: number;
  qpn: number;
  /** Nothing is posted there; its control page shows the state. */
  sendQueue: RingShape;
}

/** `struct ibv_srq_init_attr`. */
export interface SrqInit {
  pd: number;
  /** Work requests that may be outstanding; create returns at least this. */
  maxWr: number;
  maxSge: number;
  /** Entries below which SRQ_LIMIT_REACHED is raised once; 0: never. */
  limit: number;
  /** XRC: handles of its domain, and of the completion queue of its receives. */
  xrc?: { domain: number; cq: number } | undefined;
  /** Tag matching: buffers in its list at most, and the handle of the completion queue of receives and operations. */
  tags?: { max: number; cq: number } | undefined;
  /** Where its rings are made; the adapter's own memory unless given. */
  newRing?: NewRing;
}

/**
 * `struct ibv_ops_wr`: an operation on the list of a tag matching SRQ. `handled` (IBV_OPS_TM_SYNC): unexpected messages that the program
 * has handled so far, modulo 2^32.
 */
export type SrqOp = { wrId: bigint; signaled: boolean; handled?: number | undefined } & (
  | {
      /** Adds a buffer for messages of which `tag & mask` is this tag. */
      opcode: 'TAG_ADD';
      recvWrId: bigint;
      tag: bigint;
      mask: bigint;
      list: readonly { addr: bigint; length: number; lkey: number }[];
    }
  /** Removes one; it completes with TM_ERR where a message has consumed it. */
  | { opcode: 'TAG_DEL'; handle: number }
  | { opcode: 'TAG_SYNC' }
);

/** The result of `createSrq`. */
export interface SrqCreated {
  handle: number;
  maxWr: number;
  maxSge: number;
  ring: RingShape;
  /** XRC: as requests name it, 24 bits (ibv_get_srq_num(3)). */
  number?: number;
}

/** `struct ibv_srq_attr` for ibv_modify_srq(3). */
export interface SrqAttr {
  limit?: number;
  maxWr?: number;
}

/** The result of `modifySrq`: the ring to post to from now on, where the size was changed. */
export interface SrqModified {
  maxWr: number;
  ring?: RingShape;
}

/** Memory windows: type 1, and type 2 in its variant 2B. */
export type MwType = 1 | 2;

export interface MwCreated {
  handle: number;
  rkey: number;
}

/** The result of `queryQp`: `undefined` for what is not valid in the state the QP is in. */
export interface QpQuery {
  /** The attributes. */
  attr: QpAttr;
  /** As it was created. */
  init: Pick<QpInit, 'type' | 'cap' | 'sqSigAll' | 'sendCq' | 'recvCq' | 'srq'>;
}

/** Members of completions that not every queue has. */
export interface CqContents {
  /** Their times. */
  stamped?: boolean;
  /** Tags of messages (tag matching). */
  tagged?: boolean;
}

/** The result of `createCq`. */
export interface CqCreated {
  handle: number;
  /** Entries the queue holds; at least as many as were asked for. */
  cqe: number;
  ring: RingShape;
}

/** A region to register: a part of a backing buffer. */
export interface MrInit {
  pd: number;
  /** Names the backing buffer: the same number for every region over the same buffer. */
  backing: number;
  buffer: ArrayBufferLike;
  /** Bytes from the start of the buffer. */
  offset: number;
  /** Bytes. */
  length: number;
  /** `Access` bits. */
  access: number;
  /** Address of the first byte as peers name it; without it, base of the backing buffer + offset. */
  iova?: bigint;
}

export interface MrCreated {
  handle: number;
  lkey: number;
  rkey: number;
  /** Address of the first byte (`mr->addr`). */
  addr: bigint;
  iova: bigint;
}

/** The result of `allocNullMr`. */
export interface NullMrCreated {
  handle: number;
  lkey: number;
}

/** One entry of the port's GID table. */
export interface GidEntry {
  /** 16 bytes. */
  gid: Uint8Array;
  /** The address as text. */
  address: string;
  /** The one type there is. */
  type: 'RoCE v2';
}

/** The entry at an index where there is no address, or no longer: 16 zero bytes, as the kernel shows such entries. */
export const EMPTY_GID: GidEntry = { gid: new Uint8Array(16), address: '::', type: 'RoCE v2' };

/** The device's limits: the part of `struct ibv_device_attr` that the engine enforces. */
export interface DeviceLimits {
  /** Queue pairs. */
  maxQp: number;
  /** Requests outstanding on a send or receive queue. */
  maxQpWr: number;
  /** Scatter/gather elements of a request. */
  maxSge: number;
  /** Bytes that can be posted inline. */
  maxInlineData: number;
  /** Completion queues. */
  maxCq: number;
  /** Entries of a completion queue. */
  maxCqe: number;
  /** Memory regions. */
  maxMr: number;
  /** Bytes of a region. */
  maxMrSize: number;
  /** Memory windows. */
  maxMw: number;
  /** Protection domains. */
  maxPd: number;
  /** Shared receive queues. */
  maxSrq: number;
  /** Receives posted to a shared receive queue. */
  maxSrqWr: number;
  /** Elements of each. */
  maxSrqSge: number;
  /** Tagged buffers of a tag matching SRQ. */
  maxTags: number;
  /** Address handles. */
  maxAh: number;
  /** Multicast groups, and queue pairs attached to one. */
  maxMcastGrp: number;
  /** Queue pairs attached to one multicast group. */
  maxMcastQpAttach: number;
  /** READs and atomics a QP serves at once (`max_qp_rd_atom`). */
  maxQpRdAtom: number;
  /** READs and atomics a QP has out at once (`max_qp_init_rd_atom`). */
  maxQpInitRdAtom: number;
  /** Bytes of a message; 2^31. */
  maxMessageSize: number;
}

export const DEVICE_LIMITS: DeviceLimits = {
  maxQp: 65_536,
  maxQpWr: 32_768,
  maxSge: 32,
  maxInlineData: 1024,
  maxCq: 65_536,
  maxCqe: 1_048_576,
  maxMr: 524_288,
  maxMrSize: 2 ** 40,
  maxMw: 524_288,
  maxPd: 65_536,
  maxSrq: 65_536,
  maxSrqWr: 32_768,
  maxSrqSge: 32,
  maxTags: 1024,
  maxAh: 65_536,
  maxMcastGrp: 1024,
  maxMcastQpAttach: 256,
  maxQpRdAtom: 128,
  maxQpInitRdAtom: 128,
  maxMessageSize: 2 ** 31,
};
