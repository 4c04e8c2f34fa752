// Threads that share queues, on the library of native/ibverbs: prints "ok", or what was wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define QKEY 0x11
#define EACH 1000

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_ah *ah;
static struct ibv_mr *mr;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qp;
static uint64_t bytes[512];
static atomic_int seen[2 * EACH], others, posted, stop;

// Of unreliable datagrams, which it sends to itself: each send completes.
static struct ibv_qp *queue_pair(uint32_t entries) {
  struct ibv_qp_init_attr_ex init = {
      .send_cq = ibv_cq_ex_to_cq(cq),
      .recv_cq = ibv_cq_ex_to_cq(cq),
      .cap = {entries, 1, 1, 1, 0},
      .qp_type = IBV_QPT_UD,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .pd = pd,
      .send_ops_flags = IBV_QP_EX_WITH_SEND,
  };
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
  struct ibv_qp *made = ibv_create_qp_ex(context, &init);
  CHECK(made != NULL);
  CHECK(ibv_modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  attr.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(made, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  CHECK(ibv_modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  return made;
}

static void add_send(struct ibv_qp_ex *to, uint64_t id) {
  to->wr_id = id;
  to->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(to);
  ibv_wr_set_ud_addr(to, ah, qp->qp_num, QKEY);
  ibv_wr_set_sge(to, mr->lkey, (uintptr_t)bytes, 8);
}

static void *poster(void *which) {
  struct ibv_qp_ex *to = ibv_qp_to_qp_ex(qp);
  uint64_t id = (uint64_t)(uintptr_t)which * EACH;
  for (uint64_t end = id + EACH; id < end;) {
    int error;
    ibv_wr_start(to);
    add_send(to, id);
    error = ibv_wr_complete(to);
    errno = error;
    CHECK(error == 0 || error == ENOMEM);
    if (error == 0) id++;
  }
  posted++;
  return NULL;
}

static void *poller(void *unused) {
  while (!stop) {
    struct ibv_poll_cq_attr attr = {0};
    if (ibv_start_poll(cq, &attr) != 0) continue;
    do {
      uint64_t id = cq->wr_id;
      for (volatile int i = 0; i < 100; i++) continue;
      if (id == cq->wr_id && id < 2 * EACH && cq->status == IBV_WC_SUCCESS) seen[id]++;
      else others++;
    } while (ibv_next_poll(cq) == 0);
    // As between other verbs: the thread that polls may ask for an event.
    CHECK(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 1) == 0);
    ibv_end_poll(cq);
  }
  return unused;
}

static int is_all_seen(void) {
  for (int i = 0; i < 2 * EACH; i++)
    if (seen[i] == 0) return 0;
  return 1;
}

// Two threads post to one queue pair, two poll one queue: each request completes once, as itself.
static void share(void) {
  pthread_t threads[4];
  qp = queue_pair(64);
  for (intptr_t i = 0; i < 2; i++) {
    CHECK(pthread_create(&threads[i], NULL, poster, (void *)i) == 0);
    CHECK(pthread_create(&threads[2 + i], NULL, poller, NULL) == 0);
  }
  for (int i = 0; i < 2000 && (posted < 2 || !is_all_seen()); i++) usleep(5000);
  stop = 1;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2 * EACH; i++) CHECK(seen[i] == 1);
  CHECK(others == 0);
}

// Completions of one session, as many as were posted.
static void take_all(int count) {
  struct ibv_wc wc;
  for (int i = 0; i < count;) {
    int found = ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc);
    CHECK(found >= 0);
    if (found > 0) CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)i);
    i += found;
  }
}

// A queue that was made larger takes as much in one session; an abort posts nothing.
static void resize(void) {
  struct ibv_qp_attr attr = {.cap = {256, 1, 1, 1, 0}};
  struct ibv_qp_ex *to;
  qp = queue_pair(4);
  to = ibv_qp_to_qp_ex(qp);
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_CAP) == 0 && attr.cap.max_send_wr >= 256);
  for (int aborts = 1; aborts >= 0; aborts--) {
    ibv_wr_start(to);
    for (uint64_t i = 0; i < 256; i++) add_send(to, i);
    if (aborts) ibv_wr_abort(to);
    else CHECK(ibv_wr_complete(to) == 0);
  }
  take_all(256);
  ibv_wr_start(to);
  for (uint64_t i = 0; i < 5000; i++) add_send(to, i);
  CHECK(ibv_wr_complete(to) == ENOMEM);
  CHECK(ibv_destroy_qp(qp) == 0);
}

// Between ibv_start_poll and ibv_end_poll the thread that polls resets the queue pair, resizes the queue, and polls it.
static void reset(void) {
  struct ibv_poll_cq_attr none = {0};
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
  struct ibv_wc wc;
  qp = queue_pair(4);
  for (uint64_t i = 0; i < 3; i++) {
    ibv_wr_start(ibv_qp_to_qp_ex(qp));
    add_send(ibv_qp_to_qp_ex(qp), i);
    CHECK(ibv_wr_complete(ibv_qp_to_qp_ex(qp)) == 0);
  }
  while (ibv_start_poll(cq, &none) != 0) continue;
  CHECK(cq->wr_id == 0 && cq->status == IBV_WC_SUCCESS);
  while (ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) == 0) continue;
  CHECK(wc.wr_id == 1 && ibv_resize_cq(ibv_cq_ex_to_cq(cq), 8000) == 0);
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  CHECK(ibv_next_poll(cq) == ENOENT && cq->wr_id == 0);
  ibv_end_poll(cq);
  CHECK(ibv_destroy_qp(qp) == 0);
}

// A request for an event stays with a queue that is resized.
static void notify(void) {
  struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
  struct ibv_cq_init_attr_ex init = {.cqe = 16, .channel = channel};
  struct ibv_cq *about;
  void *none;
  struct pollfd readable = {.fd = channel->fd, .events = POLLIN};
  CHECK((cq = ibv_create_cq_ex(context, &init)) != NULL);
  qp = queue_pair(4);
  CHECK(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0) == 0);
  for (int i = 0; i < 3; i++) CHECK(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 32 << i) == 0);
  ibv_wr_start(ibv_qp_to_qp_ex(qp));
  add_send(ibv_qp_to_qp_ex(qp), 0);
  CHECK(ibv_wr_complete(ibv_qp_to_qp_ex(qp)) == 0);
  CHECK(poll(&readable, 1, 10000) == 1 && ibv_get_cq_event(channel, &about, &none) == 0);
  ibv_ack_cq_events(about, 1);
  take_all(1);
}

static void *cancelled(void *unused) {
  for (;;) {
    struct ibv_mr *own = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    CHECK(own != NULL && ibv_dereg_mr(own) == 0);
    pthread_testcancel();
  }
  return unused;
}

static pid_t child;

static void *forks_cancelled(void *unused) {
  pthread_cancel(pthread_self());
  child = fork();
  if (child == 0) _exit(7);
  pthread_testcancel();
  return unused;
}

// A thread that is cancelled leaves no lock held.
static void cancel(void) {
  pthread_t forking;
  int status;
  CHECK(pthread_create(&forking, NULL, forks_cancelled, NULL) == 0 && pthread_join(forking, NULL) == 0);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    struct ibv_mr *own;
    CHECK(pthread_create(&thread, NULL, cancelled, NULL) == 0);
    usleep(3000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    CHECK((own = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE)) != NULL && ibv_dereg_mr(own) == 0);
  }
}

int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_ah_attr address = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}};
  struct ibv_cq_init_attr_ex init = {.cqe = 4096};
  alarm(50);
  CHECK((context = ibv_open_device(list[0])) != NULL && (pd = ibv_alloc_pd(context)) != NULL);
  ibv_free_device_list(list);
  CHECK((mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE)) != NULL);
  CHECK(ibv_query_gid(context, 1, 0, &address.grh.dgid) == 0 && (ah = ibv_create_ah(pd, &address)) != NULL);
  CHECK((cq = ibv_create_cq_ex(context, &init)) != NULL);
  share();
  resize();
  reset();
  notify();
  cancel();
  puts("ok");
  return 0;
}
