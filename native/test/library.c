// Functions of the C library that need no device. Linked with its object files and run by library.test.ts; ends at the first thing that is
// wrong, and prints it.
#include <sys/mman.h>

#include "../../test/programs/check.h"
#include "../ibverbs/roce.h"

// Of releases after rdma-core 44.
const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode);

static int fails;
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return fails ? MAP_FAILED : __real_mmap(at, bytes, protection, flags, fd, offset);
}

// rdma-core, libibverbs/verbs.c.
static void rates(void) {
  static const struct {
    int code, multiple, megabits;
  } known[] = {{2, 1, 2500},     {11, -1, 14062},   {18, -1, 309375},  {19, 11, 28125},    {20, 20, 53125},
               {21, 160, 425000}, {22, 240, 637500}, {23, 320, 850000}, {24, 480, 1275000}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const enum ibv_rate rate = (enum ibv_rate)known[i].code;
    CHECK(ibv_rate_to_mbps(rate) == known[i].megabits);
    CHECK(ibv_rate_to_mult(rate) == known[i].multiple);
    CHECK(mbps_to_ibv_rate(known[i].megabits) == rate);
    if (known[i].multiple > 0) CHECK(mult_to_ibv_rate(known[i].multiple) == rate);
  }
  CHECK(ibv_rate_to_mbps((enum ibv_rate)25) == -1);
  CHECK(mult_to_ibv_rate(-1) == IBV_RATE_MAX);
}

static void opcodes(void) {
  CHECK(strcmp(ibv_wr_opcode_str(IBV_WR_RDMA_READ), "IBV_WR_RDMA_READ") == 0);
  CHECK(strcmp(ibv_wr_opcode_str((enum ibv_wr_opcode)15), "IBV_WR_ATOMIC_WRITE") == 0);
  CHECK(strcmp(ibv_wr_opcode_str((enum ibv_wr_opcode)12), "unknown") == 0);
  CHECK(strcmp(ibv_wr_opcode_str((enum ibv_wr_opcode)99), "unknown") == 0);
}

// A reply that could not be had reads as zeros.
static void no_memory(void) {
  struct roce_alloc_pd_reply reply = {.handle = 1};
  fails = 1;
  CHECK(roce_exchange(-1, ROCE_ALLOC_PD, NULL, 0, &reply, sizeof reply) == ENOMEM && errno == ENOMEM);
  fails = 0;
  CHECK(reply.handle == 0);
}

int main(void) {
  rates();
  opcodes();
  no_memory();
  puts("ok");
  return 0;
}
