// Posting and polling: rings in memory that the device has, too (packages/transport/src/rings.ts). No system call is made but
// for a device that sleeps.
#include <arpa/inet.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "roce.h"

// A thread that polls in vain lets others run: the device, or the peer, may need its processor. After so many empty polls in a row
// each poll yields, and after so many more each sleeps until something may have completed, but not longer than so many ns: the
// program may wait for something else as well. One in so many looks whether the device is there.
#define BUSY_POLLS 8
#define YIELDING_POLLS 4096
#define LOOKING_POLLS 1024
#define NAP_NANOSECONDS 20000
// A yield that took longer went to a thread that computes: from then on the thread sleeps, as a wake comes before such a thread.
#define LONG_YIELD_NANOSECONDS 500000
// Where the device works on this processor, the thread sleeps at once: the scheduler gives equal shares, and polls and yields would come
// out of the device's. The device wakes it (packages/device/src/shared-rings.ts), also if nothing has completed for 0.2 ms. After so many
// ns the device is stopped, or gone: on a virtual machine a timer that is due before the kernel's next tick costs as much as sending a
// packet, one that is due later and is not needed does not.
#define SHARING_NANOSECONDS 5000000

// A child must not write into the parent's rings.
static int is_ours(struct ibv_context *context) { return roce_of(context)->generation == roce_generation; }

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
  // After mlockall(MCL_FUTURE) the kernel would make all of the pages at once, and lock them: not those that can't be accessed yet.
  void *at = mmap(NULL, shape[0], PROT_NONE, MAP_SHARED | MAP_NORESERVE, arena, 0);
  int error = at == MAP_FAILED ? errno : 0;
  close(arena);
  if (error == 0) {
    munlock(at, shape[0]);
    if (mprotect(at, shape[0], PROT_READ | PROT_WRITE) != 0) error = errno;
    if (error != 0) munmap(at, shape[0]);
  }
  if (error != 0) {
    if (error == EAGAIN)
      dprintf(STDERR_FILENO, "libibverbs of roce run: the limit of locked memory (ulimit -l) has no room for %u MiB of rings, after mlockall(MCL_FUTURE)\n",
              shape[0] >> 20);
    close(doorbell);
    errno = error;
    return -1;
  }
  r->arena = at;
  r->arena_bytes = shape[0];
  r->doorbell = doorbell;
  r->bells = (struct roce_ring){.words = (uint32_t *)(r->arena + shape[1]), .capacity = shape[2], .stride = 1};
  pthread_mutex_init(&r->bells_lock, NULL);
  return 0;
}

void roce_rings_close(struct roce_context *r) {
  munmap(r->arena, r->arena_bytes);
  close(r->doorbell);
}

// Publishes the entries before `index`, and rings the doorbell where the device has to be notified. Receives are not urgent: a device
// that sleeps takes them before the next packet.
static void publish(struct ibv_context *context, struct roce_ring *ring, uint32_t index, int is_urgent) {
  struct roce_context *r = roce_of(context);
  ring->producer = index;
  store(ring->words + ROCE_CONTROL_PRODUCER, index);
  if (!taken(ring->words + ROCE_CONTROL_SLEEPING)) return;
  pthread_mutex_lock(&r->bells_lock);
  *entry(&r->bells, r->bells.producer) = ring->id;
  store(r->bells.words + ROCE_CONTROL_PRODUCER, ++r->bells.producer);
  // In the error state they are flushed at once. A device that enters it takes what rang before it sleeps.
  if (load(ring->words + ROCE_CONTROL_STATE) == IBV_QPS_ERR) is_urgent = 1;
  if (is_urgent && taken(r->bells.words + ROCE_CONTROL_SLEEPING)) {
    static const uint64_t one = 1;
    // Posting is no cancellation point, as write would be.
    while (syscall(SYS_write, r->doorbell, &one, sizeof one) < 0 && errno == EINTR) continue;
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
    return EPERM;
  }
  pthread_mutex_lock(&ring->lock);
  index = ring->producer;
  if (!sends(ring)) error = EINVAL;
  for (; error == 0 && wr != NULL; wr = wr->next) {
    error = has_room(ring, index) ? put_send(q, entry(ring, index), wr) : ENOMEM;
    if (error != 0) break;
    if (wr->opcode == IBV_WR_BIND_MW) wr->bind_mw.mw->rkey = wr->bind_mw.rkey;
    index++;
  }
  if (index != ring->producer) publish(qp->context, ring, index, 1);
  pthread_mutex_unlock(&ring->lock);
  if (error != 0) *bad = wr;
  return error;
}

void roce_start_sends(struct roce_qp *q) {
  if (!is_ours(q->ex.qp_base.context)) {
    q->error = EPERM;
    return;
  }
  pthread_mutex_lock(&q->sends.lock);
  q->error = sends(&q->sends) ? 0 : EINVAL;
  q->count = 0;
  q->is_open = 0;
}

void roce_put_open(struct roce_qp *q) {
  const uint32_t index = q->sends.producer + q->count;
  if (!q->is_open || q->error != 0) return;
  q->error = has_room(&q->sends, index) ? put_send(q, entry(&q->sends, index), &q->wr) : ENOMEM;
  q->is_open = 0;
  q->count++;
}

int roce_end_sends(struct roce_qp *q, int posts) {
  int error;
  if (!is_ours(q->ex.qp_base.context)) return EPERM;
  if (posts) roce_put_open(q);
  error = q->error;
  if (posts && error == 0 && q->count > 0) publish(q->ex.qp_base.context, &q->sends, q->sends.producer + q->count, 1);
  pthread_mutex_unlock(&q->sends.lock);
  return error;
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
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
    publish(qp->context, ring, ring->producer + 1, 1);
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
  if (index != ring->producer) publish(context, ring, index, 0);
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

// Time and tag of a completion; 0 where entries have none.
static void get_more(const struct roce_ring *ring, const uint32_t *w, struct roce_completion *to) {
  to->time = 0;
  to->tag = (struct ibv_wc_tm_info){0};
  if (ring->stride >= ROCE_STAMPED_CQE_WORDS) to->time = (uint64_t)w[ROCE_CQE_STAMP_HIGH] << 32 | w[ROCE_CQE_STAMP_LOW];
  if (ring->stride < ROCE_TAGGED_CQE_WORDS) return;
  to->tag.tag = (uint64_t)w[ROCE_CQE_TAG_HIGH] << 32 | w[ROCE_CQE_TAG_LOW];
  to->tag.priv = w[ROCE_CQE_TAG_DATA];
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

// One completion of the ring with its time and tag; 0 where there is none.
static int take_whole(struct roce_ring *ring, struct roce_completion *to) {
  uint32_t *consumer = ring->words + ROCE_CONTROL_CONSUMER, first = *consumer;
  const uint32_t *w = entry(ring, first);
  // Nothing of the entry is read before the device has published it, and all of it before it is given back.
  if (load(ring->words + ROCE_CONTROL_PRODUCER) == first) return 0;
  get_completion(w, &to->wc);
  get_more(ring, w, to);
  store(consumer, first + 1);
  return 1;
}

// Of the calling thread, whichever queues it polls.
static __thread struct {
  unsigned polls;  // Empty ones in a row.
  // The queue that is waited for, since that poll, and the turns of its device until then. Once the thread looks at it again, it has
  // seen each of its queues empty.
  const struct roce_cq *first;
  unsigned since;
  const struct roce_context *context;
  uint32_t turns;
} idle;

// Whether the device was on this thread's processor at its last turn.
static int shares_processor(const struct roce_context *r) {
  return load(r->bells.words + ROCE_CONTROL_PROCESSOR) == (uint32_t)sched_getcpu() + 1;
}

static int is_awake(const struct roce_context *r) { return load(r->bells.words + ROCE_CONTROL_SLEEPING) == 0; }

// Until the device has had another turn in which something may have completed. Whether it did not for so long.
static int wait_for_turn(struct roce_context *r, uint32_t turns, long nanoseconds) {
  const struct timespec moment = {.tv_nsec = nanoseconds};
  return syscall(SYS_futex, r->bells.words + ROCE_CONTROL_TURNS, FUTEX_WAIT, turns, &moment, NULL, 0) != 0 && errno == ETIMEDOUT;
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void yield(void) {
  const int64_t start = nanoseconds();
  sched_yield();
  if (nanoseconds() - start > LONG_YIELD_NANOSECONDS) idle.polls = YIELDING_POLLS;
}

// Nothing was there at a poll that began after so many turns of the device. −1 and errno where there is no device any more.
static int wait_a_little(struct roce_cq *own, uint32_t turns) {
  struct roce_context *r = roce_of(own->ex.context);
  const int shares = shares_processor(r), is_woken = shares && is_awake(r);
  const int sleeps = is_woken || idle.polls >= YIELDING_POLLS;
  int looks = ++idle.polls % LOOKING_POLLS == 0;
  char byte;
  if (sleeps && idle.context == r && idle.turns == turns && idle.first == own) {
    store(r->bells.words + ROCE_CONTROL_WAITING, shares ? ROCE_WAITING_SHARING : ROCE_WAITING_APART);
    if (!is_woken) wait_for_turn(r, turns, NAP_NANOSECONDS);
    // A device that fell asleep meanwhile may not have seen that a thread waits.
    else if (is_awake(r)) looks |= wait_for_turn(r, turns, SHARING_NANOSECONDS);
  } else {
    // The queue that was the first may not be polled any more.
    if (idle.context != r || idle.turns != turns || idle.first == NULL || idle.polls - idle.since >= BUSY_POLLS) {
      idle.first = own;
      idle.since = idle.polls;
      idle.context = r;
      idle.turns = turns;
    }
    if (idle.polls >= BUSY_POLLS) yield();
  }
  if (!looks) return 0;
  NOT_CANCELLED;
  if (recv(r->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0) return 0;
  errno = EIO;
  return -1;
}

static int has_overrun(const struct roce_cq *own) { return load(own->ring.words + ROCE_CONTROL_STATE) != 0; }

// The result of a poll that found so many; −1 for a queue that has overrun. Other threads may have the queue meanwhile.
static int found_so_many(struct roce_cq *own, int found, uint32_t turns) {
  if (found == 0) return wait_a_little(own, turns);
  if (found < 0) {
    errno = EIO;
    return -1;
  }
  idle.polls = 0;
  idle.first = NULL;
  return found;
}

// Turns of the device so far; read before a queue is looked at.
static uint32_t turns_of(const struct roce_context *r) { return load(r->bells.words + ROCE_CONTROL_TURNS); }

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc) {
  struct roce_cq *own = (struct roce_cq *)cq;
  uint32_t turns;
  int found = 0;
  if (count <= 0) return 0;
  if (!is_ours(cq->context)) {
    errno = EPERM;
    return -1;
  }
  turns = turns_of(roce_of(cq->context));
  pthread_mutex_lock(&own->ring.lock);
  while (found < count && own->held > 0) {
    wc[found++] = own->older[own->first_held++].wc;
    own->held--;
  }
  found += take(&own->ring, count - found, wc + found);
  if (found == 0 && has_overrun(own)) found = -1;
  pthread_mutex_unlock(&own->ring.lock);
  return found_so_many(own, found, turns);
}

// The next completion; the caller holds the lock.
static int take_next(struct roce_cq *own) {
  struct roce_completion *to = &own->current;
  if (own->held > 0) {
    *to = own->older[own->first_held++];
    own->held--;
    return 1;
  }
  if (take_whole(&own->ring, to)) return 1;
  return has_overrun(own) ? -1 : 0;
}

int roce_start_poll(struct roce_cq *own) {
  uint32_t turns;
  int found;
  if (!is_ours(own->ex.context)) {
    errno = EPERM;
    return -1;
  }
  turns = turns_of(roce_of(own->ex.context));
  pthread_mutex_lock(&own->ring.lock);
  found = take_next(own);
  if (found != 1) pthread_mutex_unlock(&own->ring.lock);
  return found_so_many(own, found, turns);
}

// A first poll in vain does not sleep, so that ibv_end_poll is soon; a thread that polls on does.
int roce_next_poll(struct roce_cq *own) {
  uint32_t turns = turns_of(roce_of(own->ex.context));
  if (is_ours(own->ex.context)) return found_so_many(own, take_next(own), turns);
  errno = EPERM;
  return -1;
}

void roce_end_poll(struct roce_cq *own) { pthread_mutex_unlock(&own->ring.lock); }

// Without the lock, which a thread between ibv_start_poll and ibv_end_poll holds.
static int req_notify(struct ibv_cq *cq, int solicited_only) {
  struct roce_cq *own = (struct roce_cq *)cq;
  uint32_t *words, *now = __atomic_load_n(&own->ring.words, __ATOMIC_SEQ_CST);
  if (!is_ours(cq->context)) return EPERM;
  // Again where the queue was resized meanwhile.
  do {
    uint32_t none = 0;
    words = now;
    // A request for any completion is not narrowed by a later one (ibv_req_notify_cq(3)).
    if (!solicited_only) store(words + ROCE_CONTROL_ARMED, 1);
    else __atomic_compare_exchange_n(words + ROCE_CONTROL_ARMED, &none, 2, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    now = __atomic_load_n(&own->ring.words, __ATOMIC_SEQ_CST);
  } while (now != words);
  return 0;
}

void roce_move_completions(struct roce_cq *own, const struct roce_ring *next, struct roce_completion *room) {
  struct roce_ring *ring = &own->ring;
  uint32_t armed, *before;
  if (own->held > 0) memcpy(room, own->older + own->first_held, own->held * sizeof *room);
  // The device writes no more completions into the ring before.
  while (take_whole(ring, &room[own->held])) own->held++;
  free(own->older);
  own->older = room;
  own->first_held = 0;
  // A request for an event moves along: the device looks at the last two rings alone. Never is there a moment with none.
  before = ring->words;
  armed = load(before + ROCE_CONTROL_ARMED);
  if (armed != 0) store(next->words + ROCE_CONTROL_ARMED, armed);
  __atomic_store_n(&ring->words, next->words, __ATOMIC_SEQ_CST);
  store(before + ROCE_CONTROL_ARMED, 0);
  ring->capacity = next->capacity;
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
  r->verbs.context.ops.post_send = post_send;
  r->verbs.context.ops.post_recv = post_qp_recv;
  r->verbs.context.ops.post_srq_recv = post_srq_recv;
  r->verbs.context.ops.bind_mw = bind_mw;
}
