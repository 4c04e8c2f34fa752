/* Work requests and completions. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rverbs.h"

#define MAX_SGE 64
#define MAX_POSTED 64

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* sge=MR:OFFSET:LENGTH[:LKEY],…  An offset may leave the region, a key may be wrong: the test chooses. */
static int gather(struct ibv_sge sges[MAX_SGE])
{
    int count = 0;
    for (const char *at = text("sge", ""); *at;) {
        char *end;
        struct region *region = region_of(strtoull(at, &end, 0));
        if (*end != ':' || count == MAX_SGE)
            fail(EINVAL, "sge: MR:OFFSET:LENGTH[:LKEY], at most %d", MAX_SGE);
        int64_t offset = strtoll(end + 1, &end, 0);
        if (*end != ':')
            fail(EINVAL, "sge: MR:OFFSET:LENGTH[:LKEY]");
        struct ibv_sge *sge = &sges[count++];
        sge->addr = region->address + offset;
        sge->length = strtoull(end + 1, &end, 0);
        sge->lkey = *end == ':' ? strtoull(end + 1, &end, 0) : region->lkey;
        if (*end && *end != ',')
            fail(EINVAL, "sge: after the length comes a comma, not %.10s", end);
        at = end + (*end == ',');
    }
    return count;
}

/* The send work request that the keys describe:
 * opcode [wr_id=0] [sge] [flags=SIGNALED,…] [imm] [remote_addr] [rkey] [compare] [swap] [add] [invalidate_rkey]
 * [ah] [remote_qpn] [remote_qkey], and what placement.c adds */
static struct ibv_send_wr send_request(struct ibv_sge sges[MAX_SGE])
{
    const char *opcode = required_text("opcode");
    struct ibv_send_wr wr = {
        .wr_id = number("wr_id", 0),
        .sg_list = sges,
        .num_sge = gather(sges),
        .opcode = value_of(send_opcode_names, opcode, strlen(opcode)),
        .send_flags = has("flags") ? flags_of(send_flag_names, "flags") : IBV_SEND_SIGNALED,
    };
    if (has("imm"))
        wr.imm_data = htonl(number("imm", 0));
    if (has("invalidate_rkey"))
        wr.invalidate_rkey = number("invalidate_rkey", 0);
    switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
        wr.wr.rdma.remote_addr = required_number("remote_addr");
        wr.wr.rdma.rkey = required_number("rkey");
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr.wr.atomic.remote_addr = required_number("remote_addr");
        wr.wr.atomic.rkey = required_number("rkey");
        wr.wr.atomic.compare_add =
            wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? required_number("add") : required_number("compare");
        if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
            wr.wr.atomic.swap = required_number("swap");
        break;
    default:
        if (is_placement(&wr)) {
            wr.wr.rdma.remote_addr = required_number("remote_addr");
            wr.wr.rdma.rkey = required_number("rkey");
        }
        if (has("ah")) {
            wr.wr.ud.ah = find(&ahs, number("ah", 0));
            wr.wr.ud.remote_qpn = required_number("remote_qpn");
            wr.wr.ud.remote_qkey = required_number("remote_qkey");
        }
    }
    return wr;
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    return is_placement(wr) ? post_placement(qp, wr) : ibv_post_send(qp, wr, &bad);
}

/* post_send qp, the keys of a send request, [count=1] [step=0]: `count` requests in one call, each with the next wr_id and with addresses that are
 * `step` bytes further */
void cmd_post_send(void)
{
    static struct ibv_sge sges[MAX_POSTED][MAX_SGE];
    static struct ibv_send_wr wrs[MAX_POSTED];
    uint64_t count = number("count", 1), step = number("step", 0);
    if (count < 1 || count > MAX_POSTED)
        fail(EINVAL, "count: 1 to %d", MAX_POSTED);
    for (uint64_t i = 0; i < count; i++) {
        struct ibv_send_wr *wr = &wrs[i];
        *wr = send_request(sges[i]);
        wr->next = i + 1 < count ? &wrs[i + 1] : NULL;
        wr->wr_id += i;
        for (int j = 0; j < wr->num_sge; j++)
            sges[i][j].addr += i * step;
        if (has("remote_addr"))
            wr->wr.rdma.remote_addr += i * step;
    }
    int error = post(find(&qps, required_number("qp")), wrs);
    if (error)
        fail(error, "ibv_post_send");
}

/* post_recv qp|srq [wr_id=0] [sge] */
void cmd_post_recv(void)
{
    struct ibv_sge sges[MAX_SGE];
    struct ibv_recv_wr wr = { .wr_id = number("wr_id", 0), .sg_list = sges, .num_sge = gather(sges) }, *bad;
    int error = has("srq") ? ibv_post_srq_recv(find(&srqs, number("srq", 0)), &wr, &bad)
                           : ibv_post_recv(find(&qps, required_number("qp")), &wr, &bad);
    if (error)
        fail(error, has("srq") ? "ibv_post_srq_recv" : "ibv_post_recv");
}

/* bind mw qp mr [offset=0] [length=all] [access=REMOTE_WRITE,…] [wr_id=0] [flags=SIGNALED] → rkey (the window's new one) */
void cmd_bind(void)
{
    struct ibv_mw *mw = find(&mws, required_number("mw"));
    struct ibv_qp *qp = find(&qps, required_number("qp"));
    struct region *region = region_of(required_number("mr"));
    struct ibv_mw_bind_info info = {
        .mr = region->mr,
        .addr = region->address + number("offset", 0),
        .length = number("length", region->length),
        .mw_access_flags = flags_of(access_names, "access"),
    };
    uint64_t wr_id = number("wr_id", 0);
    int flags = has("flags") ? flags_of(send_flag_names, "flags") : IBV_SEND_SIGNALED, error;
    if (mw->type == IBV_MW_TYPE_1) {
        struct ibv_mw_bind bind = { .wr_id = wr_id, .send_flags = flags, .bind_info = info };
        error = ibv_bind_mw(qp, mw, &bind);
    } else {
        struct ibv_send_wr wr = { .wr_id = wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = flags }, *bad;
        wr.bind_mw.mw = mw;
        wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
        wr.bind_mw.bind_info = info;
        error = ibv_post_send(qp, &wr, &bad);
        if (!error)
            mw->rkey = wr.bind_mw.rkey; /* of a type 2 window the program keeps the key itself */
    }
    if (error)
        fail(error, "bind");
    put_number("rkey", mw->rkey);
}

static void put_completion(const struct ibv_wc *wc)
{
    open_object(NULL);
    put_number("wrId", wc->wr_id);
    put_number("status", wc->status);
    put_text("statusName", ibv_wc_status_str(wc->status));
    put_number("qpn", wc->qp_num);
    put_number("vendorErr", wc->vendor_err);
    if (wc->status == IBV_WC_SUCCESS) { /* otherwise the fields below are not valid */
        put_text("opcode", name_of(wc_opcode_names, wc->opcode));
        put_number("byteLen", wc->byte_len);
        put_flags("flags", wc_flag_names, wc->wc_flags);
        if (wc->wc_flags & IBV_WC_WITH_IMM)
            put_number("imm", ntohl(wc->imm_data));
        if (wc->wc_flags & IBV_WC_WITH_INV)
            put_number("invalidatedRkey", wc->invalidated_rkey);
        put_number("srcQp", wc->src_qp);
    }
    close_object();
}

/* poll [cq=0] [count=1] [timeout=0 ms] → completions: waits until `count` are there or the time is over */
void cmd_poll(void)
{
    struct ibv_cq *cq = find(&cqs, number("cq", 0));
    uint64_t count = number("count", 1);
    double end = seconds_now() + number("timeout", 0) / 1e3;
    open_list("completions");
    for (uint64_t got = 0; got < count;) {
        struct ibv_wc wc;
        int n = ibv_poll_cq(cq, 1, &wc);
        if (n < 0)
            fail(EIO, "ibv_poll_cq");
        if (n) {
            put_completion(&wc);
            got++;
        } else if (seconds_now() >= end)
            break;
        else
            usleep(50); /* leaves the one CPU to rxe's tasks */
    }
    close_list();
}

/* repeat qp, the keys of a send request, and [count] or [seconds], [depth=1] [cq=0]
 * → completed, elapsedMs, status, statusName (of the first failure): posts again and again, `depth` outstanding */
void cmd_repeat(void)
{
    struct ibv_sge sges[MAX_SGE];
    struct ibv_send_wr wr = send_request(sges);
    struct ibv_qp *qp = find(&qps, required_number("qp"));
    struct ibv_cq *cq = find(&cqs, number("cq", 0));
    uint64_t count = number("count", UINT64_MAX), depth = number("depth", 1), posted = 0, completed = 0;
    double start = seconds_now(), end = has("seconds") ? start + number("seconds", 0) : 1e300;
    if (!has("count") && !has("seconds"))
        fail(EINVAL, "count or seconds is missing");
    struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
    for (;;) {
        bool more = posted < count && seconds_now() < end && wc.status == IBV_WC_SUCCESS;
        if (more && posted - completed < depth) {
            int error = post(qp, &wr);
            if (error)
                fail(error, "ibv_post_send after %llu", (unsigned long long)posted);
            posted++;
            continue;
        }
        if (posted == completed || wc.status != IBV_WC_SUCCESS)
            break;
        if (ibv_poll_cq(cq, 1, &wc) <= 0)
            sched_yield();
        else if (wc.status == IBV_WC_SUCCESS)
            completed++;
    }
    put_number("completed", completed);
    put_number("elapsedMs", (seconds_now() - start) * 1e3);
    put_number("status", wc.status);
    put_text("statusName", ibv_wc_status_str(wc.status));
}

/* arm cq [solicited=0]: asks for an event on the CQ's channel */
void cmd_arm(void)
{
    int error = ibv_req_notify_cq(find(&cqs, required_number("cq")), number("solicited", 0));
    if (error)
        fail(error, "ibv_req_notify_cq");
}

/* wait_event channel [timeout=0 ms] → cq (absent: no event came) */
void cmd_wait_event(void)
{
    struct ibv_comp_channel *channel = find(&channels, required_number("channel"));
    struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
    if (poll(&ready, 1, number("timeout", 0)) <= 0)
        return;
    struct ibv_cq *cq;
    void *handle;
    if (ibv_get_cq_event(channel, &cq, &handle))
        fail(errno, "ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    put_number("cq", (intptr_t)cq->cq_context);
}
