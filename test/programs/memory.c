// Registered memory as programs use it, on the library of native/ibverbs: prints "ok", or what was wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define HUGE_PAGE (1ul << 21)
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

// Of these pages only whole units can be changed, as the kernel has it for huge pages, until some have been: NULL where none are.
static uint8_t *units, *units_end;
static size_t unit;

// The library's calls come here, too.
int mprotect(void *at, size_t length, int protection) {
  if (units != NULL && (uint8_t *)at >= units && (uint8_t *)at < units_end) {
    if ((size_t)((uint8_t *)at - units) % unit != 0 || length % unit != 0) return errno = EINVAL, -1;
    units = NULL;
  }
  return (int)syscall(SYS_mprotect, at, length, protection);
}

static atomic_int stop;
static volatile unsigned long *counters;
static volatile unsigned long stores[2];

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

static void start_writers(pthread_t threads[2]) {
  for (long i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, writer, (void *)i) == 0);
  while (stores[0] == 0 || stores[1] == 0) sched_yield();
}

static void join_writers(pthread_t threads[2]) {
  stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++) CHECK(counters[i * 512] == stores[i]);
  stop = 0;
  stores[0] = stores[1] = 0;
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
  unit = 16 * page;
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
    char file[] = "/tmp/roce-memory-XXXXXX";
    int anonymous = -1, memfd = memfd_create("test", 0), posix = shm_open("/roce-memory", O_RDWR | O_CREAT | O_EXCL, 0600);
    int on_disk = mkstemp(file), segment = shmget(IPC_PRIVATE, page, IPC_CREAT | 0600);
    const int shared[] = {anonymous, memfd, posix, on_disk};
    void *attached = shmat(segment, NULL, 0), *huge;
    unlink(file);
    shm_unlink("/roce-memory");
    shmctl(segment, IPC_RMID, NULL);
    for (int i = 0; i < 4; i++) {
      void *at;
      CHECK(shared[i] < 0 || ftruncate(shared[i], (off_t)page) == 0);
      at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | (shared[i] < 0 ? MAP_ANONYMOUS : 0), shared[i], 0);
      CHECK(at != MAP_FAILED);
      CHECK(ibv_reg_mr(pd, at, page, ACCESS) == NULL && errno == EFAULT);
    }
    CHECK(attached != (void *)-1);
    CHECK(ibv_reg_mr(pd, attached, page, ACCESS) == NULL && errno == EFAULT);
    CHECK(ibv_reg_mr(pd, (void *)main, 16, ACCESS) == NULL && errno == EFAULT);
    // A segment in huge pages would be had from any machine, of pages that need not exist: but not by programs of roce run.
    CHECK(shmget(IPC_PRIVATE, HUGE_PAGE, IPC_CREAT | SHM_HUGETLB | SHM_NORESERVE | 0600) == -1 && errno == ENOMEM);
    huge = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
    CHECK(huge != MAP_FAILED);
    CHECK(ibv_reg_mr(pd, huge, page, ACCESS) == NULL && errno == EFAULT);
    CHECK(munmap(huge, HUGE_PAGE) == 0);
  }

  // A mapping of which only whole units can be changed: the rest of the unit is the program's again at once.
  for (int i = 0; i < 10; i++) {
    bytes = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t j = 18 * page; j < 64 * page; j++) bytes[j] = (uint8_t)(j * 5 + j / 256);
    counters = (volatile unsigned long *)(void *)(bytes + 16 * page);
    start_writers(threads);
    units = bytes;
    units_end = bytes + 64 * page;
    CHECK((a = ibv_reg_mr(pd, bytes + 24 * page + 5, 10, ACCESS)) != NULL && units == NULL);
    for (size_t j = 0; j < 64; j++) CHECK(is_shared(bytes + j * page) == (j == 24));
    CHECK((b = ibv_reg_mr(pd, bytes + 23 * page, 2 * page, ACCESS)) != NULL);
    CHECK(ibv_dereg_mr(a) == 0);
    CHECK(is_shared(bytes + 23 * page) == 1 && is_shared(bytes + 24 * page) == 1 && is_shared(bytes + 25 * page) == 0);
    CHECK(ibv_dereg_mr(b) == 0);
    for (size_t j = 0; j < 64; j++) CHECK(is_shared(bytes + j * page) == 0);
    join_writers(threads);
    for (size_t j = 18 * page; j < 64 * page; j++) CHECK(bytes[j] == (uint8_t)(j * 5 + j / 256));
    CHECK(munmap(bytes, 64 * page) == 0);
  }
  // A unit that is larger than its mapping can't be changed: the memory stays as it was.
  bytes = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  units = bytes;
  units_end = bytes + 64 * page;
  unit = 1024 * page;
  CHECK(ibv_reg_mr(pd, bytes + 24 * page, 10, ACCESS) == NULL && errno == EFAULT);
  CHECK(units == bytes && is_shared(bytes + 24 * page) == 0);
  bytes[24 * page] = 1;
  units = NULL;
  CHECK(munmap(bytes, 64 * page) == 0);

  // Huge pages that do not exist (MAP_NORESERVE) are refused; those of a machine that has some become ordinary ones.
  bytes = mmap(NULL, 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (bytes == MAP_FAILED) {
    bytes = mmap(NULL, 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
    CHECK(bytes != MAP_FAILED);
    CHECK(ibv_reg_mr(pd, bytes + page + 8, 100, ACCESS) == NULL && errno == EFAULT);
  } else {
    for (size_t i = 0; i < 2 * HUGE_PAGE; i++) bytes[i] = (uint8_t)(i * 3 + i / 256);
    CHECK((a = ibv_reg_mr(pd, bytes + page + 5, 100, ACCESS)) != NULL);
    CHECK(is_shared(bytes) == 0 && is_shared(bytes + page) == 1 && is_shared(bytes + 2 * page) == 0);
    CHECK((b = ibv_reg_mr(pd, bytes + HUGE_PAGE - page, 2 * page, ACCESS)) != NULL);
    CHECK(is_shared(bytes + HUGE_PAGE - page) == 1 && is_shared(bytes + HUGE_PAGE) == 1);
    CHECK(ibv_dereg_mr(a) == 0 && ibv_dereg_mr(b) == 0);
    for (size_t i = 0; i < 2 * HUGE_PAGE; i++) CHECK(bytes[i] == (uint8_t)(i * 3 + i / 256));
    // Of a file in huge pages, a mapping that is private: what is stored after it was registered is not the file's.
    {
      int file = memfd_create("huge", MFD_HUGETLB);
      uint8_t *own, *files;
      CHECK(file >= 0 && ftruncate(file, HUGE_PAGE) == 0);
      own = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
      files = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      CHECK(own != MAP_FAILED && files != MAP_FAILED);
      files[page] = 9;
      CHECK((a = ibv_reg_mr(pd, own + page, 1, ACCESS)) != NULL && own[page] == 9);
      own[page] = 10;
      CHECK(files[page] == 9 && ibv_dereg_mr(a) == 0 && own[page] == 10);
      CHECK(munmap(own, HUGE_PAGE) == 0);
      own = mmap(NULL, HUGE_PAGE, PROT_READ, MAP_PRIVATE, file, 0);
      CHECK((a = ibv_reg_mr(pd, own + page, 1, 0)) != NULL && own[page] == 9 && ibv_dereg_mr(a) == 0);
      CHECK(munmap(own, HUGE_PAGE) == 0 && munmap(files, HUGE_PAGE) == 0 && close(file) == 0);
    }
    puts("huge pages were tried");
  }
  CHECK(munmap(bytes, 2 * HUGE_PAGE) == 0);

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

  // The device does not write pages that the program can't write, whichever call shares them.
  bytes = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  {
    uint8_t *fixed = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int moves = IBV_REREG_MR_CHANGE_TRANSLATION, changes = IBV_REREG_MR_CHANGE_ACCESS;
    CHECK(ibv_reg_mr(pd, fixed, page, ACCESS) == NULL && errno == EFAULT);
    CHECK((a = ibv_reg_mr(pd, fixed, page, 0)) != NULL);
    CHECK(ibv_rereg_mr(a, changes, NULL, NULL, 0, ACCESS) == IBV_REREG_MR_ERR_INPUT && errno == EFAULT);
    CHECK(ibv_dereg_mr(a) == 0);
    CHECK((a = ibv_reg_mr(pd, bytes, page, ACCESS)) != NULL);
    CHECK(ibv_rereg_mr(a, moves, NULL, fixed, page, 0) == IBV_REREG_MR_ERR_INPUT && errno == EFAULT);
    CHECK(ibv_rereg_mr(a, moves | changes, NULL, fixed, page, 0) == 0);
    CHECK(ibv_rereg_mr(a, moves, NULL, bytes, page, 0) == 0);
    CHECK(ibv_rereg_mr(a, changes, NULL, NULL, 0, ACCESS) == 0);
    CHECK(ibv_rereg_mr(a, moves, NULL, fixed, page, 0) == IBV_REREG_MR_ERR_INPUT && errno == EFAULT);
    CHECK(ibv_dereg_mr(a) == 0);
  }

  // Stores of other threads, while their pages are registered and deregistered, are not lost.
  counters = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  start_writers(threads);
  for (int i = 0; i < 500; i++) {
    CHECK((a = ibv_reg_mr(pd, (void *)counters, 2 * page, ACCESS)) != NULL);
    CHECK(ibv_dereg_mr(a) == 0);
  }
  join_writers(threads);

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
