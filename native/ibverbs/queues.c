// Completion channels and queues, their events, receive queues that are shared.
#include "roce.h"

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
  struct roce_channel *own = calloc(1, sizeof *own);
  struct ibv_comp_channel *channel = &own->channel;
  struct roce_create_channel_reply reply;
  int error;
  if (own == NULL) return NULL;
  error = roce_ask_create_channel(roce_of(context), &reply);
  if (error == 0) {
    channel->context = context;
    channel->refcnt = (int)reply.handle;  // libibverbs counts its queues there; programs have no use for it.
    own->events = roce_file_of(roce_listen(roce_of(context), reply.handle));
    channel->fd = own->events.fd;
    if (channel->fd >= 0) return channel;
    error = errno;
    roce_destroy(context, reply.handle);
  }
  free(own);
  errno = error;
  return NULL;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
  struct roce_channel *own = (struct roce_channel *)channel;
  int error = roce_destroy(channel->context, (uint32_t)channel->refcnt);
  if (error != 0) return error;
  roce_close_file(&own->events);
  free(own);
  return 0;
}

static void take_ring(struct roce_context *r, const struct roce_ring_place *place, struct roce_ring *ring) {
  ring->words = (uint32_t *)(r->arena + place->offset);
  ring->capacity = place->capacity;
  ring->stride = place->stride;
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
  const struct roce_create_cq_request request = {.cqe = cqe, .channel = channel != NULL ? (uint32_t)channel->refcnt : 0, .bits = bits};
  struct roce_create_cq_reply reply;
  struct roce_cq *own;
  struct ibv_cq *cq;
  int error;
  if (cqe == 0 || cqe > INT32_MAX || comp_vector >= (uint32_t)context->num_comp_vectors) {
    roce_fails("ibv_create_cq", EINVAL, "cqe or comp_vector");
    return NULL;
  }
  own = calloc(1, sizeof *own);
  if (own == NULL) return NULL;
  cq = (struct ibv_cq *)&own->ex;
  error = roce_ask_create_cq(roce_of(context), &request, &reply);
  if (error != 0) {
    free(own);
    errno = error;
    return NULL;
  }
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = reply.handle;
  cq->cqe = (int)reply.cqe;
  take_ring(roce_of(context), &reply.ring, &own->ring);
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
  const struct roce_resize_cq_request request = {.handle = cq->handle, .cqe = (uint32_t)cqe};
  struct roce_resize_cq_reply reply;
  struct roce_completion *room;
  int error;
  if (cqe <= 0) return FAILS(EINVAL, "cqe");
  // A thread that the child does not have may hold the lock.
  if (!roce_may_call(r)) return FAILS(EPERM, OF_PARENT);
  // From the call on: of two resizes at once, the rings come in the device's order.
  pthread_mutex_lock(&own->ring.lock);
  // Before the call, after which the ring is another.
  room = malloc(((size_t)own->held + own->ring.capacity) * sizeof *room);
  if (room == NULL) {
    pthread_mutex_unlock(&own->ring.lock);
    return FAILS(ENOMEM, "no memory for the completions that are there");
  }
  error = roce_ask_resize_cq(r, &request, &reply);
  if (error == 0) {
    struct roce_ring next;
    cq->cqe = (int)reply.cqe;
    take_ring(r, &reply.ring, &next);
    roce_move_completions(own, &next, room);
  } else free(room);
  pthread_mutex_unlock(&own->ring.lock);
  return error;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
  struct roce_context *r = roce_of(channel->context);
  struct roce_event event;
  for (;;) {
    struct roce_object *object;
    if (roce_read_event(r, &((struct roce_channel *)channel)->events, &event) != 0) return -1;
    pthread_mutex_lock(&r->objects_lock);
    for (object = r->objects; object != NULL && object->handle != event.handle;) object = object->next;
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
  struct roce_event event;
  for (;;) {
    struct roce_object *object;
    if (roce_read_event(r, &r->events, &event) != 0) return -1;
    memset(to, 0, sizeof *to);
    to->event_type = event.type;
    if (event.handle == 0) {
      to->element.port_num = (int)event.port;
      return 0;
    }
    pthread_mutex_lock(&r->objects_lock);
    for (object = r->objects; object != NULL && object->handle != event.handle;) object = object->next;
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
  const struct roce_create_srq_request request = {
      .pd = pd->handle,
      .max_wr = attr->attr.max_wr,
      .max_sge = attr->attr.max_sge,
      .srq_limit = attr->attr.srq_limit,
      .cq = cq != NULL ? cq->handle : 0,
      .max_num_tags = tags->max_num_tags,
      .max_ops = tags->max_ops,
  };
  struct roce_create_srq_reply reply;
  int error;
  if (own == NULL) return NULL;
  error = roce_ask_create_srq(roce_of(pd->context), &request, &reply);
  if (error != 0) {
    free(own);
    errno = error;
    return NULL;
  }
  srq->context = pd->context;
  srq->pd = pd;
  srq->srq_context = attr->srq_context;
  srq->handle = reply.handle;
  attr->attr.max_wr = reply.max_wr;
  attr->attr.max_sge = reply.max_sge;
  own->number = reply.number;
  own->max_sge = attr->attr.max_sge;
  roce_take_queue(roce_of(pd->context), &reply.queue, &own->receives);
  pthread_mutex_init(&own->receives.lock, NULL);
  pthread_mutex_init(&srq->mutex, NULL);
  pthread_cond_init(&srq->cond, NULL);
  roce_add(roce_of(pd->context), &own->object, srq->handle, srq);
  return srq;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) {
  struct roce_srq *own = (struct roce_srq *)srq;
  const struct roce_modify_srq_request request = {
      .handle = srq->handle,
      .mask = (uint32_t)mask,
      .max_wr = attr->max_wr,
      .srq_limit = attr->srq_limit,
  };
  struct roce_modify_srq_reply reply;
  int error;
  // A thread that the child does not have may hold the lock.
  if (!roce_may_call(roce_of(srq->context))) return FAILS(EPERM, OF_PARENT);
  pthread_mutex_lock(&own->receives.lock);
  error = roce_ask_modify_srq(roce_of(srq->context), &request, &reply);
  if (error == 0 && reply.moved) roce_take_queue(roce_of(srq->context), &reply.queue, &own->receives);
  pthread_mutex_unlock(&own->receives.lock);
  return error;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) {
  const struct roce_query_srq_request request = {.handle = srq->handle};
  struct roce_query_srq_reply reply;
  const int error = roce_ask_query_srq(roce_of(srq->context), &request, &reply);
  if (error == 0) *attr = (struct ibv_srq_attr){.max_wr = reply.max_wr, .max_sge = reply.max_sge, .srq_limit = reply.srq_limit};
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
