// Completion channels and queues, receive queues that are shared, address handles.
#include "roce.h"

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
  struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
  struct roce_message m;
  uint32_t handle;
  int error;
  if (channel == NULL) return NULL;
  roce_begin(&m);
  error = roce_call(roce_of(context), ROCE_CREATE_CHANNEL, &m);
  handle = roce_get32(&m);
  roce_end(&m);
  if (error == 0) {
    channel->context = context;
    channel->refcnt = (int)handle;  // libibverbs counts its queues there; programs have no use for it.
    channel->fd = roce_listen(roce_of(context), handle);
    if (channel->fd >= 0) return channel;
    error = errno;
    roce_destroy(context, handle);
  }
  free(channel);
  errno = error;
  return NULL;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
  int error = roce_destroy(channel->context, (uint32_t)channel->refcnt);
  if (error != 0) return error;
  close(channel->fd);
  free(channel);
  return 0;
}

static void get_completion_ring(struct roce_context *r, struct roce_message *m, struct roce_ring *ring) {
  ring->words = (uint32_t *)(r->arena + roce_get32(m));
  ring->capacity = roce_get32(m);
  ring->stride = roce_get32(m);
}

// A thread between ibv_start_poll and ibv_end_poll holds the lock, and may reset a queue pair, resize the queue, or poll it.
static void init_recursive(pthread_mutex_t *lock) {
  pthread_mutexattr_t attr;
  pthread_mutexattr_init(&attr);
  pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(lock, &attr);
  pthread_mutexattr_destroy(&attr);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
                             int comp_vector) {
  return roce_create_cq(context, (uint32_t)cqe, cq_context, channel, (uint32_t)comp_vector, 0);
}

struct ibv_cq *roce_create_cq(struct ibv_context *context, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel,
                              uint32_t comp_vector, uint32_t bits) {
  struct roce_cq *own;
  struct ibv_cq *cq;
  struct roce_message m;
  int error;
  if (cqe == 0 || cqe > INT32_MAX || comp_vector >= (uint32_t)context->num_comp_vectors) {
    errno = EINVAL;
    return NULL;
  }
  own = calloc(1, sizeof *own);
  if (own == NULL) return NULL;
  cq = (struct ibv_cq *)&own->ex;
  roce_begin(&m);
  roce_u32(&m, cqe);
  roce_u32(&m, channel != NULL ? (uint32_t)channel->refcnt : 0);
  roce_u32(&m, bits);
  error = roce_call(roce_of(context), ROCE_CREATE_CQ, &m);
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = roce_get32(&m);
  cq->cqe = (int)roce_get32(&m);
  get_completion_ring(roce_of(context), &m, &own->ring);
  roce_end(&m);
  if (error != 0) {
    free(own);
    errno = error;
    return NULL;
  }
  init_recursive(&own->ring.lock);
  pthread_mutex_init(&cq->mutex, NULL);
  pthread_cond_init(&cq->cond, NULL);
  roce_add(roce_of(context), &own->object, cq->handle, cq);
  return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq) {
  struct roce_cq *own = (struct roce_cq *)cq;
  int error;
  error = roce_destroy(cq->context, cq->handle);
  if (error != 0) return error;
  roce_remove(roce_of(cq->context), &own->object);
  // As ibv_destroy_cq(3): waits for the acknowledgment of every event that the program took.
  pthread_mutex_lock(&cq->mutex);
  while (cq->comp_events_completed != own->object.comp_reported ||
         cq->async_events_completed != own->object.async_reported)
    pthread_cond_wait(&cq->cond, &cq->mutex);
  pthread_mutex_unlock(&cq->mutex);
  free(own->older);
  free(own);
  return 0;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe) {
  struct roce_context *r = roce_of(cq->context);
  struct roce_cq *own = (struct roce_cq *)cq;
  struct roce_completion *room;
  struct roce_message m;
  int error;
  if (cqe <= 0) return errno = EINVAL;
  // A thread that the child does not have may hold the lock.
  if (!roce_may_call(r)) return errno = EPERM;
  // From the call on: of two resizes at once, the rings come in the device's order.
  pthread_mutex_lock(&own->ring.lock);
  // Before the call, after which the ring is another.
  room = malloc(((size_t)own->held + own->ring.capacity) * sizeof *room);
  if (room == NULL) {
    pthread_mutex_unlock(&own->ring.lock);
    return errno = ENOMEM;
  }
  roce_begin(&m);
  roce_u32(&m, cq->handle);
  roce_u32(&m, (uint32_t)cqe);
  error = roce_call(r, ROCE_RESIZE_CQ, &m);
  if (error == 0) {
    struct roce_ring next;
    cq->cqe = (int)roce_get32(&m);
    get_completion_ring(r, &m, &next);
    roce_move_completions(own, &next, room);
  } else free(room);
  pthread_mutex_unlock(&own->ring.lock);
  roce_end(&m);
  return error;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
  struct roce_context *r = roce_of(channel->context);
  uint32_t event[3];
  for (;;) {
    struct roce_object *object;
    if (roce_read_event(r, channel->fd, event) != 0) return -1;
    pthread_mutex_lock(&r->objects_lock);
    for (object = r->objects; object != NULL && object->handle != event[1];) object = object->next;
    if (object != NULL) {
      *cq = object->it;
      *cq_context = (*cq)->cq_context;
      object->comp_reported++;
    }
    pthread_mutex_unlock(&r->objects_lock);
    if (object != NULL) return 0;  // Else it is about a queue that was destroyed meanwhile.
  }
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

static int is_about_qp(enum ibv_event_type type) {
  return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR ||
         type == IBV_EVENT_COMM_EST || type == IBV_EVENT_SQ_DRAINED || type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

static int is_about_srq(enum ibv_event_type type) {
  return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *to) {
  struct roce_context *r = roce_of(context);
  uint32_t event[3];
  for (;;) {
    struct roce_object *object;
    if (roce_read_event(r, context->async_fd, event) != 0) return -1;
    memset(to, 0, sizeof *to);
    to->event_type = event[0];
    if (event[1] == 0) {
      to->element.port_num = (int)event[2];
      return 0;
    }
    pthread_mutex_lock(&r->objects_lock);
    for (object = r->objects; object != NULL && object->handle != event[1];) object = object->next;
    if (object != NULL) {
      object->async_reported++;
      to->element.qp = object->it;  // One union.
    }
    pthread_mutex_unlock(&r->objects_lock);
    if (object != NULL) return 0;
  }
}

void ibv_ack_async_event(struct ibv_async_event *event) {
  if (event->event_type == IBV_EVENT_CQ_ERR) {
    struct ibv_cq *cq = event->element.cq;
    pthread_mutex_lock(&cq->mutex);
    cq->async_events_completed++;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
  } else if (is_about_qp(event->event_type)) {
    struct ibv_qp *qp = event->element.qp;
    pthread_mutex_lock(&qp->mutex);
    qp->events_completed++;
    pthread_cond_signal(&qp->cond);
    pthread_mutex_unlock(&qp->mutex);
  } else if (is_about_srq(event->event_type)) {
    struct ibv_srq *srq = event->element.srq;
    pthread_mutex_lock(&srq->mutex);
    srq->events_completed++;
    pthread_cond_signal(&srq->cond);
    pthread_mutex_unlock(&srq->mutex);
  }
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
  static const struct ibv_tm_cap none;
  return roce_create_srq(pd, attr, NULL, &none);
}

struct ibv_srq *roce_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr, struct ibv_cq *cq,
                                const struct ibv_tm_cap *tags) {
  struct roce_srq *own = calloc(1, sizeof *own);
  struct ibv_srq *srq = &own->srq;
  struct roce_message m;
  int error;
  if (own == NULL) return NULL;
  roce_begin(&m);
  roce_u32(&m, pd->handle);
  roce_u32(&m, attr->attr.max_wr);
  roce_u32(&m, attr->attr.max_sge);
  roce_u32(&m, attr->attr.srq_limit);
  roce_u32(&m, cq != NULL ? cq->handle : 0);
  roce_u32(&m, tags->max_num_tags);
  roce_u32(&m, tags->max_ops);
  error = roce_call(roce_of(pd->context), ROCE_CREATE_SRQ, &m);
  if (error != 0) {
    roce_end(&m);
    free(own);
    errno = error;
    return NULL;
  }
  srq->context = pd->context;
  srq->pd = pd;
  srq->srq_context = attr->srq_context;
  srq->handle = roce_get32(&m);
  attr->attr.max_wr = roce_get32(&m);
  attr->attr.max_sge = roce_get32(&m);
  own->number = roce_get32(&m);
  own->max_sge = attr->attr.max_sge;
  roce_get_ring(roce_of(pd->context), &m, &own->receives);
  roce_end(&m);
  pthread_mutex_init(&own->receives.lock, NULL);
  pthread_mutex_init(&srq->mutex, NULL);
  pthread_cond_init(&srq->cond, NULL);
  roce_add(roce_of(pd->context), &own->object, srq->handle, srq);
  return srq;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) {
  struct roce_srq *own = (struct roce_srq *)srq;
  struct roce_message m;
  int error;
  // A thread that the child does not have may hold the lock.
  if (!roce_may_call(roce_of(srq->context))) return errno = EPERM;
  pthread_mutex_lock(&own->receives.lock);
  roce_begin(&m);
  roce_u32(&m, srq->handle);
  roce_u32(&m, (uint32_t)mask);
  roce_u32(&m, attr->max_wr);
  roce_u32(&m, attr->srq_limit);
  error = roce_call(roce_of(srq->context), ROCE_MODIFY_SRQ, &m);
  if (error == 0 && roce_get32(&m) > 0) roce_get_ring(roce_of(srq->context), &m, &own->receives);
  pthread_mutex_unlock(&own->receives.lock);
  roce_end(&m);
  return error;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) {
  struct roce_message m;
  int error;
  roce_begin(&m);
  roce_u32(&m, srq->handle);
  error = roce_call(roce_of(srq->context), ROCE_QUERY_SRQ, &m);
  if (error == 0) {
    attr->max_wr = roce_get32(&m);
    attr->max_sge = roce_get32(&m);
    attr->srq_limit = roce_get32(&m);
  }
  roce_end(&m);
  return error;
}

int ibv_destroy_srq(struct ibv_srq *srq) {
  struct roce_srq *own = (struct roce_srq *)srq;
  int error;
  error = roce_destroy(srq->context, srq->handle);
  if (error != 0) return error;
  roce_remove(roce_of(srq->context), &own->object);
  pthread_mutex_lock(&srq->mutex);
  while (srq->events_completed != own->object.async_reported) pthread_cond_wait(&srq->cond, &srq->mutex);
  pthread_mutex_unlock(&srq->mutex);
  free(own);
  return 0;
}

void roce_fill_address(struct roce_message *m, const struct ibv_ah_attr *attr) {
  roce_bytes(m, attr->grh.dgid.raw, 16);
  roce_u32(m, attr->grh.flow_label);
  roce_u32(m, attr->grh.sgid_index);
  roce_u32(m, attr->grh.hop_limit);
  roce_u32(m, attr->grh.traffic_class);
  roce_u32(m, attr->dlid);
  roce_u32(m, attr->sl);
  roce_u32(m, attr->src_path_bits);
  roce_u32(m, attr->static_rate);
  roce_u32(m, attr->is_global != 0);
  roce_u32(m, attr->port_num);
}

void roce_get_address(struct roce_message *m, struct ibv_ah_attr *attr) {
  roce_get(m, attr->grh.dgid.raw, 16);
  attr->grh.flow_label = roce_get32(m);
  attr->grh.sgid_index = (uint8_t)roce_get32(m);
  attr->grh.hop_limit = (uint8_t)roce_get32(m);
  attr->grh.traffic_class = (uint8_t)roce_get32(m);
  attr->dlid = (uint16_t)roce_get32(m);
  attr->sl = (uint8_t)roce_get32(m);
  attr->src_path_bits = (uint8_t)roce_get32(m);
  attr->static_rate = (uint8_t)roce_get32(m);
  attr->is_global = (uint8_t)roce_get32(m);
  attr->port_num = (uint8_t)roce_get32(m);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
  struct roce_ah *own = calloc(1, sizeof *own);
  struct ibv_ah *ah = &own->ah;
  struct roce_message m;
  int error;
  if (own == NULL) return NULL;
  roce_begin(&m);
  roce_u32(&m, pd->handle);
  roce_fill_address(&m, attr);
  error = roce_call(roce_of(pd->context), ROCE_CREATE_AH, &m);
  ah->context = pd->context;
  ah->pd = pd;
  ah->handle = roce_get32(&m);
  own->number = roce_get32(&m);
  roce_end(&m);
  if (error == 0) return ah;
  free(own);
  errno = error;
  return NULL;
}

int ibv_destroy_ah(struct ibv_ah *ah) {
  int error = roce_destroy(ah->context, ah->handle);
  if (error == 0) free(ah);
  return error;
}

// The way back to who sent a datagram: from the 40 bytes before its payload, of which an IPv4 header is the last 20.
int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
                        struct ibv_ah_attr *attr) {
  const uint8_t *bytes = (const uint8_t *)grh, *own = bytes + 24;
  union ibv_gid gid;
  memset(attr, 0, sizeof *attr);
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) {
    errno = EINVAL;
    return -1;
  }
  attr->is_global = 1;
  attr->grh.hop_limit = 0xff;
  if (bytes[0] >> 4 == 6) {
    memcpy(attr->grh.dgid.raw, bytes + 8, 16);
    memcpy(gid.raw, own, 16);
    attr->grh.traffic_class = (uint8_t)(bytes[0] << 4 | bytes[1] >> 4);
    attr->grh.flow_label = (uint32_t)(bytes[1] & 15) << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
  } else {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(attr->grh.dgid.raw, mapped, 12);
    memcpy(attr->grh.dgid.raw + 12, bytes + 32, 4);
    memcpy(gid.raw, mapped, 12);
    memcpy(gid.raw + 12, bytes + 36, 4);
    attr->grh.traffic_class = bytes[21];
  }
  for (int i = 0;; i++) {
    union ibv_gid at;
    if (ibv_query_gid(context, port, i, &at) != 0) return -1;
    if (memcmp(at.raw, gid.raw, 16) != 0) continue;
    attr->grh.sgid_index = (uint8_t)i;
    return 0;
  }
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port) {
  struct ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return NULL;
  return ibv_create_ah(pd, &attr);
}
