/**
 * The plain structs of `<infiniband/verbs.h>`: the caller makes them, as object literals. Members have C's names;
 * one that is left out counts as 0, as in a C initializer. 64-bit integers are bigints; enums and flags the
 * numbers of constants.ts.
 */
import type {
  ibv_ah,
  ibv_comp_channel,
  ibv_cq,
  ibv_mr,
  ibv_mw,
  ibv_pd,
  ibv_qp,
  ibv_srq,
  ibv_xrcd,
} from './objects.ts';

/** Memory as the device sees it: a buffer or a view of one. */
export type Memory = ArrayBufferLike | ArrayBufferView;

/** `union ibv_gid`: 16 bytes, `::ffff:a.b.c.d` for IPv4. */
export interface ibv_gid {
  raw: Uint8Array;
}

/** `struct ibv_gid_entry`, without `ndev_ifindex`: the interface is `context.device.interface`. */
export interface ibv_gid_entry {
  gid: ibv_gid;
  gid_index: number;
  port_num: number;
  /** IBV_GID_TYPE_ROCE_V2. */
  gid_type: number;
}

/** `struct ibv_global_route`. */
export interface ibv_global_route {
  dgid: ibv_gid;
  /** 20 bits. */
  flow_label?: number;
  sgid_index?: number;
  /** TTL, 0 … 255: with 0 as with 1 packets do not leave the subnet. */
  hop_limit?: number;
  /** DSCP << 2 | ECN. */
  traffic_class?: number;
}

/** `struct ibv_ah_attr`. `is_global` has to be 1: RoCE has no route without a GRH. LIDs are kept, not used. */
export interface ibv_ah_attr {
  grh: ibv_global_route;
  dlid?: number;
  sl?: number;
  src_path_bits?: number;
  static_rate?: number;
  is_global?: number | boolean;
  /** 1. */
  port_num?: number;
}

/** `struct ibv_qp_cap`. */
export interface ibv_qp_cap {
  /** Requests that may be outstanding. */
  max_send_wr?: number;
  max_recv_wr?: number;
  /** Scatter/gather elements of a request. */
  max_send_sge?: number;
  max_recv_sge?: number;
  /** Bytes. */
  max_inline_data?: number;
}

/** `struct ibv_qp_init_attr`. */
export interface ibv_qp_init_attr {
  qp_context?: unknown;
  send_cq: ibv_cq;
  /** Not needed with IBV_QPT_XRC_SEND. */
  recv_cq?: ibv_cq | null;
  srq?: ibv_srq | null;
  /** Filled with what was created: at least what was asked for. */
  cap: ibv_qp_cap;
  /** IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET or IBV_QPT_XRC_SEND. */
  qp_type: number;
  sq_sig_all?: number | boolean;
}

/** `struct ibv_qp_init_attr_ex`. */
export interface ibv_qp_init_attr_ex extends Partial<Omit<ibv_qp_init_attr, 'qp_type'>> {
  /** One of the same, or IBV_QPT_XRC_RECV. */
  qp_type: number;
  /** IBV_QP_INIT_ATTR_PD, and IBV_QP_INIT_ATTR_SEND_OPS_FLAGS for `ibv_wr_…`; of IBV_QPT_XRC_RECV IBV_QP_INIT_ATTR_XRCD alone. */
  comp_mask: number;
  pd?: ibv_pd;
  /** Of IBV_QPT_XRC_RECV: the domain. */
  xrcd?: ibv_xrcd;
  /** IBV_QP_EX_WITH_… bits. */
  send_ops_flags?: number | bigint;
}

/** `struct ibv_cq_init_attr_ex`. */
export interface ibv_cq_init_attr_ex {
  /** Completions that there has to be room for. */
  cqe: number;
  cq_context?: unknown;
  channel?: ibv_comp_channel | null;
  /** 0. */
  comp_vector?: number;
  /** IBV_WC_EX_WITH_… bits. */
  wc_flags?: number | bigint;
  /** IBV_CQ_INIT_ATTR_MASK_FLAGS for `flags`, IBV_CQ_INIT_ATTR_MASK_PD for `parent_domain`. */
  comp_mask?: number;
  /** IBV_CREATE_CQ_ATTR_SINGLE_THREADED. */
  flags?: number;
  /** Made by `ibv_alloc_parent_domain`. */
  parent_domain?: ibv_pd;
}

/** `struct ibv_data_buf`. */
export interface ibv_data_buf {
  addr: Memory;
  /** Bytes. */
  length: number;
}

/** `struct ibv_qp_attr`. A query leaves `undefined` what is not valid in the state (ibv_query_qp(3)). */
export interface ibv_qp_attr {
  qp_state?: number;
  cur_qp_state?: number;
  /** IBV_MTU_256 … IBV_MTU_4096. */
  path_mtu?: number;
  path_mig_state?: number;
  qkey?: number;
  /** 24 bits; a query gives the next one. */
  rq_psn?: number;
  /** 24 bits; a query gives the next one. */
  sq_psn?: number;
  dest_qp_num?: number;
  /** IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC. */
  qp_access_flags?: number;
  cap?: ibv_qp_cap;
  ah_attr?: ibv_ah_attr;
  alt_ah_attr?: ibv_ah_attr;
  pkey_index?: number;
  alt_pkey_index?: number;
  en_sqd_async_notify?: number | boolean;
  sq_draining?: number;
  max_rd_atomic?: number;
  max_dest_rd_atomic?: number;
  /** Code 0 … 31. */
  min_rnr_timer?: number;
  port_num?: number;
  /** Code 0 … 31: 4.096 µs · 2^timeout; 0 waits for ever. */
  timeout?: number;
  /** 0 … 7. */
  retry_cnt?: number;
  /** 0 … 7; 7 is for ever. */
  rnr_retry?: number;
  alt_port_num?: number;
  alt_timeout?: number;
  /** kbps; 0 for no limit. */
  rate_limit?: number;
}

/** `struct ibv_srq_attr`. */
export interface ibv_srq_attr {
  max_wr?: number;
  max_sge?: number;
  srq_limit?: number;
}

/** `struct ibv_srq_init_attr`; `attr` is filled with what was created. */
export interface ibv_srq_init_attr {
  srq_context?: unknown;
  attr: ibv_srq_attr;
}

/** `struct ibv_sge`. */
export interface ibv_sge {
  /** The memory itself, which has to lie in the region of `lkey`; or an address in the terms of that region. */
  addr: bigint | number | Memory;
  /** Bytes. */
  length: number;
  lkey?: number;
}

/** `struct ibv_mw_bind_info`. */
export interface ibv_mw_bind_info {
  mr: ibv_mr;
  /** As in `ibv_sge`. */
  addr: bigint | number | Memory;
  /** Bytes; 0 binds to nothing. */
  length: bigint | number;
  mw_access_flags?: number;
}

/** `struct ibv_mw_bind`. */
export interface ibv_mw_bind {
  wr_id?: bigint | number;
  send_flags?: number;
  bind_info: ibv_mw_bind_info;
}

/** `struct ibv_send_wr`. `imm_data` is the number that travels in network order: leave htonl out. */
export interface ibv_send_wr {
  wr_id?: bigint | number;
  next?: ibv_send_wr | null;
  sg_list?: readonly ibv_sge[];
  /** All of `sg_list` unless given. */
  num_sge?: number;
  opcode: number;
  send_flags?: number;
  imm_data?: number;
  invalidate_rkey?: number;
  wr?: {
    rdma?: { remote_addr: bigint | number; rkey: number };
    atomic?: {
      remote_addr: bigint | number;
      compare_add: bigint | number;
      swap?: bigint | number;
      rkey: number;
    };
    ud?: { ah: ibv_ah; remote_qpn: number; remote_qkey: number };
  };
  /** Of IBV_QPT_XRC_SEND: which SRQ of the peer it is for (`ibv_get_srq_num` there). */
  qp_type?: { xrc: { remote_srqn: number } };
  bind_mw?: { mw: ibv_mw; rkey: number; bind_info: ibv_mw_bind_info };
}

/** `struct ibv_xrcd_init_attr`. */
export interface ibv_xrcd_init_attr {
  /** IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS. */
  comp_mask: number;
  /** A file whose inode names the domain; −1 for a domain of one's own. */
  fd: number;
  /** O_CREAT, O_EXCL. */
  oflags: number;
}

/** `struct ibv_srq_init_attr_ex`. */
export interface ibv_srq_init_attr_ex extends ibv_srq_init_attr {
  /** IBV_SRQ_INIT_ATTR_… bits. */
  comp_mask: number;
  /** IBV_SRQT_BASIC, IBV_SRQT_XRC or IBV_SRQT_TM. */
  srq_type?: number;
  pd?: ibv_pd;
  /** IBV_SRQT_XRC. */
  xrcd?: ibv_xrcd;
  /** IBV_SRQT_XRC, IBV_SRQT_TM: where its receives complete, of the latter operations, too. */
  cq?: ibv_cq;
  /** IBV_SRQT_TM: buffers in its list; operations under way, of which each is done when it is posted. */
  tm_cap?: { max_num_tags: number; max_ops?: number };
}

/** `struct ibv_ops_wr`. */
export interface ibv_ops_wr {
  wr_id?: bigint | number;
  next?: ibv_ops_wr | null;
  /** IBV_WR_TAG_… */
  opcode: number;
  /** IBV_OPS_… bits. */
  flags?: number;
  tm?: {
    unexpected_cnt?: number;
    /** Of IBV_WR_TAG_DEL; IBV_WR_TAG_ADD fills it in. */
    handle?: number;
    add?: {
      recv_wr_id?: bigint | number;
      sg_list?: readonly ibv_sge[];
      /** All of `sg_list` unless given. */
      num_sge?: number;
      tag: bigint | number;
      mask: bigint | number;
    };
  };
}

/** `struct ibv_qp_open_attr`. */
export interface ibv_qp_open_attr {
  /** IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD, and _CONTEXT, _TYPE. */
  comp_mask: number;
  qp_num: number;
  xrcd: ibv_xrcd;
  qp_context?: unknown;
  /** IBV_QPT_XRC_RECV. */
  qp_type?: number;
}

/** `struct ibv_recv_wr`. */
export interface ibv_recv_wr {
  wr_id?: bigint | number;
  next?: ibv_recv_wr | null;
  sg_list?: readonly ibv_sge[];
  /** All of `sg_list` unless given. */
  num_sge?: number;
}

/** `struct ibv_wc`. `opcode` and below are valid where `status` is IBV_WC_SUCCESS, but for `qp_num`. */
export interface ibv_wc {
  wr_id: bigint;
  status: number;
  opcode: number;
  vendor_err: number;
  /** Bytes; of a datagram with the 40 bytes before its payload. */
  byte_len: number;
  /** Valid with IBV_WC_WITH_IMM in `wc_flags`. */
  imm_data: number;
  /** Valid with IBV_WC_WITH_INV in `wc_flags`. */
  invalidated_rkey: number;
  qp_num: number;
  src_qp: number;
  wc_flags: number;
  pkey_index: number;
  slid: number;
  sl: number;
  dlid_path_bits: number;
}

/** `struct ibv_async_event`: filled by `ibv_get_async_event`. */
export interface ibv_async_event {
  event_type?: number;
  element?: { cq?: ibv_cq; qp?: ibv_qp; srq?: ibv_srq; port_num?: number };
}

/** `struct ibv_device_attr`. */
export interface ibv_device_attr {
  fw_ver: string;
  node_guid: bigint;
  sys_image_guid: bigint;
  max_mr_size: bigint;
  page_size_cap: bigint;
  vendor_id: number;
  vendor_part_id: number;
  hw_ver: number;
  max_qp: number;
  max_qp_wr: number;
  device_cap_flags: number;
  max_sge: number;
  max_sge_rd: number;
  max_cq: number;
  max_cqe: number;
  max_mr: number;
  max_pd: number;
  max_qp_rd_atom: number;
  max_ee_rd_atom: number;
  max_res_rd_atom: number;
  max_qp_init_rd_atom: number;
  max_ee_init_rd_atom: number;
  atomic_cap: number;
  max_ee: number;
  max_rdd: number;
  max_mw: number;
  max_raw_ipv6_qp: number;
  max_raw_ethy_qp: number;
  max_mcast_grp: number;
  max_mcast_qp_attach: number;
  max_total_mcast_qp_attach: number;
  max_ah: number;
  max_fmr: number;
  max_map_per_fmr: number;
  max_srq: number;
  max_srq_wr: number;
  max_srq_sge: number;
  max_pkeys: number;
  local_ca_ack_delay: number;
  phys_port_cnt: number;
}

/** `struct ibv_query_device_ex_input`: for extensions to come. */
export interface ibv_query_device_ex_input {
  /** 0. */
  comp_mask?: number;
}

/** `struct ibv_device_attr_ex`. Masks of types of queue pairs have bit `1 << IBV_QPT_…`. */
export interface ibv_device_attr_ex {
  orig_attr: ibv_device_attr;
  comp_mask: number;
  odp_caps: {
    general_caps: bigint;
    per_transport_caps: { rc_odp_caps: number; uc_odp_caps: number; ud_odp_caps: number };
  };
  completion_timestamp_mask: bigint;
  /** kHz. */
  hca_core_clock: bigint;
  /** `device_cap_flags` with the bits that do not fit there. */
  device_cap_flags_ex: bigint;
  tso_caps: { max_tso: number; supported_qpts: number };
  rss_caps: {
    supported_qpts: number;
    max_rwq_indirection_tables: number;
    max_rwq_indirection_table_size: number;
    rx_hash_fields_mask: bigint;
    rx_hash_function: number;
  };
  max_wq_type_rq: number;
  /** kbps. */
  packet_pacing_caps: { qp_rate_limit_min: number; qp_rate_limit_max: number; supported_qpts: number };
  raw_packet_caps: number;
  tm_caps: {
    max_rndv_hdr_size: number;
    max_num_tags: number;
    flags: number;
    max_ops: number;
    max_sge: number;
  };
  cq_mod_caps: { max_cq_count: number; max_cq_period: number };
  /** Bytes. */
  max_dm_size: bigint;
  pci_atomic_caps: { fetch_add: number; swap: number; compare_swap: number };
  xrc_odp_caps: number;
  phys_port_cnt_ex: number;
}

/** `struct ibv_port_attr`. */
export interface ibv_port_attr {
  state: number;
  max_mtu: number;
  active_mtu: number;
  gid_tbl_len: number;
  port_cap_flags: number;
  max_msg_sz: number;
  bad_pkey_cntr: number;
  qkey_viol_cntr: number;
  pkey_tbl_len: number;
  lid: number;
  sm_lid: number;
  lmc: number;
  max_vl_num: number;
  sm_sl: number;
  subnet_timeout: number;
  init_type_reply: number;
  active_width: number;
  active_speed: number;
  phys_state: number;
  link_layer: number;
  flags: number;
  port_cap_flags2: number;
}
