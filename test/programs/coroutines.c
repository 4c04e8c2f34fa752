// A coroutine, whose stack is in registered memory, deregisters it; then it opens the device again. The pages are the program's own by then:
// a child of fork has them, and its coroutine goes on. Prints "ok".
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"

#define STACK (128 << 10)
#define BYTES (64 << 10)

static uint8_t *memory;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static ucontext_t program, coroutine;

// Whether no thread can write to what is below the stack that runs: its guard.
static int is_guarded(void) {
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  uintptr_t start, end, guard_end = 0;
  char line[512], permissions[8];
  int guarded = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  CHECK(maps != NULL);
  while (fgets(line, sizeof line, maps) != NULL) {
    CHECK(sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &start, &end, permissions) == 3);
    if (start <= here && here < end) guarded = start == guard_end;
    if (strncmp(permissions, "---", 3) == 0) guard_end = end;
  }
  fclose(maps);
  return guarded;
}

// The library's calls come here, too: those that move pages under the coroutine come from another stack, where nothing may interrupt them.
static int moves_aside;
void *mremap(void *from, size_t length, size_t bytes, int flags, ...) {
  va_list list;
  void *to;
  va_start(list, flags);
  to = va_arg(list, void *);
  va_end(list);
  if (memory != NULL && (uint8_t *)to >= memory && (uint8_t *)to < memory + STACK) {
    uint64_t blocked, unblockable = (1ull << (SIGKILL - 1)) | (1ull << (SIGSTOP - 1));
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &blocked, sizeof blocked) == 0);
    CHECK((blocked | unblockable) == UINT64_MAX);
    CHECK(is_guarded());
    moves_aside++;
  }
  return (void *)syscall(SYS_mremap, from, length, bytes, flags, to);
}

static void open_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  CHECK((context = ibv_open_device(list[0])) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
  ibv_free_device_list(list);
}

static void close_device(void) { CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0); }

static void rest(void) { CHECK(swapcontext(&coroutine, &program) == 0); }
static void go_on(void) { CHECK(swapcontext(&program, &coroutine) == 0); }

static void run(void) {
  volatile int local = 77;
  CHECK(ibv_dereg_mr(mr) == 0);
  CHECK(local == 77);
  local = 78;
  rest();
  open_device();
  CHECK(local == 78);
  local = 79;
  rest();
  CHECK(local == 79);
}

// Whether a page of the memory is mapped from a file.
static int is_in_file(void) {
  const uintptr_t first = (uintptr_t)memory, last = first + STACK + BYTES;
  char line[512];
  int found = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  CHECK(maps != NULL);
  while (fgets(line, sizeof line, maps) != NULL) {
    uintptr_t start, end;
    CHECK(sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2);
    if (start < last && first < end && strstr(line, "memfd:") != NULL) found = 1;
  }
  fclose(maps);
  return found;
}

int main(void) {
  int status;
  pid_t child;
  CHECK((memory = aligned_alloc(4096, STACK + BYTES)) != NULL);
  for (int i = 0; i < BYTES; i++) memory[STACK + i] = (uint8_t)(i * 7);
  open_device();
  CHECK((mr = ibv_reg_mr(pd, memory, STACK + BYTES, IBV_ACCESS_LOCAL_WRITE)) != NULL);
  CHECK(is_in_file());
  CHECK(moves_aside == 0 && getcontext(&coroutine) == 0);
  coroutine.uc_stack = (stack_t){.ss_sp = memory, .ss_size = STACK};
  coroutine.uc_link = &program;
  makecontext(&coroutine, run, 0);
  go_on();
  close_device();
  go_on();
  child = fork();
  if (child == 0) {
    for (int i = 0; i < BYTES; i++) CHECK(memory[STACK + i] == (uint8_t)(i * 7));
    go_on();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(!is_in_file() && moves_aside > 0);
  go_on();
  close_device();
  puts("ok");
  return 0;
}
