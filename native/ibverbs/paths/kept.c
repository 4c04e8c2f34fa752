// Memory that has to stay what it is, by what the program has asked of it: libibverbs attaches regions there in place of sharing them
// (attach.c), which would move the pages to a file. Locks and advice would be lost; the kernel knows a futex between processes by its page,
// so that a waiter would sleep for ever; and it writes to a mutex with priority inheritance itself, also while the page is read-only.
#include "kept.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define NEXT(name, ...)                                                   \
  static int (*next)(__VA_ARGS__);                                        \
  if (next == NULL) next = (int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name); \
  if (next == NULL) return errno = ENOSYS

#define LOCKED "it is locked (mlock)"
#define ADVISED "it has advice of madvise that sharing would lose"
#define BETWEEN "it has a lock between processes"
#define INHERITS "it has a mutex with priority inheritance"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// More than there is room for: everything.
static struct {
  uintptr_t start, end;
  const char *reason;
} kept[512];
static size_t count;

const char *libroce_paths_kept(uintptr_t start, uintptr_t end) {
  const char *reason = NULL;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < count && reason == NULL; i++)
    if (kept[i].start < end && start < kept[i].end) reason = kept[i].reason;
  pthread_mutex_unlock(&lock);
  return reason;
}

static void keep(const void *at, size_t length, const char *reason) {
  const uintptr_t start = (uintptr_t)at & ~(uintptr_t)4095, end = (uintptr_t)at + length;
  int is_known = 0;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < count && !is_known; i++) is_known = kept[i].start <= start && end <= kept[i].end;
  if (!is_known && count == sizeof kept / sizeof *kept) {
    kept[0].start = 0;
    kept[0].end = UINTPTR_MAX;
    count = 1;
  } else if (!is_known) {
    kept[count].start = start;
    kept[count].end = end;
    kept[count++].reason = reason;
  }
  pthread_mutex_unlock(&lock);
}

// Memory that is shared already is never moved.
static int is_private(const void *at) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char line[512], permissions[8];
  unsigned long from, to;
  int found = 1;
  if (maps == NULL) return 1;
  while (fgets(line, sizeof line, maps) != NULL)
    if (sscanf(line, "%lx-%lx %7s", &from, &to, permissions) == 3 && from <= (unsigned long)at && (unsigned long)at < to) {
      found = permissions[3] == 'p';
      break;
    }
  fclose(maps);
  return found;
}

static void keep_private(const void *at, size_t length, const char *reason) {
  if (is_private(at)) keep(at, length, reason);
}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr) {
  int shared = PTHREAD_PROCESS_PRIVATE, protocol = PTHREAD_PRIO_NONE;
  NEXT(pthread_mutex_init, pthread_mutex_t *, const pthread_mutexattr_t *);
  if (attr != NULL) {
    pthread_mutexattr_getpshared(attr, &shared);
    pthread_mutexattr_getprotocol(attr, &protocol);
  }
  if (protocol == PTHREAD_PRIO_INHERIT) keep_private(mutex, sizeof *mutex, INHERITS);
  if (shared == PTHREAD_PROCESS_SHARED) keep_private(mutex, sizeof *mutex, BETWEEN);
  return next(mutex, attr);
}

int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr) {
  int shared = PTHREAD_PROCESS_PRIVATE;
  NEXT(pthread_cond_init, pthread_cond_t *, const pthread_condattr_t *);
  if (attr != NULL) pthread_condattr_getpshared(attr, &shared);
  if (shared == PTHREAD_PROCESS_SHARED) keep_private(cond, sizeof *cond, BETWEEN);
  return next(cond, attr);
}

int pthread_rwlock_init(pthread_rwlock_t *rwlock, const pthread_rwlockattr_t *attr) {
  int shared = PTHREAD_PROCESS_PRIVATE;
  NEXT(pthread_rwlock_init, pthread_rwlock_t *, const pthread_rwlockattr_t *);
  if (attr != NULL) pthread_rwlockattr_getpshared(attr, &shared);
  if (shared == PTHREAD_PROCESS_SHARED) keep_private(rwlock, sizeof *rwlock, BETWEEN);
  return next(rwlock, attr);
}

int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attr, unsigned number) {
  int shared = PTHREAD_PROCESS_PRIVATE;
  NEXT(pthread_barrier_init, pthread_barrier_t *, const pthread_barrierattr_t *, unsigned);
  if (attr != NULL) pthread_barrierattr_getpshared(attr, &shared);
  if (shared == PTHREAD_PROCESS_SHARED) keep_private(barrier, sizeof *barrier, BETWEEN);
  return next(barrier, attr, number);
}

int sem_init(sem_t *semaphore, int shared, unsigned value) {
  NEXT(sem_init, sem_t *, int, unsigned);
  if (shared != 0) keep_private(semaphore, sizeof *semaphore, BETWEEN);
  return next(semaphore, shared, value);
}

int mlock(const void *at, size_t length) {
  NEXT(mlock, const void *, size_t);
  keep(at, length, LOCKED);
  return next(at, length);
}

int mlock2(const void *at, size_t length, unsigned flags) {
  NEXT(mlock2, const void *, size_t, unsigned);
  keep(at, length, LOCKED);
  return next(at, length, flags);
}

int mlockall(int flags) {
  NEXT(mlockall, int);
  keep(NULL, UINTPTR_MAX, LOCKED);
  return next(flags);
}

int madvise(void *at, size_t length, int advice) {
  NEXT(madvise, void *, size_t, int);
  if (advice == MADV_DONTDUMP || advice == MADV_WIPEONFORK || advice == MADV_DONTFORK || advice == MADV_MERGEABLE) keep(at, length, ADVISED);
  return next(at, length, advice);
}

int pkey_mprotect(void *at, size_t length, int protection, int key) {
  NEXT(pkey_mprotect, void *, size_t, int, int);
  keep(at, length, "it has a protection key");
  return next(at, length, protection, key);
}
