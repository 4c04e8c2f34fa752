// Polling: completions are read from the ring that the device writes them into. A thread that polls in vain makes way for the device.
#include <arpa/inet.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "rings.h"

// A thread that polls in vain lets others run: the device, or the peer, may need its processor. After so many empty polls in a row
// each poll yields, and after so many more each sleeps until something may have completed, but not longer than so many ns: the
// program may wait for something else as well. One in so many looks whether the device is there: a prime, so that it is a poll of another context
// each time.
#define BUSY_POLLS 8
#define YIELDING_POLLS 4096
#define LOOKING_POLLS 1021
#define NAP_NANOSECONDS 20000
// A yield that took longer went to a thread that computes: from then on the thread sleeps, as a wake comes before such a thread.
#define LONG_YIELD_NANOSECONDS 500000
// Where the device works on this processor, the thread sleeps at once: the scheduler gives equal shares, and polls and yields would come
// out of the device's. The device wakes it (packages/device/src/shared-rings.ts), also if nothing has completed for 0.2 ms. After so many
// ns the device is stopped, or gone: on a virtual machine a timer that is due before the kernel's next tick costs as much as sending a
// packet, one that is due later and is not needed does not.
#define SHARING_NANOSECONDS 5000000

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

// The empty polls of the calling thread, whichever queues of whichever contexts it polls. The thread waits at one queue, once a round: when it polls
// that queue again, it has seen each of its queues empty. How many these are is not known, and they may change, so the round is found as Brent's
// algorithm finds a cycle: if the first queue is not polled again within `most` polls, the one at hand takes its place, and `most` doubles. It has an
// end, because a thread that changes from queue to queue, each polled for long, neither sleeps nor yields for so many polls after each change.
static __thread struct {
  unsigned polls;  // Empty ones in a row.
  const struct roce_cq *first;
  unsigned since, most;  // The last poll of the first queue.
  const struct roce_context *context;
  uint32_t turns;     // Of the first queue's device until then.
  int has_strangers;  // Queues of other contexts were polled since then: their completions do not wake a thread that sleeps at the first queue.
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
  if (nanoseconds() - start > LONG_YIELD_NANOSECONDS && idle.polls < YIELDING_POLLS) idle.polls = YIELDING_POLLS;
}

// Nothing was there at a poll that began after so many turns of the device. −1 and errno where there is no device any more.
static int wait_a_little(struct roce_cq *own, uint32_t turns) {
  struct roce_context *r = roce_of(own->ex.context);
  const int shares = shares_processor(r), is_woken = shares && is_awake(r);
  const int sleeps = is_woken || idle.polls >= YIELDING_POLLS;
  int looks = ++idle.polls % LOOKING_POLLS == 0;
  const int is_first = idle.first == own;
  if (sleeps && is_first && idle.turns == turns) {
    store(r->bells.words + ROCE_CONTROL_WAITING, shares ? ROCE_WAITING_SHARING : ROCE_WAITING_APART);
    if (!is_woken || idle.has_strangers) wait_for_turn(r, turns, NAP_NANOSECONDS);
    // A device that fell asleep meanwhile may not have seen that a thread waits.
    else if (is_awake(r)) looks |= wait_for_turn(r, turns, SHARING_NANOSECONDS);
  } else {
    const int is_missed = !is_first && idle.first != NULL && idle.polls - idle.since >= idle.most;
    const int begins = is_missed || idle.first == NULL || (is_first && idle.turns != turns);
    if (begins) {
      if (idle.first == NULL) idle.most = BUSY_POLLS;
      else if (is_missed && idle.most < YIELDING_POLLS) idle.most *= 2;
      idle.first = own;
      idle.context = r;
      idle.turns = turns;
    }
    // A thread that sleeps at its first queue has waited when it looks at the others.
    if (idle.polls >= BUSY_POLLS && (begins || !sleeps)) yield();
  }
  if (idle.first == own) {
    idle.since = idle.polls;
    idle.has_strangers = 0;
  } else if (idle.context != r) idle.has_strangers = 1;
  if (!looks) return 0;
  NOT_CANCELLED;
  if (roce_is_connected(r)) return 0;
  if (!roce_is_open(&r->socket)) roce_report_closed();
  roce_fails("ibv_poll_cq", EIO, "the device, or the program, has ended the connection");
  return -1;
}

static int has_overrun(const struct roce_cq *own) { return load(own->ring.words + ROCE_CONTROL_STATE) != 0; }

// The result of a poll that found so many; −1 for a queue that has overrun. Other threads may have the queue meanwhile.
static int found_so_many(struct roce_cq *own, int found, uint32_t turns) {
  if (found == 0) return wait_a_little(own, turns);
  if (found < 0) {
    roce_fails("ibv_poll_cq", EIO, "the queue has overrun: there were more completions than cqe");
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
    roce_fails("ibv_poll_cq", EPERM, OF_PARENT);
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
    roce_fails("ibv_poll_cq", EPERM, OF_PARENT);
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
  roce_fails("ibv_next_poll", EPERM, OF_PARENT);
  return -1;
}

void roce_end_poll(struct roce_cq *own) { pthread_mutex_unlock(&own->ring.lock); }

// Without the lock, which a thread between ibv_start_poll and ibv_end_poll holds.
static int req_notify(struct ibv_cq *cq, int solicited_only) {
  struct roce_cq *own = (struct roce_cq *)cq;
  uint32_t *words, *now = __atomic_load_n(&own->ring.words, __ATOMIC_SEQ_CST);
  if (!is_ours(cq->context)) return roce_fails("ibv_req_notify_cq", EPERM, OF_PARENT);
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

void roce_set_poll_ops(struct roce_context *r) {
  r->verbs.context.ops.poll_cq = poll_cq;
  r->verbs.context.ops.req_notify_cq = req_notify;
}
