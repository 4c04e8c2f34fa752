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
#include <sys/uio.h>
#include <ucontext.h>

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

int roce_add_part(struct roce_parts *parts, struct roce_part part) {
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
  if (roce_add_part(parts, (struct roce_part){start, end, start, end, PROT_READ | PROT_WRITE, (off_t)start, NULL}) != 0)
    report_missing();
}

void roce_free_parts(struct roce_parts *parts) {
  if (parts->bytes > 0) munmap(parts->at, parts->bytes);
  *parts = (struct roce_parts){0};
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

// Besides its stack, libc and the kernel keep data for this thread, and store there at any time.
static int has_this_thread(uintptr_t start, uintptr_t end) {
  const uintptr_t self = (uintptr_t)pthread_self(), error = (uintptr_t)&errno;
  return (start <= error && error < end) || (start < self + roce_page_size() && self < end);
}

static int has_frames(uintptr_t start, uintptr_t end) {
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  return here + 65536 > start && here - 65536 < end;
}

int roce_has_this_stack(uintptr_t start, uintptr_t end) { return has_frames(start, end) || has_this_thread(start, end); }

// Pages are moved so many bytes at a time: both copies of more are never there. Huge pages are moved whole.
#define PIECE ((size_t)1 << 20)

// Moves pages of the part from private ones to those of the file. errno where that fails: then they are as before.
static int move_to_file(const struct roce_file *file, const struct roce_part *part, uintptr_t start, size_t length) {
  void *at = (void *)start;
  int error = 0;
  if (mprotect(at, length, PROT_READ) != 0 || copy_to_file(file->fd, start, start + length) != 0 ||
      mmap(at, length, part->protection, MAP_SHARED | MAP_FIXED, file->fd, (off_t)start) == MAP_FAILED) {
    error = errno;
    mprotect(at, length, part->protection);
  } else syscall(SYS_madvise, at, length, MADV_DONTFORK);  // Not by the wrapper of paths/kept.c: it is no advice of the program.
  return error;
}

// Moves the part piece by piece. errno where that fails: a part of it may be in the file then.
static int move_pieces(const struct roce_file *file, const struct roce_part *part, size_t unit) {
  const size_t piece = unit > PIECE ? unit : PIECE;
  int error = 0;
  for (uintptr_t at = part->start; at < part->end && error == 0; at += piece)
    error = move_to_file(file, part, at, part->end - at < piece ? part->end - at : piece);
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
    error = roce_has_this_stack(part->start, part->end) ? EFAULT : move_pieces(file, part, unit);
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

// Copies the file's pages to `own`: from where they are mapped, if the program has closed the file's descriptor.
static int copy_back(const struct roce_file *file, uint8_t *own, off_t offset, const void *at, size_t length) {
  if (roce_is_open(file)) return copy_from_file(file->fd, own, offset, length);
  memcpy(own, at, length);
  return 0;
}

// Moves pages back from the file into the place at `own`, and from there to where they were; the file's go.
static int move_from_file(const struct roce_file *file, const struct roce_part *part, uintptr_t start, uint8_t *own, size_t length) {
  const off_t offset = part->offset + (off_t)(start - part->start);
  void *at = (void *)start;
  if (mprotect(at, length, PROT_READ) != 0) return -1;
  if (copy_back(file, own, offset, at, length) != 0 || mprotect(own, length, part->protection) != 0 || move_over(own, length, start) != 0) {
    mprotect(at, length, part->protection);
    return -1;
  }
  if (roce_is_open(file)) fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)length);
  return 0;
}

static int take_back(const struct roce_file *file, const struct roce_part *part) {
  size_t length = part->end - part->start, done = 0;
  uint8_t *own;
  // One place for all pieces: the kernel makes one mapping of them again.
  own = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED) return 0;
  atomic_store(&converting, 1);
  while (done < length) {
    const size_t piece = length - done < PIECE ? length - done : PIECE;
    if (move_from_file(file, part, part->start + done, own + done, piece) != 0) break;
    done += piece;
  }
  if (done < length) munmap(own + done, length - done);
  atomic_fetch_add(&conversions, 1);
  atomic_store(&converting, 0);
  return done == length;
}

// Pages under the frames that run come back while another stack runs. One thread at a time has the lock of memory.c.
static struct {
  const struct roce_file *file;
  const struct roce_part *part;
  int done;
} aside;

static void take_back_aside(void) { aside.done = take_back(aside.file, aside.part); }

#define ASIDE_BYTES ((size_t)64 << 10)

static int from_another_stack(void (*call)(void)) {
  static ucontext_t here, there;
  // What outgrows the stack faults in the page below it, instead of storing to memory of the program.
  const size_t guard = roce_page_size(), length = guard + ASIDE_BYTES;
  uint8_t *low = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0), *stack = low + guard;
  int error;
  if (low == MAP_FAILED) return -1;
  error = mprotect(stack, ASIDE_BYTES, PROT_READ | PROT_WRITE) != 0 ? -1 : getcontext(&there);
  there.uc_stack = (stack_t){.ss_sp = stack, .ss_size = ASIDE_BYTES};
  there.uc_link = &here;
  // A handler of the program might leave by longjmp, to frames that can't be written meanwhile, and glibc's by a cancellation: sigfillset(3)
  // leaves out its two signals.
  memset(&there.uc_sigmask, 0xff, sizeof there.uc_sigmask);
  if (error == 0) {
    makecontext(&there, call, 0);
    error = swapcontext(&here, &there);
  }
  munmap(low, length);
  return error;
}

int roce_take_back(const struct roce_file *file, const struct roce_part *part) {
  if (has_this_thread(part->start, part->end)) return 0;
  if (!has_frames(part->start, part->end)) return take_back(file, part);
  aside.file = file;
  aside.part = part;
  aside.done = 0;
  return from_another_stack(take_back_aside) == 0 && aside.done;
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
