// Every verb, called so that it fails: "== name" on stderr before each, where ROCE_DEBUG=1 then has the reason. Prints "ok".
#define _GNU_SOURCE
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define NAME(name) dprintf(STDERR_FILENO, "== %s\n", name)
// A result that is a pointer, −1 with errno, or the error.
#define FAILS_WITH(call, result, error) \
  do {                                  \
    NAME(#call);                        \
    errno = 0;                          \
    CHECK((call) == (result));          \
    CHECK(errno == (error));            \
  } while (0)
#define NO_POINTER(call, error) FAILS_WITH(call, NULL, error)
#define NO_NUMBER(call, error) FAILS_WITH(call, -1, error)
#define FAILS(call, error)    \
  do {                        \
    NAME(#call);              \
    CHECK((call) == (error)); \
  } while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static uint8_t *memory;

static struct ibv_qp *create(enum ibv_qp_type type) {
  struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = {4, 4, 2, 2, 16}};
  return ibv_create_qp(pd, &attr);
}

static void creations(void) {
  struct ibv_qp_init_attr attr = {.send_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 2, 2, 16}};
  struct ibv_qp_init_attr_ex more = {.qp_type = IBV_QPT_RC};
  struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1u << 30, .max_sge = 1}};
  struct ibv_srq_init_attr_ex xrc = {.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE, .pd = pd, .srq_type = IBV_SRQT_XRC};
  struct ibv_cq_init_attr_ex flows = {.cqe = 4, .wc_flags = IBV_WC_EX_WITH_FLOW_TAG};
  struct ibv_ah_attr nowhere = {.port_num = 9, .is_global = 1};
  struct ibv_td_init_attr threads = {.comp_mask = 1};
  struct ibv_parent_domain_init_attr parent = {0};
  struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
  struct ibv_flow_attr flow = {0};
  struct ibv_alloc_dm_attr dm = {.length = 64};
  NO_POINTER(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
  NO_POINTER(ibv_create_cq(context, 4, NULL, NULL, 7), EINVAL);
  NO_POINTER(ibv_create_cq(context, INT32_MAX, NULL, NULL, 0), EINVAL);
  NO_POINTER(ibv_create_cq_ex(context, &flows), EOPNOTSUPP);
  NO_POINTER(ibv_create_qp(pd, &attr), EINVAL);
  attr.recv_cq = cq;
  attr.cap.max_send_sge = 1000;
  NO_POINTER(ibv_create_qp(pd, &attr), EINVAL);
  NO_POINTER(create(IBV_QPT_XRC_SEND), EOPNOTSUPP);
  NO_POINTER(ibv_create_qp_ex(context, &more), EINVAL);
  more = (struct ibv_qp_init_attr_ex){.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH, .pd = pd};
  NO_POINTER(ibv_create_qp_ex(context, &more), EOPNOTSUPP);
  NO_POINTER(ibv_create_srq(pd, &srq), EINVAL);
  NO_POINTER(ibv_create_srq_ex(context, &xrc), EOPNOTSUPP);
  NO_POINTER(ibv_create_ah(pd, &nowhere), EINVAL);
  NO_POINTER(ibv_alloc_mw(pd, (enum ibv_mw_type)7), EINVAL);
  NO_POINTER(ibv_alloc_td(context, &threads), EINVAL);
  NO_POINTER(ibv_alloc_parent_domain(context, &parent), EINVAL);
  NO_POINTER(ibv_reg_mr(pd, memory, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
  NO_POINTER(ibv_reg_mr(pd, (void *)64, 64, IBV_ACCESS_LOCAL_WRITE), EFAULT);
  NO_POINTER(ibv_reg_mr(pd, (void *)64, 64, IBV_ACCESS_LOCAL_WRITE), EFAULT);
  NO_POINTER(ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  NO_POINTER(ibv_import_device(0), EOPNOTSUPP);
  NO_POINTER(ibv_import_mr(pd, 999999), EINVAL);
  NO_POINTER(ibv_open_xrcd(context, &domain), EOPNOTSUPP);
  NO_POINTER(ibv_create_flow(qp, &flow), EOPNOTSUPP);
  NO_POINTER(ibv_alloc_dm(context, &dm), EOPNOTSUPP);
  NO_POINTER(ibv_alloc_null_mr(pd), EOPNOTSUPP);
}

static void questions(void) {
  struct ibv_values_ex values = {0};
  struct ibv_port_attr port;
  struct ibv_gid_entry entry;
  struct ibv_wc wc = {0};
  struct ibv_grh grh;
  struct ibv_ah_attr ah;
  union ibv_gid gid;
  __be16 pkey;
  FAILS(ibv_query_port(context, 2, &port), EINVAL);
  FAILS(ibv_query_rt_values_ex(context, &values), EINVAL);
  NO_NUMBER(ibv_query_gid(context, 1, 999, &gid), EINVAL);
  FAILS(ibv_query_gid_ex(context, 1, 15, &entry, 0), ENODATA);
  FAILS(ibv_query_gid_table(context, &entry, 0, 0), -EINVAL);
  NO_NUMBER(ibv_query_pkey(context, 1, 1, &pkey), EINVAL);
  NO_NUMBER(ibv_get_pkey_index(context, 1, 1), EINVAL);
  NO_NUMBER(ibv_init_ah_from_wc(context, 1, &wc, &grh, &ah), EINVAL);
}

static void changes(void) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
  struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  struct ibv_sge sges[3] = {{(uintptr_t)memory, 1, mr->lkey}, {(uintptr_t)memory, 1, mr->lkey}, {(uintptr_t)memory, 1, mr->lkey}};
  struct ibv_send_wr send = {.sg_list = sges, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
  struct ibv_recv_wr receive = {.sg_list = sges, .num_sge = 1}, *bad_receive;
  struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
  struct ibv_srq *srq = ibv_create_srq(pd, &init);
  struct ibv_srq_attr limit = {.srq_limit = 1000};
  struct ibv_ops_wr operation = {.opcode = IBV_WR_TAG_SYNC}, *bad_operation;
  struct ibv_qp *datagrams = create(IBV_QPT_UD);
  struct ibv_mw_bind bind = {.bind_info = {.mr = mr, .addr = (uintptr_t)memory, .length = 8}};
  union ibv_gid gid = {.raw = {1}};
  CHECK(mw != NULL && srq != NULL && datagrams != NULL);
  FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
  FAILS(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), EINVAL);
  FAILS(ibv_resize_cq(cq, 0), EINVAL);
  FAILS(ibv_resize_cq(cq, INT32_MAX), EINVAL);
  FAILS(ibv_rereg_mr(mr, 64, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
  FAILS(ibv_bind_mw(qp, mw, &bind), EINVAL);
  FAILS(ibv_attach_mcast(datagrams, &gid, 0), EINVAL);
  FAILS(ibv_detach_mcast(datagrams, &gid, 0), EINVAL);
  FAILS(ibv_post_srq_ops(srq, &operation, &bad_operation), EINVAL);
  FAILS(ibv_post_send(qp, &send, &bad_send), EINVAL);
  FAILS(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  receive.num_sge = 3;
  FAILS(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
  receive.num_sge = 1;
  NAME("a full queue");
  while (ibv_post_recv(qp, &receive, &bad_receive) == 0) continue;
  FAILS(ibv_dealloc_pd(pd), EBUSY);
  FAILS(ibv_destroy_cq(cq), EBUSY);
  FAILS(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sges, 1), EOPNOTSUPP);
  CHECK(ibv_destroy_qp(datagrams) == 0);
}

// A child has the parent's objects, and may call none of them.
static void in_child(void) {
  struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad;
  struct ibv_device_attr attr;
  struct ibv_wc wc;
  int status;
  const pid_t child = fork();
  if (child == 0) {
    FAILS(ibv_query_device(context, &attr), EPERM);
    FAILS(ibv_post_send(qp, &send, &bad), EPERM);
    NO_NUMBER(ibv_poll_cq(cq, 1, &wc), EPERM);
    FAILS(ibv_req_notify_cq(cq, 0), EPERM);
    NO_POINTER(ibv_reg_mr(pd, memory, 64, IBV_ACCESS_LOCAL_WRITE), EPERM);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  CHECK(list != NULL && list[0] != NULL);
  context = ibv_open_device(list[0]);
  CHECK(context != NULL);
  pd = ibv_alloc_pd(context);
  cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pd != NULL && cq != NULL && memory != MAP_FAILED);
  mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
  qp = create(IBV_QPT_RC);
  CHECK(mr != NULL && qp != NULL);
  creations();
  questions();
  changes();
  in_child();
  NAME("the end");
  puts("ok");
  return 0;
}
