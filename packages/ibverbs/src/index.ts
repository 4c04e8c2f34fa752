export {
  ibv_attach_mcast,
  ibv_create_ah,
  ibv_create_ah_from_wc,
  ibv_destroy_ah,
  ibv_detach_mcast,
  ibv_init_ah_from_wc,
} from './address.ts';
export * from './completion.ts';
export * from './constants.ts';
export {
  ibv_close_device,
  ibv_fork_init,
  ibv_free_device_list,
  ibv_get_device_guid,
  ibv_get_device_list,
  ibv_get_device_name,
  ibv_get_pkey_index,
  ibv_open_device,
  ibv_query_device,
  ibv_query_gid,
  ibv_query_gid_ex,
  ibv_query_gid_table,
  ibv_query_pkey,
  ibv_query_port,
} from './device.ts';
export { errno, lastError, strerror } from './errno.ts';
export * from './events.ts';
export {
  ibv_alloc_mw,
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
} from './objects.ts';
export * from './queue-pair.ts';
export * from './rdma/index.ts';
export * from './strings.ts';
export type * from './structs.ts';
export { ibv_post_recv, ibv_post_send, ibv_post_srq_recv } from './work-request.ts';
