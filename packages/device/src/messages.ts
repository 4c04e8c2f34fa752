/**
 * Messages between the library of a program and the device, over a Unix socket, little-endian: one row a call. A request is
 * `length, number of the call, payload`, its reply `length, errno, payload`; lengths count the payload. The payload of a reply with an
 * errno is the reason, as text. native/ibverbs/messages.h is written from these rows (protocol.test.ts).
 */

/** Changes with every change of a message: a library of another version is refused. */
export const PROTOCOL_VERSION = 7;

/** Bytes of a payload at most. A longer one ends the connection. */
export const MAX_PAYLOAD = 1 << 20;

/** Bytes before the payload. */
export const HEADER_BYTES = 8;

/** Names a program to its other connections, and a channel of rdma_cm to its commands. */
export const TOKEN_BYTES = 16;

/**
 * One field: a number of 32 or 64 bits; a count of bytes; a group of fields; or a list, the last field of its message: the number of
 * its elements (`…_count` in C), and they. Its second part is how many there are at most.
 */
export type Field =
  | 'u32'
  | 'u64'
  | number
  | Layout
  | readonly [element: 'u8' | number | Layout, most: number];
export interface Layout {
  readonly [name: string]: Field;
}

const u32 = 'u32';
const u64 = 'u64';
const GID_BYTES = 16;

/** The members of `struct ibv_qp_cap`. */
const cap = {
  max_send_wr: u32,
  max_recv_wr: u32,
  max_send_sge: u32,
  max_recv_sge: u32,
  max_inline_data: u32,
} as const;

/** Those of `struct ibv_ah_attr`, without levels. */
const address = {
  dgid: GID_BYTES,
  flow_label: u32,
  sgid_index: u32,
  hop_limit: u32,
  traffic_class: u32,
  dlid: u32,
  sl: u32,
  src_path_bits: u32,
  static_rate: u32,
  is_global: u32,
  port_num: u32,
} as const;

/** A ring: bytes from the start of the arena, entries, and words of an entry. Without entries there is none. */
const ring = { offset: u32, capacity: u32, stride: u32 } as const;

/** A work queue: the value of its doorbells, and its ring. */
const queue = { id: u32, ...ring } as const;

/** `struct ibv_sge`. */
const sge = { addr: u64, length: u32, lkey: u32 } as const;

/** Members of `struct ibv_qp_attr` that are read and written. */
const qp_numbers = {
  qp_state: u32,
  cur_qp_state: u32,
  path_mtu: u32,
  path_mig_state: u32,
  qkey: u32,
  rq_psn: u32,
  sq_psn: u32,
  dest_qp_num: u32,
  qp_access_flags: u32,
  pkey_index: u32,
} as const;
const qp_timing = {
  max_rd_atomic: u32,
  max_dest_rd_atomic: u32,
  min_rnr_timer: u32,
  port_num: u32,
  timeout: u32,
  retry_cnt: u32,
  rnr_retry: u32,
  /** kbps. */
  rate_limit: u32,
} as const;

/** How memory is registered: `kind` is one of `MemoryKind`. */
const place = { address: u64, length: u64 } as const;

/** Groups that have a struct in C, by its name. */
export const GROUPS = {
  cap,
  address,
  ring_place: ring,
  queue_place: queue,
  sge,
  /** To a descriptor of events: of a completion channel, or of the context. `handle` is the object's, or 0. */
  event: { type: u32, handle: u32, port: u32 },
} as const satisfies Record<string, Layout>;

/** The calls of a program. Handles are the program's own, and never used again; 0 is no object. */
export const CALLS = {
  /** Four descriptors come before the reply: memory, arena, doorbell, and a socket for that of the program's own memory. */
  HELLO: {
    number: 1,
    /** `token`: of another context of the process; `network`: the inode of its namespace. */
    request: { version: u32, name: 16, token: TOKEN_BYTES, network: u64 },
    reply: { token: TOKEN_BYTES, arena_bytes: u32, bells_offset: u32, bells_capacity: u32 },
  },
  /** The connection is for events from now on: of a channel, or of the context (handle 0). */
  LISTEN: { number: 2, request: { token: TOKEN_BYTES, handle: u32 }, reply: {} },
  QUERY_DEVICE: {
    number: 3,
    request: {},
    reply: {
      node_guid: u64,
      max_mr_size: u64,
      page_size_cap: u64,
      vendor_id: u32,
      vendor_part_id: u32,
      max_qp: u32,
      max_qp_wr: u32,
      device_cap_flags: u32,
      max_sge: u32,
      max_sge_rd: u32,
      max_cq: u32,
      max_cqe: u32,
      max_mr: u32,
      max_pd: u32,
      max_qp_rd_atom: u32,
      max_res_rd_atom: u32,
      max_qp_init_rd_atom: u32,
      atomic_cap: u32,
      max_mw: u32,
      max_mcast_grp: u32,
      max_mcast_qp_attach: u32,
      max_total_mcast_qp_attach: u32,
      max_ah: u32,
      max_srq: u32,
      max_srq_wr: u32,
      max_srq_sge: u32,
      max_pkeys: u32,
      /** In units of 4.096 µs · 2^n. */
      local_ca_ack_delay: u32,
      phys_port_cnt: u32,
      tm_max_rndv_hdr_size: u32,
      tm_max_num_tags: u32,
      tm_flags: u32,
      tm_max_ops: u32,
      tm_max_sge: u32,
    },
  },
  QUERY_PORT: {
    number: 4,
    request: { port: u32 },
    reply: {
      state: u32,
      max_mtu: u32,
      active_mtu: u32,
      gid_tbl_len: u32,
      port_cap_flags: u32,
      max_msg_sz: u32,
      bad_pkey_cntr: u32,
      qkey_viol_cntr: u32,
      pkey_tbl_len: u32,
      max_vl_num: u32,
      active_width: u32,
      active_speed: u32,
      phys_state: u32,
      link_layer: u32,
      flags: u32,
    },
  },
  /** A GID of zeros is a free entry. */
  QUERY_GIDS: { number: 5, request: {}, reply: { gids: [GID_BYTES, 256] } },
  ALLOC_PD: { number: 6, request: {}, reply: { handle: u32 } },
  REG_MR: {
    number: 7,
    request: { pd: u32, access: u32, ...place, iova: u64, kind: u32 },
    reply: { handle: u32, lkey: u32, rkey: u32 },
  },
  /** `flags`: IBV_REREG_MR_CHANGE_…, which name what of the rest counts. */
  REREG_MR: {
    number: 8,
    request: { handle: u32, flags: u32, pd: u32, access: u32, ...place, kind: u32 },
    reply: { lkey: u32, rkey: u32 },
  },
  CREATE_CHANNEL: { number: 9, request: {}, reply: { handle: u32 } },
  /** `channel`: or 0; `bits`: `CqBits`. */
  CREATE_CQ: {
    number: 10,
    request: { cqe: u32, channel: u32, bits: u32 },
    reply: { handle: u32, cqe: u32, ring },
  },
  RESIZE_CQ: { number: 11, request: { handle: u32, cqe: u32 }, reply: { cqe: u32, ring } },
  /** With `cq`, of tag matching; without, the numbers of tags and operations count for nothing. */
  CREATE_SRQ: {
    number: 12,
    request: { pd: u32, max_wr: u32, max_sge: u32, srq_limit: u32, cq: u32, max_num_tags: u32, max_ops: u32 },
    reply: { handle: u32, max_wr: u32, max_sge: u32, number: u32, queue },
  },
  /** `moved`: 1 where the queue has another ring from now on. */
  MODIFY_SRQ: {
    number: 13,
    request: { handle: u32, mask: u32, max_wr: u32, srq_limit: u32 },
    reply: { moved: u32, queue },
  },
  QUERY_SRQ: { number: 14, request: { handle: u32 }, reply: { max_wr: u32, max_sge: u32, srq_limit: u32 } },
  /** Entries of send queues name the address handle by `number`. */
  CREATE_AH: { number: 15, request: { pd: u32, attr: address }, reply: { handle: u32, number: u32 } },
  /** `srq`: or 0. A queue pair that answers rendezvous has no queues, one with an SRQ no receive queue. */
  CREATE_QP: {
    number: 16,
    request: { pd: u32, qp_type: u32, send_cq: u32, recv_cq: u32, srq: u32, sq_sig_all: u32, cap },
    reply: { handle: u32, qp_num: u32, cap, sends: queue, receives: queue },
  },
  /** `mask`: `enum ibv_qp_attr_mask`. The queues have other rings from now on where `moved` is 1. */
  MODIFY_QP: {
    number: 17,
    request: {
      handle: u32,
      mask: u32,
      attr: { ...qp_numbers, en_sqd_async_notify: u32, ...qp_timing },
      cap,
      ah_attr: address,
    },
    reply: { cap, moved: u32, sends: queue, receives: queue },
  },
  QUERY_QP: {
    number: 18,
    request: { handle: u32, mask: u32 },
    reply: {
      attr: { ...qp_numbers, sq_draining: u32, ...qp_timing },
      cap,
      ah_attr: address,
      sq_sig_all: u32,
    },
  },
  ATTACH_MCAST: { number: 19, request: { handle: u32, gid: GID_BYTES }, reply: {} },
  DETACH_MCAST: { number: 20, request: { handle: u32, gid: GID_BYTES }, reply: {} },
  /** BIND_MW names the window by `number`. */
  ALLOC_MW: { number: 21, request: { pd: u32, type: u32 }, reply: { handle: u32, rkey: u32, number: u32 } },
  /** An object of any kind. */
  DESTROY: { number: 22, request: { handle: u32 }, reply: {} },
  /** `struct ibv_ops_wr`; `tag_handle` of TAG_DEL, what follows it of TAG_ADD. The reply is the handle of what was added. */
  POST_SRQ_OP: {
    number: 23,
    request: {
      handle: u32,
      wr_id: u64,
      opcode: u32,
      flags: u32,
      unexpected_cnt: u32,
      tag_handle: u32,
      recv_wr_id: u64,
      tag: u64,
      mask: u64,
      sges: [sge, 32],
    },
    reply: { tag_handle: u32 },
  },
  /** Of `roce devinfo`, not of a program: the reply is JSON (`DeviceStatus`). */
  STATUS: { number: 24, request: {}, reply: {} },
  /** Of librdmacm: the connection becomes an event channel of /dev/infiniband/rdma_cm. */
  UCMA_OPEN: { number: 25, request: { network: u64, version: u32 }, reply: { token: TOKEN_BYTES } },
  /**
   * A command that was written to such a channel. `bytes` are its `in` bytes, and what it points to; `out` is the room for the response.
   * The reply, also with an errno: bytes that the program is to read from the channel, and from the one that an id leaves, and the
   * response, or the reason.
   */
  UCMA_COMMAND: {
    number: 26,
    request: { token: TOKEN_BYTES, command: u32, out: u32, in: u32, bytes: ['u8', 768] },
    reply: { own: u32, other: u32, response: ['u8', 4096] },
  },
  /** The context and all of its objects end; the reply comes when they have. */
  CLOSE: { number: 27, request: {}, reply: {} },
} as const satisfies Record<string, { number: number; request: Layout; reply: Layout }>;

export type CallName = keyof typeof CALLS;

/** Bits of CREATE_CQ: members of completions that not every queue has. */
export const CqBits = { TIMES: 1, TAGS: 2 } as const;

/** How REG_MR and REREG_MR have the device reach memory: pages of a common file, or the program's own. */
export const MemoryKind = { SHARED: 0, ATTACHED: 1 } as const;

type Value<F> = F extends 'u32'
  ? number
  : F extends 'u64'
    ? bigint
    : F extends number
      ? Uint8Array
      : F extends readonly ['u8', number]
        ? Uint8Array
        : F extends readonly [infer Element, number]
          ? readonly Value<Element>[]
          : { readonly [K in keyof F]: Value<F[K]> };

/** Values to write: an absent number is 0, an absent group or count of bytes zeros. */
type Given<F> = F extends 'u32'
  ? number | undefined
  : F extends Layout
    ? { readonly [K in keyof F]?: Given<F[K]> | undefined } | undefined
    : Value<F>;

export type Request<Name extends CallName> = Value<(typeof CALLS)[Name]['request']>;
export type Reply<Name extends CallName> = {
  readonly [K in keyof (typeof CALLS)[Name]['reply']]: Given<(typeof CALLS)[Name]['reply'][K]>;
};
/** The values of a layout as they are written. */
export type Values<L extends Layout> = { readonly [K in keyof L]?: Given<L[K]> | undefined };
/** Those that were read. */
export type Decoded<L extends Layout> = Value<L>;

/** The name of a call by its number. */
export const CALL_NAMES: Readonly<Record<number, CallName>> = Object.fromEntries(
  Object.entries(CALLS).map(([name, { number }]) => [number, name as CallName]),
);
