// A program whose allocator has a lock, which it holds over fork: whatever the library allocates as it registers memory, another thread
// may be forking at that moment. Prints "ok".
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);

static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;
static sem_t asked, held;
static __thread int registers;

static void before_fork(void) {
  pthread_mutex_lock(&heap);
  sem_post(&held);
}
static void after_fork(void) { pthread_mutex_unlock(&heap); }

// Another thread begins a fork first, and has this lock.
static void take_turn(void) {
  if (registers) {
    registers = 0;
    sem_post(&asked);
    sem_wait(&held);
    pthread_mutex_lock(&heap);
    registers = 1;
  } else pthread_mutex_lock(&heap);
  pthread_mutex_unlock(&heap);
}

void *malloc(size_t bytes) {
  take_turn();
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  take_turn();
  return __libc_calloc(count, bytes);
}

static void *forks(void *none) {
  for (;;) {
    sem_wait(&asked);
    const pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
  }
  return none;
}

int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_mr *mr;
  pthread_t thread;
  static char buffer[8192];
  CHECK(list != NULL && list[0] != NULL);
  CHECK((context = ibv_open_device(list[0])) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
  CHECK(pthread_atfork(before_fork, after_fork, after_fork) == 0);
  CHECK(pthread_create(&thread, NULL, forks, NULL) == 0);
  alarm(120);
  for (int i = 0; i < 3; i++) {
    registers = 1;
    mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
    registers = 0;
  }
  puts("ok");
  return 0;
}
