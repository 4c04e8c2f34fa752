// A coroutine, whose stack is in registered memory, deregisters it; then it opens the device again. The pages are the program's own by then:
// a child of fork has them, and its coroutine goes on. Prints "ok".
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <inttypes.h>
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
  CHECK(getcontext(&coroutine) == 0);
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
  CHECK(!is_in_file());
  go_on();
  close_device();
  puts("ok");
  return 0;
}
