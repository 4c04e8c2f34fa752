// Polls queues in turn that stay empty, two and many, as a program does that looks for completions between pieces of its work, on a machine where a
// yield goes to a thread that computes: here each takes a millisecond. The thread may find that out, and must not pay for it at each poll.
// Prints "ok".
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <time.h>

#include "check.h"

#define POLLS 4000
#define MAX_YIELDS 40
#define MANY 100

static int yields;

// In the place of libc's.
int sched_yield(void) {
  const struct timespec moment = {.tv_nsec = 1000000};
  yields++;
  return nanosleep(&moment, NULL);
}

static struct ibv_cq *queues[MANY];

static int poll_in_turn(int count) {
  struct ibv_wc wc;
  yields = 0;
  for (int i = 0; i < POLLS; i++) CHECK(ibv_poll_cq(queues[i % count], 1, &wc) == 0);
  if (yields <= MAX_YIELDS) return 1;
  printf("%d yields in %d polls of %d queues\n", yields, POLLS, count);
  return 0;
}

int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context;
  CHECK((context = ibv_open_device(list[0])) != NULL);
  for (int i = 0; i < MANY; i++) CHECK((queues[i] = ibv_create_cq(context, 16, NULL, NULL, 0)) != NULL);
  CHECK(poll_in_turn(2));
  CHECK(poll_in_turn(MANY));
  printf("ok\n");
  return 0;
}
