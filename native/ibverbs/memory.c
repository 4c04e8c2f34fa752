// Registered memory. Its pages become pages of a file that the device has, too: the offset of a page is its address, so that
// regions may overlap and share pages. When the last region of a page goes, the page is the program's alone again.
//
// Another thread may store to the pages meanwhile: they are read-only while they are copied, and a store then waits in
// a handler of SIGSEGV.
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "roce.h"

struct range {
  uintptr_t start, end;  // Whole pages.
  struct range *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  int fd;
  pid_t pid;                      // Whose memory it is: a child has its own.
  struct roce_context *contexts;  // That are open, the youngest first.
  dev_t device;
  ino_t inode;
  struct range *regions;
} memory = {.fd = -1};

static atomic_int converting;
static atomic_uint conversions = 1;
static struct sigaction before;

int roce_memory_token(uint8_t token[ROCE_TOKEN_BYTES]) {
  int there;
  pthread_mutex_lock(&lock);
  if (memory.pid != getpid()) {
    memory.pid = getpid();
    memory.contexts = NULL;
    memory.regions = NULL;
  }
  there = memory.contexts != NULL;
  if (there) memcpy(token, memory.contexts->token, ROCE_TOKEN_BYTES);
  pthread_mutex_unlock(&lock);
  return there;
}

int roce_memory_open(struct roce_context *r, int fd) {
  struct stat file;
  int error = 0;
  if (fstat(fd, &file) != 0) {
    close(fd);
    return -1;
  }
  pthread_mutex_lock(&lock);
  if (memory.contexts == NULL) {
    if (memory.fd >= 0) close(memory.fd);
    memory.fd = fd;
    memory.device = file.st_dev;
    memory.inode = file.st_ino;
  } else {
    close(fd);
    if (file.st_ino != memory.inode || file.st_dev != memory.device) error = -1;
  }
  if (error == 0) {
    r->older = memory.contexts;
    memory.contexts = r;
  }
  pthread_mutex_unlock(&lock);
  return error;
}

int roce_memory_close(struct roce_context *r) {
  pthread_mutex_lock(&lock);
  if (r->imports > 0) {
    r->imports--;
    pthread_mutex_unlock(&lock);
    return 1;
  }
  for (struct roce_context **at = &memory.contexts; *at != NULL; at = &(*at)->older) {
    if (*at != r) continue;
    *at = r->older;
    break;
  }
  pthread_mutex_unlock(&lock);
  return 0;
}

struct roce_context *roce_import(int fd) {
  struct stat given, own;
  struct roce_context *r = NULL;
  if (fstat(fd, &given) != 0) return NULL;
  pthread_mutex_lock(&lock);
  if (memory.pid == getpid()) r = memory.contexts;
  while (r != NULL && (fstat(r->socket, &own) != 0 || own.st_ino != given.st_ino || own.st_dev != given.st_dev)) r = r->older;
  if (r != NULL) r->imports++;
  pthread_mutex_unlock(&lock);
  return r;
}

// A store to a page that is being copied waits, then is done again. One after a conversion may have faulted before its
// end: it is tried once more. Everything else is the program's own.
static void on_fault(int signal, siginfo_t *info, void *context) {
  static __thread unsigned seen;
  if (info->si_code == SEGV_ACCERR) {
    unsigned now;
    while (atomic_load(&converting)) sched_yield();
    now = atomic_load(&conversions);
    if (now != seen) {
      seen = now;
      return;
    }
  }
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != NULL) before.sa_sigaction(signal, info, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(signal);
  else sigaction(SIGSEGV, &before, NULL);  // The instruction faults again, and that ends the process.
}

static void install_handler(void) {
  struct sigaction now;
  struct sigaction mine = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  if (sigaction(SIGSEGV, NULL, &now) != 0 || ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault)) return;
  before = now;
  sigaction(SIGSEGV, &mine, NULL);
}

static uintptr_t page_size(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }

struct part {
  uintptr_t start, end;
  int protection;
};

// errno has no room for a reason. Each is printed once.
static void explain(uintptr_t start, uintptr_t end, const char *why) {
  static const char *last;
  if (why == last) return;
  last = why;
  dprintf(STDERR_FILENO, "libibverbs of roce run: 0x%" PRIxPTR " to 0x%" PRIxPTR " can't be registered: %s\n", start, end, why);
}

// The parts of a range that are not in the file yet: at most `most`. How many, or −1 where a page can't be shared, and why.
static int parts_of(uintptr_t start, uintptr_t end, struct part *parts, int most, const char **why) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char line[512], permissions[8];
  uintptr_t at = start, from, to;
  uint64_t offset, inode;
  unsigned major_, minor_;
  int count = 0;
  if (maps == NULL) return -1;
  while (at < end && count >= 0 && fgets(line, sizeof line, maps) != NULL) {
    size_t length = strlen(line);
    int whole = length > 0 && line[length - 1] == '\n';
    int fields = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %" SCNx64 " %x:%x %" SCNu64, &from, &to, permissions,
                        &offset, &major_, &minor_, &inode);
    // The rest of a long path is no line.
    while (!whole && fgets(line, sizeof line, maps) != NULL) whole = line[strlen(line) - 1] == '\n';
    if (fields != 7 || to <= at) continue;
    if (from > at) break;  // A hole.
    if (to > end) to = end;
    if (permissions[0] != 'r' || permissions[2] == 'x') {
      *why = "it is code, or can't be read";
      count = -1;
    } else if (permissions[3] == 's') {
      int ours = inode == memory.inode && makedev(major_, minor_) == memory.device && offset == from;
      if (!ours) {
        *why = "it is shared already: a mapped file, System V or POSIX shared memory, or a device";
        count = -1;
      }
    } else if (count == most) {
      *why = "it has too many parts";
      count = -1;
    } else parts[count++] = (struct part){at, to, permissions[1] == 'w' ? PROT_READ | PROT_WRITE : PROT_READ};
    at = to;
  }
  fclose(maps);
  if (count >= 0 && at < end) *why = "it is not mapped";
  return at < end ? -1 : count;
}

static int copy_to_file(uintptr_t start, uintptr_t end) {
  while (start < end) {
    size_t length = end - start < (1u << 30) ? end - start : 1u << 30;
    ssize_t n = pwrite(memory.fd, (void *)start, length, (off_t)start);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    start += (size_t)n;
  }
  return 0;
}

static int copy_from_file(uint8_t *to, uintptr_t start, uintptr_t end) {
  while (start < end) {
    size_t length = end - start < (1u << 30) ? end - start : 1u << 30;
    ssize_t n = pread(memory.fd, to, length, (off_t)start);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    start += (size_t)n;
    to += n;
  }
  return 0;
}

static int share_part(const struct part *part) {
  void *at = (void *)part->start;
  size_t length = part->end - part->start;
  int done = 0;
  atomic_store(&converting, 1);
  if (mprotect(at, length, PROT_READ) == 0) {
    done = copy_to_file(part->start, part->end) == 0 &&
           mmap(at, length, part->protection, MAP_SHARED | MAP_FIXED, memory.fd, (off_t)part->start) != MAP_FAILED;
    if (!done) mprotect(at, length, part->protection);
  }
  atomic_fetch_add(&conversions, 1);
  atomic_store(&converting, 0);
  return done ? 0 : -1;
}

// Whether the stack that runs is in the range: its own pages can't be copied under it.
static int has_this_stack(uintptr_t start, uintptr_t end) {
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  return here + 65536 > start && here - 65536 < end;
}

#define MAX_PARTS 64

int roce_share(void *address, size_t length) {
  uintptr_t page = page_size(), first = (uintptr_t)address & ~(page - 1), last;
  struct part parts[MAX_PARTS];
  struct range *region;
  const char *why = "the kernel refuses to map the device's file there (huge pages?), or no memory is left";
  int count, error = 0;
  if (length == 0 || __builtin_add_overflow((uintptr_t)address, length + page - 1, &last)) return errno = EINVAL;
  last &= ~(page - 1);
  region = malloc(sizeof *region);
  if (region == NULL) return errno = ENOMEM;
  *region = (struct range){first, last, NULL};
  pthread_mutex_lock(&lock);
  if (has_this_stack(first, last)) {
    why = "it is the stack of this thread";
    count = -1;
  } else count = parts_of(first, last, parts, MAX_PARTS, &why);
  if (count > 0) install_handler();
  for (int i = 0; i < count; i++)
    if (share_part(&parts[i]) != 0) count = -1;
  if (count < 0) error = EFAULT;
  else {
    region->next = memory.regions;
    memory.regions = region;
  }
  pthread_mutex_unlock(&lock);
  if (error == 0) return 0;
  free(region);
  explain(first, last, why);
  return errno = error;
}

static int is_registered(uintptr_t page_at) {
  for (struct range *region = memory.regions; region != NULL; region = region->next)
    if (region->start <= page_at && page_at < region->end) return 1;
  return 0;
}

// Gives a part, all of it of the file, back to the program. Whether that was done: else it stays in the file.
static int take_back(const struct part *part) {
  size_t length = part->end - part->start;
  void *at = (void *)part->start, *own;
  int done = 0;
  if (has_this_stack(part->start, part->end)) return 0;
  own = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return 0;
  atomic_store(&converting, 1);
  if (mprotect(at, length, PROT_READ) == 0) {
    done = copy_from_file(own, part->start, part->end) == 0 && mprotect(own, length, part->protection) == 0 &&
           mremap(own, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED;
    if (!done) mprotect(at, length, part->protection);
  }
  if (!done) munmap(own, length);
  atomic_fetch_add(&conversions, 1);
  atomic_store(&converting, 0);
  return done;
}

// Finds the parts of a range that are mapped from the file; −1 where they can't be found.
static int shared_parts(uintptr_t start, uintptr_t end, struct part *parts, int most) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char line[512], permissions[8];
  uintptr_t from, to;
  uint64_t offset, inode;
  unsigned major_, minor_;
  int count = 0;
  if (maps == NULL) return -1;
  while (count >= 0 && fgets(line, sizeof line, maps) != NULL) {
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %" SCNx64 " %x:%x %" SCNu64, &from, &to, permissions, &offset,
               &major_, &minor_, &inode) != 7)
      continue;
    if (to <= start || from >= end || inode != memory.inode || makedev(major_, minor_) != memory.device) continue;
    if (count == most) {
      count = -1;
      break;
    }
    parts[count++] = (struct part){from < start ? start : from, to > end ? end : to,
                                   permissions[1] == 'w' ? PROT_READ | PROT_WRITE : PROT_READ};
  }
  fclose(maps);
  return count;
}

void roce_unshare(void *address, size_t length) {
  uintptr_t page = page_size(), first = (uintptr_t)address & ~(page - 1), last;
  struct part parts[MAX_PARTS];
  int saved = errno, others = 0;
  last = ((uintptr_t)address + length + page - 1) & ~(page - 1);
  pthread_mutex_lock(&lock);
  for (struct range **at = &memory.regions; *at != NULL; at = &(*at)->next) {
    struct range *gone = *at;
    if (gone->start != first || gone->end != last) continue;
    *at = gone->next;
    free(gone);
    break;
  }
  for (struct range *region = memory.regions; region != NULL; region = region->next)
    others |= region->start < last && first < region->end;
  for (uintptr_t start = first, end; start < last; start = end) {
    int count;
    // Runs of pages without another region.
    end = others ? start + page : last;
    if (others && is_registered(start)) continue;
    while (others && end < last && !is_registered(end)) end += page;
    count = shared_parts(start, end, parts, MAX_PARTS);
    for (int i = 0; i < count; i++)
      if (!take_back(&parts[i])) count = -1;
    if (count < 0) continue;
    fallocate(memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start, (off_t)(end - start));
  }
  pthread_mutex_unlock(&lock);
  errno = saved;
}
