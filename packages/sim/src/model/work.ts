/** Work requests and completions of the model, as plain values. Names are those of `<infiniband/verbs.h>`. */
import type { ModelStatus, ModelWcOpcode } from './verbs.ts';
import type { WindowBind } from './windows.ts';

/** Requests for the model's send queue. */
export type ModelOpcode =
  | 'SEND'
  | 'SEND_WITH_IMM'
  | 'SEND_WITH_INV'
  | 'RDMA_WRITE'
  | 'RDMA_WRITE_WITH_IMM'
  | 'RDMA_READ'
  | 'ATOMIC_CMP_AND_SWP'
  | 'ATOMIC_FETCH_AND_ADD'
  | 'FLUSH'
  | 'ATOMIC_WRITE'
  | 'BIND_MW'
  | 'LOCAL_INV';

/** Extent and guarantees of a FLUSH (annex A19): the fields of its headers after address and key. */
export interface FlushExtent {
  /** Bytes from the remote address on; nothing to a FLUSH of a whole region. */
  length: number;
  /** Bit 0: global visibility, bit 1: persistence. */
  placement: number;
  /** 0: the range; 1: the region of the key. */
  selectivity: number;
}

/** Destination of a datagram: fields of an address handle and the work request. */
export interface Destination {
  /** 16 bytes; a group's, with QPN 0xffffff. */
  gid: Uint8Array;
  qpn: number;
  /** With its top bit set: the queue pair's own key is sent (§10.2.5). */
  qkey: number;
}

export interface ModelSendRequest {
  wrId: number;
  opcode: ModelOpcode;
  /** SEND and WRITE: the message; ATOMIC_WRITE: 8 bytes; FLUSH: none. READ and atomics: where the answer goes (8 bytes for an atomic). */
  local: Uint8Array;
  remote?: { va: bigint; rkey: number };
  immediate?: number;
  /** SEND_WITH_INV: a window of the peer; LOCAL_INV: one of ours. */
  invalidateRkey?: number;
  bind?: WindowBind;
  flush?: FlushExtent;
  /** UD only. */
  destination?: Destination;
  /** XRC only: the shared receive queue of the peer. */
  remoteSrqn?: number;
  /** CMP_AND_SWP: the value compared with; FETCH_AND_ADD: the value added. */
  compareAdd?: bigint;
  swap?: bigint;
  signaled?: boolean;
  solicited?: boolean;
  fence?: boolean;
  /** The local buffer can't be used: a bad L_Key, or its region is gone by the time that it is looked at. */
  broken?: boolean;
}

export interface ModelReceiveRequest {
  wrId: number;
  /** As long as the receive is. */
  local: Uint8Array;
  /** The local buffer can't be written (a bad L_Key): the receive fails when it is used. */
  broken?: boolean;
}

/** One entry of a completion queue. Fields but `wrId` and `status` are there on success only. */
export interface ModelCompletion {
  wrId: number;
  status: ModelStatus;
  opcode?: ModelWcOpcode;
  byteLen?: number;
  immediate?: number;
  invalidatedRkey?: number;
  /** UD: QPN of the sender. `byteLen` counts the 40 bytes of the GRH area. */
  sourceQpn?: number;
  /** Raises an event on a queue that waits for solicited ones. */
  solicited?: boolean;
}
