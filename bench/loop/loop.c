// Two queue pairs of one process on one device, connected to each other: SENDs of 64 bytes there and back, as ib_send_lat has them
// (inline, polled). The argument is how many; prints percentiles of the time there and back, µs, as JSON.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZE 64
#define RECEIVES 8
#define SENDS 128
#define SIGNALED_EVERY 64

#define CHECK(that)                                        \
  do {                                                     \
    if (!(that)) {                                         \
      fprintf(stderr, "line %d: %s\n", __LINE__, #that);   \
      exit(1);                                             \
    }                                                      \
  } while (0)

static struct ibv_cq *receives, *sends;
static struct ibv_sge element;

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}}};
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  CHECK(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  CHECK(ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  CHECK(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                    IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void post_receive(struct ibv_qp *qp) {
  struct ibv_recv_wr receive = {.sg_list = &element, .num_sge = 1}, *bad;
  CHECK(ibv_post_recv(qp, &receive, &bad) == 0);
}

// One way; `count` is the number of SENDs of this queue pair before.
static void send_from(struct ibv_qp *qp, struct ibv_qp *to, long count) {
  struct ibv_send_wr send = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE}, *bad;
  struct ibv_wc completion;
  if (count % SIGNALED_EVERY == SIGNALED_EVERY - 1) send.send_flags |= IBV_SEND_SIGNALED;
  CHECK(ibv_post_send(qp, &send, &bad) == 0);
  while (ibv_poll_cq(receives, 1, &completion) == 0) continue;
  CHECK(completion.status == IBV_WC_SUCCESS && completion.qp_num == to->qp_num);
  post_receive(to);
  // The completion of a SEND is there with or before the answer to the next one.
  if (count % SIGNALED_EVERY == 0 && count > 0) {
    while (ibv_poll_cq(sends, 1, &completion) == 0) continue;
    CHECK(completion.status == IBV_WC_SUCCESS);
  }
}

int main(int argc, char **argv) {
  const long count = argc > 1 ? atol(argv[1]) : 10000;
  static uint8_t memory[4096];
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_mr *mr;
  struct ibv_qp *qps[2];
  union ibv_gid gid;
  double *times = calloc((size_t)count, sizeof *times);
  CHECK(count > 0 && times != NULL && list != NULL && list[0] != NULL && (context = ibv_open_device(list[0])) != NULL);
  CHECK((pd = ibv_alloc_pd(context)) != NULL && ibv_query_gid(context, 1, 0, &gid) == 0);
  CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)) != NULL);
  element = (struct ibv_sge){.addr = (uintptr_t)memory, .length = SIZE, .lkey = mr->lkey};
  CHECK((receives = ibv_create_cq(context, 4 * RECEIVES, NULL, NULL, 0)) != NULL);
  CHECK((sends = ibv_create_cq(context, 2 * SENDS, NULL, NULL, 0)) != NULL);
  for (int i = 0; i < 2; i++) {
    struct ibv_qp_init_attr init = {.send_cq = sends, .recv_cq = receives, .qp_type = IBV_QPT_RC,
                                    .cap = {SENDS, RECEIVES, 1, 1, SIZE}};
    CHECK((qps[i] = ibv_create_qp(pd, &init)) != NULL);
  }
  for (int i = 0; i < 2; i++) {
    connect_to(qps[i], qps[1 - i]->qp_num, gid);
    for (int k = 0; k < RECEIVES; k++) post_receive(qps[i]);
  }
  // A quarter of them first, which are not counted.
  for (long i = -count / 4; i < count; i++) {
    const double start = microseconds();
    for (int half = 0; half < 2; half++) send_from(qps[half], qps[1 - half], i + count / 4);
    if (i >= 0) times[i] = microseconds() - start;
  }
  qsort(times, (size_t)count, sizeof *times, by_size);
  printf("{\"p50\": %.2f, \"p99\": %.2f, \"p999\": %.2f}\n", times[count / 2], times[count * 99 / 100], times[count * 999 / 1000]);
  return 0;
}
