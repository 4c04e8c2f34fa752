// Registered memory, in two ways. Shared: its pages become pages of a file that the device has, too (pages.c). The offset of a page is its
// address, so that regions may overlap and share pages. When the last region of a page goes, the page becomes private again. Attached: the
// pages stay what they are, and the device reads and writes them by a descriptor (attach.c).
//
// A child of fork has pages of its own in their place, with what the parent's had, as after a fork without regions.
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include "pages.h"
#include "roce.h"

struct range {
  uintptr_t start, end;           // Whole pages.
  uintptr_t low, high;            // Moved to the file for it: more, where it was in huge pages.
  int shares_first, shares_last;  // The page has bytes that are not the region's.
  const struct roce_context *owner;
  int attached;  // The pages are the program's own; those that are in the file already stay there meanwhile.
  struct range *next;
};

// One context is opened or closed at a time: each names another to the device, whose memory it shares.
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
// Memory is neither allocated nor freed under it: an allocator of the program may have its locks of fork before `before_fork`.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int roce_generation;
static struct {
  struct roce_file file;
  pid_t pid;                      // Whose memory it is: a child has its own.
  struct roce_context *contexts;  // That are open, the youngest first.
  struct range *regions;
} memory = {.file = {.fd = -1}};

// All pages of the file are the program's again.
static void leave_file(void) {
  struct roce_parts parts = {0};
  if (memory.file.fd >= 0 && roce_shared_parts(&memory.file, 0, UINTPTR_MAX, &parts) == 0)
    for (size_t i = 0; i < parts.count; i++) roce_take_back(&memory.file, &parts.at[i]);
  roce_free_parts(&parts);
}

// Where the program has closed the file's descriptor, its contexts have ended: what they would register could not be shared.
static void check_file(void) {
  if (memory.file.fd < 0 || memory.pid != getpid() || roce_is_open(&memory.file)) return;
  roce_report_closed();
  for (const struct roce_context *r = memory.contexts; r != NULL; r = r->older) roce_end_connection(r);
  leave_file();
  memory.file.fd = -1;
}

// The youngest context whose connection to the device is there. The file of one that has ended is of no use for the next.
static const struct roce_context *living(void) {
  const struct roce_context *r = memory.contexts;
  while (r != NULL && !roce_is_connected(r)) r = r->older;
  return r;
}

int roce_memory_token(uint8_t token[ROCE_TOKEN_BYTES]) {
  const struct roce_context *r;
  pthread_mutex_lock(&lock);
  // Also a process that was made without handlers of pthread_atfork.
  if (memory.pid != getpid()) {
    memory.pid = getpid();
    memory.contexts = NULL;
    memory.regions = NULL;
  }
  check_file();
  r = living();
  if (r != NULL) memcpy(token, r->token, ROCE_TOKEN_BYTES);
  pthread_mutex_unlock(&lock);
  return r != NULL;
}

int roce_memory_open(struct roce_context *r, int fd) {
  const struct roce_file file = roce_file_of(fd);
  int error = 0;
  pthread_mutex_lock(&lock);
  check_file();
  if (living() == NULL) {
    leave_file();
    if (memory.file.fd >= 0) close(memory.file.fd);
    memory.file = file;
  } else {
    close(fd);
    if (memory.file.fd < 0 || file.inode != memory.file.inode || file.device != memory.file.device) error = -1;
  }
  if (error == 0) {
    r->older = memory.contexts;
    memory.contexts = r;
  }
  pthread_mutex_unlock(&lock);
  return error;
}

// The end of the run of pages from `start` on that have a region, or that have none: at most `last`.
static uintptr_t end_of_run(uintptr_t start, uintptr_t last, int *is_registered) {
  uintptr_t next = last, end = start;
  for (struct range *region = memory.regions; region != NULL; region = region->next) {
    if (region->start <= start && start < region->end) end = region->end > end ? region->end : end;
    else if (region->start > start && region->start < next) next = region->start;
  }
  *is_registered = end > start;
  if (!*is_registered) return next;
  return end < last ? end : last;
}

// Gives the pages of a range that no region has back to the program.
static void give_back(uintptr_t first, uintptr_t last) {
  for (uintptr_t start = first, end; start < last; start = end) {
    struct roce_parts parts = {0};
    int is_registered, done;
    end = end_of_run(start, last, &is_registered);
    if (is_registered) continue;
    done = roce_shared_parts(&memory.file, start, end, &parts) == 0;
    for (size_t i = 0; i < parts.count; i++) done &= roce_take_back(&memory.file, &parts.at[i]);
    if (done) fallocate(memory.file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start, (off_t)(end - start));
    roce_free_parts(&parts);
  }
}

// The region goes, into a list of those that are to be freed; its pages are the program's again where no other has them.
static void end_region(struct range **at, struct range **ended) {
  struct range *gone = *at;
  *at = gone->next;
  gone->next = *ended;
  *ended = gone;
  give_back(gone->low, gone->high);
}

static void free_all(struct range *ended) {
  while (ended != NULL) {
    struct range *next = ended->next;
    free(ended);
    ended = next;
  }
}

int roce_memory_imported(const struct roce_context *r) {
  int imported;
  pthread_mutex_lock(&lock);
  imported = r->imports > 0;
  pthread_mutex_unlock(&lock);
  return imported;
}

int roce_memory_close(struct roce_context *r) {
  struct range *ended = NULL;
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
  check_file();
  for (struct range **at = &memory.regions; *at != NULL;) {
    if ((*at)->owner == r) end_region(at, &ended);
    else at = &(*at)->next;
  }
  pthread_mutex_unlock(&lock);
  free_all(ended);
  return 0;
}

struct roce_context *roce_import(int fd) {
  const struct roce_file given = roce_file_of(fd);
  struct roce_context *r = NULL;
  pthread_mutex_lock(&lock);
  if (memory.pid == getpid()) r = memory.contexts;
  while (r != NULL && (!roce_is_open(&r->socket) || r->socket.inode != given.inode || r->socket.device != given.device)) r = r->older;
  if (r != NULL) r->imports++;
  pthread_mutex_unlock(&lock);
  return r;
}

// errno has no room for a reason. Each is printed once.
static void explain(uintptr_t start, uintptr_t end, const char *why) {
  static const char *last;
  if (why == last && !roce_debug()) return;
  last = why;
  dprintf(STDERR_FILENO, "libibverbs of roce run: 0x%" PRIxPTR " to 0x%" PRIxPTR " can't be registered: %s\n", start, end, why);
}

// Bytes of a region at most: packages/device/src/memory.ts.
#define MAX_BYTES ((uintptr_t)1 << 32)
#define WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

// Whether a page of the range is of an attached region: a conversion would be in the way of the device's writes.
static int is_attached(uintptr_t first, uintptr_t last) {
  for (const struct range *region = memory.regions; region != NULL; region = region->next)
    if (region->attached && region->start < last && first < region->end) return 1;
  return 0;
}

// Moves the pages of a region that is not in the list yet into the file. 0, or EFAULT or EMFILE, and why; then all is as before.
static int share_pages(struct range *region, int writes, struct roce_parts *parts, const char **why) {
  size_t tried = 0;
  int error = 0;
  if (memory.file.fd < 0) {
    *why = CLOSED;
    return EFAULT;
  }
  if (roce_has_this_stack(region->start, region->end)) {
    *why = "it is the stack of this thread";
    return EFAULT;
  }
  *why = "the kernel refuses to map the device's file there, or no memory is left";
  error = roce_private_parts(&memory.file, region->start, region->end, writes, parts, why);
  if (error != 0) return error;
  if (parts->count > 0) roce_handle_faults();
  while (tried < parts->count && error == 0)
    if (roce_share_part(&memory.file, &parts->at[tried++]) != 0) error = EFAULT;
  if (error == 0) {
    region->next = memory.regions;
    memory.regions = region;
  }
  // All of it where that failed, else what stands around the region in its huge pages.
  for (size_t i = 0; i < tried; i++) {
    const struct roce_part *part = &parts->at[i];
    give_back(part->start, error == 0 ? region->start : part->end);
    give_back(region->end, part->end);
    if (part->start < region->low) region->low = part->start;
    if (part->end > region->high) region->high = part->end;
  }
  return error;
}

// The way is given, or sharing is tried first.
static int reach_pages(const struct roce_context *r, struct range *region, uint32_t kind, int writes, struct roce_parts *parts,
                       const char **why) {
  const char *reason = roce_attach_reason(region->start, region->end);
  int error = EFAULT;
  if (region->end - region->start > MAX_BYTES) {
    *why = "it is larger than 4 GiB";
    return EFAULT;
  }
  if (reason == NULL && is_attached(region->start, region->end)) reason = "other regions with its pages are not shared";
  if (kind == ROCE_MEMORY_SHARED || reason == NULL) error = share_pages(region, writes, parts, why);
  else if (kind == ROCE_MEMORY_EITHER) *why = reason;
  if (error == 0 || kind == ROCE_MEMORY_SHARED || roce_shares_only()) return error;
  if (!r->attachable) {
    if (reason != NULL) *why = "the device has no descriptor of this process's memory: /proc/self/mem can't be opened";
    return error;
  }
  reason = *why;
  error = roce_check_mapped(region->start, region->end, writes, why);
  if (error != 0) return error;
  if (kind == ROCE_MEMORY_EITHER && roce_debug())
    dprintf(STDERR_FILENO, "libibverbs of roce run: 0x%" PRIxPTR " to 0x%" PRIxPTR " is not shared: %s\n", region->start, region->end, reason);
  region->attached = 1;
  region->next = memory.regions;
  memory.regions = region;
  return 0;
}

int roce_share(const struct roce_context *r, void *address, size_t length, unsigned access, uint32_t *kind) {
  NOT_CANCELLED;
  uintptr_t page = roce_page_size(), first = (uintptr_t)address & ~(page - 1), last;
  struct roce_parts parts = {0};
  struct range *region;
  const char *why = NULL;
  int error;
  // The memory that it would be shared with is the parent's.
  if (!roce_may_call(r)) return roce_fails("a registration", EPERM, OF_PARENT);
  if (length == 0 || __builtin_add_overflow((uintptr_t)address, length + page - 1, &last)) return roce_fails("a registration", EINVAL, "length: nothing, or beyond the end of memory");
  last &= ~(page - 1);
  region = malloc(sizeof *region);
  if (region == NULL) return errno = ENOMEM;
  *region = (struct range){
      .start = first,
      .end = last,
      .low = first,
      .high = last,
      .shares_first = (uintptr_t)address != first,
      .shares_last = (uintptr_t)address + length != last,
      .owner = r,
  };
  roce_know_program();
  pthread_mutex_lock(&lock);
  check_file();
  error = reach_pages(r, region, *kind, (access & WRITES) != 0, &parts, &why);
  *kind = region->attached ? ROCE_MEMORY_ATTACHED : ROCE_MEMORY_SHARED;
  pthread_mutex_unlock(&lock);
  roce_free_parts(&parts);
  if (error == 0) return 0;
  free(region);
  explain(first, last, why);
  return errno = error;
}

void roce_unshare(const struct roce_context *r, void *address, size_t length, uint32_t kind) {
  NOT_CANCELLED;
  uintptr_t page = roce_page_size(), first = (uintptr_t)address & ~(page - 1);
  uintptr_t last = ((uintptr_t)address + length + page - 1) & ~(page - 1);
  struct range *ended = NULL;
  int saved = errno;
  pthread_mutex_lock(&lock);
  check_file();
  for (struct range **at = &memory.regions; *at != NULL; at = &(*at)->next) {
    const int is_it = (*at)->start == first && (*at)->end == last && (*at)->owner == r;
    if (!is_it || (*at)->attached != (kind == ROCE_MEMORY_ATTACHED)) continue;
    end_region(at, &ended);
    break;
  }
  pthread_mutex_unlock(&lock);
  free_all(ended);
  errno = saved;
}

void roce_lock_contexts(void) { pthread_mutex_lock(&contexts_lock); }
void roce_unlock_contexts(void) { pthread_mutex_unlock(&contexts_lock); }

// A child's faults before its handler runs are those of fork itself.
static sigset_t mask;

static void before_fork(void) {
  NOT_CANCELLED;
  struct roce_parts parts = {0};
  sigset_t faults;
  pthread_mutex_lock(&lock);
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &faults, &mask);
  check_file();
  // Also without regions: pages with data of the thread that deregistered them stay in the file.
  if (memory.file.fd < 0 || memory.pid != getpid()) return;
  // Where the mappings can't be read, as no descriptor is left, the regions are known.
  if (roce_shared_parts(&memory.file, 0, UINTPTR_MAX, &parts) != 0) {
    roce_free_parts(&parts);
    for (const struct range *region = memory.regions; region != NULL; region = region->next)
      if (!region->attached) roce_add_whole(&parts, region->start, region->end);
  }
  if (parts.count == 0) return;
  roce_handle_faults();
  roce_copy_parts(&memory.file, &parts);
  // Once more, as late as can be: other threads may have stored to what is next to the regions, as an allocator's own data.
  for (const struct range *region = memory.regions; region != NULL; region = region->next) {
    if (region->shares_first) roce_copy_again(&memory.file, region->start);
    if (region->shares_last) roce_copy_again(&memory.file, region->end - roce_page_size());
  }
}

static void in_parent(void) {
  roce_drop_copies();
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  pthread_mutex_unlock(&lock);
}

// The child has neither contexts nor regions. Those of the parent are not freed: the handler of an allocator may come later. Another
// thread of the parent may have been opening a context.
static void in_child(void) {
  NOT_CANCELLED;
  roce_adopt_copies();
  roce_generation++;
  memory.regions = NULL;
  memory.contexts = NULL;
  memory.pid = getpid();
  if (memory.file.fd >= 0) roce_close_file(&memory.file);
  memory.file.fd = -1;
  pthread_mutex_init(&contexts_lock, NULL);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  pthread_mutex_unlock(&lock);
}

// Before the program registers handlers: `before_fork` is then the last of all. A program's handler may wait for a thread that registers
// memory under the program's lock.
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, in_parent, in_child); }
