// ibv_start_poll on a queue to which the device publishes a completion just when the poll looks for one: has it the time and the tag of
// that completion? Linked with poll.o and run by completions.test.ts.
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#include "../ibverbs/roce.h"

#define CAPACITY 16
#define PAGE 65536  // The largest that Linux has.

// Of the rest of the library.
int roce_generation;
int roce_fails(const char *call, int error, const char *why) {
  (void)call, (void)why;
  return error;
}
int roce_is_open(const struct roce_file *file) { return (void)file, 1; }
int roce_is_connected(const struct roce_context *r) { return (void)r, 1; }
void roce_report_closed(void) {}

// The producer's count has a page of its own, which the poll can't read before `publish` was called.
static uint8_t *pages;
static uint32_t *words, published;

static void publish(int signal) {
  uint32_t *w = words + ROCE_CONTROL_WORDS + published % CAPACITY * ROCE_TAGGED_CQE_WORDS;
  (void)signal;
  mprotect(pages, PAGE, PROT_READ | PROT_WRITE);
  published++;
  w[ROCE_CQE_WR_ID_LOW] = w[ROCE_CQE_STAMP_LOW] = w[ROCE_CQE_TAG_LOW] = published;
  words[ROCE_CONTROL_PRODUCER] = published;
}

int main(void) {
  static uint32_t bells[ROCE_CONTROL_WORDS];
  static struct roce_context context = {.socket = {.fd = -1}, .bells.words = bells};
  static struct roce_cq cq = {.ring = {.capacity = CAPACITY, .stride = ROCE_TAGGED_CQE_WORDS}};
  pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return 1;
  words = (uint32_t *)(pages + PAGE) - ROCE_CONTROL_CONSUMER;
  cq.ex.context = &context.verbs.context;
  cq.ring.words = words;
  pthread_mutex_init(&cq.ring.lock, NULL);
  signal(SIGSEGV, publish);
  while (published < 2 * CAPACITY) {
    mprotect(pages, PAGE, PROT_NONE);
    if (roce_start_poll(&cq) != 1) return 1;
    printf("%u %u %u\n", (unsigned)cq.current.wc.wr_id, (unsigned)cq.current.time, (unsigned)cq.current.tag.tag);
    roce_end_poll(&cq);
  }
  return 0;
}
