// Polls queues in turn that stay empty, of one context or two, as a program does that looks for completions between pieces of its work. On this
// machine a yield goes to a thread that computes: each takes a millisecond. The thread may find that out, must not pay for it at each poll, and
// sleeps once a round. Then polls one queue for long, and another one for long, again and again. At
// the end, the connection of one context ends. Prints "ok".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "check.h"

#define MAX_YIELDS 40
#define CONTEXTS 2
#define MANY 600
#define CHANGES 16
#define LONG 10000

static int yields, sleeps, is_quick;

// In the place of libc's.
int sched_yield(void) {
  const struct timespec moment = {.tv_nsec = 1000000};
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
static int poll_until_end(struct ibv_context *context) {
  struct ibv_wc wc;
  CHECK(shutdown(context->cmd_fd, SHUT_RDWR) == 0);
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
  CHECK(poll_until_end(contexts[0]));
  printf("ok\n");
  return 0;
}
