// Queue pairs: created, modified, queried, attached to groups.
#include "roce.h"

// Elements of a list that the device takes at most.
#define MAX_SGE 32

static struct roce_cap cap_of(const struct ibv_qp_cap *cap) {
  return (struct roce_cap){
      .max_send_wr = cap->max_send_wr,
      .max_recv_wr = cap->max_recv_wr,
      .max_send_sge = cap->max_send_sge,
      .max_recv_sge = cap->max_recv_sge,
      .max_inline_data = cap->max_inline_data,
  };
}

static void get_cap(const struct roce_cap *from, struct ibv_qp_cap *cap) {
  *cap = (struct ibv_qp_cap){
      .max_send_wr = from->max_send_wr,
      .max_recv_wr = from->max_recv_wr,
      .max_send_sge = from->max_send_sge,
      .max_recv_sge = from->max_recv_sge,
      .max_inline_data = from->max_inline_data,
  };
}

static void take_queues(struct roce_qp *own, const struct roce_queue_place *sends, const struct roce_queue_place *receives,
                        const struct ibv_qp_cap *cap) {
  struct roce_context *r = roce_of(own->ex.qp_base.context);
  own->max_sge = cap->max_send_sge > 0 ? cap->max_send_sge : 1;
  own->max_recv_sge = cap->max_recv_sge;
  own->max_inline = cap->max_inline_data;
  roce_take_queue(r, sends, &own->sends);
  if (own->ex.qp_base.srq == NULL) roce_take_queue(r, receives, &own->receives);
}

struct ibv_qp *roce_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
  // As rxe: where elements of a list have room, inline data has it, too. Programs take it without having asked.
  struct ibv_qp_cap cap = attr->cap;
  const uint32_t room = cap.max_send_sge * (uint32_t)sizeof(struct ibv_sge);
  struct roce_create_qp_request request;
  struct roce_create_qp_reply reply;
  struct roce_qp *own;
  struct ibv_qp *qp;
  int error;
  if (cap.max_inline_data < room && cap.max_send_sge <= MAX_SGE) cap.max_inline_data = room;
  if (attr->send_cq == NULL || attr->recv_cq == NULL) {
    roce_fails("ibv_create_qp", EINVAL, "send_cq or recv_cq: none");
    return NULL;
  }
  own = calloc(1, sizeof *own);
  if (own == NULL) return NULL;
  qp = &own->ex.qp_base;
  request = (struct roce_create_qp_request){
      .pd = pd->handle,
      .qp_type = attr->qp_type,
      .send_cq = attr->send_cq->handle,
      .recv_cq = attr->recv_cq->handle,
      .srq = attr->srq != NULL ? attr->srq->handle : 0,
      .sq_sig_all = attr->sq_sig_all != 0,
      .cap = cap_of(&cap),
  };
  error = roce_ask_create_qp(roce_of(pd->context), &request, &reply);
  if (error != 0) {
    free(own);
    errno = error;
    return NULL;
  }
  qp->context = pd->context;
  qp->qp_context = attr->qp_context;
  qp->pd = pd;
  qp->send_cq = attr->send_cq;
  qp->recv_cq = attr->recv_cq;
  qp->srq = attr->srq;
  qp->qp_type = attr->qp_type;
  qp->state = IBV_QPS_RESET;
  qp->handle = reply.handle;
  qp->qp_num = reply.qp_num;
  get_cap(&reply.cap, &attr->cap);
  take_queues(own, &reply.sends, &reply.receives, &attr->cap);
  pthread_mutex_init(&own->sends.lock, NULL);
  pthread_mutex_init(&own->receives.lock, NULL);
  pthread_mutex_init(&qp->mutex, NULL);
  pthread_cond_init(&qp->cond, NULL);
  roce_add(roce_of(pd->context), &own->object, qp->handle, qp);
  return qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) { return roce_create_qp(pd, attr); }

int ibv_destroy_qp(struct ibv_qp *qp) {
  struct roce_qp *own = (struct roce_qp *)qp;
  int error;
  error = roce_destroy(qp->context, qp->handle);
  if (error != 0) return error;
  roce_remove(roce_of(qp->context), &own->object);
  pthread_mutex_lock(&qp->mutex);
  while (qp->events_completed != own->object.async_reported) pthread_cond_wait(&qp->cond, &qp->mutex);
  pthread_mutex_unlock(&qp->mutex);
  free(own->sge);
  free(own->inline_data);
  free(own);
  return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask) {
  struct roce_qp *own = (struct roce_qp *)qp;
  // Members that are not in the mask may be uninitialized; the struct of older programs ends before rate_limit.
  static const struct ibv_ah_attr none;
  const struct roce_modify_qp_request request = {
      .handle = qp->handle,
      .mask = (uint32_t)mask,
      .attr =
          {
              .qp_state = a->qp_state,
              .cur_qp_state = a->cur_qp_state,
              .path_mtu = a->path_mtu,
              .path_mig_state = a->path_mig_state,
              .qkey = a->qkey,
              .rq_psn = a->rq_psn,
              .sq_psn = a->sq_psn,
              .dest_qp_num = a->dest_qp_num,
              .qp_access_flags = a->qp_access_flags,
              .pkey_index = a->pkey_index,
              .en_sqd_async_notify = a->en_sqd_async_notify,
              .max_rd_atomic = a->max_rd_atomic,
              .max_dest_rd_atomic = a->max_dest_rd_atomic,
              .min_rnr_timer = a->min_rnr_timer,
              .port_num = a->port_num,
              .timeout = a->timeout,
              .retry_cnt = a->retry_cnt,
              .rnr_retry = a->rnr_retry,
              .rate_limit = (mask & IBV_QP_RATE_LIMIT) != 0 ? a->rate_limit : 0,
          },
      .cap = cap_of(&a->cap),
      .ah_attr = roce_address_of((mask & IBV_QP_AV) != 0 ? &a->ah_attr : &none),
  };
  struct roce_modify_qp_reply reply;
  int error;
  // A thread that the child does not have may hold the locks.
  if (!roce_may_call(roce_of(qp->context))) return FAILS(EPERM, OF_PARENT);
  if ((mask & IBV_QP_CAP) != 0) {
    pthread_mutex_lock(&own->sends.lock);
    pthread_mutex_lock(&own->receives.lock);
  }
  error = roce_ask_modify_qp(roce_of(qp->context), &request, &reply);
  if ((mask & IBV_QP_CAP) != 0) {
    if (error == 0) get_cap(&reply.cap, &a->cap);
    if (error == 0 && reply.moved) take_queues(own, &reply.sends, &reply.receives, &a->cap);
    pthread_mutex_unlock(&own->receives.lock);
    pthread_mutex_unlock(&own->sends.lock);
  }
  if (error != 0 || (mask & IBV_QP_STATE) == 0) return error;
  qp->state = a->qp_state;
  if (a->qp_state == IBV_QPS_RESET) {
    roce_forget_completions(qp->recv_cq, qp->qp_num);
    if (qp->send_cq != qp->recv_cq) roce_forget_completions(qp->send_cq, qp->qp_num);
  }
  return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init) {
  const struct roce_query_qp_request request = {.handle = qp->handle, .mask = (uint32_t)mask};
  struct roce_query_qp_reply reply;
  const int error = roce_ask_query_qp(roce_of(qp->context), &request, &reply);
  if (error != 0) return error;
  *a = (struct ibv_qp_attr){
      .qp_state = reply.attr.qp_state,
      .cur_qp_state = reply.attr.cur_qp_state,
      .path_mtu = reply.attr.path_mtu,
      .path_mig_state = reply.attr.path_mig_state,
      .qkey = reply.attr.qkey,
      .rq_psn = reply.attr.rq_psn,
      .sq_psn = reply.attr.sq_psn,
      .dest_qp_num = reply.attr.dest_qp_num,
      .qp_access_flags = reply.attr.qp_access_flags,
      .pkey_index = (uint16_t)reply.attr.pkey_index,
      .sq_draining = (uint8_t)reply.attr.sq_draining,
      .max_rd_atomic = (uint8_t)reply.attr.max_rd_atomic,
      .max_dest_rd_atomic = (uint8_t)reply.attr.max_dest_rd_atomic,
      .min_rnr_timer = (uint8_t)reply.attr.min_rnr_timer,
      .port_num = (uint8_t)reply.attr.port_num,
      .timeout = (uint8_t)reply.attr.timeout,
      .retry_cnt = (uint8_t)reply.attr.retry_cnt,
      .rnr_retry = (uint8_t)reply.attr.rnr_retry,
      .rate_limit = reply.attr.rate_limit,
  };
  get_cap(&reply.cap, &a->cap);
  roce_get_address(&reply.ah_attr, &a->ah_attr);
  *init = (struct ibv_qp_init_attr){
      .qp_context = qp->qp_context,
      .send_cq = qp->send_cq,
      .recv_cq = qp->recv_cq,
      .srq = qp->srq,
      .cap = a->cap,
      .qp_type = qp->qp_type,
      .sq_sig_all = (int)reply.sq_sig_all,
  };
  if ((mask & IBV_QP_STATE) != 0) qp->state = a->qp_state;
  return 0;
}

// Bytes of a message may be seen in any order.
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags) {
  (void)qp, (void)opcode, (void)flags;
  return 0;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
  struct roce_attach_mcast_request request = {.handle = qp->handle};
  (void)lid;
  memcpy(request.gid, gid->raw, sizeof request.gid);
  return roce_ask_attach_mcast(roce_of(qp->context), &request);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
  struct roce_detach_mcast_request request = {.handle = qp->handle};
  (void)lid;
  memcpy(request.gid, gid->raw, sizeof request.gid);
  return roce_ask_detach_mcast(roce_of(qp->context), &request);
}
