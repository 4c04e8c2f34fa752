// Memory that stays the program's own while it is registered: what sharing refuses, or all of it (ROCE_MEMORY=attach). Two connected queue
// pairs of one process move every kind of request over it; then it goes, and requests fail before anything is acknowledged. Prints "ok".
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define BYTES 20000
#define HUGE_PAGE (2ul << 20)
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static struct ibv_qp *qps[2];
static uint8_t *heap;
static struct ibv_mr *heap_mr;

static void connect_both(void) {
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {16, 16, 2, 2, 0}};
  for (int i = 0; i < 2; i++) CHECK((qps[i] = ibv_create_qp(pd, &init)) != NULL);
  for (int i = 0; i < 2; i++) connect_qp(qps[i], qps[1 - i]->qp_num, gid);
}

static void disconnect(void) {
  struct ibv_wc wc;
  for (int i = 0; i < 2; i++) CHECK(ibv_destroy_qp(qps[i]) == 0);
  while (ibv_poll_cq(cq, 1, &wc) > 0) {}
}

static struct ibv_wc wait_one(void) {
  struct ibv_wc wc;
  int n;
  while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {}
  CHECK(n == 1);
  return wc;
}

// Completions: wr_id 1 is the request, 2 the receive.
static int post(enum ibv_wr_opcode opcode, struct ibv_mr *local, struct ibv_mr *remote, size_t length) {
  struct ibv_sge sge = {(uintptr_t)local->addr, (uint32_t)length, local->lkey};
  struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    wr.wr.atomic.remote_addr = (uintptr_t)remote->addr;
    wr.wr.atomic.rkey = remote->rkey;
    wr.wr.atomic.compare_add = 5;
    wr.wr.atomic.swap = 77;
  } else {
    wr.wr.rdma.remote_addr = (uintptr_t)remote->addr;
    wr.wr.rdma.rkey = remote->rkey;
  }
  return ibv_post_send(qps[0], &wr, &bad);
}

static void receive(struct ibv_mr *mr, size_t length) {
  struct ibv_sge sge = {(uintptr_t)mr->addr, (uint32_t)length, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
  CHECK(ibv_post_recv(qps[1], &wr, &bad) == 0);
}

static enum ibv_wc_status run(enum ibv_wr_opcode opcode, struct ibv_mr *local, struct ibv_mr *remote, size_t length) {
  struct ibv_wc wc;
  CHECK(post(opcode, local, remote, length) == 0);
  wc = wait_one();
  CHECK(wc.wr_id == 1);
  return wc.status;
}

static void fill(uint8_t *at, unsigned seed) {
  for (size_t i = 0; i < BYTES; i++) at[i] = (uint8_t)(seed + i * 7 + i / 251);
}

static int same(const uint8_t *at, unsigned seed) {
  for (size_t i = 0; i < BYTES; i++)
    if (at[i] != (uint8_t)(seed + i * 7 + i / 251)) return 0;
  return 1;
}

// Everything that a region is for, in memory at `at` and in the heap.
static void use(const char *name, uint8_t *at) {
  static unsigned seed;
  struct ibv_mr *mr = ibv_reg_mr(pd, at, BYTES, ALL);
  uint64_t word = 5;
  if (mr == NULL) printf("%s: ", name);
  CHECK(mr != NULL);
  fill(heap, ++seed);
  CHECK(run(IBV_WR_RDMA_WRITE, heap_mr, mr, BYTES) == IBV_WC_SUCCESS && same(at, seed));
  fill(at, ++seed);
  CHECK(run(IBV_WR_RDMA_WRITE, mr, heap_mr, BYTES) == IBV_WC_SUCCESS && same(heap, seed));
  fill(at, ++seed);
  CHECK(run(IBV_WR_RDMA_READ, heap_mr, mr, BYTES) == IBV_WC_SUCCESS && same(heap, seed));
  fill(heap, ++seed);
  CHECK(run(IBV_WR_RDMA_READ, mr, heap_mr, BYTES) == IBV_WC_SUCCESS && same(at, seed));
  for (int sends = 0; sends < 2; sends++)
    for (size_t length = 1; length <= BYTES; length = length * 5 + 3) {
      struct ibv_mr *from = sends ? mr : heap_mr, *to = sends ? heap_mr : mr;
      fill(from->addr, ++seed);
      memset(to->addr, 0, BYTES);
      receive(to, length);
      CHECK(post(IBV_WR_SEND, from, to, length) == 0);
      for (int i = 0; i < 2; i++) CHECK(wait_one().status == IBV_WC_SUCCESS);
      CHECK(memcmp(to->addr, from->addr, length) == 0 && (length == BYTES || ((uint8_t *)to->addr)[length] == 0));
    }
  memcpy(at, &word, sizeof word);
  CHECK(run(IBV_WR_ATOMIC_FETCH_AND_ADD, heap_mr, mr, 8) == IBV_WC_SUCCESS);
  CHECK(*(uint64_t *)heap == 5 && memcmp(at, &(uint64_t){10}, 8) == 0);
  CHECK(run(IBV_WR_ATOMIC_CMP_AND_SWP, heap_mr, mr, 8) == IBV_WC_SUCCESS && *(uint64_t *)heap == 10);
  CHECK(memcmp(at, &(uint64_t){10}, 8) == 0);
  memcpy(at, &word, sizeof word);
  CHECK(run(IBV_WR_ATOMIC_CMP_AND_SWP, heap_mr, mr, 8) == IBV_WC_SUCCESS && *(uint64_t *)heap == 5);
  CHECK(memcmp(at, &(uint64_t){77}, 8) == 0);
  memcpy(heap, &word, sizeof word);
  CHECK(run(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, heap_mr, 8) == IBV_WC_SUCCESS && memcmp(at, &word, 8) == 0);
  CHECK(ibv_dereg_mr(mr) == 0);
}

// Pages that a request names are unmapped: it fails on both sides, and no byte counts as delivered.
static void use_gone(void) {
  static const struct {
    enum ibv_wr_opcode opcode;
    int is_local;
    enum ibv_wc_status request, receive;
  } cases[] = {
      {IBV_WR_RDMA_WRITE, 0, IBV_WC_REM_ACCESS_ERR, 0},
      {IBV_WR_RDMA_READ, 0, IBV_WC_REM_ACCESS_ERR, 0},
      {IBV_WR_ATOMIC_FETCH_AND_ADD, 0, IBV_WC_REM_ACCESS_ERR, 0},
      {IBV_WR_RDMA_WRITE, 1, IBV_WC_LOC_PROT_ERR, 0},
      {IBV_WR_RDMA_READ, 1, IBV_WC_LOC_PROT_ERR, 0},
      {IBV_WR_SEND, 1, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR},
      {IBV_WR_SEND, 0, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR},
  };
  for (int whole = 0; whole < 2; whole++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      const int is_send = cases[i].opcode == IBV_WR_SEND, is_atomic = cases[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
      const size_t length = is_atomic ? 8 : whole ? 512 : BYTES;
      uint8_t *at = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      struct ibv_mr *mr = ibv_reg_mr(pd, at, BYTES, ALL);
      CHECK(mr != NULL);
      connect_both();
      if (is_send) receive(cases[i].is_local ? heap_mr : mr, BYTES);
      // The end of the longer ones alone.
      CHECK(munmap(at + (length == BYTES ? 4 * 4096 : 0), 4096) == 0);
      CHECK(post(cases[i].opcode, cases[i].is_local ? mr : heap_mr, cases[i].is_local ? heap_mr : mr, length) == 0);
      for (int n = 0; n < 1 + (is_send && !cases[i].is_local); n++) {
        const struct ibv_wc wc = wait_one();
        const enum ibv_wc_status expected = wc.wr_id == 1 ? cases[i].request : cases[i].receive;
        if (wc.status != expected) printf("case %zu, length %zu, request %d: %s\n", i, length, (int)wc.wr_id, ibv_wc_status_str(wc.status));
        CHECK(wc.status == expected);
      }
      disconnect();
      CHECK(ibv_dereg_mr(mr) == 0);
      munmap(at, 8 * 4096);
    }
}

// A child has its own copy, as with private memory anywhere.
static void use_fork(void) {
  uint8_t *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int ends[2], status;
  pid_t child;
  char byte;
  struct ibv_mr *mr;
  fill(at, 1);
  mr = ibv_reg_mr(pd, at, BYTES, ALL);
  CHECK(mr != NULL && pipe(ends) == 0);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(read(ends[0], &byte, 1) == 1 && same(at, 1) ? 0 : 1);
  fill(heap, 2);
  CHECK(run(IBV_WR_RDMA_WRITE, heap_mr, mr, BYTES) == IBV_WC_SUCCESS && same(at, 2));
  CHECK(write(ends[1], "x", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(ibv_dereg_mr(mr) == 0 && munmap(at, BYTES) == 0);
}

int main(void) {
  uint8_t stack[BYTES + 64];
  const int file = memfd_create("attached", 0), segment = shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600);
  FILE *disk = tmpfile();
  struct ibv_device **list = ibv_get_device_list(NULL);
  uint8_t *at;
  CHECK(list != NULL && (context = ibv_open_device(list[0])) != NULL && ibv_query_gid(context, 1, 0, &gid) == 0);
  CHECK((pd = ibv_alloc_pd(context)) != NULL && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
  heap = malloc(BYTES);
  CHECK((heap_mr = ibv_reg_mr(pd, heap, BYTES, ALL)) != NULL);
  connect_both();
  use("stack", stack + 8 - (uintptr_t)stack % 8);
  use("MAP_SHARED", mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  CHECK(ftruncate(file, 65536) == 0 && ftruncate(fileno(disk), 65536) == 0);
  use("memfd", mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  use("file", mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(disk), 0));
  use("System V", shmat(segment, NULL, 0));
  shmctl(segment, IPC_RMID, NULL);
  use("rwx", mmap(NULL, BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  at = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (at != MAP_FAILED) use("huge pages", at + 24);
  // Over several mappings of different kinds, and next to each other on one page.
  at = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mmap(at + 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + 4096);
  use("several mappings", at + 8);
  use("several mappings, at their end", at + 16 * 4096 - BYTES);
  // Memory that no adapter could use either.
  CHECK(ibv_reg_mr(pd, mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, ALL) == NULL && errno == EFAULT);
  CHECK(ibv_reg_mr(pd, mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0), 4096, ALL) == NULL && errno == EFAULT);
  at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(munmap(at + 4096, 4096) == 0 && ibv_reg_mr(pd, at, 8192, ALL) == NULL && errno == EFAULT);
  use_fork();
  disconnect();
  use_gone();
  CHECK(ibv_dereg_mr(heap_mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  ibv_free_device_list(list);
  free(heap);
  fclose(disk);
  puts("ok");
  return 0;
}
