// Memory that has to stay what it is, by what the program has asked of it: libibverbs attaches regions there in place of sharing them
// (attach.c), which would move the pages to a file. Locks and advice would be lost; the kernel knows a futex between processes by its page,
// so that a waiter would sleep for ever; and it writes to a mutex with priority inheritance itself, also while the page is read-only.
//
// Programs call these wherever they may make a system call: as an allocator begins, in a handler of a signal, in a child of fork. So
// nothing here locks, allocates, or is a point of cancellation.
#include "kept.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MUTEX_INIT, COND_INIT, RWLOCK_INIT, BARRIER_INIT, SEM_INIT, MLOCK, MLOCK2, MLOCKALL, MADVISE, PKEY_MPROTECT, FUNCTIONS };

// libc's functions. dlsym(RTLD_NEXT) of a glibc before 2.36 finds the oldest version of a name: of pthread_cond_init on x86-64 one that
// today's pthread_cond_wait does not fit.
static struct {
  const char *name, *version;
  _Atomic(void *) function;
} functions[FUNCTIONS] = {
    [MUTEX_INIT] = {.name = "pthread_mutex_init"},
    [COND_INIT] = {.name = "pthread_cond_init", .version = "GLIBC_2.3.2"},
    [RWLOCK_INIT] = {.name = "pthread_rwlock_init"},
    [BARRIER_INIT] = {.name = "pthread_barrier_init"},
    [SEM_INIT] = {.name = "sem_init"},
    [MLOCK] = {.name = "mlock"},
    [MLOCK2] = {.name = "mlock2"},
    [MLOCKALL] = {.name = "mlockall"},
    [MADVISE] = {.name = "madvise"},
    [PKEY_MPROTECT] = {.name = "pkey_mprotect"},
};

static void *libc_function(int which) {
  void *found = atomic_load(&functions[which].function);
  if (found != NULL) return found;
  if (functions[which].version != NULL) found = dlvsym(RTLD_NEXT, functions[which].name, functions[which].version);
  if (found == NULL) found = dlsym(RTLD_NEXT, functions[which].name);
  atomic_store(&functions[which].function, found);
  return found;
}

// dlsym has locks: it is called before the program has threads and handlers.
__attribute__((constructor)) static void find_functions(void) {
  for (int i = 0; i < FUNCTIONS; i++) libc_function(i);
}

#define NEXT(which, failure, ...)                                           \
  int (*const next)(__VA_ARGS__) = (int (*)(__VA_ARGS__))libc_function(which); \
  if (next == NULL) return failure
// Of functions that return the error, and of those that set errno.
#define RETURNS ENOSYS
#define SETS (errno = ENOSYS, -1)

#define LOCKED "it is locked (mlock)"
#define ADVISED "it has advice of madvise that sharing would lose"
#define BETWEEN "it has a lock between processes"
#define INHERITS "it has a mutex with priority inheritance"

#define ENTRIES 512
// An entry counts once it has its reason. More than there is room for: everything.
static struct {
  uintptr_t start, end;
  _Atomic(const char *) reason;
} kept[ENTRIES];
static atomic_size_t count;
static _Atomic(const char *) everything;

const char *libroce_paths_kept(uintptr_t start, uintptr_t end) {
  const char *reason = atomic_load(&everything);
  for (size_t i = 0; i < ENTRIES && i < count && reason == NULL; i++) {
    const char *own = atomic_load(&kept[i].reason);
    if (own != NULL && kept[i].start < end && start < kept[i].end) reason = own;
  }
  return reason;
}

static int is_kept(uintptr_t start, uintptr_t end) {
  if (atomic_load(&everything) != NULL) return 1;
  for (size_t i = 0; i < ENTRIES && i < count; i++)
    if (atomic_load(&kept[i].reason) != NULL && kept[i].start <= start && end <= kept[i].end) return 1;
  return 0;
}

static uintptr_t page_of(const void *at) { return (uintptr_t)at & ~(uintptr_t)4095; }

static void keep(const void *at, size_t length, const char *reason) {
  const uintptr_t start = page_of(at), end = (uintptr_t)at + length;
  size_t i;
  if (is_kept(start, end)) return;
  i = count < ENTRIES ? atomic_fetch_add(&count, 1) : ENTRIES;
  if (i >= ENTRIES) {
    atomic_store(&everything, reason);
    return;
  }
  kept[i].start = start;
  kept[i].end = end;
  atomic_store(&kept[i].reason, reason);
}

// The part of a line of /proc/self/maps that was read: "from-to rwxp …".
struct line {
  int field;  // From, to, permissions, the rest.
  uintptr_t from, to;
  char last;
};

// The next character of the line. 'p' or 's' where it shows that of the address; else 0.
static char follow(struct line *line, char c, uintptr_t at) {
  const char found = line->last;
  if (c == '\n') {
    *line = (struct line){0};
    return 0;
  }
  line->last = c;
  if (line->field == 0 && c == '-') line->field = 1;
  else if (line->field == 1 && c == ' ') line->field = 2;
  else if (line->field == 2 && c == ' ') {
    line->field = 3;
    return line->from <= at && at < line->to ? found : 0;
  } else if (line->field < 2) {
    uintptr_t *number = line->field == 0 ? &line->from : &line->to;
    *number = *number << 4 | (uintptr_t)(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return 0;
}

// Memory that is shared already is never moved.
static int is_private(const void *at) {
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char bytes[1024], found = 0;
  struct line line = {0};
  long n;
  if (fd < 0) return 1;
  do {
    n = syscall(SYS_read, fd, bytes, sizeof bytes);
    for (long i = 0; i < n && found == 0; i++) found = follow(&line, bytes[i], (uintptr_t)at);
  } while (found == 0 && (n > 0 || (n < 0 && errno == EINTR)));
  syscall(SYS_close, fd);
  return found != 's';
}

static void keep_private(const void *at, size_t length, const char *reason) {
  const int saved = errno;
  if (!is_kept(page_of(at), (uintptr_t)at + length) && is_private(at)) keep(at, length, reason);
  errno = saved;
}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr) {
  int shared = PTHREAD_PROCESS_PRIVATE, protocol = PTHREAD_PRIO_NONE;
  NEXT(MUTEX_INIT, RETURNS, pthread_mutex_t *, const pthread_mutexattr_t *);
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
  NEXT(COND_INIT, RETURNS, pthread_cond_t *, const pthread_condattr_t *);
  if (attr != NULL) pthread_condattr_getpshared(attr, &shared);
  if (shared == PTHREAD_PROCESS_SHARED) keep_private(cond, sizeof *cond, BETWEEN);
  return next(cond, attr);
}

int pthread_rwlock_init(pthread_rwlock_t *rwlock, const pthread_rwlockattr_t *attr) {
  int shared = PTHREAD_PROCESS_PRIVATE;
  NEXT(RWLOCK_INIT, RETURNS, pthread_rwlock_t *, const pthread_rwlockattr_t *);
  if (attr != NULL) pthread_rwlockattr_getpshared(attr, &shared);
  if (shared == PTHREAD_PROCESS_SHARED) keep_private(rwlock, sizeof *rwlock, BETWEEN);
  return next(rwlock, attr);
}

int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attr, unsigned number) {
  int shared = PTHREAD_PROCESS_PRIVATE;
  NEXT(BARRIER_INIT, RETURNS, pthread_barrier_t *, const pthread_barrierattr_t *, unsigned);
  if (attr != NULL) pthread_barrierattr_getpshared(attr, &shared);
  if (shared == PTHREAD_PROCESS_SHARED) keep_private(barrier, sizeof *barrier, BETWEEN);
  return next(barrier, attr, number);
}

int sem_init(sem_t *semaphore, int shared, unsigned value) {
  NEXT(SEM_INIT, SETS, sem_t *, int, unsigned);
  if (shared != 0) keep_private(semaphore, sizeof *semaphore, BETWEEN);
  return next(semaphore, shared, value);
}

int mlock(const void *at, size_t length) {
  NEXT(MLOCK, SETS, const void *, size_t);
  keep(at, length, LOCKED);
  return next(at, length);
}

int mlock2(const void *at, size_t length, unsigned flags) {
  NEXT(MLOCK2, SETS, const void *, size_t, unsigned);
  keep(at, length, LOCKED);
  return next(at, length, flags);
}

int mlockall(int flags) {
  NEXT(MLOCKALL, SETS, int);
  keep(NULL, UINTPTR_MAX, LOCKED);
  return next(flags);
}

int madvise(void *at, size_t length, int advice) {
  NEXT(MADVISE, SETS, void *, size_t, int);
  if (advice == MADV_DONTDUMP || advice == MADV_WIPEONFORK || advice == MADV_DONTFORK || advice == MADV_MERGEABLE) keep(at, length, ADVISED);
  return next(at, length, advice);
}

int pkey_mprotect(void *at, size_t length, int protection, int key) {
  NEXT(PKEY_MPROTECT, SETS, void *, size_t, int, int);
  keep(at, length, "it has a protection key");
  return next(at, length, protection, key);
}
