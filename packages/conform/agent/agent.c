/*
 * roce-agent: stands next to a device under test and does there what `roce conform` asks for.
 *
 *     cc -O2 -Wall -o roce-agent agent.c -libverbs
 *     ./roce-agent -b 192.0.2.7            [-d DEVICE] [-g GID_INDEX] [-p PORT] [-t TOKEN] [-i SECONDS]
 *
 * One client at a time, over TCP. A request is a line, `verb key=value ...`; numbers are decimal or 0x hexadecimal. The
 * answer is a line with one JSON object. Answers are in the order of the requests, of which several may come together: "agent":4
 * in the answer to hello says so. Objects live until the client goes; one that sends no whole line for 300 s (-i), or
 * takes no answer for 30 s, is sent away. Verbs:
 *
 *     hello                    the device, its GID, its limits; with -t, `token=` has to come with it, before anything else
 *     mr      size access      memory, registered; access: letters of l(ocal) w(rite) r(ead) a(tomic) f(lush)
 *     qp      type access qkey rc, uc or ud; in INIT; srq=1: with a shared receive queue, a new one or that of the pair `with`
 *     connect qp dgid dqpn rq_psn sq_psn mtu mdra mra rnr_timer timeout retry rnr_retry rtr_only
 *     state   qp               RESET ... ERR
 *     drop    qp, or drop mr
 *   These six are enough for a device's own agent, in any language; it refuses the others: {"ok":false,"what":"verb","errno":38,"text":"..."}.
 *   With the next ones more rules can be played:
 *     recv    qp mr off len id count stride
 *     send    qp mr off len op raddr rkey id count imm solicited fence compare_add swap rqkey
 *     poll    want wait        waits up to `wait` ms for `want` completions; answers with all
 *     peek    mr off len, poke mr off hex
 *     fail    qp               to the error state; drain qp: to SQD, with an event; resume qp: back to RTS
 *     events  wait, counters
 *     mw      type             a memory window of type 1 or 2; then
 *     bind    mw qp mr off len access id     it completes as the requests of `send`; drop mw
 *     rereg   mr access        other rights for a region
 *     limit   qp count         of the shared receive queue
 *   mr: other_pd=1 registers it in a second protection domain; the letter b allows windows. send: op=local_inv ends a window, by its rkey.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_MRS = 64, MAX_MWS = 64, MAX_QPS = 256, MAX_LINE = 1 << 18, MAX_VALUE = 1 << 17, MAX_MR_BYTES = 1 << 24 };

/* The longest that a client may leave an answer, and that it may have this program wait. */
enum { UNREAD_SECONDS = 30, MAX_WAIT_MS = 120000 };

struct region {
    struct ibv_mr *mr;
    unsigned char *bytes;
    size_t size;
};

struct queue_pair {
    struct ibv_qp *qp;
    struct ibv_ah *ah;
    struct ibv_srq *srq; /* may be shared with others */
    uint32_t dest_qpn;
    uint32_t qkey;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_pd *other_pd; /* made when it is asked for */
static struct ibv_cq *cq;
static struct region regions[MAX_MRS];
static struct queue_pair qps[MAX_QPS];
static struct ibv_mw *windows[MAX_MWS];
static int gid_index = 1;
static int silent_seconds = 300; /* a client that sends nothing for so long keeps others out */
static const char *token;
static int is_known; /* the client gave the token */
static FILE *out;
static char line[MAX_LINE];

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The value of a key in the request, or NULL. It lasts until the next call. */
static const char *text_of(const char *key)
{
    static char value[MAX_VALUE];
    size_t length = strlen(key);
    const char *at = strchr(line, ' ');

    for (; at; at = strchr(at, ' ')) {
        size_t size;

        while (*at == ' ')
            at++;
        if (strncmp(at, key, length) != 0 || at[length] != '=')
            continue;
        at += length + 1;
        size = strcspn(at, " \r\n");
        if (size >= sizeof value)
            return NULL;
        memcpy(value, at, size);
        value[size] = 0;
        return value;
    }
    return NULL;
}

static uint64_t number_of(const char *key, uint64_t fallback)
{
    const char *value = text_of(key);

    return value ? strtoull(value, NULL, 0) : fallback;
}

/* ms that the request may wait. */
static int wait_of(void)
{
    uint64_t wait = number_of("wait", 0);

    return wait < MAX_WAIT_MS ? (int)wait : MAX_WAIT_MS;
}

static void say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(out, format, arguments);
    va_end(arguments);
}

static void say_ok(void)
{
    say("{\"ok\":true}\n");
}

static void refuse(const char *what, int error)
{
    say("{\"ok\":false,\"what\":\"%s\",\"errno\":%d,\"text\":\"%s\"}\n", what, error, strerror(error));
}

static int access_of(const char *letters, int fallback)
{
    int flags = 0;

    if (!letters)
        return fallback;
    for (; *letters; letters++) {
        switch (*letters) {
        case 'l': flags |= IBV_ACCESS_LOCAL_WRITE; break;
        case 'w': flags |= IBV_ACCESS_REMOTE_WRITE; break;
        case 'r': flags |= IBV_ACCESS_REMOTE_READ; break;
        case 'a': flags |= IBV_ACCESS_REMOTE_ATOMIC; break;
        case 'b': flags |= IBV_ACCESS_MW_BIND; break;
        case 'f': flags |= 1 << 8; break; /* IBV_ACCESS_FLUSH_GLOBAL, which older headers have not */
        default: break;
        }
    }
    return flags;
}

/* The region that the request names, or NULL if there is none, or `off` and `len` are not inside of it. */
static struct region *region_of(uint64_t length)
{
    uint64_t index = number_of("mr", MAX_MRS);
    uint64_t offset = number_of("off", 0);
    struct region *region;

    if (index >= MAX_MRS || !regions[index].bytes)
        return NULL;
    region = &regions[index];
    return offset <= region->size && length <= region->size - offset ? region : NULL;
}

static struct queue_pair *qp_of(void)
{
    uint64_t index = number_of("qp", MAX_QPS);

    return index < MAX_QPS && qps[index].qp ? &qps[index] : NULL;
}

static void hello(void)
{
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    union ibv_gid gid;
    struct ibv_device_attr_ex extended;
    unsigned long long flags = 0; /* what the device does that older headers have no names for: FLUSH is bit 38, ATOMIC WRITE bit 40 */
    int i;

    if (token) {
        const char *given = text_of("token");

        is_known = given && strcmp(given, token) == 0;
        if (!is_known)
            return refuse("token", EACCES);
    }
    if (ibv_query_device(context, &device) || ibv_query_port(context, 1, &port) || ibv_query_gid(context, 1, gid_index, &gid))
        return refuse("query", errno);
    if (ibv_query_device_ex(context, NULL, &extended) == 0)
        flags = extended.device_cap_flags_ex;
    say("{\"ok\":true,\"agent\":4,\"flags\":\"%llu\",\"device\":\"%s\",\"fw\":\"%.63s\",\"vendor\":%u,\"part\":%u,\"mtu\":%d,\"max_rd_atom\":%d,\"gid\":\"",
        flags, ibv_get_device_name(context->device), device.fw_ver, device.vendor_id, device.vendor_part_id,
        128 << port.active_mtu, device.max_qp_rd_atom);
    for (i = 0; i < 16; i++)
        say("%02x", gid.raw[i]);
    say("\"}\n");
}

static void make_mr(void)
{
    size_t size = number_of("size", 65536);
    int access = access_of(text_of("access"), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_pd *domain = pd;
    unsigned char *bytes;
    size_t k;
    int i = 0;

    if (number_of("other_pd", 0)) {
        if (!other_pd)
            other_pd = ibv_alloc_pd(context);
        if (!other_pd)
            return refuse("ibv_alloc_pd", errno);
        domain = other_pd;
    }
    while (i < MAX_MRS && regions[i].bytes)
        i++;
    if (i == MAX_MRS || size == 0 || size > MAX_MR_BYTES)
        return refuse("mr", ENOMEM);
    bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return refuse("mmap", errno);
    for (k = 0; k < size; k++)
        bytes[k] = (unsigned char)(k * 7 + (k >> 8));
    regions[i].mr = ibv_reg_mr(domain, bytes, size, access);
    if (!regions[i].mr) {
        int error = errno;

        munmap(bytes, size);
        return refuse("ibv_reg_mr", error);
    }
    regions[i].bytes = bytes;
    regions[i].size = size;
    say("{\"ok\":true,\"mr\":%d,\"addr\":\"%llu\",\"rkey\":%u}\n", i, (unsigned long long)(uintptr_t)bytes, regions[i].mr->rkey);
}

static void drop_mr(struct region *region)
{
    if (!region->bytes)
        return;
    ibv_dereg_mr(region->mr);
    munmap(region->bytes, region->size);
    memset(region, 0, sizeof *region);
}

/* Destroys a shared receive queue that no queue pair has any more. */
static void release_srq(struct ibv_srq *srq)
{
    int i;

    for (i = 0; i < MAX_QPS; i++)
        if (qps[i].qp && qps[i].srq == srq)
            return;
    if (srq)
        ibv_destroy_srq(srq);
}

static void drop_qp(struct queue_pair *pair)
{
    struct ibv_srq *srq = pair->srq;

    if (!pair->qp)
        return;
    ibv_destroy_qp(pair->qp);
    if (pair->ah)
        ibv_destroy_ah(pair->ah);
    memset(pair, 0, sizeof *pair);
    release_srq(srq);
}

/* The shared receive queue that the request asks for: that of another queue pair, or a new one. */
static struct ibv_srq *srq_of(void)
{
    struct ibv_srq_init_attr attr = { .attr = { .max_wr = 64, .max_sge = 1 } };
    uint64_t with = number_of("with", MAX_QPS);

    if (with < MAX_QPS)
        return qps[with].srq;
    return ibv_create_srq(pd, &attr);
}

static void drop_mw(struct ibv_mw **window)
{
    if (*window)
        ibv_dealloc_mw(*window);
    *window = NULL;
}

static void drop(void)
{
    struct queue_pair *pair = qp_of();
    uint64_t mr = number_of("mr", MAX_MRS);
    uint64_t mw = number_of("mw", MAX_MWS);

    if (mw < MAX_MWS)
        drop_mw(&windows[mw]);
    if (pair)
        drop_qp(pair);
    if (mr < MAX_MRS)
        drop_mr(&regions[mr]);
    say_ok();
}

static void make_qp(void)
{
    const char *name = text_of("type");
    enum ibv_qp_type type = name && strcmp(name, "uc") == 0 ? IBV_QPT_UC : name && strcmp(name, "ud") == 0 ? IBV_QPT_UD : IBV_QPT_RC;
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = { 64, 64, 1, 1, 0 } };
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    struct ibv_qp *qp;
    int i = 0;
    int error;

    while (i < MAX_QPS && qps[i].qp)
        i++;
    if (i == MAX_QPS)
        return refuse("qp", ENOMEM);
    attr.qp_access_flags = access_of(text_of("access"), 0);
    attr.qkey = (uint32_t)number_of("qkey", 0x11111111);
    if (number_of("srq", 0)) {
        errno = EINVAL;
        init.srq = srq_of();
        if (!init.srq)
            return refuse("srq", errno);
    }
    qp = ibv_create_qp(pd, &init);
    if (!qp) {
        error = errno;
        release_srq(init.srq);
        return refuse("ibv_create_qp", error);
    }
    error = ibv_modify_qp(qp, &attr, mask | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    if (error) {
        ibv_destroy_qp(qp);
        release_srq(init.srq);
        return refuse("INIT", error);
    }
    qps[i].qp = qp;
    qps[i].srq = init.srq;
    qps[i].qkey = attr.qkey;
    say("{\"ok\":true,\"qp\":%d,\"qpn\":%u,\"srq\":%s}\n", i, qp->qp_num, init.srq ? "true" : "false");
}

/* INIT to RTR and RTS; UD gets an address handle. */
static void connect_qp(void)
{
    struct queue_pair *pair = qp_of();
    struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = (uint8_t)gid_index, .hop_limit = 64 } };
    struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR };
    struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
    int rtr_mask = IBV_QP_STATE;
    int rts_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    const char *gid = text_of("dgid");
    int i, error;

    if (!pair || !gid || strlen(gid) != 32)
        return refuse("connect", EINVAL);
    for (i = 0; i < 16; i++) {
        unsigned byte;

        if (sscanf(gid + 2 * i, "%2x", &byte) != 1)
            return refuse("dgid", EINVAL);
        ah.grh.dgid.raw[i] = (uint8_t)byte;
    }
    rtr.ah_attr = ah;
    rtr.path_mtu = (enum ibv_mtu)number_of("mtu", IBV_MTU_1024);
    rtr.dest_qp_num = (uint32_t)number_of("dqpn", 0);
    rtr.rq_psn = (uint32_t)number_of("rq_psn", 0);
    rtr.max_dest_rd_atomic = (uint8_t)number_of("mdra", 4);
    rtr.min_rnr_timer = (uint8_t)number_of("rnr_timer", 12);
    rts.sq_psn = (uint32_t)number_of("sq_psn", 0);
    rts.timeout = (uint8_t)number_of("timeout", 14);
    rts.retry_cnt = (uint8_t)number_of("retry", 6);
    rts.rnr_retry = (uint8_t)number_of("rnr_retry", 6);
    rts.max_rd_atomic = (uint8_t)number_of("mra", 4);
    if (pair->qp->qp_type != IBV_QPT_UD)
        rtr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (pair->qp->qp_type == IBV_QPT_RC) {
        rtr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        rts_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    error = ibv_modify_qp(pair->qp, &rtr, rtr_mask);
    if (error)
        return refuse("RTR", error);
    if (pair->qp->qp_type == IBV_QPT_UD && !pair->ah) {
        pair->ah = ibv_create_ah(pd, &ah);
        pair->dest_qpn = rtr.dest_qp_num;
        if (!pair->ah)
            return refuse("ibv_create_ah", errno);
    }
    if (!number_of("rtr_only", 0)) {
        error = ibv_modify_qp(pair->qp, &rts, rts_mask);
        if (error)
            return refuse("RTS", error);
    }
    say_ok();
}

static void move_qp(const char *name, enum ibv_qp_state state, int more)
{
    struct queue_pair *pair = qp_of();
    struct ibv_qp_attr attr = { .qp_state = state, .en_sqd_async_notify = 1 };
    int error = pair ? ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE | more) : EINVAL;

    if (error)
        return refuse(name, error);
    say_ok();
}

static void fail_qp(void)
{
    move_qp("ERR", IBV_QPS_ERR, 0);
}

static void drain_qp(void)
{
    move_qp("SQD", IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

static void resume_qp(void)
{
    move_qp("RTS", IBV_QPS_RTS, 0);
}

static void state(void)
{
    static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
    struct queue_pair *pair = qp_of();
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    int error = pair ? ibv_query_qp(pair->qp, &attr, IBV_QP_STATE, &init) : EINVAL;

    if (error)
        return refuse("ibv_query_qp", error);
    say("{\"ok\":true,\"state\":\"%s\"}\n", (unsigned)attr.qp_state < 7 ? names[attr.qp_state] : "?");
}

static void post_recv(void)
{
    struct queue_pair *pair = qp_of();
    uint64_t length = number_of("len", 0);
    uint64_t count = number_of("count", 1);
    uint64_t stride = number_of("stride", 0);
    struct region *region = region_of(length);
    uint64_t k;

    if (!pair || !region || count > 64 || stride > MAX_MR_BYTES ||
        number_of("off", 0) + (count ? count - 1 : 0) * stride + length > region->size)
        return refuse("recv", EINVAL);
    for (k = 0; k < count; k++) {
        struct ibv_sge sge = { (uintptr_t)region->bytes + number_of("off", 0) + k * stride, (uint32_t)length, region->mr->lkey };
        struct ibv_recv_wr wr = { .wr_id = number_of("id", 0) + k, .sg_list = &sge, .num_sge = length ? 1 : 0 };
        struct ibv_recv_wr *bad;
        int error = pair->srq ? ibv_post_srq_recv(pair->srq, &wr, &bad) : ibv_post_recv(pair->qp, &wr, &bad);

        if (error)
            return refuse("ibv_post_recv", error);
    }
    say_ok();
}

static int opcode_of(const char *name)
{
    static const struct {
        const char *name;
        enum ibv_wr_opcode opcode;
    } opcodes[] = {
        { "send", IBV_WR_SEND },
        { "send_imm", IBV_WR_SEND_WITH_IMM },
        { "write", IBV_WR_RDMA_WRITE },
        { "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM },
        { "read", IBV_WR_RDMA_READ },
        { "cas", IBV_WR_ATOMIC_CMP_AND_SWP },
        { "faa", IBV_WR_ATOMIC_FETCH_AND_ADD },
        { "local_inv", IBV_WR_LOCAL_INV },
    };
    size_t i;

    for (i = 0; name && i < sizeof opcodes / sizeof *opcodes; i++)
        if (strcmp(opcodes[i].name, name) == 0)
            return (int)opcodes[i].opcode;
    return -1;
}

static void post_send(void)
{
    struct queue_pair *pair = qp_of();
    uint64_t length = number_of("len", 0);
    uint64_t count = number_of("count", 1);
    struct region *region = region_of(length);
    int opcode = opcode_of(text_of("op"));
    struct ibv_sge sge;
    struct ibv_send_wr wr = { .wr_id = number_of("id", 0) };
    struct ibv_send_wr *bad;

    if (!pair || !region || opcode < 0 || count > 64)
        return refuse("send", EINVAL);
    sge = (struct ibv_sge){ (uintptr_t)region->bytes + number_of("off", 0), (uint32_t)length, region->mr->lkey };
    wr.opcode = (enum ibv_wr_opcode)opcode;
    wr.sg_list = &sge;
    wr.num_sge = length ? 1 : 0;
    wr.send_flags = IBV_SEND_SIGNALED | (number_of("solicited", 0) ? IBV_SEND_SOLICITED : 0) |
                    (number_of("fence", 0) ? IBV_SEND_FENCE : 0);
    wr.imm_data = htonl((uint32_t)number_of("imm", 0));
    if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = number_of("raddr", 0);
        wr.wr.atomic.rkey = (uint32_t)number_of("rkey", 0);
        wr.wr.atomic.compare_add = number_of("compare_add", 0);
        wr.wr.atomic.swap = number_of("swap", 0);
    } else if (wr.opcode == IBV_WR_LOCAL_INV) {
        wr.invalidate_rkey = (uint32_t)number_of("rkey", 0);
    } else if (pair->qp->qp_type == IBV_QPT_UD) {
        /* libibverbs reads it without looking whether there is one. */
        if (!pair->ah)
            return refuse("send", ENOTCONN);
        wr.wr.ud.ah = pair->ah;
        wr.wr.ud.remote_qpn = pair->dest_qpn;
        wr.wr.ud.remote_qkey = (uint32_t)number_of("rqkey", pair->qkey);
    } else {
        wr.wr.rdma.remote_addr = number_of("raddr", 0);
        wr.wr.rdma.rkey = (uint32_t)number_of("rkey", 0);
    }
    for (; count; count--, wr.wr_id++) {
        int error = ibv_post_send(pair->qp, &wr, &bad);

        if (error)
            return refuse("ibv_post_send", error);
    }
    say_ok();
}

static void make_mw(void)
{
    enum ibv_mw_type type = number_of("type", 1) == 2 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1;
    int i = 0;

    while (i < MAX_MWS && windows[i])
        i++;
    if (i == MAX_MWS)
        return refuse("mw", ENOMEM);
    windows[i] = ibv_alloc_mw(pd, type);
    if (!windows[i])
        return refuse("ibv_alloc_mw", errno);
    say("{\"ok\":true,\"mw\":%d,\"rkey\":%u}\n", i, windows[i]->rkey);
}

static void bind_mw(void)
{
    struct queue_pair *pair = qp_of();
    uint64_t length = number_of("len", 0);
    uint64_t index = number_of("mw", MAX_MWS);
    struct region *region = region_of(length);
    struct ibv_mw *window = index < MAX_MWS ? windows[index] : NULL;
    struct ibv_mw_bind_info info = { .length = length, .mw_access_flags = (unsigned)access_of(text_of("access"), 0) };
    int error;

    if (!pair || !region || !window)
        return refuse("bind", EINVAL);
    info.mr = region->mr;
    info.addr = (uintptr_t)region->bytes + number_of("off", 0);
    if (window->type == IBV_MW_TYPE_1) {
        struct ibv_mw_bind bind = { .wr_id = number_of("id", 0), .send_flags = IBV_SEND_SIGNALED, .bind_info = info };

        error = ibv_bind_mw(pair->qp, window, &bind);
    } else {
        struct ibv_send_wr wr = { .wr_id = number_of("id", 0), .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };
        struct ibv_send_wr *bad;

        wr.bind_mw.mw = window;
        wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
        wr.bind_mw.bind_info = info;
        error = ibv_post_send(pair->qp, &wr, &bad);
        if (!error)
            window->rkey = wr.bind_mw.rkey;
    }
    if (error)
        return refuse("bind", error);
    say("{\"ok\":true,\"rkey\":%u}\n", window->rkey);
}

static void rereg(void)
{
    struct region *region = region_of(0);
    int error;

    if (!region)
        return refuse("rereg", EINVAL);
    error = ibv_rereg_mr(region->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, access_of(text_of("access"), IBV_ACCESS_LOCAL_WRITE));
    if (error)
        return refuse("ibv_rereg_mr", errno ? errno : EOPNOTSUPP);
    say("{\"ok\":true,\"rkey\":%u}\n", region->mr->rkey);
}

static void limit(void)
{
    struct queue_pair *pair = qp_of();
    struct ibv_srq_attr attr = { .srq_limit = (uint32_t)number_of("count", 0) };
    int error = pair && pair->srq ? ibv_modify_srq(pair->srq, &attr, IBV_SRQ_LIMIT) : EINVAL;

    if (error)
        return refuse("ibv_modify_srq", error);
    say_ok();
}

static void say_completion(const struct ibv_wc *wc)
{
    say("{\"id\":%llu,\"status\":%d,\"qpn\":%u", (unsigned long long)wc->wr_id, wc->status, wc->qp_num);
    if (wc->status == IBV_WC_SUCCESS) {
        say(",\"len\":%u,\"src\":%u", wc->byte_len, wc->src_qp);
        if (wc->wc_flags & IBV_WC_WITH_IMM)
            say(",\"imm\":%u", ntohl(wc->imm_data));
    }
    say("}");
}

static void poll_cq(void)
{
    double end = now_ms() + wait_of();
    uint64_t want = number_of("want", 1);
    uint64_t got = 0;

    say("{\"ok\":true,\"wc\":[");
    for (;;) {
        struct ibv_wc wc;

        if (ibv_poll_cq(cq, 1, &wc) > 0) {
            say("%s", got++ ? "," : "");
            say_completion(&wc);
        } else if (got >= want || now_ms() >= end) {
            break;
        } else {
            usleep(500);
        }
    }
    say("]}\n");
}

static void peek(void)
{
    uint64_t length = number_of("len", 0);
    struct region *region = region_of(length);
    uint64_t k;

    if (!region)
        return refuse("peek", EINVAL);
    say("{\"ok\":true,\"hex\":\"");
    for (k = 0; k < length; k++)
        say("%02x", region->bytes[number_of("off", 0) + k]);
    say("\"}\n");
}

static void poke(void)
{
    uint64_t offset = number_of("off", 0);
    const char *hex = text_of("hex");
    size_t length = hex ? strlen(hex) / 2 : 0;
    size_t k;
    struct region *region;
    char *copy = hex ? strdup(hex) : NULL;

    region = region_of(length);
    if (!region || !copy) {
        free(copy);
        return refuse("poke", EINVAL);
    }
    for (k = 0; k < length; k++) {
        unsigned byte = 0;

        sscanf(copy + 2 * k, "%2x", &byte);
        region->bytes[offset + k] = (unsigned char)byte;
    }
    free(copy);
    say_ok();
}

static void events(void)
{
    struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
    struct ibv_async_event event;
    int count = 0;

    say("{\"ok\":true,\"events\":[");
    while (poll(&ready, 1, count ? 0 : wait_of()) > 0 && ibv_get_async_event(context, &event) == 0) {
        say("%s\"%s\"", count++ ? "," : "", ibv_event_type_str(event.event_type));
        ibv_ack_async_event(&event);
    }
    say("]}\n");
}

static void counters(void)
{
    char folder[256];
    char path[640];
    char text[64];
    struct dirent *entry;
    DIR *files;
    int count = 0;

    snprintf(folder, sizeof folder, "/sys/class/infiniband/%s/ports/1/hw_counters", ibv_get_device_name(context->device));
    files = opendir(folder);
    say("{\"ok\":true,\"counters\":{");
    while (files && (entry = readdir(files))) {
        ssize_t length;
        int file;

        if (*entry->d_name == '.' || strcmp(entry->d_name, "lifespan") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        file = open(path, O_RDONLY);
        length = file < 0 ? -1 : read(file, text, sizeof text - 1);
        if (file >= 0)
            close(file);
        if (length <= 0)
            continue;
        text[length] = 0;
        say("%s\"%s\":%llu", count++ ? "," : "", entry->d_name, strtoull(text, NULL, 10));
    }
    if (files)
        closedir(files);
    say("}}\n");
}

static void drop_all(void)
{
    struct ibv_wc wc;
    int i;

    for (i = 0; i < MAX_MWS; i++)
        drop_mw(&windows[i]);
    for (i = 0; i < MAX_QPS; i++)
        drop_qp(&qps[i]);
    for (i = 0; i < MAX_MRS; i++)
        drop_mr(&regions[i]);
    while (ibv_poll_cq(cq, 1, &wc) > 0)
        ;
}

static void answer(void)
{
    static const struct {
        const char *verb;
        void (*call)(void);
    } verbs[] = {
        { "hello", hello }, { "mr", make_mr }, { "qp", make_qp }, { "connect", connect_qp }, { "state", state },
        { "drop", drop }, { "recv", post_recv }, { "send", post_send }, { "poll", poll_cq }, { "peek", peek },
        { "poke", poke }, { "fail", fail_qp }, { "drain", drain_qp }, { "resume", resume_qp }, { "events", events }, { "counters", counters },
        { "mw", make_mw }, { "bind", bind_mw }, { "rereg", rereg }, { "limit", limit },
    };
    size_t length = strcspn(line, " \r\n");
    size_t i;

    for (i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strlen(verbs[i].verb) != length || strncmp(verbs[i].verb, line, length) != 0)
            continue;
        if (token && !is_known && verbs[i].call != hello)
            return refuse("token", EACCES);
        return verbs[i].call();
    }
    refuse("verb", ENOSYS);
}

/* Bytes that came behind the line at hand. */
static char ahead[MAX_LINE];
static size_t ahead_size;

/* Takes a line of the client into `line`; 0 if it has gone, has been silent for too long, or its line is too long. */
static int read_line(int client)
{
    double end = now_ms() + silent_seconds * 1e3;

    for (;;) {
        char *newline = memchr(ahead, '\n', ahead_size);
        struct pollfd ready = { .fd = client, .events = POLLIN };
        double left = end - now_ms();
        ssize_t got;

        if (newline) {
            size_t length = (size_t)(newline - ahead) + 1;

            memcpy(line, ahead, length);
            line[length] = 0;
            ahead_size -= length;
            memmove(ahead, newline + 1, ahead_size);
            return 1;
        }
        if (ahead_size >= sizeof ahead - 1 || left <= 0 || poll(&ready, 1, (int)left + 1) <= 0)
            return 0;
        got = read(client, ahead + ahead_size, sizeof ahead - 1 - ahead_size);
        if (got <= 0)
            return 0;
        ahead_size += (size_t)got;
    }
}

/* Serves a client until it goes, or is sent away. */
static void serve(int client)
{
    int one = 1;
    struct timeval unread = { .tv_sec = UNREAD_SECONDS };

    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &unread, sizeof unread);
    out = fdopen(client, "w");
    is_known = 0;
    ahead_size = 0;
    while (out && read_line(client)) {
        answer();
        if (fflush(out) != 0)
            break;
    }
    if (out)
        fclose(out);
    else
        close(client);
    drop_all();
}

static int listen_at(const char *address, const char *port)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV };
    struct addrinfo *found;
    int one = 1;
    int listener;
    int error = getaddrinfo(address, port, &hints, &found);

    if (error) {
        fprintf(stderr, "roce-agent: %s: %s\n", address, gai_strerror(error));
        return -1;
    }
    listener = socket(found->ai_family, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, found->ai_addr, found->ai_addrlen) || listen(listener, 1)) {
        perror("roce-agent: listen");
        listener = -1;
    }
    freeaddrinfo(found);
    return listener;
}

static int open_device(const char *name)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    int i;

    for (i = 0; i < count && !context; i++)
        if (!name || strcmp(ibv_get_device_name(list[i]), name) == 0)
            context = ibv_open_device(list[i]);
    if (list)
        ibv_free_device_list(list);
    if (!context) {
        fprintf(stderr, "roce-agent: no RDMA device%s%s\n", name ? " " : "", name ? name : "");
        return -1;
    }
    fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
    pd = ibv_alloc_pd(context);
    cq = pd ? ibv_create_cq(context, 4096, NULL, NULL, 0) : NULL;
    if (!cq)
        perror("roce-agent");
    return cq ? 0 : -1;
}

int main(int argc, char **argv)
{
    const char *address = NULL;
    const char *device = NULL;
    const char *port = "18777";
    int option, listener, client;

    while ((option = getopt(argc, argv, "b:d:g:i:p:t:")) != -1) {
        switch (option) {
        case 'b': address = optarg; break;
        case 'd': device = optarg; break;
        case 'g': gid_index = atoi(optarg); break;
        case 'i': silent_seconds = atoi(optarg); break;
        case 'p': port = optarg; break;
        case 't': token = optarg; break;
        default: return 2;
        }
    }
    if (!address || gid_index < 0 || gid_index > 255 || silent_seconds < 1 || silent_seconds > 86400) {
        fprintf(stderr, "usage: roce-agent -b ADDRESS [-d DEVICE] [-g GID_INDEX] [-p PORT] [-t TOKEN] [-i SECONDS]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    if (open_device(device))
        return 1;
    listener = listen_at(address, port);
    if (listener < 0)
        return 1;
    fprintf(stderr, "roce-agent: %s at %s port %s%s\n", ibv_get_device_name(context->device), address, port,
            token ? "" : ", open to every program that reaches it");
    for (;;) {
        client = accept(listener, NULL, NULL);
        if (client >= 0)
            serve(client);
        else if (errno != EINTR && errno != ECONNABORTED)
            break;
    }
    perror("roce-agent: accept");
    return 1;
}
