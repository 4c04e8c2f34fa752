// Posting: requests are written into the ring of their queue, which the device reads.
#include <arpa/inet.h>

#include "rings.h"

#define NOT_RTS "the queue pair is not in RTS, or has no send queue"

// Programs may post until it is: one line is enough.
static int is_full(const char *call) {
  static int is_reported;
  if (is_reported) return errno = ENOMEM;
  is_reported = 1;
  return roce_fails(call, ENOMEM, "the queue is full (further ones are not printed)");
}

static int has_room(const struct roce_ring *ring, uint32_t index) {
  return index - load(ring->words + ROCE_CONTROL_CONSUMER) < ring->capacity;
}

static void put64(uint32_t *high_low, uint64_t value) {
  high_low[0] = (uint32_t)(value >> 32);
  high_low[1] = (uint32_t)value;
}

// Writes the elements; false where they are 4 GiB or more.
static int put_list(uint32_t *to, const struct ibv_sge *list, int count, uint32_t *length) {
  uint64_t total = 0;
  for (int i = 0; i < count; i++, to += ROCE_SGE_WORDS) {
    put64(to + ROCE_SGE_ADDRESS_HIGH, list[i].addr);
    to[ROCE_SGE_LENGTH] = list[i].length;
    to[ROCE_SGE_LKEY] = list[i].lkey;
    total += list[i].length;
  }
  *length = (uint32_t)total;
  return total <= UINT32_MAX;
}

static int put_inline(struct roce_qp *q, uint32_t *w, const struct ibv_send_wr *wr) {
  uint8_t *to = (uint8_t *)(w + ROCE_SEND_SGE);
  uint64_t total = 0;
  for (int i = 0; i < wr->num_sge; i++) total += wr->sg_list[i].length;
  if (total > q->max_inline) return roce_fails("a send request", EINVAL, "sg_list: more inline data than max_inline_data");
  for (int i = 0; i < wr->num_sge; i++) {
    memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
    to += wr->sg_list[i].length;
  }
  w[ROCE_SEND_SGE_COUNT] = 0;
  w[ROCE_SEND_LENGTH] = (uint32_t)total;
  return 0;
}

static void put_bind(uint32_t *w, const struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info) {
  w[ROCE_SEND_SGE_COUNT] = w[ROCE_SEND_LENGTH] = 0;
  w[ROCE_SEND_BIND_WINDOW] = ((const struct roce_mw *)mw)->number;
  w[ROCE_SEND_RKEY] = rkey;
  put64(w + ROCE_SEND_REMOTE_ADDRESS_HIGH, info->addr);
  put64(w + ROCE_SEND_BIND_LENGTH_HIGH, info->length);
  w[ROCE_SEND_BIND_LKEY] = info->mr != NULL ? info->mr->lkey : 0;
  w[ROCE_SEND_BIND_ACCESS] = info->mw_access_flags & ~(unsigned)IBV_ACCESS_LOCAL_WRITE;
}

static int put_send(struct roce_qp *q, uint32_t *w, const struct ibv_send_wr *wr) {
  unsigned flags = wr->send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
  if ((wr->send_flags & IBV_SEND_IP_CSUM) != 0) return roce_fails("a send request", EOPNOTSUPP, "send_flags: IBV_SEND_IP_CSUM");
  if (wr->num_sge < 0 || (unsigned)wr->num_sge > q->max_sge) return roce_fails("a send request", EINVAL, "num_sge: more than max_send_sge");
  w[ROCE_SEND_WR_ID_LOW] = (uint32_t)wr->wr_id;
  w[ROCE_SEND_WR_ID_HIGH] = (uint32_t)(wr->wr_id >> 32);
  switch ((unsigned)wr->opcode) {
    case IBV_WR_BIND_MW:
      if (wr->bind_mw.mw == NULL || wr->bind_mw.mw->type != IBV_MW_TYPE_2) return roce_fails("a send request", EINVAL, "bind_mw.mw: no window of type 2");
      put_bind(w, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
      w[ROCE_SEND_OPCODE_FLAGS] = IBV_WR_BIND_MW | (flags & ~(unsigned)IBV_SEND_INLINE) << 8;
      return 0;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV:
      w[ROCE_SEND_IMMEDIATE] = wr->invalidate_rkey;
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND_WITH_IMM:
      w[ROCE_SEND_IMMEDIATE] = ntohl(wr->imm_data);
      break;
    case IBV_WR_SEND:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case ROCE_WR_ATOMIC_WRITE:
      break;
    default:
      return roce_fails("a send request", EOPNOTSUPP, "opcode");
  }
  if ((flags & IBV_SEND_INLINE) != 0) {
    int error = put_inline(q, w, wr);
    if (error != 0) return error;
  } else {
    if (!put_list(w + ROCE_SEND_SGE, wr->sg_list, wr->num_sge, w + ROCE_SEND_LENGTH)) return roce_fails("a send request", EINVAL, "sg_list: 4 GiB or more");
    w[ROCE_SEND_SGE_COUNT] = (uint32_t)wr->num_sge;
  }
  if (q->ex.qp_base.qp_type == IBV_QPT_UD) {
    if (wr->wr.ud.ah == NULL) return roce_fails("a send request", EINVAL, "wr.ud.ah: none");
    w[ROCE_SEND_ADDRESS_HANDLE] = ((const struct roce_ah *)wr->wr.ud.ah)->number;
    w[ROCE_SEND_REMOTE_QPN] = wr->wr.ud.remote_qpn & 0xffffff;
    w[ROCE_SEND_REMOTE_QKEY] = wr->wr.ud.remote_qkey;
  } else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    put64(w + ROCE_SEND_REMOTE_ADDRESS_HIGH, wr->wr.atomic.remote_addr);
    w[ROCE_SEND_RKEY] = wr->wr.atomic.rkey;
    put64(w + ROCE_SEND_COMPARE_ADD_HIGH, wr->wr.atomic.compare_add);
    put64(w + ROCE_SEND_SWAP_HIGH, wr->wr.atomic.swap);
  } else {
    put64(w + ROCE_SEND_REMOTE_ADDRESS_HIGH, wr->wr.rdma.remote_addr);
    w[ROCE_SEND_RKEY] = wr->wr.rdma.rkey;
  }
  w[ROCE_SEND_OPCODE_FLAGS] = (uint32_t)wr->opcode | flags << 8;
  return 0;
}

// Whether a send may be posted now: the device shows the state of the queue pair in the ring. There is none where the device
// answers rendezvous.
static int sends(const struct roce_ring *ring) {
  return ring->capacity > 0 && load(ring->words + ROCE_CONTROL_STATE) >= IBV_QPS_RTS;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
  struct roce_qp *q = (struct roce_qp *)qp;
  struct roce_ring *ring = &q->sends;
  uint32_t index;
  int error = 0;
  if (!is_ours(qp->context)) {
    *bad = wr;
    return roce_fails("a send request", EPERM, OF_PARENT);
  }
  pthread_mutex_lock(&ring->lock);
  index = ring->producer;
  if (!sends(ring)) error = roce_fails("a send request", EINVAL, NOT_RTS);
  for (; error == 0 && wr != NULL; wr = wr->next) {
    error = has_room(ring, index) ? put_send(q, entry(ring, index), wr) : is_full("a send request");
    if (error != 0) break;
    if (wr->opcode == IBV_WR_BIND_MW) wr->bind_mw.mw->rkey = wr->bind_mw.rkey;
    index++;
  }
  if (index != ring->producer) roce_publish(qp->context, ring, index, 1);
  pthread_mutex_unlock(&ring->lock);
  if (error != 0) *bad = wr;
  return error;
}

void roce_start_sends(struct roce_qp *q) {
  if (!is_ours(q->ex.qp_base.context)) {
    q->error = roce_fails("ibv_wr_start", EPERM, OF_PARENT);
    return;
  }
  pthread_mutex_lock(&q->sends.lock);
  q->error = sends(&q->sends) ? 0 : roce_fails("ibv_wr_start", EINVAL, NOT_RTS);
  q->count = 0;
  q->is_open = 0;
}

void roce_put_open(struct roce_qp *q) {
  const uint32_t index = q->sends.producer + q->count;
  if (!q->is_open || q->error != 0) return;
  q->error = has_room(&q->sends, index) ? put_send(q, entry(&q->sends, index), &q->wr) : is_full("a send request");
  q->is_open = 0;
  q->count++;
}

int roce_end_sends(struct roce_qp *q, int posts) {
  int error;
  if (!is_ours(q->ex.qp_base.context)) return roce_fails("ibv_wr_complete", EPERM, OF_PARENT);
  if (posts) roce_put_open(q);
  error = q->error;
  if (posts && error == 0 && q->count > 0) roce_publish(q->ex.qp_base.context, &q->sends, q->sends.producer + q->count, 1);
  pthread_mutex_unlock(&q->sends.lock);
  return error;
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
  struct roce_qp *q = (struct roce_qp *)qp;
  struct roce_ring *ring = &q->sends;
  uint32_t *w, rkey;
  int error = 0;
  if (!is_ours(qp->context)) return roce_fails("ibv_bind_mw", EPERM, OF_PARENT);
  if (mw->type != IBV_MW_TYPE_1 || (bind->bind_info.mr == NULL && bind->bind_info.length > 0))
    return roce_fails("ibv_bind_mw", EINVAL, "mw is not of type 1, or bind_info has no region");
  pthread_mutex_lock(&ring->lock);
  if (!sends(ring)) error = roce_fails("ibv_bind_mw", EINVAL, NOT_RTS);
  else if (!has_room(ring, ring->producer)) error = is_full("ibv_bind_mw");
  else {
    w = entry(ring, ring->producer);
    rkey = ibv_inc_rkey(mw->rkey);
    w[ROCE_SEND_WR_ID_LOW] = (uint32_t)bind->wr_id;
    w[ROCE_SEND_WR_ID_HIGH] = (uint32_t)(bind->wr_id >> 32);
    w[ROCE_SEND_OPCODE_FLAGS] = IBV_WR_BIND_MW | (bind->send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED)) << 8;
    put_bind(w, mw, rkey, &bind->bind_info);
    mw->rkey = rkey;
    roce_publish(qp->context, ring, ring->producer + 1, 1);
  }
  pthread_mutex_unlock(&ring->lock);
  return error;
}

static int post_recv(struct ibv_context *context, struct roce_ring *ring, unsigned max_sge, int wants_state,
                     struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
  uint32_t index;
  int error = 0;
  if (!is_ours(context)) {
    *bad = wr;
    return roce_fails("a receive request", EPERM, OF_PARENT);
  }
  pthread_mutex_lock(&ring->lock);
  index = ring->producer;
  if (ring->capacity == 0 || (wants_state && load(ring->words + ROCE_CONTROL_STATE) == IBV_QPS_RESET))
    error = roce_fails("a receive request", EINVAL, "the queue pair is in RESET, or has no receive queue");
  for (; error == 0 && wr != NULL; wr = wr->next) {
    uint32_t *w;
    if (!has_room(ring, index)) error = is_full("a receive request");
    else if (wr->num_sge < 0 || (unsigned)wr->num_sge > max_sge) error = roce_fails("a receive request", EINVAL, "num_sge: more than the queue has room for");
    if (error != 0) break;
    w = entry(ring, index);
    if (!put_list(w + ROCE_RECV_SGE, wr->sg_list, wr->num_sge, w + ROCE_RECV_LENGTH)) {
      error = roce_fails("a receive request", EINVAL, "sg_list: 4 GiB or more");
      break;
    }
    w[ROCE_RECV_WR_ID_LOW] = (uint32_t)wr->wr_id;
    w[ROCE_RECV_WR_ID_HIGH] = (uint32_t)(wr->wr_id >> 32);
    w[ROCE_RECV_SGE_COUNT] = (uint32_t)wr->num_sge;
    index++;
  }
  if (index != ring->producer) roce_publish(context, ring, index, 0);
  pthread_mutex_unlock(&ring->lock);
  if (error != 0) *bad = wr;
  return error;
}

static int post_qp_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
  struct roce_qp *q = (struct roce_qp *)qp;
  return post_recv(qp->context, &q->receives, q->max_recv_sge, 1, wr, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
  struct roce_srq *s = (struct roce_srq *)srq;
  return post_recv(srq->context, &s->receives, s->max_sge, 0, wr, bad);
}

void roce_set_post_ops(struct roce_context *r) {
  r->verbs.context.ops.post_send = post_send;
  r->verbs.context.ops.post_recv = post_qp_recv;
  r->verbs.context.ops.post_srq_recv = post_srq_recv;
  r->verbs.context.ops.bind_mw = bind_mw;
}
