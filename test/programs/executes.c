// A program executes another one while a peer writes to its memory: not a byte of the new program changes. Both have memory at one
// address. Prints "ok".
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define AT ((uint8_t *)0x300000000000)
#define BYTES (1ul << 20)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

struct side {
  struct ibv_cq *cq;
  struct ibv_pd *pd;
  struct ibv_qp *qp;
  union ibv_gid gid;
};

// Sent over pipes.
struct hello {
  uint32_t qpn, rkey;
};

static struct side open_side(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = ibv_open_device(list[0]);
  struct side s;
  CHECK(context != NULL && ibv_query_gid(context, 1, 0, &s.gid) == 0);
  s.pd = ibv_alloc_pd(context);
  s.cq = ibv_create_cq(context, 64, NULL, NULL, 0);
  struct ibv_qp_init_attr init = {.send_cq = s.cq, .recv_cq = s.cq, .cap = {64, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  CHECK((s.qp = ibv_create_qp(s.pd, &init)) != NULL);
  return s;
}

// Writes until the other side is gone. Its end of the pipe closes then.
static void write_all_the_time(int in, int out) {
  struct side s = open_side();
  static uint8_t bytes[BYTES];
  struct hello mine = {s.qp->qp_num, 0}, other;
  struct ibv_mr *mr;
  memset(bytes, 0xee, BYTES);
  CHECK((mr = ibv_reg_mr(s.pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE)) != NULL);
  CHECK(write(out, &mine, sizeof mine) == sizeof mine && read(in, &other, sizeof other) == sizeof other);
  connect_qp(s.qp, other.qpn, s.gid);
  for (unsigned posted = 0, done = 0;;) {
    struct ibv_sge sge = {(uintptr_t)bytes, BYTES, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_wc wc;
    wr.wr.rdma.remote_addr = (uintptr_t)AT;
    wr.wr.rdma.rkey = other.rkey;
    if (posted - done < 16) {
      CHECK(ibv_post_send(s.qp, &wr, &bad) == 0);
      posted++;
    }
    if (ibv_poll_cq(s.cq, 1, &wc) == 0) continue;
    done++;
    // Nothing is left to write to.
    if (wc.status != IBV_WC_SUCCESS) _exit(0);
    // From here on the other side may go.
    if (done == 4) CHECK(write(out, "x", 1) == 1);
  }
}

static uint8_t *own_memory(int flags) {
  uint8_t *at = mmap(AT, BYTES, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(at == AT);
  memset(at, 0, BYTES);
  return at;
}

static void check_zeros(const uint8_t *at) {
  for (size_t i = 0; i < BYTES; i++) CHECK(at[i] == 0);
}

int main(int argc, char **argv) {
  int to[2], from[2];
  struct hello mine, other;
  struct ibv_mr *mr;
  struct side s;
  char byte;
  pid_t child;
  if (argc == 4) {
    // The new program, until the peer has ended.
    uint8_t *at = own_memory(MAP_PRIVATE);
    int in = atoi(argv[2]);
    ssize_t n;
    close(atoi(argv[3]));
    do {
      check_zeros(at);
      n = read(in, &byte, 1);
    } while (n > 0);
    check_zeros(at);
    puts("ok");
    return 0;
  }
  CHECK(pipe(to) == 0 && pipe(from) == 0 && (child = fork()) >= 0);
  if (child == 0) {
    close(to[1]);
    close(from[0]);
    write_all_the_time(to[0], from[1]);
  }
  close(to[0]);
  close(from[1]);
  s = open_side();
  // Not one that is shared with the device.
  CHECK((mr = ibv_reg_mr(s.pd, own_memory(MAP_SHARED), BYTES, ACCESS)) != NULL);
  CHECK(read(from[0], &other, sizeof other) == sizeof other);
  connect_qp(s.qp, other.qpn, s.gid);
  mine = (struct hello){s.qp->qp_num, mr->rkey};
  CHECK(write(to[1], &mine, sizeof mine) == sizeof mine && read(from[0], &byte, 1) == 1);
  char ends[2][16];
  snprintf(ends[0], sizeof ends[0], "%d", from[0]);
  snprintf(ends[1], sizeof ends[1], "%d", to[1]);
  execl("/proc/self/exe", argv[0], "again", ends[0], ends[1], NULL);
  CHECK(!"execl");
}
