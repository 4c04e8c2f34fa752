// A peer reads and writes a region all the time, while its owner closes the device without ibv_dereg_mr, as verbs allow: each READ brings the
// owner's bytes or fails, and the owner's memory has each WRITE that was acknowledged. Prints "ok".
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define ROUNDS 6
#define BYTES (16 << 20)
#define CHUNK 65536
#define FILL 0xaa

struct side {
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
};

// Shared by both processes.
static struct shared {
  uint32_t qpn[2], rkey;
  uint64_t address;
  union ibv_gid gid;
  _Atomic int arrived;
  _Atomic uint64_t acknowledged, wrong, done;
} *shared;

static struct side open_side(int number) {
  struct side s;
  struct ibv_device **list = ibv_get_device_list(NULL);
  s.context = ibv_open_device(list[0]);
  CHECK(s.context != NULL);
  s.pd = ibv_alloc_pd(s.context);
  s.cq = ibv_create_cq(s.context, 64, NULL, NULL, 0);
  struct ibv_qp_init_attr init = {.send_cq = s.cq, .recv_cq = s.cq, .cap = {16, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  s.qp = ibv_create_qp(s.pd, &init);
  CHECK(s.qp != NULL && ibv_query_gid(s.context, 1, 0, &shared->gid) == 0);
  shared->qpn[number] = s.qp->qp_num;
  return s;
}

// Waits for the other process.
static void meet(int count) {
  atomic_fetch_add(&shared->arrived, 1);
  while (atomic_load(&shared->arrived) < count) usleep(100);
}

// Until the owner is gone: READs of the region behind its first page, or WRITEs of a counter to its start.
static void peer(int writes) {
  struct side s = open_side(1);
  uint8_t *memory = aligned_alloc(4096, CHUNK);
  memset(memory, 0, CHUNK);
  struct ibv_mr *mr = ibv_reg_mr(s.pd, memory, CHUNK, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != NULL);
  meet(2);
  connect_qp(s.qp, shared->qpn[0], shared->gid);
  meet(4);
  for (uint64_t count = 1;; count++) {
    struct ibv_sge sge = {(uintptr_t)memory, writes ? sizeof count : CHUNK, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_wc wc;
    int n;
    wr.opcode = writes ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    wr.wr.rdma.rkey = shared->rkey;
    wr.wr.rdma.remote_addr = shared->address + (writes ? 0 : count * CHUNK % BYTES);
    if (writes) memcpy(memory, &count, sizeof count);
    else memset(memory, 0x55, CHUNK);
    if (ibv_post_send(s.qp, &wr, &bad) != 0) break;
    while ((n = ibv_poll_cq(s.cq, 1, &wc)) == 0) {}
    if (n < 0 || wc.status != IBV_WC_SUCCESS) break;
    if (writes) atomic_store(&shared->acknowledged, count);
    for (size_t i = 0; !writes && i < CHUNK; i++)
      if (memory[i] != FILL) {
        atomic_fetch_add(&shared->wrong, 1);
        break;
      }
    atomic_store(&shared->done, count);
  }
  _exit(0);
}

static void round_of(int writes) {
  memset(shared, 0, sizeof *shared);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) peer(writes);
  struct side s = open_side(0);
  uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(memory, writes ? 0 : FILL, BYTES);
  struct ibv_mr *mr = ibv_reg_mr(s.pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  CHECK(mr != NULL);
  shared->rkey = mr->rkey;
  shared->address = (uintptr_t)memory;
  meet(2);
  connect_qp(s.qp, shared->qpn[1], shared->gid);
  meet(4);
  while (atomic_load(&shared->done) < 30) usleep(100);
  CHECK(ibv_close_device(s.context) == 0);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  uint64_t count;
  memcpy(&count, memory, sizeof count);
  CHECK(atomic_load(&shared->wrong) == 0);
  if (writes) CHECK(count >= atomic_load(&shared->acknowledged));
  for (size_t i = 0; !writes && i < BYTES; i++) CHECK(memory[i] == FILL);
  munmap(memory, BYTES);
}

int main(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < ROUNDS; i++) round_of(i % 2);
  puts("ok");
  return 0;
}
