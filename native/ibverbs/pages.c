// Pages of the program become pages of the device's file, and come back. Another thread may store to them meanwhile: they are read-only
// while they are copied, and a store then waits in a handler of SIGSEGV.
//
// A child has none of the shared pages (MADV_DONTFORK): what fork itself stores in the child would be the parent's, too. It gets copies
// in their place, by a handler of pthread_atfork (memory.c), or of SIGSEGV where it is faster.
#include "pages.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "roce.h"

static atomic_int converting;
static atomic_uint conversions = 1;
// The handler from before ours. Another thread may read it in its handler while a new one comes: that has a place of its own, and an old
// one is used again after 15 more.
static struct sigaction kept[16];
static _Atomic(const struct sigaction *) before = &kept[0];

// For a child, and the process that makes it.
static struct roce_parts copies;
static pid_t copied_by;

static int is_in_copies(uintptr_t address) {
  for (size_t i = 0; i < copies.count; i++)
    if (copies.at[i].start <= address && address < copies.at[i].end) return 1;
  return 0;
}

// Everything that is not about shared pages is the program's own.
static void pass_on(int signal, siginfo_t *info, void *context, uintptr_t frame) {
  static __thread void *passed;
  static __thread uintptr_t from;
  const struct sigaction *chained = atomic_load(&before);
  // A handler that was installed after this one may call it, and be the one before it by now: the same fault again, further down.
  int loops = context == passed && frame < from;
  passed = context;
  from = frame;
  if (!loops && (chained->sa_flags & SA_SIGINFO) != 0 && chained->sa_sigaction != NULL) {
    chained->sa_sigaction(signal, info, context);
  } else if (!loops && chained->sa_handler != SIG_DFL && chained->sa_handler != SIG_IGN) {
    chained->sa_handler(signal);
  } else {
    struct sigaction none = {.sa_handler = SIG_DFL};
    int was_sent = info->si_code <= 0;
    if (was_sent && !loops && chained->sa_handler == SIG_IGN) return;
    sigaction(signal, &none, NULL);
    // An instruction faults again, and that ends the process; a signal of kill does not come again.
    if (was_sent) raise(signal);
  }
}

// Sleeps after some turns: a real-time thread that only yields keeps a thread of lower priority, which converts, from its processor.
// nanosleep(3) would be a point of cancellation (pthreads(7)), which a store must not become.
static void wait_for_conversion(void) {
  static __thread unsigned turns;
  static const struct timespec moment = {.tv_nsec = 50000};
  if (++turns % 16 != 0) sched_yield();
  else syscall(SYS_nanosleep, &moment, NULL);
}

// A store to a page that is being copied waits, then is done again. One after a conversion may have faulted before its
// end: it is tried once more.
static void on_fault(int signal, siginfo_t *info, void *context) {
  static __thread unsigned seen;
  if (info->si_code == SEGV_ACCERR) {
    unsigned now;
    int error = errno;
    while (atomic_load(&converting)) wait_for_conversion();
    errno = error;
    now = atomic_load(&conversions);
    if (now != seen) {
      seen = now;
      return;
    }
  }
  if (info->si_code == SEGV_MAPERR && copies.count > 0 && copied_by != getpid() && is_in_copies((uintptr_t)info->si_addr)) {
    roce_adopt_copies();
    return;
  }
  pass_on(signal, info, context, (uintptr_t)__builtin_frame_address(0));
}

void roce_handle_faults(void) {
  static unsigned handled;
  struct sigaction now, *place = &kept[(handled + 1) % (sizeof kept / sizeof *kept)];
  struct sigaction mine = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  if (sigaction(SIGSEGV, NULL, &now) != 0 || ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault)) return;
  handled++;
  *place = now;
  atomic_store(&before, place);
  sigaction(SIGSEGV, &mine, NULL);
}

uintptr_t roce_page_size(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }

// A line on stderr, once. Nothing is allocated for it, as fork waits.
static void report_missing(void) {
  static const char line[] = "libibverbs of roce run: no memory for a copy of registered pages, which a child lacks now\n";
  static int is_reported;
  if (!is_reported && write(STDERR_FILENO, line, sizeof line - 1) > 0) is_reported = 1;
}

static int add_part(struct roce_parts *parts, struct roce_part part) {
  if ((parts->count + 1) * sizeof part > parts->bytes) {
    size_t bytes = parts->bytes > 0 ? parts->bytes * 2 : roce_page_size();
    void *at = parts->bytes > 0 ? mremap(parts->at, parts->bytes, bytes, MREMAP_MAYMOVE)
                                : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return -1;
    parts->at = at;
    parts->bytes = bytes;
  }
  parts->at[parts->count++] = part;
  return 0;
}

void roce_add_whole(struct roce_parts *parts, uintptr_t start, uintptr_t end) {
  if (add_part(parts, (struct roce_part){start, end, start, end, PROT_READ | PROT_WRITE, (off_t)start, NULL}) != 0)
    report_missing();
}

void roce_free_parts(struct roce_parts *parts) {
  if (parts->bytes > 0) munmap(parts->at, parts->bytes);
  *parts = (struct roce_parts){0};
}

struct mapping {
  uintptr_t from, to;
  char permissions[8];
  uint64_t offset, inode;
  dev_t device;
  const char *path;
};

static int protection_of(const struct mapping *map) {
  return (map->permissions[0] == 'r' ? PROT_READ : 0) | (map->permissions[1] == 'w' ? PROT_WRITE : 0) |
         (map->permissions[2] == 'x' ? PROT_EXEC : 0);
}

static int is_of(const struct mapping *map, const struct roce_file *file) {
  return map->inode == file->inode && map->device == file->device;
}

// /proc/self/maps as it is read, in the stack: at fork, nothing is allocated.
struct maps {
  int fd;
  size_t at, end;
  char bytes[4096];
  char line[512];  // The start of the last one.
};

static int open_maps(struct maps *maps) {
  maps->at = maps->end = 0;
  // Not by a wrapper of open, as that of paths/paths.c: it may allocate.
  maps->fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  return maps->fd < 0 ? -1 : 0;
}

// 1, 0 at the end, or −1.
static int next_line(struct maps *maps) {
  for (size_t length = 0;;) {
    char c;
    if (maps->at == maps->end) {
      ssize_t n;
      do n = read(maps->fd, maps->bytes, sizeof maps->bytes);
      while (n < 0 && errno == EINTR);
      if (n <= 0) return (int)n;
      maps->at = 0;
      maps->end = (size_t)n;
    }
    c = maps->bytes[maps->at++];
    maps->line[length] = '\0';
    if (c == '\n') return 1;
    if (length < sizeof maps->line - 1) maps->line[length++] = c;
  }
}

// The same, of mappings.
static int next_mapping(struct maps *maps, struct mapping *map) {
  for (;;) {
    int found = next_line(maps), path = 0;
    unsigned major_, minor_;
    if (found != 1) return found;
    if (sscanf(maps->line, "%" SCNxPTR "-%" SCNxPTR " %7s %" SCNx64 " %x:%x %" SCNu64 " %n", &map->from, &map->to,
               map->permissions, &map->offset, &major_, &minor_, &map->inode, &path) != 7)
      continue;
    map->device = makedev(major_, minor_);
    map->path = maps->line + path;
    return 1;
  }
}

// Why a mapping that /proc/self/maps has under this path can't be shared; NULL where it can: it is private.
static const char *kind_of(const char *path, int is_shared) {
  static const struct {
    const char *start, *kind;
  } kinds[] = {
      {"/anon_hugepage", "it is in huge pages that are shared"},
      {"/SYSV", "it is System V shared memory"},
      {"/dev/shm/", "it is POSIX shared memory"},
      {"/memfd:", "it is a mapped memfd"},
      {"/dev/zero (deleted)", "it is memory that is shared with children (MAP_SHARED)"},
      {"/dev/hugepages/", "it is a mapped file that is shared (MAP_SHARED)"},
      {"/dev/", "it is a device's"},
      {"/", "it is a mapped file that is shared (MAP_SHARED)"},
      {"", "it is a device's"},
  };
  size_t i = 0;
  if (!is_shared) return NULL;
  while (strncmp(path, kinds[i].start, strlen(kinds[i].start)) != 0) i++;
  return kinds[i].kind;
}

int roce_private_parts(const struct roce_file *file, uintptr_t start, uintptr_t end, int writes, struct roce_parts *parts,
                       const char **why) {
  struct maps maps;
  struct mapping map;
  uintptr_t at = start;
  int error = 0;
  if (open_maps(&maps) != 0) return -1;
  while (at < end && error == 0 && next_mapping(&maps, &map) == 1) {
    const char *kind;
    uintptr_t to = map.to < end ? map.to : end;
    if (map.to <= at) continue;
    if (map.from > at) break;  // A hole.
    kind = kind_of(map.path, map.permissions[3] == 's');
    if (map.permissions[0] != 'r' || map.permissions[2] == 'x') {
      *why = "it is code, or can't be read";
      error = -1;
    } else if (writes && map.permissions[1] != 'w') {
      *why = "it is read-only, and the access flags let the device write";
      error = -1;
    } else if (kind != NULL) {
      if (!is_of(&map, file) || map.offset != map.from) {
        *why = kind;
        error = -1;
      }
    } else error = add_part(parts, (struct roce_part){at, to, map.from, map.to, protection_of(&map), (off_t)at, NULL});
    at = to;
  }
  close(maps.fd);
  if (error == 0 && at < end) {
    *why = "it is not mapped";
    error = -1;
  }
  return error;
}

int roce_shared_parts(const struct roce_file *file, uintptr_t start, uintptr_t end, struct roce_parts *parts) {
  struct maps maps;
  struct mapping map;
  int error = 0, found = 0;
  if (open_maps(&maps) != 0) return -1;
  while (error == 0 && (found = next_mapping(&maps, &map)) == 1) {
    uintptr_t from = map.from < start ? start : map.from, to = map.to > end ? end : map.to;
    if (from >= to || !is_of(&map, file)) continue;
    error = add_part(parts, (struct roce_part){from, to, map.from, map.to, protection_of(&map),
                                               (off_t)(map.offset + (from - map.from)), NULL});
  }
  close(maps.fd);
  return found < 0 ? -1 : error;
}

#define CHUNK ((size_t)1 << 30)

// Copies pages into the file. A write at such an offset is above every limit of the size of files, and would end the program (SIGXFSZ):
// then it goes through a mapping. Neither faults where a page of the source can't be read.
static ssize_t write_to_file(int fd, void *from, size_t length, off_t offset) {
  struct rlimit limit;
  struct iovec there, here = {from, length};
  void *window;
  ssize_t n;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY) return pwrite(fd, from, length, offset);
  window = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  if (window == MAP_FAILED) return -1;
  there = (struct iovec){window, length};
  n = process_vm_readv(getpid(), &there, 1, &here, 1, 0);
  munmap(window, length);
  return n;
}

static int copy_to_file(int fd, uintptr_t start, uintptr_t end) {
  while (start < end) {
    ssize_t n = write_to_file(fd, (void *)start, end - start < CHUNK ? end - start : CHUNK, (off_t)start);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    start += (size_t)n;
  }
  return 0;
}

static int copy_from_file(int fd, uint8_t *to, off_t offset, size_t length) {
  while (length > 0) {
    ssize_t n = pread(fd, to, length < CHUNK ? length : CHUNK, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    offset += n;
    to += n;
    length -= (size_t)n;
  }
  return 0;
}

int roce_has_this_stack(uintptr_t start, uintptr_t end) {
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  return here + 65536 > start && here - 65536 < end;
}

// Moves the part from private pages to those of the file. errno where that fails: then all is as before.
static int move_to_file(const struct roce_file *file, const struct roce_part *part) {
  void *at = (void *)part->start;
  size_t length = part->end - part->start;
  int error = 0;
  if (mprotect(at, length, PROT_READ) != 0 || copy_to_file(file->fd, part->start, part->end) != 0 ||
      mmap(at, length, part->protection, MAP_SHARED | MAP_FIXED, file->fd, (off_t)part->start) == MAP_FAILED) {
    error = errno;
    mprotect(at, length, part->protection);
  } else madvise(at, length, MADV_DONTFORK);
  return error;
}

int roce_share_part(const struct roce_file *file, struct roce_part *part) {
  uintptr_t start = part->start, end = part->end;
  int error = EINVAL;
  atomic_store(&converting, 1);
  for (uintptr_t unit = roce_page_size(); error == EINVAL; unit *= 2) {
    part->start = start & ~(unit - 1);
    if (part->start < part->low) part->start = part->low;
    part->end = (end + unit - 1) & ~(unit - 1);
    if (part->end > part->high || part->end < end) part->end = part->high;
    error = roce_has_this_stack(part->start, part->end) ? EFAULT : move_to_file(file, part);
    if (part->start == part->low && part->end == part->high) break;
  }
  atomic_fetch_add(&conversions, 1);
  atomic_store(&converting, 0);
  return error == 0 ? 0 : -1;
}

// Moves pages elsewhere into the place of others.
static int move_over(void *from, size_t length, uintptr_t to) {
  return mremap(from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)to) == MAP_FAILED ? -1 : 0;
}

int roce_take_back(const struct roce_file *file, const struct roce_part *part) {
  size_t length = part->end - part->start;
  void *at = (void *)part->start, *own;
  int done = 0;
  if (roce_has_this_stack(part->start, part->end)) return 0;
  own = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return 0;
  atomic_store(&converting, 1);
  if (mprotect(at, length, PROT_READ) == 0) {
    done = copy_from_file(file->fd, own, part->offset, length) == 0 && mprotect(own, length, part->protection) == 0 &&
           move_over(own, length, part->start) == 0;
    if (!done) mprotect(at, length, part->protection);
  }
  if (!done) munmap(own, length);
  atomic_fetch_add(&conversions, 1);
  atomic_store(&converting, 0);
  return done;
}

// Pages that nobody has written are zeros there, too.
static int copy_data(const struct roce_file *file, const struct roce_part *part) {
  off_t data = part->offset, hole, last = part->offset + (off_t)(part->end - part->start);
  for (; (data = lseek(file->fd, data, SEEK_DATA)) >= 0 && data < last; data = hole) {
    hole = lseek(file->fd, data, SEEK_HOLE);
    if (hole < 0 || hole > last) hole = last;
    if (copy_from_file(file->fd, (uint8_t *)part->copy + (data - part->offset), data, (size_t)(hole - data)) != 0) return -1;
  }
  return data < 0 && errno != ENXIO ? -1 : 0;
}

void roce_copy_parts(const struct roce_file *file, struct roce_parts *parts) {
  for (size_t i = 0; i < parts->count; i++) {
    struct roce_part *part = &parts->at[i];
    size_t length = part->end - part->start;
    part->copy = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (part->copy != MAP_FAILED && copy_data(file, part) == 0) continue;
    // A child's fault is better than zeros.
    if (part->copy != MAP_FAILED) munmap(part->copy, length);
    part->copy = NULL;
    report_missing();
  }
  copies = *parts;
  copied_by = getpid();
}

void roce_copy_again(const struct roce_file *file, uintptr_t page) {
  for (size_t i = 0; i < copies.count; i++) {
    const struct roce_part *part = &copies.at[i];
    uintptr_t at = page - part->start;
    if (part->copy == NULL || page < part->start || page >= part->end) continue;
    copy_from_file(file->fd, (uint8_t *)part->copy + at, part->offset + (off_t)at, roce_page_size());
  }
}

void roce_drop_copies(void) {
  for (size_t i = 0; i < copies.count; i++)
    if (copies.at[i].copy != NULL) munmap(copies.at[i].copy, copies.at[i].end - copies.at[i].start);
  roce_free_parts(&copies);
}

void roce_adopt_copies(void) {
  for (size_t i = 0; i < copies.count; i++) {
    const struct roce_part *part = &copies.at[i];
    if (part->copy == NULL) continue;
    mprotect(part->copy, part->end - part->start, part->protection);
    move_over(part->copy, part->end - part->start, part->start);
  }
  roce_free_parts(&copies);
}
