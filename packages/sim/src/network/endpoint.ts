/**
 * An adapter as scenarios see it, whether the engine or the model is behind it: an arena of memory that peers may do
 * anything to, queue pairs, completions. An `Endpoint` is the least of it: one reliable connection.
 */
import type { QpAttr } from '@node-roce/transport';
import type { Destination, FlushExtent, ModelCompletion, ModelOpcode } from '../model/work.ts';
import type { XrcReceipt } from '../model/xrc-qp.ts';
import type { SimHost } from './network.ts';

/** Memory that is registered by itself, outside of the arena. */
export interface SimRegion {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly rkey: number;
  /** Address of the first byte as peers name it. */
  readonly base: bigint;
}

/** A work request in terms of the two arenas. */
export interface SimSend {
  wrId: number;
  opcode: ModelOpcode;
  /** Instead of the own arena. */
  region?: SimRegion;
  /** Bytes of the own arena: what is sent, or where an answer goes. */
  offset: number;
  length: number;
  /** In the peer's arena. */
  remoteOffset?: number;
  /** Instead of an address in the peer's arena: for example, through a window that counts from zero. */
  remoteAddress?: bigint;
  immediate?: number;
  compareAdd?: bigint;
  swap?: bigint;
  signaled?: boolean;
  solicited?: boolean;
  fence?: boolean;
  /** The bytes are copied when it is posted; at most `INLINE_BYTES`. */
  inline?: boolean;
  /** Instead of the key of the peer's arena. */
  rkey?: number;
  /** SEND_WITH_INV: of a window of the peer; LOCAL_INV: of an own one. */
  invalidateRkey?: number;
  bind?: SimBind;
  flush?: FlushExtent;
  /** UD: instead of the queue pair that was connected to. */
  to?: Destination;
  /** XRC: number of the peer's shared receive queue. */
  remoteSrqn?: number;
  /** With an L_Key that names nothing. */
  broken?: boolean;
}

/** BIND_MW: a window shows a part of the own arena. */
export interface SimBind {
  window: SimWindow;
  /** The new key. */
  rkey: number;
  /** Instead of the own arena. */
  region?: SimRegion;
  offset: number;
  length: number;
  /** `Access` bits. */
  access: number;
}

/** A memory window: a handle, and the key it was made with. */
export interface SimWindow {
  handle: number;
  rkey: number;
}

export interface SimReceive {
  wrId: number;
  /** Instead of the own arena. */
  region?: SimRegion;
  offset: number;
  length: number;
  /** With an L_Key that names nothing. */
  broken?: boolean;
}

/** The attributes of a connection, the same for both kinds of endpoint. */
export interface ConnectionOptions {
  pathMtu: number;
  timeout: number;
  retryCnt: number;
  rnrRetry: number;
  minRnrTimer: number;
  maxRdAtomic: number;
  maxDestRdAtomic: number;
  /** `Access` bits of the queue pair. */
  qpAccessFlags: number;
  /** Whether receives are counted in AETHs, and credits obeyed. */
  credits: boolean;
  /** Of the engine's packets: DSCP << 2 | ECN; 0 by default. */
  trafficClass?: number;
}

/** The data that each side sends the other before they connect. */
export interface EndpointInfo {
  gid: Uint8Array;
  qpn: number;
  psn: number;
  rkey: number;
  /** Address of the arena's first byte. */
  base: bigint;
  /** UD. */
  qkey?: number;
}

/** A queue pair. */
export interface SimQp {
  readonly info: EndpointInfo;
  /** From RESET to RTS; for UD, `peer` is the destination of requests that name no other. */
  connect(peer: EndpointInfo, options: ConnectionOptions): void;
  postSend(request: SimSend): void;
  postReceive(request: SimReceive): void;
  /** Completions since the last call. */
  pollSend(): ModelCompletion[];
  pollReceive(): ModelCompletion[];
  readonly state: NonNullable<QpAttr['qpState']>;
  /** To the error state, as `ibv_modify_qp` does it. */
  fail(): void;
}

/** One reliable connection and the adapter it is on. */
export interface Endpoint extends SimHost, SimQp {
  readonly arena: Uint8Array;
}

/** UC and UD have SQE: back to RTS, as `ibv_modify_qp` does it. */
export interface ResumableQp extends SimQp {
  resume(): void;
}

/** Attributes that may change while a reliable connection lives: of ibv_modify_qp(3) from RTS and from SQD. */
export type AttributeChange = Partial<
  Pick<
    ConnectionOptions,
    'timeout' | 'retryCnt' | 'rnrRetry' | 'minRnrTimer' | 'maxRdAtomic' | 'maxDestRdAtomic' | 'trafficClass'
  >
> & {
  /** kbit/s; 0 for no limit. The model obeys none. */
  rateLimit?: number;
};

/** A queue pair with all that a program can do to it. */
export interface VariableQp extends ResumableQp {
  /** To RESET: what is posted is forgotten, and what completed and was not polled too. @param psn first PSN after the next `connect` */
  reset(psn: number): void;
  /** Index of the next entry of the send queue, a signed 32-bit count; undefined where there is no ring. */
  readonly sendIndex: number | undefined;
  /** From RTS to SQD: what was begun is finished, nothing else is begun; `resume` ends it. */
  drain(): void;
  /** In SQD: something that was begun is not finished. */
  readonly draining: boolean;
  /** @throws Error where the queue pair does not take it in its state */
  change(attributes: AttributeChange): void;
}

/** GSI is QP1: UD with a QPN and a Q_Key of its own. XRC_INI requests, XRC_TGT responds. */
export type SimService = 'RC' | 'UC' | 'UD' | 'GSI' | 'XRC_INI' | 'XRC_TGT';

export const sendsDatagrams = (service: SimService): boolean => service === 'UD' || service === 'GSI';

export interface SimQpOptions {
  service: SimService;
  /** First PSN that it sends. */
  psn: number;
  /** UD. */
  qkey?: number;
  srq?: SimSrq;
}

/** A shared receive queue. */
export interface SimSrq {
  postReceive(request: SimReceive): void;
  /** Receives that no message has taken. */
  readonly waiting: number;
  /** Arms the limit: SRQ_LIMIT_REACHED comes once fewer receives are posted. */
  setLimit(limit: number): void;
}

/** A shared receive queue of the device's XRC domain. Completions name the target queue pair. */
export interface SimXrcSrq extends SimSrq {
  /** The number that requests name it by, 24 bits. */
  readonly number: number;
  /** Completions since the last call. */
  pollReceive(): XrcReceipt[];
}

/** Asynchronous events that rules speak of (ibv_get_async_event(3)); a device may have others. */
export type SimEvent = 'SRQ_LIMIT_REACHED' | 'QP_LAST_WQE_REACHED' | 'SQ_DRAINED';

/** An adapter with everything: as many queue pairs as one likes, of every service. */
export interface SimDevice extends SimHost {
  readonly arena: Uint8Array;
  createQp(options: SimQpOptions): VariableQp;
  /** Outstanding requests are discarded without completions. */
  destroyQp(qp: SimQp): void;
  createSrq(): SimSrq;
  createXrcSrq(): SimXrcSrq;
  allocWindow(type: 1 | 2): SimWindow;
  /** The range that it was bound to is open no more. */
  freeWindow(window: SimWindow): void;
  /** @param access `Access` bits */
  register(bytes: Uint8Array<ArrayBuffer>, access: number): SimRegion;
  /** When it returns, nothing reads or writes the memory any more. */
  deregister(region: SimRegion): void;
  /** The link takes `room` packets more, and nothing until `until` µs; packets wait meanwhile. */
  block(until: number, room?: number): void;
  /** Packets that wait for the link, of one queue pair or of all. */
  waiting(qpn?: number): number;
  /** ibv_attach_mcast(3). */
  attach(group: Uint8Array, qp: SimQp): void;
  /** Events raised since the last call. */
  pollEvents(): SimEvent[];
}

/** Bytes that a request may have inline. */
export const INLINE_BYTES = 128;

/** The MTU of every simulated port, bytes: what a datagram may have. */
export const ACTIVE_MTU = 4096;
