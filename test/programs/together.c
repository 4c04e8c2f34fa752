// Memory that is registered next to the library's own messages, to locks, and to pages of which the kernel was asked something.
// The argument chooses. Prints "ok".
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#define REGISTRATIONS 2000
#define BYTES 100000
#define PIECE (1ul << 20)

static struct ibv_context *context;
static struct ibv_pd *pd;
static uint8_t *page, *buffer;
static pthread_mutex_t *mutex;
static sem_t *semaphores;
static atomic_int stop;
static atomic_size_t longest;

// The library's calls come here, too: how many bytes it makes read-only at once.
int mprotect(void *at, size_t length, int protection) {
  if (protection == PROT_READ && length > longest) longest = length;
  return (int)syscall(SYS_mprotect, at, length, protection);
}

static void *registers(void *bytes) {
  for (int i = 0; i < REGISTRATIONS; i++) {
    struct ibv_mr *mr = ibv_reg_mr(pd, buffer, (size_t)bytes, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
  }
  stop = 1;
  return NULL;
}

static void ask(void) {
  pthread_t thread;
  uint8_t *message = malloc(256);
  struct ibv_port_attr attr;
  buffer = malloc(BYTES);
  memset(buffer, 1, BYTES);
  // The library's next message would come to lie next to the buffer.
  free(message);
  CHECK(pthread_create(&thread, NULL, registers, (void *)BYTES) == 0);
  while (!stop) CHECK(ibv_query_port(context, 1, &attr) == 0);
  pthread_join(thread, NULL);
  free(buffer);
}

// Locks of this page, which a buffer shares: the kernel knows them by the page.
static void *takes(void *one) {
  while (!stop) {
    CHECK(pthread_mutex_lock(mutex) == 0);
    // For the others to wait in the kernel.
    sched_yield();
    CHECK(pthread_mutex_unlock(mutex) == 0);
  }
  return one;
}

static void inherit(void) {
  pthread_mutexattr_t attr;
  pthread_t threads[3];
  mutex = (pthread_mutex_t *)page;
  CHECK(pthread_mutexattr_init(&attr) == 0 && pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT) == 0);
  CHECK(pthread_mutex_init(mutex, &attr) == 0);
  stop = 0;
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, takes, NULL) == 0);
  CHECK(pthread_create(&threads[2], NULL, registers, (void *)BYTES) == 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

static void *waits(void *one) {
  while (sem_wait(&semaphores[0]) != 0) {}
  return one;
}

static void wake(void) {
  pthread_t thread;
  struct ibv_mr *mr;
  semaphores = (sem_t *)(page + 512);
  CHECK(sem_init(semaphores, 1, 0) == 0 && pthread_create(&thread, NULL, waits, NULL) == 0);
  // Asleep: a wakeup that it needs not would prove nothing.
  usleep(300000);
  mr = ibv_reg_mr(pd, buffer, 1024, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != NULL && sem_post(semaphores) == 0);
  pthread_join(thread, NULL);
  CHECK(ibv_dereg_mr(mr) == 0);
}

// The flags of a mapping, and its bytes that are locked.
static void flags_of(const void *at, char flags[256], unsigned long *locked) {
  FILE *maps = fopen("/proc/self/smaps", "r");
  char line[512];
  unsigned long from, to;
  int is_it = 0;
  while (fgets(line, sizeof line, maps) != NULL) {
    if (sscanf(line, "%lx-%lx %*s", &from, &to) == 2) is_it = from <= (unsigned long)at && (unsigned long)at < to;
    if (is_it) sscanf(line, "Locked: %lu kB", locked);
    if (is_it && strncmp(line, "VmFlags:", 8) == 0) snprintf(flags, 256, "%.200s", line);
  }
  fclose(maps);
}

static void advise(int locks) {
  uint8_t *at = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char flags[2][256];
  unsigned long locked[2];
  struct ibv_mr *mr;
  memset(at, 1, PIECE);
  CHECK(locks ? mlock(at, 65536) == 0 : madvise(at, PIECE, MADV_DONTDUMP) == 0);
  flags_of(at, flags[0], &locked[0]);
  mr = ibv_reg_mr(pd, at, PIECE, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != NULL);
  flags_of(at, flags[1], &locked[1]);
  CHECK(strcmp(flags[0], flags[1]) == 0 && locked[0] == locked[1] && strstr(flags[0], locks ? " lo" : " dd") != NULL);
  CHECK(ibv_dereg_mr(mr) == 0);
  flags_of(at, flags[1], &locked[1]);
  CHECK(strcmp(flags[0], flags[1]) == 0 && locked[0] == locked[1]);
}

// A copy of all of it would be there for a moment, in addition to all of it.
static void convert(void) {
  uint8_t *at = mmap(NULL, 16 * PIECE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct ibv_mr *mr;
  for (size_t i = 0; i < 16 * PIECE + 4096; i += 512) at[i] = (uint8_t)(i / 512 + i / 65536);
  longest = 0;
  mr = ibv_reg_mr(pd, at, 16 * PIECE + 4096, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != NULL && longest == PIECE);
  longest = 0;
  CHECK(ibv_dereg_mr(mr) == 0 && longest == PIECE);
  for (size_t i = 0; i < 16 * PIECE + 4096; i += 512) CHECK(at[i] == (uint8_t)(i / 512 + i / 65536));
}

// The rings of a context are not locked, though all that comes is: only the registered buffer grows what is.
static void lock_all(void) {
  unsigned long shared[2];
  char line[256];
  CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
  for (int i = 0; i < 2; i++) {
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status) != NULL) sscanf(line, "RssShmem: %lu kB", &shared[i]);
    fclose(status);
    if (i == 0) CHECK(ibv_open_device(ibv_get_device_list(NULL)[0]) != NULL);
  }
  CHECK(shared[1] < shared[0] + 16384);
  struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 1024, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  struct ibv_device **list = ibv_get_device_list(NULL);
  CHECK(list != NULL && (context = ibv_open_device(list[0])) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
  // Before anything else is allocated.
  if (strcmp(what, "asks") == 0) {
    ask();
    puts("ok");
    return 0;
  }
  page = aligned_alloc(4096, 26 * 4096);
  memset(page, 0, 26 * 4096);
  buffer = page + 1024;
  if (strcmp(what, "inherits") == 0) inherit();
  else if (strcmp(what, "wakes") == 0) wake();
  else if (strcmp(what, "locks") == 0) advise(1);
  else if (strcmp(what, "advises") == 0) advise(0);
  else if (strcmp(what, "converts") == 0) convert();
  else if (strcmp(what, "locks all") == 0) lock_all();
  else CHECK(!"an argument");
  puts("ok");
  return 0;
}
