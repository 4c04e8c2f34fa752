// Tag matching: operations on the list of a shared receive queue (ibv_post_srq_ops(3)). Each is a call.
#include "roce.h"

static int post_operation(struct ibv_srq *srq, struct ibv_ops_wr *wr) {
  struct roce_message m;
  int error, adds = wr->opcode == IBV_WR_TAG_ADD;
  if (adds && (wr->tm.add.num_sge < 0 || (unsigned)wr->tm.add.num_sge > ((struct roce_srq *)srq)->max_sge)) return EINVAL;
  roce_begin(&m);
  roce_u32(&m, srq->handle);
  roce_u64(&m, wr->wr_id);
  roce_u32(&m, wr->opcode);
  roce_u32(&m, (uint32_t)wr->flags);
  roce_u32(&m, wr->tm.unexpected_cnt);
  roce_u32(&m, wr->opcode == IBV_WR_TAG_DEL ? wr->tm.handle : 0);
  if (adds) {
    roce_u64(&m, wr->tm.add.recv_wr_id);
    roce_u64(&m, wr->tm.add.tag);
    roce_u64(&m, wr->tm.add.mask);
    roce_u32(&m, (uint32_t)wr->tm.add.num_sge);
    for (int i = 0; i < wr->tm.add.num_sge; i++) {
      roce_u64(&m, wr->tm.add.sg_list[i].addr);
      roce_u32(&m, wr->tm.add.sg_list[i].length);
      roce_u32(&m, wr->tm.add.sg_list[i].lkey);
    }
  }
  error = roce_call(roce_of(srq->context), ROCE_POST_SRQ_OP, &m);
  if (error == 0 && adds) wr->tm.handle = roce_get32(&m);
  roce_end(&m);
  return error;
}

static int post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad) {
  for (; wr != NULL; wr = wr->next) {
    int error = post_operation(srq, wr);
    if (error == 0) continue;
    *bad = wr;
    return error;
  }
  return 0;
}

void roce_set_tag_ops(struct roce_context *r) { r->verbs.post_srq_ops = post_srq_ops; }
