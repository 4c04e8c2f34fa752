// Registered memory as programs use it, on the library of native/ibverbs: prints "ok", or what was wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(that)                                                              \
  do {                                                                           \
    if (!(that)) {                                                               \
      printf("line %d: %s (errno %d: %s)\n", __LINE__, #that, errno, strerror(errno)); \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static size_t page;

// Whether the page is of a shared mapping; −1 where there is none.
static int is_shared(const void *at) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512], permissions[8];
  unsigned long from, to;
  int shared = -1;
  while (fgets(line, sizeof line, maps) != NULL)
    if (sscanf(line, "%lx-%lx %7s", &from, &to, permissions) == 3 && from <= (unsigned long)at &&
        (unsigned long)at < to)
      shared = permissions[3] == 's';
  fclose(maps);
  return shared;
}

static atomic_int stop;
static volatile unsigned long *counters;
static unsigned long stores[2];

static void *writer(void *which) {
  int i = (int)(long)which;
  // Each store is looked at once more: one that was lost shows.
  while (!stop) {
    unsigned long before = counters[i * 512];
    counters[i * 512] = before + 1;
    stores[i]++;
    if (counters[i * 512] != before + 1 || stores[i] != before + 1) {
      printf("a store of thread %d was lost: %lu, expected %lu\n", i, counters[i * 512], stores[i]);
      exit(1);
    }
  }
  return NULL;
}

int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = ibv_open_device(list[0]), *second = ibv_open_device(list[0]);
  struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(second);
  struct ibv_mr *a, *b, *c;
  pthread_t threads[2];
  uint8_t *bytes, on_stack[64];
  int status;
  page = (size_t)sysconf(_SC_PAGESIZE);
  CHECK(pd != NULL && other != NULL);

  // Regions that overlap, of two contexts, keep the bytes, and what is around them.
  bytes = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t i = 0; i < 8 * page; i++) bytes[i] = (uint8_t)(i * 7 + i / 256);
  CHECK((a = ibv_reg_mr(pd, bytes + 100, 2 * page, ACCESS)) != NULL);
  CHECK((b = ibv_reg_mr(pd, bytes + page + 5, 10, ACCESS)) != NULL);
  CHECK((c = ibv_reg_mr(other, bytes + page, 3 * page, ACCESS)) != NULL);
  CHECK(a->lkey != b->lkey);
  for (int i = 0; i < 4; i++) CHECK(is_shared(bytes + (size_t)i * page) == 1);
  CHECK(is_shared(bytes + 5 * page) == 0);
  bytes[page + 7] = 200;
  CHECK(ibv_dereg_mr(a) == 0);
  CHECK(is_shared(bytes) == 0 && is_shared(bytes + page) == 1 && is_shared(bytes + 2 * page) == 1);
  CHECK(ibv_dereg_mr(c) == 0);
  CHECK(is_shared(bytes + page) == 1 && is_shared(bytes + 2 * page) == 0);
  CHECK(ibv_dereg_mr(b) == 0);
  CHECK(is_shared(bytes + page) == 0);
  for (size_t i = 0; i < 8 * page; i++)
    CHECK(bytes[i] == (i == page + 7 ? 200 : (uint8_t)(i * 7 + i / 256)));

  // Memory that is unmapped while it is registered, and what comes there after it.
  CHECK((a = ibv_reg_mr(pd, bytes, 2 * page, ACCESS)) != NULL);
  CHECK(mmap(bytes, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == bytes);
  bytes[3] = 33;
  CHECK(ibv_dereg_mr(a) == 0);
  CHECK(bytes[3] == 33 && bytes[page + 7] == 200);

  // Memory that can't be shared.
  CHECK(ibv_reg_mr(pd, on_stack, sizeof on_stack, ACCESS) == NULL && errno == EFAULT);
  CHECK(munmap(bytes + 6 * page, page) == 0);
  CHECK(ibv_reg_mr(pd, bytes + 5 * page, 3 * page, ACCESS) == NULL && errno == EFAULT);
  CHECK(ibv_reg_mr(pd, (void *)-4096L, 8192, ACCESS) == NULL);
  CHECK(is_shared(bytes + 5 * page) == 0);
  {
    void *shared = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(ibv_reg_mr(pd, shared, page, ACCESS) == NULL && errno == EFAULT);
  }

  // Contexts that come and go in any order share the memory; a child's context has memory of its own.
  {
    struct ibv_context *third = ibv_open_device(list[0]), *fourth;
    CHECK(third != NULL && ibv_close_device(third) == 0);
    CHECK((third = ibv_open_device(list[0])) != NULL && (fourth = ibv_open_device(list[0])) != NULL);
    CHECK(ibv_close_device(third) == 0 && ibv_close_device(fourth) == 0);
    fflush(stdout);
    if (fork() == 0) {
      uint8_t *own = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      third = ibv_open_device(list[0]);
      _exit(third != NULL && ibv_reg_mr(ibv_alloc_pd(third), own, page, ACCESS) != NULL ? 0 : 1);
    }
    wait(&status);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }

  // Stores of other threads, while their pages are registered and deregistered, are not lost.
  counters = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (long i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, writer, (void *)i) == 0);
  for (int i = 0; i < 500; i++) {
    CHECK((a = ibv_reg_mr(pd, (void *)counters, 2 * page, ACCESS)) != NULL);
    CHECK(ibv_dereg_mr(a) == 0);
  }
  stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  CHECK(counters[0] == stores[0] && counters[512] == stores[1] && stores[0] > 0 && stores[1] > 0);

  // A child can't speak for its parent; a fault of the program's own ends it as ever.
  fflush(stdout);
  if (fork() == 0) _exit(ibv_alloc_pd(context) == NULL && errno == EPERM ? 0 : 1);
  wait(&status);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  if (fork() == 0) {
    mprotect(bytes, page, PROT_READ);
    bytes[0] = 1;
    _exit(0);
  }
  wait(&status);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);

  CHECK(ibv_dealloc_pd(pd) == 0 && ibv_dealloc_pd(other) == 0);
  CHECK(ibv_close_device(context) == 0 && ibv_close_device(second) == 0);
  puts("ok");
  return 0;
}
