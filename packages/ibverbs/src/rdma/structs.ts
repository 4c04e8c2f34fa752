/** Structs of <rdma/rdma_cma.h> that are plain data. */
import type { ibv_ah_attr } from '../structs.ts';
import type { rdma_cm_id } from './ids.ts';

/** `struct sockaddr`: a host, numeric or by name, and a port of the id's port space. */
export interface rdma_sockaddr {
  address: string;
  port?: number;
}

/** `struct rdma_conn_param`. As in C, a member that is left out is 0. */
export interface rdma_conn_param {
  /** For the peer's program; its length goes with it. */
  private_data?: Uint8Array | null;
  /** READs and atomics that this side serves at a time: up to `max_qp_rd_atom` of the device, or RDMA_MAX_RESP_RES. */
  responder_resources?: number;
  /** READs and atomics that this side has out at a time: up to `max_qp_init_rd_atom` of the device, or RDMA_MAX_INIT_DEPTH. */
  initiator_depth?: number;
  /** End-to-end credits: on where both sides ask. */
  flow_control?: number | boolean;
  /** 0 … 7. */
  retry_count?: number;
  /** 0 … 7; 7 is for ever. */
  rnr_retry_count?: number;
  /** Ignored, like `qp_num`: those of the id’s queue pair count. */
  srq?: number | boolean;
  qp_num?: number;
}

/** `event.param.conn`, which `rdma_accept` takes as its `conn_param`, and `event.param.ud` for datagram services and groups. */
export interface rdma_event_param {
  /** CONNECT_REQUEST, ESTABLISHED of the side that connects, and REJECTED. */
  conn?: {
    /** The whole field of the message, with zeros behind the peer's data; null where there is none. */
    private_data: Uint8Array | null;
    private_data_len: number;
    responder_resources: number;
    initiator_depth: number;
    flow_control: number;
    /** Of a CONNECT_REQUEST. */
    retry_count: number;
    rnr_retry_count: number;
    /** 1: the peer's queue pair has a shared receive queue. */
    srq: number;
    /** The peer's queue pair. */
    qp_num: number;
  };
  /** Where to send: ESTABLISHED of a datagram service, MULTICAST_JOIN. */
  ud?: {
    private_data: Uint8Array | null;
    private_data_len: number;
    ah_attr: ibv_ah_attr;
    qp_num: number;
    qkey: number;
  };
}

/** `struct rdma_cm_event`. */
export interface rdma_cm_event {
  id: rdma_cm_id;
  /** Of a CONNECT_REQUEST. */
  listen_id: rdma_cm_id | null;
  /** One of RDMA_CM_EVENT_… . */
  event: number;
  /** 0; the reason of a REJECTED (8: nobody listens); a negative errno. */
  status: number;
  param: rdma_event_param;
}

/** Options beyond C: how an id gets its device, and the intervals of its messages. */
export type { IdOptions as rdma_id_options } from '@node-roce/rdmacm';
