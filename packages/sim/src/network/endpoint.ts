/**
 * One side of a connection as scenarios see it, whether the engine or the model is behind it: an arena of
 * memory, a queue pair, completions. The peer may do anything to the arena.
 */

import type { QpAttr } from '@node-roce/transport';
import type { ModelCompletion, ModelOpcode } from '../model/work.ts';
import type { SimHost } from './network.ts';

/** A work request in terms of the two arenas. */
export interface SimSend {
  wrId: number;
  opcode: ModelOpcode;
  /** Bytes of the own arena: what is sent, or where an answer goes. */
  offset: number;
  length: number;
  /** In the peer's arena. */
  remoteOffset?: number;
  immediate?: number;
  compareAdd?: bigint;
  swap?: bigint;
  signaled?: boolean;
  solicited?: boolean;
  fence?: boolean;
  /** Instead of the peer's key. */
  rkey?: number;
}

export interface SimReceive {
  wrId: number;
  offset: number;
  length: number;
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
}

/** What each side tells the other before they connect. */
export interface EndpointInfo {
  gid: Uint8Array;
  qpn: number;
  psn: number;
  rkey: number;
  /** Address of the arena's first byte. */
  base: bigint;
}

export interface Endpoint extends SimHost {
  readonly arena: Uint8Array;
  readonly info: EndpointInfo;
  connect(peer: EndpointInfo, options: ConnectionOptions): void;
  postSend(request: SimSend): void;
  postReceive(request: SimReceive): void;
  /** Completions since the last call. */
  pollSend(): ModelCompletion[];
  pollReceive(): ModelCompletion[];
  /** State of the queue pair. */
  readonly state: NonNullable<QpAttr['qpState']>;
  /** To the error state, as `ibv_modify_qp` does it. */
  fail(): void;
}
