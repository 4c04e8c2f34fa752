/* FLUSH and ATOMIC_WRITE, which only the extended verbs (ibv_wr_post(3)) post. */
#include <errno.h>

#include "rverbs.h"

#ifdef HAVE_FLUSH

struct ibv_qp *create_placement_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct ibv_qp_init_attr_ex extended = {
        .send_cq = init->send_cq,
        .recv_cq = init->recv_cq,
        .srq = init->srq,
        .cap = init->cap,
        .qp_type = init->qp_type,
        .sq_sig_all = init->sq_sig_all,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(context, &extended);
    init->cap = extended.cap;
    return qp;
}

bool is_placement(const struct ibv_send_wr *wr)
{
    return wr->opcode == IBV_WR_FLUSH || wr->opcode == IBV_WR_ATOMIC_WRITE;
}

/* FLUSH: length, type (1 global visibility, 2 persistence), level (0 range, 1 region). ATOMIC_WRITE: value, 8 bytes */
int post_placement(struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
    struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);
    if (!extended)
        fail(EINVAL, "a queue pair made without placement=1");
    uint32_t rkey = wr->wr.rdma.rkey;
    uint64_t address = wr->wr.rdma.remote_addr, length = 0;
    uint8_t value[8], type = 0, level = 0;
    if (wr->opcode == IBV_WR_FLUSH) {
        length = required_number("length");
        type = required_number("type");
        level = required_number("level");
    } else
        required_bytes("value", value, sizeof value);
    ibv_wr_start(extended);
    extended->wr_id = wr->wr_id;
    extended->wr_flags = wr->send_flags;
    if (wr->opcode == IBV_WR_FLUSH)
        ibv_wr_flush(extended, rkey, address, length, type, level);
    else
        ibv_wr_atomic_write(extended, rkey, address, value);
    return ibv_wr_complete(extended);
}

#else /* rdma-core before 45 */

struct ibv_qp *create_placement_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    (void)pd, (void)init;
    fail(EOPNOTSUPP, "these libraries have no FLUSH");
}

bool is_placement(const struct ibv_send_wr *wr)
{
    (void)wr;
    return false;
}

int post_placement(struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
    (void)qp, (void)wr;
    return EOPNOTSUPP;
}

#endif
