// Queue pairs and completion queues with a table of functions. Every entry is there: programs call them without a look.
#include <arpa/inet.h>
#include <time.h>

#include "roce.h"

// rdma-core before 44 has neither the flag nor the function; build.mjs looks.
#ifdef ROCE_NO_ATOMIC_WRITE
#define WITH_ATOMIC_WRITE 0
#else
#define WITH_ATOMIC_WRITE IBV_QP_EX_WITH_ATOMIC_WRITE
#endif

#define SEND_OPS                                                                                                      \
  (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | \
   IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |                \
   IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV | WITH_ATOMIC_WRITE)

#define TIMES (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

static struct roce_qp *own(struct ibv_qp_ex *qp) { return (struct roce_qp *)qp; }

// Takes the writes of a request that has no place in the queue: wr_complete then returns the error.
static struct ibv_send_wr nowhere;

static struct ibv_send_wr *add(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode) {
  struct roce_qp *q = own(qp);
  roce_put_open(q);
  if (q->error != 0) return &nowhere;
  q->wr = (struct ibv_send_wr){.wr_id = qp->wr_id, .send_flags = qp->wr_flags, .opcode = opcode};
  q->is_open = 1;
  return &q->wr;
}

// The request that setters are about.
static struct ibv_send_wr *last(struct ibv_qp_ex *qp) {
  struct roce_qp *q = own(qp);
  if (q->is_open && q->error == 0) return &q->wr;
  if (q->error == 0) q->error = EINVAL;
  return NULL;
}

// Room for what a setter copies: bounds may have grown with the queue (IBV_QP_CAP).
static void *room(struct roce_qp *q, void *at, size_t *bytes, size_t needed) {
  void *more;
  if (needed <= *bytes) return at;
  more = realloc(at, needed);
  if (more == NULL) {
    q->error = ENOMEM;
    return at;
  }
  *bytes = needed;
  return more;
}

static void start(struct ibv_qp_ex *qp) { roce_start_sends(own(qp)); }
static int complete(struct ibv_qp_ex *qp) { return roce_end_sends(own(qp), 1); }
static void wr_abort(struct ibv_qp_ex *qp) { roce_end_sends(own(qp), 0); }

static void remote(struct ibv_send_wr *wr, uint32_t rkey, uint64_t address) {
  wr->wr.rdma.rkey = rkey;
  wr->wr.rdma.remote_addr = address;
}

static void wr_send(struct ibv_qp_ex *qp) { add(qp, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *qp, __be32 immediate) {
  add(qp, IBV_WR_SEND_WITH_IMM)->imm_data = immediate;
}
static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey) { add(qp, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey; }
static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey) { add(qp, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey; }
static void wr_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address) {
  remote(add(qp, IBV_WR_RDMA_WRITE), rkey, address);
}
static void wr_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, __be32 immediate) {
  struct ibv_send_wr *wr = add(qp, IBV_WR_RDMA_WRITE_WITH_IMM);
  remote(wr, rkey, address);
  wr->imm_data = immediate;
}
static void wr_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address) {
  remote(add(qp, IBV_WR_RDMA_READ), rkey, address);
}
static void wr_atomic(struct ibv_send_wr *wr, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
  wr->wr.atomic.rkey = rkey;
  wr->wr.atomic.remote_addr = address;
  wr->wr.atomic.compare_add = compare;
  wr->wr.atomic.swap = swap;
}
static void wr_compare(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
  wr_atomic(add(qp, IBV_WR_ATOMIC_CMP_AND_SWP), rkey, address, compare, swap);
}
static void wr_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, uint64_t value) {
  wr_atomic(add(qp, IBV_WR_ATOMIC_FETCH_AND_ADD), rkey, address, value, 0);
}
static void wr_bind(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info) {
  struct ibv_send_wr *wr = add(qp, IBV_WR_BIND_MW);
  wr->bind_mw.mw = mw;
  wr->bind_mw.rkey = rkey;
  wr->bind_mw.bind_info = *info;
}

// Operations that create_qp_ex refuses: called all the same, the whole chain fails.
static void unsupported(struct ibv_qp_ex *qp) { own(qp)->error = roce_fails("a request of ibv_wr_start", EOPNOTSUPP, "the operation is not offered"); }
static void wr_tso(struct ibv_qp_ex *qp, void *header, uint16_t bytes, uint16_t mss) {
  (void)header, (void)bytes, (void)mss;
  unsupported(qp);
}
static void set_xrc(struct ibv_qp_ex *qp, uint32_t number) {
  (void)number;
  unsupported(qp);
}
static void set_ud(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey) {
  struct ibv_send_wr *wr = last(qp);
  if (wr == NULL) return;
  wr->wr.ud.ah = ah;
  wr->wr.ud.remote_qpn = qpn;
  wr->wr.ud.remote_qkey = qkey;
}

static void set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list) {
  struct roce_qp *q = own(qp);
  struct ibv_send_wr *wr = last(qp);
  if (wr == NULL) return;
  if (count > q->max_sge) {
    q->error = EINVAL;
    return;
  }
  q->sge = room(q, q->sge, &q->sge_bytes, count * sizeof *list);
  if (q->error != 0) return;
  if (count > 0) memcpy(q->sge, list, count * sizeof *list);
  wr->sg_list = q->sge;
  wr->num_sge = (int)count;
}

static void set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t length) {
  struct ibv_sge one = {address, length, lkey};
  set_sge_list(qp, 1, &one);
}

static void set_inline_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_data_buf *list) {
  struct roce_qp *q = own(qp);
  struct ibv_send_wr *wr = last(qp);
  size_t length = 0;
  if (wr == NULL) return;
  for (size_t i = 0; i < count; i++) {
    if (list[i].length > q->max_inline - length) {
      q->error = EINVAL;
      return;
    }
    length += list[i].length;
  }
  q->inline_data = room(q, q->inline_data, &q->inline_bytes, length);
  if (q->error != 0) return;
  length = 0;
  for (size_t i = 0; i < count; length += list[i++].length)
    if (list[i].length > 0) memcpy(q->inline_data + length, list[i].addr, list[i].length);
  set_sge(qp, 0, (uintptr_t)q->inline_data, (uint32_t)length);
  wr->send_flags |= IBV_SEND_INLINE;
}

static void set_inline(struct ibv_qp_ex *qp, void *address, size_t length) {
  struct ibv_data_buf one = {address, length};
  set_inline_list(qp, 1, &one);
}

#ifndef ROCE_NO_ATOMIC_WRITE
static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, const void *value) {
  struct ibv_data_buf bytes = {(void *)value, 8};
  remote(add(qp, (enum ibv_wr_opcode)ROCE_WR_ATOMIC_WRITE), rkey, address);
  set_inline_list(qp, 1, &bytes);
}
#endif

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr) {
  uint64_t ops = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 ? attr->send_ops_flags : 0;
  struct ibv_qp *qp;
  struct roce_qp *q;
  (void)context;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) {
    roce_fails("ibv_create_qp_ex", EINVAL, "comp_mask: no protection domain");
    return NULL;
  }
  if ((attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
                                     IBV_QP_INIT_ATTR_CREATE_FLAGS)) != 0 ||
      ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr->create_flags != 0) ||
      (ops & ~(uint64_t)SEND_OPS) != 0) {
    roce_fails("ibv_create_qp_ex", EOPNOTSUPP, "comp_mask, create_flags or send_ops_flags");
    return NULL;
  }
  // Its 8 bytes are inline data.
  if ((ops & WITH_ATOMIC_WRITE) != 0 && attr->cap.max_inline_data < 8) attr->cap.max_inline_data = 8;
  // The members of ibv_qp_init_attr are the first of both.
  qp = roce_create_qp(attr->pd, (struct ibv_qp_init_attr *)attr);
  if (qp == NULL || (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) == 0) return qp;
  q = (struct roce_qp *)qp;
  q->extended = 1;
  q->ex.wr_atomic_cmp_swp = wr_compare;
  q->ex.wr_atomic_fetch_add = wr_fetch_add;
  q->ex.wr_bind_mw = wr_bind;
  q->ex.wr_local_inv = wr_local_inv;
  q->ex.wr_rdma_read = wr_read;
  q->ex.wr_rdma_write = wr_write;
  q->ex.wr_rdma_write_imm = wr_write_imm;
  q->ex.wr_send = wr_send;
  q->ex.wr_send_imm = wr_send_imm;
  q->ex.wr_send_inv = wr_send_inv;
  q->ex.wr_send_tso = wr_tso;
  q->ex.wr_set_ud_addr = set_ud;
  q->ex.wr_set_xrc_srqn = set_xrc;
  q->ex.wr_set_inline_data = set_inline;
  q->ex.wr_set_inline_data_list = set_inline_list;
  q->ex.wr_set_sge = set_sge;
  q->ex.wr_set_sge_list = set_sge_list;
  q->ex.wr_start = start;
  q->ex.wr_complete = complete;
  q->ex.wr_abort = wr_abort;
#ifndef ROCE_NO_ATOMIC_WRITE
  q->ex.wr_atomic_write = wr_atomic_write;
#endif
  return qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
  struct roce_qp *q = (struct roce_qp *)qp;
  return q->extended ? &q->ex : NULL;
}

static struct roce_cq *queue(struct ibv_cq_ex *cq) { return (struct roce_cq *)cq; }

static const struct ibv_wc *completion(struct ibv_cq_ex *cq) { return &queue(cq)->current.wc; }

static int took(struct ibv_cq_ex *cq, int count) {
  if (count != 1) return count < 0 ? errno : ENOENT;
  cq->wr_id = completion(cq)->wr_id;
  cq->status = completion(cq)->status;
  return 0;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr) {
  return attr != NULL && attr->comp_mask != 0 ? roce_fails("ibv_start_poll", EINVAL, "attr.comp_mask") : took(cq, roce_start_poll(queue(cq)));
}

static int next_poll(struct ibv_cq_ex *cq) { return took(cq, roce_next_poll(queue(cq))); }
static void end_poll(struct ibv_cq_ex *cq) { roce_end_poll(queue(cq)); }
static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq) { return completion(cq)->opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex *cq) { return completion(cq)->vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex *cq) { return completion(cq)->byte_len; }
static __be32 read_imm_data(struct ibv_cq_ex *cq) { return completion(cq)->imm_data; }
static uint32_t read_qp_num(struct ibv_cq_ex *cq) { return completion(cq)->qp_num; }
static uint32_t read_src_qp(struct ibv_cq_ex *cq) { return completion(cq)->src_qp; }
static unsigned read_wc_flags(struct ibv_cq_ex *cq) { return completion(cq)->wc_flags; }
static uint8_t read_sl(struct ibv_cq_ex *cq) { return completion(cq)->sl; }
static uint64_t read_time(struct ibv_cq_ex *cq) { return queue(cq)->current.time; }

static uint64_t nanoseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// The same time since 1970, as the system's clock is set now.
static uint64_t read_wall_clock(struct ibv_cq_ex *cq) {
  return nanoseconds(CLOCK_REALTIME) - (nanoseconds(CLOCK_MONOTONIC) - queue(cq)->current.time);
}

static uint32_t none32(struct ibv_cq_ex *cq) {
  (void)cq;
  return 0;
}
static uint8_t none8(struct ibv_cq_ex *cq) {
  (void)cq;
  return 0;
}
static uint16_t none16(struct ibv_cq_ex *cq) {
  (void)cq;
  return 0;
}
static void read_tag(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *info) { *info = queue(cq)->current.tag; }

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr) {
  struct ibv_cq_ex *cq;
  uint32_t flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
  // Of one thread or many: the queue takes its lock.
  if ((attr->wc_flags & ~(uint64_t)(IBV_WC_STANDARD_FLAGS | TIMES | IBV_WC_EX_WITH_TM_INFO)) != 0 ||
      (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) != 0 ||
      (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0) {
    roce_fails("ibv_create_cq_ex", EOPNOTSUPP, "wc_flags, comp_mask or flags");
    return NULL;
  }
  // Where it is given, it is a parent domain.
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 && attr->parent_domain != NULL &&
      ((struct roce_pd *)attr->parent_domain)->protection == NULL) {
    roce_fails("ibv_create_cq_ex", EINVAL, "parent_domain: another domain");
    return NULL;
  }
  cq = (struct ibv_cq_ex *)roce_create_cq(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector,
                                          ((attr->wc_flags & TIMES) != 0 ? ROCE_CQ_TIMES : 0) |
                                              ((attr->wc_flags & IBV_WC_EX_WITH_TM_INFO) != 0 ? ROCE_CQ_TAGS : 0));
  if (cq == NULL) return NULL;
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
  cq->end_poll = end_poll;
  cq->read_opcode = read_opcode;
  cq->read_vendor_err = read_vendor_err;
  cq->read_byte_len = read_byte_len;
  cq->read_imm_data = read_imm_data;
  cq->read_qp_num = read_qp_num;
  cq->read_src_qp = read_src_qp;
  cq->read_wc_flags = read_wc_flags;
  cq->read_slid = none32;
  cq->read_sl = read_sl;
  cq->read_dlid_path_bits = none8;
  cq->read_completion_ts = read_time;
  cq->read_cvlan = none16;
  cq->read_flow_tag = none32;
  cq->read_tm_info = read_tag;
  cq->read_completion_wallclock_ns = read_wall_clock;
  return cq;
}

static struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr) {
  uint32_t type = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attr->srq_type : IBV_SRQT_BASIC;
  uint32_t needed = IBV_SRQ_INIT_ATTR_PD | (type == IBV_SRQT_TM ? IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM : 0u);
  (void)context;
  if ((attr->comp_mask & needed) != needed || (type == IBV_SRQT_TM && attr->cq == NULL)) {
    roce_fails("ibv_create_srq_ex", EINVAL, "comp_mask: no protection domain, or no cq and tm_cap for tag matching");
    return NULL;
  }
  if (type == IBV_SRQT_TM) return roce_create_srq(attr->pd, (struct ibv_srq_init_attr *)attr, attr->cq, &attr->tm_cap);
  if (type != IBV_SRQT_BASIC) {
    roce_fails("ibv_create_srq_ex", EOPNOTSUPP, "srq_type: XRC is not offered");
    return NULL;
  }
  return ibv_create_srq(attr->pd, (struct ibv_srq_init_attr *)attr);
}

static int get_srq_num(struct ibv_srq *srq, uint32_t *number) {
  *number = ((struct roce_srq *)srq)->number;
  return 0;
}

void roce_set_extended_ops(struct roce_context *r) {
  r->verbs.create_qp_ex = create_qp_ex;
  r->verbs.create_cq_ex = create_cq_ex;
  r->verbs.create_srq_ex = create_srq_ex;
  r->verbs.get_srq_num = get_srq_num;
}
