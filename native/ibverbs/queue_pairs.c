// Queue pairs: created, modified, queried, attached to groups.
#include "roce.h"

// Elements of a list that the device takes at most.
#define MAX_SGE 32

static void fill_cap(struct roce_message *m, const struct ibv_qp_cap *cap) {
  roce_u32(m, cap->max_send_wr);
  roce_u32(m, cap->max_recv_wr);
  roce_u32(m, cap->max_send_sge);
  roce_u32(m, cap->max_recv_sge);
  roce_u32(m, cap->max_inline_data);
}

static void get_cap(struct roce_message *m, struct ibv_qp_cap *cap) {
  cap->max_send_wr = roce_get32(m);
  cap->max_recv_wr = roce_get32(m);
  cap->max_send_sge = roce_get32(m);
  cap->max_recv_sge = roce_get32(m);
  cap->max_inline_data = roce_get32(m);
}

static void take_queues(struct roce_qp *own, struct roce_message *m, const struct ibv_qp_cap *cap) {
  struct roce_context *r = roce_of(own->ex.qp_base.context);
  own->max_sge = cap->max_send_sge > 0 ? cap->max_send_sge : 1;
  own->max_recv_sge = cap->max_recv_sge;
  own->max_inline = cap->max_inline_data;
  roce_get_ring(r, m, &own->sends);
  if (own->ex.qp_base.srq == NULL) roce_get_ring(r, m, &own->receives);
}

struct ibv_qp *roce_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
  // As rxe: where elements of a list have room, inline data has it, too. Programs take it without having asked.
  struct ibv_qp_cap cap = attr->cap;
  const uint32_t room = cap.max_send_sge * (uint32_t)sizeof(struct ibv_sge);
  struct roce_qp *own;
  struct ibv_qp *qp;
  struct roce_message m;
  int error;
  if (cap.max_inline_data < room && cap.max_send_sge <= MAX_SGE) cap.max_inline_data = room;
  if (attr->send_cq == NULL || attr->recv_cq == NULL) {
    errno = EINVAL;
    return NULL;
  }
  own = calloc(1, sizeof *own);
  if (own == NULL) return NULL;
  qp = &own->ex.qp_base;
  roce_begin(&m);
  roce_u32(&m, pd->handle);
  roce_u32(&m, attr->qp_type);
  roce_u32(&m, attr->send_cq->handle);
  roce_u32(&m, attr->recv_cq->handle);
  roce_u32(&m, attr->srq != NULL ? attr->srq->handle : 0);
  roce_u32(&m, attr->sq_sig_all != 0);
  fill_cap(&m, &cap);
  error = roce_call(roce_of(pd->context), ROCE_CREATE_QP, &m);
  if (error != 0) {
    roce_end(&m);
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
  qp->handle = roce_get32(&m);
  qp->qp_num = roce_get32(&m);
  get_cap(&m, &attr->cap);
  take_queues(own, &m, &attr->cap);
  roce_end(&m);
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
  // Members that are not in the mask may be uninitialized memory: they are not sent.
  struct ibv_ah_attr none = {0};
  struct roce_message m;
  int error;
  // A thread that the child does not have may hold the locks.
  if (!roce_may_call(roce_of(qp->context))) return errno = EPERM;
  roce_begin(&m);
  roce_u32(&m, qp->handle);
  roce_u32(&m, (uint32_t)mask);
  roce_u32(&m, a->qp_state);
  roce_u32(&m, a->cur_qp_state);
  roce_u32(&m, a->path_mtu);
  roce_u32(&m, a->path_mig_state);
  roce_u32(&m, a->qkey);
  roce_u32(&m, a->rq_psn);
  roce_u32(&m, a->sq_psn);
  roce_u32(&m, a->dest_qp_num);
  roce_u32(&m, a->qp_access_flags);
  roce_u32(&m, a->pkey_index);
  roce_u32(&m, a->en_sqd_async_notify);
  roce_u32(&m, a->max_rd_atomic);
  roce_u32(&m, a->max_dest_rd_atomic);
  roce_u32(&m, a->min_rnr_timer);
  roce_u32(&m, a->port_num);
  roce_u32(&m, a->timeout);
  roce_u32(&m, a->retry_cnt);
  roce_u32(&m, a->rnr_retry);
  roce_u32(&m, (mask & IBV_QP_RATE_LIMIT) != 0 ? a->rate_limit : 0);
  fill_cap(&m, &a->cap);
  roce_fill_address(&m, (mask & IBV_QP_AV) != 0 ? &a->ah_attr : &none);
  if ((mask & IBV_QP_CAP) != 0) {
    pthread_mutex_lock(&own->sends.lock);
    pthread_mutex_lock(&own->receives.lock);
  }
  error = roce_call(roce_of(qp->context), ROCE_MODIFY_QP, &m);
  if ((mask & IBV_QP_CAP) != 0) {
    if (error == 0) {
      get_cap(&m, &a->cap);
      take_queues(own, &m, &a->cap);
    }
    pthread_mutex_unlock(&own->receives.lock);
    pthread_mutex_unlock(&own->sends.lock);
  }
  roce_end(&m);
  if (error != 0 || (mask & IBV_QP_STATE) == 0) return error;
  qp->state = a->qp_state;
  if (a->qp_state == IBV_QPS_RESET) {
    roce_forget_completions(qp->recv_cq, qp->qp_num);
    if (qp->send_cq != qp->recv_cq) roce_forget_completions(qp->send_cq, qp->qp_num);
  }
  return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init) {
  struct roce_message m;
  int error;
  roce_begin(&m);
  roce_u32(&m, qp->handle);
  roce_u32(&m, (uint32_t)mask);
  error = roce_call(roce_of(qp->context), ROCE_QUERY_QP, &m);
  if (error == 0) {
    memset(a, 0, sizeof *a);
    memset(init, 0, sizeof *init);
    a->qp_state = roce_get32(&m);
    a->cur_qp_state = roce_get32(&m);
    a->path_mtu = roce_get32(&m);
    a->path_mig_state = roce_get32(&m);
    a->qkey = roce_get32(&m);
    a->rq_psn = roce_get32(&m);
    a->sq_psn = roce_get32(&m);
    a->dest_qp_num = roce_get32(&m);
    a->qp_access_flags = roce_get32(&m);
    a->pkey_index = (uint16_t)roce_get32(&m);
    a->sq_draining = (uint8_t)roce_get32(&m);
    a->max_rd_atomic = (uint8_t)roce_get32(&m);
    a->max_dest_rd_atomic = (uint8_t)roce_get32(&m);
    a->min_rnr_timer = (uint8_t)roce_get32(&m);
    a->port_num = (uint8_t)roce_get32(&m);
    a->timeout = (uint8_t)roce_get32(&m);
    a->retry_cnt = (uint8_t)roce_get32(&m);
    a->rnr_retry = (uint8_t)roce_get32(&m);
    a->rate_limit = roce_get32(&m);
    get_cap(&m, &a->cap);
    roce_get_address(&m, &a->ah_attr);
    init->sq_sig_all = (int)roce_get32(&m);
    init->qp_context = qp->qp_context;
    init->send_cq = qp->send_cq;
    init->recv_cq = qp->recv_cq;
    init->srq = qp->srq;
    init->cap = a->cap;
    init->qp_type = qp->qp_type;
    if ((mask & IBV_QP_STATE) != 0) qp->state = a->qp_state;
  }
  roce_end(&m);
  return error;
}

// Bytes of a message may be seen in any order.
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags) {
  (void)qp, (void)opcode, (void)flags;
  return 0;
}

static int group(struct ibv_qp *qp, const union ibv_gid *gid, enum roce_call call) {
  struct roce_message m;
  roce_begin(&m);
  roce_u32(&m, qp->handle);
  roce_bytes(&m, gid->raw, 16);
  return roce_command(roce_of(qp->context), call, &m);
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
  (void)lid;
  return group(qp, gid, ROCE_ATTACH_MCAST);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
  (void)lid;
  return group(qp, gid, ROCE_DETACH_MCAST);
}
