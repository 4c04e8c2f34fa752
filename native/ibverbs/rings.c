// Posting and polling: rings in memory that the device has, too (packages/transport/src/rings.ts). No system call is made but
// for a device that sleeps.
#include <arpa/inet.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "roce.h"

// Empty polls in a row after which each lets another process run, after which each sleeps for a moment, and after which one
// in so many looks whether the device is there.
#define BUSY_POLLS 64
#define YIELDING_POLLS 4096
#define LOOKING_POLLS 1024

// Counts forks on the way to this process: a child must not write into the parent's rings.
static int generation;
static void count_fork(void) { generation++; }
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

static int is_ours(struct ibv_context *context) { return roce_of(context)->generation == generation; }

static uint32_t load(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static void store(uint32_t *word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

// Whether the flag was set, and now is not.
static int taken(uint32_t *flag) {
  return load(flag) == 1 && __atomic_exchange_n(flag, 0, __ATOMIC_SEQ_CST) == 1;
}

static uint32_t *entry(const struct roce_ring *ring, uint32_t index) {
  return ring->words + ROCE_CONTROL_WORDS + (size_t)(index & (ring->capacity - 1)) * ring->stride;
}

void roce_get_ring(struct roce_context *r, struct roce_message *m, struct roce_ring *ring) {
  uint32_t offset;
  ring->id = roce_get32(m);
  offset = roce_get32(m);
  ring->capacity = roce_get32(m);
  ring->stride = roce_get32(m);
  ring->words = (uint32_t *)(r->arena + offset);
  if (ring->capacity > 0) ring->producer = load(ring->words + ROCE_CONTROL_PRODUCER);
}

int roce_rings_open(struct roce_context *r, int arena, int doorbell, const uint32_t shape[3]) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  void *at = mmap(NULL, shape[0], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena, 0);
  close(arena);
  if (at == MAP_FAILED) {
    close(doorbell);
    return -1;
  }
  r->arena = at;
  r->arena_bytes = shape[0];
  r->doorbell = doorbell;
  r->bells = (struct roce_ring){.words = (uint32_t *)(r->arena + shape[1]), .capacity = shape[2], .stride = 1};
  pthread_once(&once, watch_forks);
  r->generation = generation;
  pthread_mutex_init(&r->bells_lock, NULL);
  return 0;
}

void roce_rings_close(struct roce_context *r) {
  munmap(r->arena, r->arena_bytes);
  close(r->doorbell);
}

// Publishes the entries before `index`, and rings the doorbell where the device has to be notified.
static void publish(struct ibv_context *context, struct roce_ring *ring, uint32_t index) {
  struct roce_context *r = roce_of(context);
  ring->producer = index;
  store(ring->words + ROCE_CONTROL_PRODUCER, index);
  if (!taken(ring->words + ROCE_CONTROL_SLEEPING)) return;
  pthread_mutex_lock(&r->bells_lock);
  *entry(&r->bells, r->bells.producer) = ring->id;
  store(r->bells.words + ROCE_CONTROL_PRODUCER, ++r->bells.producer);
  if (taken(r->bells.words + ROCE_CONTROL_SLEEPING)) {
    static const uint64_t one = 1;
    while (write(r->doorbell, &one, sizeof one) < 0 && errno == EINTR) continue;
  }
  pthread_mutex_unlock(&r->bells_lock);
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
  if (total > q->max_inline) return EINVAL;
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
  if ((wr->send_flags & IBV_SEND_IP_CSUM) != 0) return EOPNOTSUPP;
  if (wr->num_sge < 0 || (unsigned)wr->num_sge > q->max_sge) return EINVAL;
  w[ROCE_SEND_WR_ID_LOW] = (uint32_t)wr->wr_id;
  w[ROCE_SEND_WR_ID_HIGH] = (uint32_t)(wr->wr_id >> 32);
  switch ((unsigned)wr->opcode) {
    case IBV_WR_BIND_MW:
      if (wr->bind_mw.mw == NULL || wr->bind_mw.mw->type != IBV_MW_TYPE_2) return EINVAL;
      put_bind(w, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
      wr->bind_mw.mw->rkey = wr->bind_mw.rkey;
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
      return EOPNOTSUPP;
  }
  if ((flags & IBV_SEND_INLINE) != 0) {
    int error = put_inline(q, w, wr);
    if (error != 0) return error;
  } else {
    if (!put_list(w + ROCE_SEND_SGE, wr->sg_list, wr->num_sge, w + ROCE_SEND_LENGTH)) return EINVAL;
    w[ROCE_SEND_SGE_COUNT] = (uint32_t)wr->num_sge;
  }
  if (q->ex.qp_base.qp_type == IBV_QPT_UD) {
    if (wr->wr.ud.ah == NULL) return EINVAL;
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

// Whether a send may be posted now: the device shows the state of the queue pair in the ring.
static int sends(const struct roce_ring *ring) {
  return load(ring->words + ROCE_CONTROL_STATE) >= IBV_QPS_RTS;
}

int roce_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
  struct roce_qp *q = (struct roce_qp *)qp;
  struct roce_ring *ring = &q->sends;
  uint32_t index;
  int error = 0;
  if (!is_ours(qp->context)) {
    *bad = wr;
    return EPERM;
  }
  pthread_mutex_lock(&ring->lock);
  index = ring->producer;
  if (!sends(ring)) error = EINVAL;
  for (; error == 0 && wr != NULL; wr = wr->next) {
    error = has_room(ring, index) ? put_send(q, entry(ring, index), wr) : ENOMEM;
    if (error != 0) break;
    index++;
  }
  if (index != ring->producer) publish(qp->context, ring, index);
  pthread_mutex_unlock(&ring->lock);
  if (error != 0) *bad = wr;
  return error;
}

int roce_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
  struct roce_qp *q = (struct roce_qp *)qp;
  struct roce_ring *ring = &q->sends;
  uint32_t *w, rkey;
  int error = 0;
  if (!is_ours(qp->context)) return EPERM;
  if (mw->type != IBV_MW_TYPE_1 || (bind->bind_info.mr == NULL && bind->bind_info.length > 0)) return EINVAL;
  pthread_mutex_lock(&ring->lock);
  if (!sends(ring)) error = EINVAL;
  else if (!has_room(ring, ring->producer)) error = ENOMEM;
  else {
    w = entry(ring, ring->producer);
    rkey = ibv_inc_rkey(mw->rkey);
    w[ROCE_SEND_WR_ID_LOW] = (uint32_t)bind->wr_id;
    w[ROCE_SEND_WR_ID_HIGH] = (uint32_t)(bind->wr_id >> 32);
    w[ROCE_SEND_OPCODE_FLAGS] = IBV_WR_BIND_MW | (bind->send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED)) << 8;
    put_bind(w, mw, rkey, &bind->bind_info);
    mw->rkey = rkey;
    publish(qp->context, ring, ring->producer + 1);
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
    return EPERM;
  }
  pthread_mutex_lock(&ring->lock);
  index = ring->producer;
  if (ring->capacity == 0 || (wants_state && load(ring->words + ROCE_CONTROL_STATE) == IBV_QPS_RESET)) error = EINVAL;
  for (; error == 0 && wr != NULL; wr = wr->next) {
    uint32_t *w;
    if (!has_room(ring, index)) error = ENOMEM;
    else if (wr->num_sge < 0 || (unsigned)wr->num_sge > max_sge) error = EINVAL;
    if (error != 0) break;
    w = entry(ring, index);
    if (!put_list(w + ROCE_RECV_SGE, wr->sg_list, wr->num_sge, w + ROCE_RECV_LENGTH)) {
      error = EINVAL;
      break;
    }
    w[ROCE_RECV_WR_ID_LOW] = (uint32_t)wr->wr_id;
    w[ROCE_RECV_WR_ID_HIGH] = (uint32_t)(wr->wr_id >> 32);
    w[ROCE_RECV_SGE_COUNT] = (uint32_t)wr->num_sge;
    index++;
  }
  if (index != ring->producer) publish(context, ring, index);
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

// The time of a completion; 0 where entries have none.
static uint64_t time_of(const struct roce_ring *ring, const uint32_t *w) {
  if (ring->stride < ROCE_STAMPED_CQE_WORDS) return 0;
  return (uint64_t)w[ROCE_CQE_STAMP_HIGH] << 32 | w[ROCE_CQE_STAMP_LOW];
}

static void get_completion(const uint32_t *w, struct ibv_wc *wc) {
  *wc = (struct ibv_wc){
      .wr_id = (uint64_t)w[ROCE_CQE_WR_ID_HIGH] << 32 | w[ROCE_CQE_WR_ID_LOW],
      .status = w[ROCE_CQE_STATUS],
      .opcode = w[ROCE_CQE_OPCODE],
      .vendor_err = w[ROCE_CQE_VENDOR_ERR],
      .byte_len = w[ROCE_CQE_BYTE_LEN],
      .qp_num = w[ROCE_CQE_QP_NUM],
      .src_qp = w[ROCE_CQE_SRC_QP],
      .wc_flags = w[ROCE_CQE_FLAGS],
      .pkey_index = (uint16_t)w[ROCE_CQE_PKEY_INDEX],
      .sl = (uint8_t)w[ROCE_CQE_SL],
  };
  if ((wc->wc_flags & IBV_WC_WITH_INV) != 0) wc->invalidated_rkey = w[ROCE_CQE_IMMEDIATE];
  else wc->imm_data = htonl(w[ROCE_CQE_IMMEDIATE]);
}

// Completions of the ring, at most so many.
static int take(struct roce_ring *ring, int count, struct ibv_wc *wc) {
  uint32_t *consumer = ring->words + ROCE_CONTROL_CONSUMER, first = *consumer;
  uint32_t used = load(ring->words + ROCE_CONTROL_PRODUCER) - first;
  int found = used < (uint32_t)count ? (int)used : count;
  for (int i = 0; i < found; i++) get_completion(entry(ring, first + (uint32_t)i), &wc[i]);
  if (found > 0) store(consumer, first + (uint32_t)found);
  return found;
}

// Nothing is there: another process may have to run first, the device or the peer.
static int wait_a_little(struct roce_cq *own) {
  struct roce_context *r = roce_of(own->ex.context);
  char byte;
  static const struct timespec moment = {.tv_nsec = 20000};
  if (++own->empty_polls < BUSY_POLLS) return 0;
  if (own->empty_polls < YIELDING_POLLS) {
    sched_yield();
    return 0;
  }
  nanosleep(&moment, NULL);
  if (own->empty_polls % LOOKING_POLLS != 0 || recv(r->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0) return 0;
  errno = EIO;
  return -1;
}

// Result of a poll that found nothing.
static int found_none(struct roce_cq *own) {
  if (load(own->ring.words + ROCE_CONTROL_STATE) == 0) return wait_a_little(own);
  errno = EIO;  // It has overrun.
  return -1;
}

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc) {
  struct roce_cq *own = (struct roce_cq *)cq;
  int found = 0;
  if (count <= 0) return 0;
  if (!is_ours(cq->context)) {
    errno = EPERM;
    return -1;
  }
  pthread_mutex_lock(&own->ring.lock);
  while (found < count && own->held > 0) {
    wc[found++] = own->older[own->first_held++].wc;
    own->held--;
  }
  found += take(&own->ring, count - found, wc + found);
  if (found > 0) own->empty_polls = 0;
  else found = found_none(own);
  pthread_mutex_unlock(&own->ring.lock);
  return found;
}

int roce_poll_one(struct roce_cq *own, struct roce_completion *to) {
  int found = 1;
  if (!is_ours(own->ex.context)) {
    errno = EPERM;
    return -1;
  }
  pthread_mutex_lock(&own->ring.lock);
  if (own->held > 0) {
    *to = own->older[own->first_held++];
    own->held--;
  } else {
    // The entry may be written again once it is given back.
    to->time = time_of(&own->ring, entry(&own->ring, *(own->ring.words + ROCE_CONTROL_CONSUMER)));
    found = take(&own->ring, 1, &to->wc);
  }
  if (found > 0) own->empty_polls = 0;
  else found = found_none(own);
  pthread_mutex_unlock(&own->ring.lock);
  return found;
}

static int req_notify(struct ibv_cq *cq, int solicited_only) {
  struct roce_cq *own = (struct roce_cq *)cq;
  uint32_t *armed;
  if (!is_ours(cq->context)) return EPERM;
  pthread_mutex_lock(&own->ring.lock);
  armed = own->ring.words + ROCE_CONTROL_ARMED;
  // A request for any completion is not narrowed by a later one (ibv_req_notify_cq(3)).
  if (!solicited_only) store(armed, 1);
  else if (load(armed) != 1) store(armed, 2);
  pthread_mutex_unlock(&own->ring.lock);
  return 0;
}

int roce_move_completions(struct roce_cq *own, const struct roce_ring *next) {
  struct roce_ring *ring = &own->ring;
  uint32_t used;
  struct roce_completion *all;
  int error = 0;
  pthread_mutex_lock(&ring->lock);
  // The device writes no more into the ring before.
  used = load(ring->words + ROCE_CONTROL_PRODUCER) - load(ring->words + ROCE_CONTROL_CONSUMER);
  all = malloc((own->held + used + 1) * sizeof *all);
  if (all == NULL) error = ENOMEM;
  else {
    if (own->held > 0) memcpy(all, own->older + own->first_held, own->held * sizeof *all);
    for (; used > 0; used--) {
      struct roce_completion *one = &all[own->held];
      one->time = time_of(ring, entry(ring, *(ring->words + ROCE_CONTROL_CONSUMER)));
      own->held += (unsigned)take(ring, 1, &one->wc);
    }
    free(own->older);
    own->older = all;
    own->first_held = 0;
  }
  ring->words = next->words;
  ring->capacity = next->capacity;
  pthread_mutex_unlock(&ring->lock);
  return error;
}

void roce_forget_completions(struct ibv_cq *cq, uint32_t qp_num) {
  struct roce_cq *own = (struct roce_cq *)cq;
  struct roce_ring *ring = &own->ring;
  uint32_t *consumer, first, gone = 0;
  unsigned kept = 0;
  pthread_mutex_lock(&ring->lock);
  for (unsigned i = 0; i < own->held; i++) {
    struct roce_completion *one = &own->older[own->first_held + i];
    if (one->wc.qp_num != qp_num) own->older[own->first_held + kept++] = *one;
  }
  own->held = kept;
  consumer = ring->words + ROCE_CONTROL_CONSUMER;
  first = *consumer;
  // From the youngest on: those that stay move towards it, and the device may add others behind it meanwhile.
  for (uint32_t i = load(ring->words + ROCE_CONTROL_PRODUCER); i-- != first;) {
    uint32_t *w = entry(ring, i);
    if (w[ROCE_CQE_QP_NUM] == qp_num) gone++;
    else if (gone > 0) memcpy(entry(ring, i + gone), w, ring->stride * sizeof *w);
  }
  store(consumer, first + gone);
  pthread_mutex_unlock(&ring->lock);
}

void roce_set_ring_ops(struct roce_context *r) {
  r->verbs.context.ops.poll_cq = poll_cq;
  r->verbs.context.ops.req_notify_cq = req_notify;
  r->verbs.context.ops.post_send = roce_post_send;
  r->verbs.context.ops.post_recv = post_qp_recv;
  r->verbs.context.ops.post_srq_recv = post_srq_recv;
  r->verbs.context.ops.bind_mw = roce_bind_mw;
}
