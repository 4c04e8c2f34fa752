/* Queue pairs: create, modify, query, multicast. */
#include <errno.h>
#include <string.h>

#include "rverbs.h"

struct table qps = { .what = "qp" };

static void put_capabilities(const struct ibv_qp_cap *cap)
{
    put_number("maxSendWr", cap->max_send_wr);
    put_number("maxRecvWr", cap->max_recv_wr);
    put_number("maxSendSge", cap->max_send_sge);
    put_number("maxRecvSge", cap->max_recv_sge);
    put_number("maxInline", cap->max_inline_data);
}

/* qp [type=RC] [pd=0] [send_cq=0] [recv_cq=send_cq] [srq] [max_send_wr=64] [max_recv_wr=64] [max_send_sge=4]
 * [max_recv_sge=4] [max_inline=0] [sq_sig_all=0] [placement=0: made with ibv_create_qp_ex, for FLUSH and ATOMIC_WRITE]
 * → qp, qpn, capabilities */
void cmd_qp(void)
{
    const char *type = text("type", "RC");
    uint64_t send_cq = number("send_cq", 0);
    struct ibv_qp_init_attr init = {
        .qp_type = value_of(qp_type_names, type, strlen(type)),
        .send_cq = find(&cqs, send_cq),
        .recv_cq = find(&cqs, number("recv_cq", send_cq)),
        .srq = has("srq") ? find(&srqs, number("srq", 0)) : NULL,
        .sq_sig_all = number("sq_sig_all", 0),
        .cap = {
            .max_send_wr = number("max_send_wr", 64),
            .max_recv_wr = number("max_recv_wr", 64),
            .max_send_sge = number("max_send_sge", 4),
            .max_recv_sge = number("max_recv_sge", 4),
            .max_inline_data = number("max_inline", 0),
        },
    };
    struct ibv_pd *pd = find(&pds, number("pd", 0));
    struct ibv_qp *qp = number("placement", 0) ? create_placement_qp(pd, &init) : ibv_create_qp(pd, &init);
    if (!qp)
        fail(errno, "ibv_create_qp");
    int handle = add(&qps, qp);
    qp->qp_context = (void *)(intptr_t)handle; /* events name the handle */
    put_number("qp", handle);
    put_number("qpn", qp->qp_num);
    put_capabilities(&init.cap);
}

/* modify_qp qp and the attributes to set; those present are the mask, so a wrong set can be tried too:
 * state cur_state access pkey_index port qkey path_mtu (bytes) dest_qpn rq_psn sq_psn max_rd_atomic
 * max_dest_rd_atomic min_rnr_timer timeout retry_cnt rnr_retry en_sqd_async_notify, and dgid with
 * sgid_index hop_limit traffic_class flow_label sl for the address vector */
void cmd_modify_qp(void)
{
    struct ibv_qp *qp = find(&qps, required_number("qp"));
    struct ibv_qp_attr attr = { 0 };
    int mask = 0;

#define ATTRIBUTE(key, bit, field, expression) \
    if (has(key)) {                            \
        mask |= bit;                           \
        attr.field = expression;               \
    }
#define NUMBER(key, bit, field) ATTRIBUTE(key, bit, field, required_number(key))
#define STATE(key, bit, field) ATTRIBUTE(key, bit, field, value_of(qp_state_names, text(key, ""), strlen(text(key, ""))))
    STATE("state", IBV_QP_STATE, qp_state)
    STATE("cur_state", IBV_QP_CUR_STATE, cur_qp_state)
    ATTRIBUTE("access", IBV_QP_ACCESS_FLAGS, qp_access_flags, flags_of(access_names, "access"))
    NUMBER("pkey_index", IBV_QP_PKEY_INDEX, pkey_index)
    NUMBER("port", IBV_QP_PORT, port_num)
    NUMBER("qkey", IBV_QP_QKEY, qkey)
    ATTRIBUTE("dgid", IBV_QP_AV, ah_attr, address_vector())
    ATTRIBUTE("path_mtu", IBV_QP_PATH_MTU, path_mtu, mtu_of(required_number("path_mtu")))
    NUMBER("dest_qpn", IBV_QP_DEST_QPN, dest_qp_num)
    NUMBER("rq_psn", IBV_QP_RQ_PSN, rq_psn)
    NUMBER("sq_psn", IBV_QP_SQ_PSN, sq_psn)
    NUMBER("max_rd_atomic", IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic)
    NUMBER("max_dest_rd_atomic", IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic)
    NUMBER("min_rnr_timer", IBV_QP_MIN_RNR_TIMER, min_rnr_timer)
    NUMBER("timeout", IBV_QP_TIMEOUT, timeout)
    NUMBER("retry_cnt", IBV_QP_RETRY_CNT, retry_cnt)
    NUMBER("rnr_retry", IBV_QP_RNR_RETRY, rnr_retry)
    NUMBER("en_sqd_async_notify", IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify)
#undef STATE
#undef NUMBER
#undef ATTRIBUTE

    int error = ibv_modify_qp(qp, &attr, mask);
    if (error)
        fail(error, "ibv_modify_qp");
}

/* query_qp qp → every attribute that rxe keeps */
void cmd_query_qp(void)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    int error = ibv_query_qp(find(&qps, required_number("qp")), &attr, -1u >> 11, &init);
    if (error)
        fail(error, "ibv_query_qp");
    put_text("state", name_of(qp_state_names, attr.qp_state));
    put_text("curState", name_of(qp_state_names, attr.cur_qp_state));
    put_flags("access", access_names, attr.qp_access_flags);
    put_number("pkeyIndex", attr.pkey_index);
    put_number("port", attr.port_num);
    put_number("qkey", attr.qkey);
    put_number("pathMtu", bytes_of(attr.path_mtu));
    put_number("destQpn", attr.dest_qp_num);
    put_number("rqPsn", attr.rq_psn);
    put_number("sqPsn", attr.sq_psn);
    put_number("maxRdAtomic", attr.max_rd_atomic);
    put_number("maxDestRdAtomic", attr.max_dest_rd_atomic);
    put_number("minRnrTimer", attr.min_rnr_timer);
    put_number("timeout", attr.timeout);
    put_number("retryCnt", attr.retry_cnt);
    put_number("rnrRetry", attr.rnr_retry);
    put_boolean("sqDraining", attr.sq_draining);
    put_bytes("dgid", attr.ah_attr.grh.dgid.raw, 16);
    put_number("hopLimit", attr.ah_attr.grh.hop_limit);
    put_number("trafficClass", attr.ah_attr.grh.traffic_class);
    put_number("flowLabel", attr.ah_attr.grh.flow_label);
    put_capabilities(&attr.cap);
}

void cmd_destroy_qp(void)
{
    int error = ibv_destroy_qp(take(&qps, required_number("qp")));
    if (error)
        fail(error, "ibv_destroy_qp");
}

static void multicast(int (*call)(struct ibv_qp *, const union ibv_gid *, uint16_t), const char *name)
{
    union ibv_gid gid;
    required_bytes("gid", gid.raw, 16);
    int error = call(find(&qps, required_number("qp")), &gid, number("lid", 0));
    if (error)
        fail(error, "%s", name);
}

/* attach_mcast qp gid; the multicast address of the interface is another matter (ip maddr, mckey) */
void cmd_attach_mcast(void)
{
    multicast(ibv_attach_mcast, "ibv_attach_mcast");
}

void cmd_detach_mcast(void)
{
    multicast(ibv_detach_mcast, "ibv_detach_mcast");
}
