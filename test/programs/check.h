// Programs of the tests end at the first thing that is wrong, and print it. Those that include infiniband/verbs.h before this connect queue pairs here.
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(that)                                                              \
  do {                                                                           \
    if (!(that)) {                                                               \
      printf("line %d: %s (errno %d: %s)\n", __LINE__, #that, errno, strerror(errno)); \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)

#ifdef INFINIBAND_VERBS_H
// Takes a new queue pair of RC to RTS, connected to queue pair `to` at that address. The peer may do everything.
static inline void connect_qp(struct ibv_qp *qp, uint32_t to, union ibv_gid gid) {
  const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = all};
  CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to, .max_dest_rd_atomic = 16,
                           .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1}};
  a.ah_attr.grh.dgid = gid;
  a.ah_attr.grh.hop_limit = 64;
  CHECK(ibv_modify_qp(qp, &a,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                          IBV_QP_MIN_RNR_TIMER) == 0);
  a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16};
  CHECK(ibv_modify_qp(qp, &a,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}
#endif
