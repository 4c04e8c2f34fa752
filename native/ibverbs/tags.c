// Tag matching: operations on the list of a shared receive queue (ibv_post_srq_ops(3)). Each is a call.
#include "roce.h"

static int post_operation(struct ibv_srq *srq, struct ibv_ops_wr *wr) {
  struct roce_post_srq_op_request request = {
      .handle = srq->handle,
      .wr_id = wr->wr_id,
      .opcode = wr->opcode,
      .flags = (uint32_t)wr->flags,
      .unexpected_cnt = wr->tm.unexpected_cnt,
      .tag_handle = wr->opcode == IBV_WR_TAG_DEL ? wr->tm.handle : 0,
  };
  struct roce_post_srq_op_reply reply;
  const int adds = wr->opcode == IBV_WR_TAG_ADD;
  int error;
  if (adds) {
    const unsigned count = (unsigned)wr->tm.add.num_sge;
    if (wr->tm.add.num_sge < 0 || count > ((struct roce_srq *)srq)->max_sge || count > COUNT(request.sges))
      return roce_fails("ibv_post_srq_ops", EINVAL, "tm.add.num_sge: more than the queue has room for");
    request.recv_wr_id = wr->tm.add.recv_wr_id;
    request.tag = wr->tm.add.tag;
    request.mask = wr->tm.add.mask;
    for (const struct ibv_sge *sge = wr->tm.add.sg_list; request.sges_count < count; sge++)
      request.sges[request.sges_count++] = (struct roce_sge){.addr = sge->addr, .length = sge->length, .lkey = sge->lkey};
  }
  error = roce_ask_post_srq_op(roce_of(srq->context), &request, &reply);
  if (error == 0 && adds) wr->tm.handle = reply.tag_handle;
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
