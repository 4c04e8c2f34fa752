// Polls queues in turn that stay empty, of one context or two, as a program does that looks for completions between pieces of its work. On this
// machine a yield goes to a thread that computes: each takes a millisecond. The thread may find that out, must not pay for it at each poll, and
// sleeps once a round. Then polls one queue for long, and another one for long, again and again. At the end, the connection of one context ends:
// its polls fail. Prints "ok".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define MAX_YIELDS 40
#define CONTEXTS 2
#define MANY 600
#define CHANGES 16
#define LONG 10000

static int yields, sleeps, is_quick;
static __thread int yields_at_once;
static atomic_int has_completed;

// In the place of libc's.
int sched_yield(void) {
  const struct timespec moment = {.tv_nsec = 1000000};
  if (yields_at_once) return 0;
  yields++;
  return nanosleep(&moment, NULL);
}

// As well: the library sleeps by it.
long syscall(long number, ...) {
  long (*const next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) arguments[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex) {
    sleeps++;
    if (is_quick) return 0;
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

static struct ibv_cq *queues[CONTEXTS][MANY];

static int poll_in_turn(int contexts, int count) {
  // It takes some rounds to find out how many queues there are.
  const int rounds = 20, polls = rounds * contexts * count + 2000;
  struct ibv_wc wc;
  yields = sleeps = 0;
  for (int i = 0; i < polls; i++) CHECK(ibv_poll_cq(queues[i % contexts][i / contexts % count], 1, &wc) == 0);
  if (yields <= MAX_YIELDS && sleeps >= rounds / 2) return 1;
  printf("%d yields and %d sleeps in %d polls of %d queues of %d contexts each\n", yields, sleeps, polls, count, contexts);
  return 0;
}

// A thread that changes to another queue cannot know at once that the first one is not polled any more, but must not take ever longer for it.
static int poll_for_long(void) {
  struct ibv_wc wc;
  is_quick = 1;
  for (int change = 0; change < CHANGES; change++) {
    sleeps = 0;
    for (int i = 0; i < LONG; i++) CHECK(ibv_poll_cq(queues[0][change % 2], 1, &wc) == 0);
    if (sleeps >= LONG / 2) continue;
    printf("%d sleeps in %d polls of a queue after %d changes\n", sleeps, LONG, change);
    return 0;
  }
  return 1;
}

// The thread, which looks for the device at some polls only, must not look by the same context each time.
static int poll_until_end(void) {
  struct ibv_wc wc;
  for (int i = 0, found = 0; i < LONG; i++) {
    CHECK(ibv_poll_cq(queues[1][0], 1, &wc) == 0);
    if (ibv_poll_cq(queues[0][0], 1, &wc) == 0) continue;
    // Again, with the other context at even polls.
    if (++found == 2) return 1;
    CHECK(ibv_poll_cq(queues[1][0], 1, &wc) == 0);
  }
  printf("no error in %d polls of a context whose connection has ended\n", LONG);
  return 0;
}

// A context on which something completes all the time, at a queue that the other thread does not poll.
static void *completes(void *context) {
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {16, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  union ibv_gid gid;
  struct ibv_wc wc;
  yields_at_once = 1;
  CHECK(qp != NULL && ibv_query_gid(context, 1, 0, &gid) == 0);
  connect_qp(qp, qp->qp_num, gid);
  for (;;) {
    int found;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    while ((found = ibv_poll_cq(cq, 1, &wc)) == 0) {}
    CHECK(found == 1 && wc.status == IBV_WC_SUCCESS);
    has_completed = 1;
  }
}

// The thread must look for the device also where it yields at each round, to a thread that computes, because the other context has completions.
static int poll_beside_completions(struct ibv_context *context) {
  pthread_t thread;
  struct ibv_wc wc;
  // The first queue of the round is one of that context.
  for (int i = 0; i < LONG; i++) CHECK(ibv_poll_cq(queues[1][0], 1, &wc) == 0);
  CHECK(pthread_create(&thread, NULL, completes, context) == 0);
  while (!has_completed) usleep(1000);
  is_quick = 0;
  return poll_until_end();
}

int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *contexts[CONTEXTS];
  for (int i = 0; i < CONTEXTS; i++) {
    CHECK((contexts[i] = ibv_open_device(list[0])) != NULL);
    for (int j = 0; j < MANY; j++) CHECK((queues[i][j] = ibv_create_cq(contexts[i], 16, NULL, NULL, 0)) != NULL);
  }
  CHECK(poll_in_turn(1, 2));
  CHECK(poll_in_turn(1, MANY));
  CHECK(poll_in_turn(2, 1));
  CHECK(poll_in_turn(2, MANY / 2));
  CHECK(poll_for_long());
  CHECK(shutdown(contexts[0]->cmd_fd, SHUT_RDWR) == 0);
  CHECK(poll_until_end());
  CHECK(poll_beside_completions(contexts[1]));
  printf("ok\n");
  return 0;
}
