// Registered memory of a program that forks, closes and opens, on the library of native/ibverbs: prints "ok", or what was wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static struct ibv_device **list;
static struct ibv_context *context;
static struct ibv_pd *pd;
static size_t page;

static uint8_t *pages(size_t count) {
  uint8_t *at = mmap(NULL, count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  return at;
}

static void wait_for(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// A child has what the parent had when it forked, and neither sees the stores of the other.
static void forks(void) {
  char *registered = malloc(64), *neighbour, byte;
  struct ibv_mr *mr = ibv_reg_mr(pd, strcpy(registered, "registered"), 64, ACCESS), *own;
  struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
  struct ibv_async_event event;
  struct ibv_cq *cq;
  uint8_t *fresh = pages(2);
  void *none;
  int to_child[2], to_parent[2];
  pid_t child;
  CHECK(mr != NULL && channel != NULL && pipe(to_child) == 0 && pipe(to_parent) == 0);
  neighbour = strcpy(malloc(64), "neighbour");
  strcpy((char *)fresh, "before");
  fflush(stdout);
  child = fork();
  if (child == 0) {
    CHECK(read(to_child[0], &byte, 1) == 1);
    CHECK(strcmp(neighbour, "neighbour") == 0 && strcmp(registered, "registered") == 0);
    strcpy(neighbour, "child");
    for (int i = 0; i < 1000; i++) free(malloc((size_t)i));
    // The parent's objects are not the child's.
    CHECK(ibv_reg_mr(pd, fresh, page, ACCESS) == NULL && errno == EPERM);
    CHECK(ibv_dereg_mr(mr) == EPERM);
    CHECK(ibv_import_pd(context, pd->handle) == NULL && errno == EPERM);
    CHECK(ibv_import_mr(pd, mr->handle) == NULL && errno == EPERM);
    CHECK(ibv_get_cq_event(channel, &cq, &none) == -1 && errno == EPERM);
    CHECK(ibv_get_async_event(context, &event) == -1 && errno == EPERM);
    // A context of its own registers the same pages.
    CHECK((context = ibv_open_device(list[0])) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
    CHECK((own = ibv_reg_mr(pd, registered, 64, ACCESS)) != NULL && ibv_dereg_mr(own) == 0);
    CHECK(strcmp(registered, "registered") == 0);
    CHECK(write(to_parent[1], "x", 1) == 1);
    exit(0);
  }
  CHECK(child > 0 && (own = ibv_reg_mr(pd, fresh, page, ACCESS)) != NULL);
  strcpy((char *)fresh, "live");
  strcpy(registered, "parent");
  CHECK(ibv_dereg_mr(mr) == 0 && write(to_child[1], "x", 1) == 1);
  wait_for(child);
  CHECK(read(to_parent[0], &byte, 1) == 1);
  CHECK(strcmp((char *)fresh, "live") == 0 && strcmp(neighbour, "neighbour") == 0 && strcmp(registered, "parent") == 0);
  CHECK(ibv_dereg_mr(own) == 0 && strcmp((char *)fresh, "live") == 0);
  CHECK(ibv_destroy_comp_channel(channel) == 0);
}

#define BIG ((size_t)16 << 20)
static uint8_t *big;
static volatile int registers;

// Of a pool, which takes its lock before fork.
static pthread_mutex_t pool = PTHREAD_MUTEX_INITIALIZER;
static void lock_pool(void) { pthread_mutex_lock(&pool); }
static void unlock_pool(void) { pthread_mutex_unlock(&pool); }

static void *register_big(void *unused) {
  while (registers) {
    struct ibv_mr *mr;
    lock_pool();
    mr = ibv_reg_mr(pd, big, BIG, ACCESS);
    CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
    unlock_pool();
    sched_yield();
  }
  return unused;
}

// While another thread registers memory, under a lock that the program takes before fork.
static void forks_meanwhile(void) {
  pthread_t thread;
  // Not next to the stack of the thread.
  big = pages(BIG / page + 64) + 32 * page;
  memset(big, 1, BIG);
  registers = 1;
  CHECK(pthread_create(&thread, NULL, register_big, NULL) == 0);
  for (int i = 0; i < 5; i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      for (size_t at = 0; at < BIG; at += page) {
        CHECK(big[at] == 1);
        big[at] = 2;
      }
      CHECK(ibv_open_device(list[0]) != NULL);
      _exit(0);
    }
    wait_for(child);
    CHECK(big[0] == 1);
  }
  registers = 0;
  pthread_join(thread, NULL);
}

// Where no descriptor is left.
static void forks_without_descriptors(void) {
  struct rlimit limit, none;
  uint8_t *at = pages(1);
  struct ibv_mr *mr;
  pid_t child;
  at[0] = 3;
  CHECK((mr = ibv_reg_mr(pd, at, page, ACCESS)) != NULL);
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  none = (struct rlimit){0, limit.rlim_max};
  CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  child = fork();
  if (child == 0) _exit(at[0] != 3);
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  wait_for(child);
  CHECK(ibv_dereg_mr(mr) == 0 && munmap(at, page) == 0);
}

__attribute__((noinline)) static struct ibv_mr *register_from_afar(uint8_t *at) {
  volatile uint8_t room[128 << 10];
  room[0] = 0;
  return ibv_reg_mr(pd, at, 64 + room[0], ACCESS);
}

// Of this stack: pages under the frame that deregisters them stay those of the device.
static void forks_after(void) {
  uint8_t on_stack[40 << 10], *at = on_stack + sizeof on_stack - 64;
  struct ibv_mr *mr = register_from_afar(memset(at, 4, 64));
  pid_t child;
  CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
  child = fork();
  if (child == 0) _exit(*(volatile uint8_t *)at != 4);
  wait_for(child);
}

// Pages one at a time, then all; and regions that stay when their context is closed.
static void registers_again(void) {
  struct ibv_context *other = ibv_open_device(list[0]);
  struct ibv_pd *others = ibv_alloc_pd(other);
  uint8_t *at = pages(100);
  struct ibv_mr *mr;
  int none[2];
  memset(at, 7, 100 * page);
  for (size_t i = 0; i < 100; i++) CHECK((mr = ibv_reg_mr(pd, at + i * page, page, ACCESS)) != NULL && ibv_dereg_mr(mr) == 0);
  CHECK((mr = ibv_reg_mr(pd, at, 100 * page, ACCESS)) != NULL && ibv_dereg_mr(mr) == 0);
  // The second context's region, then the last one's.
  CHECK(ibv_reg_mr(others, at, page, ACCESS) != NULL && ibv_reg_mr(pd, at + 2 * page, page, ACCESS) != NULL);
  CHECK(ibv_close_device(other) == 0 && ibv_close_device(context) == 0);
  CHECK((context = ibv_open_device(list[0])) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
  CHECK((mr = ibv_reg_mr(pd, at, 100 * page, ACCESS)) != NULL);
  for (size_t i = 0; i < 100 * page; i++) CHECK(at[i] == 7);
  CHECK(ibv_dereg_mr(mr) == 0);
  // Read-only memory, for a device that only reads.
  CHECK(mprotect(at, page, PROT_READ) == 0);
  CHECK(ibv_reg_mr(pd, at, page, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
  CHECK((mr = ibv_reg_mr(pd, at, page, IBV_ACCESS_REMOTE_READ)) != NULL && ibv_dereg_mr(mr) == 0);
  // Pages that the program protects later stay protected.
  CHECK((mr = ibv_reg_mr(pd, at + page, page, ACCESS)) != NULL && mprotect(at + page, page, PROT_NONE) == 0);
  CHECK(ibv_dereg_mr(mr) == 0 && pipe(none) == 0);
  CHECK(write(none[1], at + page, 1) == -1 && errno == EFAULT && close(none[0]) == 0 && close(none[1]) == 0);
  CHECK(munmap(at, 100 * page) == 0);
}

static void *open_one(void *barrier) {
  pthread_barrier_wait(barrier);
  return ibv_open_device(list[0]);
}

static void on_alarm(int signal) { (void)signal; }

// By threads at once, by a thread that gets signals, and under a limit of the size of files.
static void opens(void) {
  struct sigaction action = {.sa_handler = on_alarm};
  struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
  struct rlimit limit, small = {1 << 20, RLIM_INFINITY};
  struct ibv_context *made[4];
  pthread_t threads[4];
  pthread_barrier_t barrier;
  uint8_t *at = pages(4);
  struct ibv_mr *mr;
  CHECK(ibv_close_device(context) == 0);
  pthread_barrier_init(&barrier, NULL, 4);
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, open_one, &barrier) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], (void **)&made[i]) == 0 && made[i] != NULL);
  for (int i = 0; i < 4; i++) CHECK(ibv_close_device(made[i]) == 0);
  CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
  for (int i = 0; i < 30; i++) CHECK((made[0] = ibv_open_device(list[0])) != NULL && ibv_close_device(made[0]) == 0);
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
  CHECK((context = ibv_open_device(list[0])) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
  CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  small.rlim_max = limit.rlim_max;
  memset(at, 9, 4 * page);
  CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK((mr = ibv_reg_mr(pd, at, 4 * page, ACCESS)) != NULL && at[3 * page] == 9);
  at[3 * page] = 10;
  CHECK(ibv_dereg_mr(mr) == 0 && at[0] == 9 && at[3 * page] == 10 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static struct sigaction chained;
static void chain(int signal, siginfo_t *info, void *to) { chained.sa_sigaction(signal, info, to); }

// A signal that was sent, and a fault, of a program whose handler calls the one before it: both end it at once.
static void faults(void) {
  uint8_t *at = pages(1);
  int status;
  for (int chains = 0; chains < 4; chains++) {
    struct ibv_mr *mr = ibv_reg_mr(pd, at, page, ACCESS);
    pid_t child;
    CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
      struct sigaction action = {.sa_sigaction = chain, .sa_flags = SA_SIGINFO | SA_NODEFER};
      alarm(5);
      if ((chains & 1) != 0) {
        sigaction(SIGSEGV, &action, &chained);
        context = ibv_open_device(list[0]);
        ibv_reg_mr(ibv_alloc_pd(context), at, page, ACCESS);
      }
      if ((chains & 2) != 0) kill(getpid(), SIGSEGV);
      else *(volatile int *)8 = 1;
      _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  }
  CHECK(munmap(at, page) == 0);
}

int main(void) {
  page = (size_t)sysconf(_SC_PAGESIZE);
  alarm(60);
  CHECK(pthread_atfork(lock_pool, unlock_pool, unlock_pool) == 0);
  list = ibv_get_device_list(NULL);
  CHECK((context = ibv_open_device(list[0])) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
  forks();
  forks_meanwhile();
  forks_without_descriptors();
  registers_again();
  opens();
  faults();
  forks_after();
  puts("ok");
  return 0;
}
