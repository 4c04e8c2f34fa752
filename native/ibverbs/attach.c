// Attached memory: the device reads and writes it by a descriptor of this process's own /proc/self/mem, which stays that of this memory
// whatever the process executes later. Its pages stay what they are: no copies, no handler of SIGSEGV, and nothing to do at fork.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "roce.h"

#if defined(__x86_64__) || defined(__aarch64__)
// A client request of valgrind (its manual, "The Client Request mechanism"): instructions that do nothing on a processor.
static uintptr_t ask_valgrind(uintptr_t request, uintptr_t first, uintptr_t second) {
  const volatile uintptr_t words[6] = {request, first, second, 0, 0, 0};
#if defined(__x86_64__)
  uintptr_t result = 0;
  __asm__ volatile(
      "rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\txchgq %%rbx, %%rbx"
      : "+d"(result)
      : "a"(words)
      : "cc", "memory");
  return result;
#else
  register uintptr_t result __asm__("x3") = 0;
  register const volatile uintptr_t *at __asm__("x4") = words;
  __asm__ volatile("ror x12, x12, #3\n\tror x12, x12, #13\n\tror x12, x12, #51\n\tror x12, x12, #61\n\torr x10, x10, x10"
                   : "+r"(result)
                   : "r"(at)
                   : "cc", "memory");
  return result;
#endif
}
#else
static uintptr_t ask_valgrind(uintptr_t request, uintptr_t first, uintptr_t second) {
  (void)request, (void)first, (void)second;
  return 0;
}
#endif

#define RUNNING_ON_VALGRIND 0x1001
#define MEMCHECK_MAKE_MEM_DEFINED 0x4d430002

static int is_valgrind(void) { return ask_valgrind(RUNNING_ON_VALGRIND, 0, 0) != 0; }

void roce_mark_defined(void *address, size_t length) {
  if (is_valgrind()) ask_valgrind(MEMCHECK_MAKE_MEM_DEFINED, (uintptr_t)address, length);
}

// ROCE_MEMORY: attach, share, or both as needed.
static int is_way(const char *way) {
  const char *value = getenv("ROCE_MEMORY");
  return value != NULL && strcmp(value, way) == 0;
}

int roce_shares_only(void) { return is_way("share"); }

static const char *program_reason;
static const char *(*kept)(uintptr_t, uintptr_t);

void roce_know_program(void) {
  static const char *const sanitizers[] = {"__asan_init", "__tsan_init", "__msan_init", "__hwasan_init"};
  static atomic_int is_known;
  // Threads that are here at once find the same.
  if (atomic_load(&is_known)) return;
  if (is_valgrind()) program_reason = "the program runs in valgrind";
  for (size_t i = 0; i < sizeof sanitizers / sizeof *sanitizers; i++)
    if (dlsym(RTLD_DEFAULT, sanitizers[i]) != NULL) program_reason = "the program has a sanitizer";
  kept = (const char *(*)(uintptr_t, uintptr_t))dlsym(RTLD_DEFAULT, "libroce_paths_kept");
  atomic_store(&is_known, 1);
}

const char *roce_attach_reason(uintptr_t start, uintptr_t end) {
  if (roce_shares_only()) return NULL;
  if (is_way("attach")) return "ROCE_MEMORY=attach";
  if (program_reason != NULL) return program_reason;
  // Calls that the program has made for it so far (paths/kept.c).
  return kept != NULL ? kept(start, end) : NULL;
}

int roce_send_memory(int end) {
  char byte = 0;
  struct iovec data = {&byte, 1};
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  // Not by libc's wrapper: the program may have one of its own.
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC);
  int error;
  if (fd < 0) return -1;
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  control.header.cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  do error = sendmsg(end, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -1;
  while (error != 0 && errno == EINTR);
  close(fd);
  return error;
}
