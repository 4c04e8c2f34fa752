export {
  ibv_attach_mcast,
  ibv_create_ah,
  ibv_create_ah_from_wc,
  ibv_destroy_ah,
  ibv_detach_mcast,
  ibv_init_ah_from_wc,
} from './address.ts';
export { ibv_advise_mr } from './advise.ts';
export {
  ibv_ack_cq_events,
  ibv_create_comp_channel,
  ibv_create_cq,
  ibv_destroy_comp_channel,
  ibv_destroy_cq,
  ibv_get_cq_event,
  ibv_poll_cq,
  ibv_req_notify_cq,
  ibv_resize_cq,
} from './completion.ts';
// biome-ignore lint/performance/noReExportAll: a constant there is a name of verbs.h, and public.
export * from './constants.ts';
export {
  ibv_attach_counters_point_flow,
  type ibv_counter_attach_attr,
  ibv_counters,
  type ibv_counters_init_attr,
  ibv_create_counters,
  ibv_destroy_counters,
  ibv_read_counters,
} from './counters.ts';
export {
  ibv_cq_ex,
  ibv_cq_ex_to_cq,
  ibv_create_cq_ex,
  ibv_end_poll,
  ibv_next_poll,
  ibv_start_poll,
  ibv_wc_read_byte_len,
  ibv_wc_read_completion_ts,
  ibv_wc_read_completion_wallclock_ns,
  ibv_wc_read_dlid_path_bits,
  ibv_wc_read_imm_data,
  ibv_wc_read_invalidated_rkey,
  ibv_wc_read_opcode,
  ibv_wc_read_qp_num,
  ibv_wc_read_sl,
  ibv_wc_read_slid,
  ibv_wc_read_src_qp,
  ibv_wc_read_tm_info,
  ibv_wc_read_vendor_err,
  ibv_wc_read_wc_flags,
} from './cq-ex.ts';
export {
  ibv_close_device,
  ibv_flow_label_to_udp_sport,
  ibv_fork_init,
  ibv_free_device_list,
  ibv_get_device_guid,
  ibv_get_device_index,
  ibv_get_device_list,
  ibv_get_device_name,
  ibv_get_pkey_index,
  ibv_is_fork_initialized,
  ibv_open_device,
  ibv_query_gid,
  ibv_query_gid_ex,
  ibv_query_gid_table,
  ibv_query_gid_type,
  ibv_query_pkey,
  ibv_query_port,
} from './device.ts';
export { ibv_query_device, ibv_query_device_ex } from './device-attr.ts';
export {
  ibv_alloc_parent_domain,
  ibv_alloc_td,
  ibv_dealloc_td,
  ibv_parent_domain,
  type ibv_parent_domain_init_attr,
  ibv_td,
  type ibv_td_init_attr,
} from './domains.ts';
export { IBV_GID_TYPE_SYSFS_IB_ROCE_V1, IBV_GID_TYPE_SYSFS_ROCE_V2 } from './driver-constants.ts';
export { type ibv_ece, ibv_query_ece, ibv_set_ece } from './ece.ts';
export { errno, errorOf, lastError, strerror } from './errno.ts';
export { ibv_ack_async_event, ibv_get_async_event } from './events.ts';
export { closeWithoutFlows, ibv_create_flow, ibv_destroy_flow, ibv_flow } from './flow.ts';
export type * from './flow-specs.ts';
export {
  ibv_alloc_mw,
  ibv_alloc_null_mr,
  ibv_alloc_pd,
  ibv_bind_mw,
  ibv_dealloc_mw,
  ibv_dealloc_pd,
  ibv_dereg_mr,
  ibv_inc_rkey,
  ibv_reg_mr,
  ibv_reg_mr_iova,
  ibv_rereg_mr,
} from './memory.ts';
export {
  ibv_ah,
  ibv_comp_channel,
  ibv_context,
  ibv_cq,
  ibv_device,
  ibv_mr,
  ibv_mw,
  ibv_pd,
  ibv_qp,
  ibv_srq,
  ibv_xrcd,
} from './objects.ts';
export {
  IBV_ACCESS_FLUSH_GLOBAL,
  IBV_ACCESS_FLUSH_PERSISTENT,
  IBV_DEVICE_ATOMIC_WRITE,
  IBV_DEVICE_FLUSH_GLOBAL,
  IBV_DEVICE_FLUSH_PERSISTENT,
  IBV_FLUSH_GLOBAL,
  IBV_FLUSH_MR,
  IBV_FLUSH_PERSISTENT,
  IBV_FLUSH_RANGE,
  IBV_QP_EX_WITH_ATOMIC_WRITE,
  IBV_QP_EX_WITH_FLUSH,
  IBV_WC_ATOMIC_WRITE,
  IBV_WC_FLUSH,
  IBV_WR_ATOMIC_WRITE,
  IBV_WR_FLUSH,
} from './placement-constants.ts';
export {
  ibv_create_qp,
  ibv_create_qp_ex,
  ibv_create_srq,
  ibv_destroy_qp,
  ibv_destroy_srq,
  ibv_get_srq_num,
  ibv_modify_qp,
  ibv_modify_qp_rate_limit,
  ibv_modify_srq,
  ibv_query_qp,
  ibv_query_qp_data_in_order,
  ibv_query_srq,
} from './queue-pair.ts';
export { ibv_rate_to_mbps, ibv_rate_to_mult, mbps_to_ibv_rate, mult_to_ibv_rate } from './rates.ts';
// biome-ignore lint/performance/noReExportAll: that is a list of names.
export * from './rdma/index.ts';
export { IBV_VALUES_MASK_RAW_CLOCK, ibv_query_rt_values_ex, type ibv_values_ex } from './rt-values.ts';
export {
  ibv_event_type_str,
  ibv_node_type_str,
  ibv_port_state_str,
  ibv_wc_status_str,
  ibv_wr_opcode_str,
} from './strings.ts';
export type * from './structs.ts';
export { ibv_post_srq_ops } from './tag-matching.ts';
export { ibv_post_recv, ibv_post_send, ibv_post_srq_recv } from './work-request.ts';
export {
  ibv_qp_ex,
  ibv_qp_to_qp_ex,
  ibv_wr_abort,
  ibv_wr_atomic_cmp_swp,
  ibv_wr_atomic_fetch_add,
  ibv_wr_atomic_write,
  ibv_wr_bind_mw,
  ibv_wr_complete,
  ibv_wr_flush,
  ibv_wr_local_inv,
  ibv_wr_rdma_read,
  ibv_wr_rdma_write,
  ibv_wr_rdma_write_imm,
  ibv_wr_send,
  ibv_wr_send_imm,
  ibv_wr_send_inv,
  ibv_wr_set_inline_data,
  ibv_wr_set_inline_data_list,
  ibv_wr_set_sge,
  ibv_wr_set_sge_list,
  ibv_wr_set_ud_addr,
  ibv_wr_set_xrc_srqn,
  ibv_wr_start,
} from './wr.ts';
export { ibv_close_xrcd, ibv_create_srq_ex, ibv_open_qp, ibv_open_xrcd } from './xrc.ts';
