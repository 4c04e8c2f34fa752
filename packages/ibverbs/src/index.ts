export {
  ibv_attach_mcast,
  ibv_create_ah,
  ibv_create_ah_from_wc,
  ibv_destroy_ah,
  ibv_detach_mcast,
  ibv_init_ah_from_wc,
} from './address.ts';
export * from './advise.ts';
export * from './completion.ts';
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
export * from './cq-ex.ts';
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
export * from './driver-constants.ts';
export * from './ece.ts';
export { errno, errorOf, lastError, strerror } from './errno.ts';
export { ibv_ack_async_event, ibv_get_async_event } from './events.ts';
export * from './flow.ts';
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
export * from './placement-constants.ts';
export * from './queue-pair.ts';
export * from './rates.ts';
export * from './rdma/index.ts';
export * from './rt-values.ts';
export * from './strings.ts';
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
export * from './xrc.ts';
