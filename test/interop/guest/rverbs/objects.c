/* The device, and every object that is neither memory (memory.c) nor a queue pair (qp.c). */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "rverbs.h"

struct ibv_context *context;
int gid_index;
struct table pds = { .what = "pd" }, cqs = { .what = "cq" }, channels = { .what = "channel" }, srqs = { .what = "srq" },
             ahs = { .what = "ah" }, mws = { .what = "mw" };

int add(struct table *table, void *item)
{
    if (table->count == sizeof table->items / sizeof *table->items)
        fail(ENOSPC, "too many objects: %s", table->what);
    table->items[table->count] = item;
    return table->count++;
}

void *find(struct table *table, uint64_t handle)
{
    if (handle >= (uint64_t)table->count || !table->items[handle])
        fail(ENOENT, "no %s %llu", table->what, (unsigned long long)handle);
    return table->items[handle];
}

void *take(struct table *table, uint64_t handle)
{
    void *item = find(table, handle);
    table->items[handle] = NULL;
    return item;
}

static void check(int error, const char *call)
{
    if (error)
        fail(error < 0 ? errno : error, "%s", call);
}

static void *made(void *object, const char *call)
{
    if (!object)
        fail(errno, "%s", call);
    return object;
}

/* open [device=rxe0] [gid=1] → gid, activeMtu; makes pd 0 */
void cmd_open(void)
{
    if (context)
        fail(EBUSY, "open already");
    const char *wanted = text("device", "rxe0");
    int count;
    struct ibv_device **list = ibv_get_device_list(&count), *device = NULL;
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(list[i]), wanted))
            device = list[i];
    if (!device)
        fail(ENODEV, "no device %s", wanted);
    gid_index = number("gid", 1);
    context = made(ibv_open_device(device), "ibv_open_device");
    add(&pds, made(ibv_alloc_pd(context), "ibv_alloc_pd"));
    cmd_query_port();
    union ibv_gid gid;
    check(ibv_query_gid(context, 1, gid_index, &gid), "ibv_query_gid");
    put_bytes("gid", gid.raw, 16);
}

/* query_gid index → gid */
void cmd_query_gid(void)
{
    union ibv_gid gid;
    check(ibv_query_gid(context, 1, required_number("index"), &gid), "ibv_query_gid");
    put_bytes("gid", gid.raw, 16);
}

/* query_port → active, activeMtu, maxMtu, lid (MTUs in bytes) */
void cmd_query_port(void)
{
    struct ibv_port_attr port;
    check(ibv_query_port(context, 1, &port), "ibv_query_port");
    put_boolean("active", port.state == IBV_PORT_ACTIVE);
    put_number("activeMtu", bytes_of(port.active_mtu));
    put_number("maxMtu", bytes_of(port.max_mtu));
    put_number("lid", port.lid);
}

/* query_device → the limits */
void cmd_query_device(void)
{
    struct ibv_device_attr device;
    check(ibv_query_device(context, &device), "ibv_query_device");
    put_number("maxQp", device.max_qp);
    put_number("maxQpWr", device.max_qp_wr);
    put_number("maxSge", device.max_sge);
    put_number("maxCq", device.max_cq);
    put_number("maxCqe", device.max_cqe);
    put_number("maxMr", device.max_mr);
    put_number("maxMw", device.max_mw);
    put_number("maxSrq", device.max_srq);
    put_number("maxQpRdAtom", device.max_qp_rd_atom);
    put_number("maxQpInitRdAtom", device.max_qp_init_rd_atom);
    put_number("atomicCap", device.atomic_cap);
    put_hex("deviceCapFlags", device.device_cap_flags);
}

void cmd_pd(void)
{
    put_number("pd", add(&pds, made(ibv_alloc_pd(context), "ibv_alloc_pd")));
}

void cmd_dealloc_pd(void)
{
    check(ibv_dealloc_pd(take(&pds, required_number("pd"))), "ibv_dealloc_pd");
}

/* channel → channel (a completion channel) */
void cmd_channel(void)
{
    put_number("channel", add(&channels, made(ibv_create_comp_channel(context), "ibv_create_comp_channel")));
}

/* cq [depth=1024] [channel] → cq, depth */
void cmd_cq(void)
{
    struct ibv_comp_channel *channel = has("channel") ? find(&channels, number("channel", 0)) : NULL;
    struct ibv_cq *cq = made(ibv_create_cq(context, number("depth", 1024), NULL, channel, 0), "ibv_create_cq");
    int handle = add(&cqs, cq);
    cq->cq_context = (void *)(intptr_t)handle; /* events name the handle */
    put_number("cq", handle);
    put_number("depth", cq->cqe);
}

void cmd_destroy_cq(void)
{
    check(ibv_destroy_cq(take(&cqs, required_number("cq"))), "ibv_destroy_cq");
}

/* srq [pd=0] [max_wr=64] [max_sge=4] [limit=0] → srq, maxWr, maxSge */
void cmd_srq(void)
{
    struct ibv_srq_init_attr init = { .attr = {
        .max_wr = number("max_wr", 64),
        .max_sge = number("max_sge", 4),
        .srq_limit = number("limit", 0),
    } };
    struct ibv_srq *srq = made(ibv_create_srq(find(&pds, number("pd", 0)), &init), "ibv_create_srq");
    int handle = add(&srqs, srq);
    srq->srq_context = (void *)(intptr_t)handle;
    put_number("srq", handle);
    put_number("maxWr", init.attr.max_wr);
    put_number("maxSge", init.attr.max_sge);
}

/* modify_srq srq [limit] [max_wr] */
void cmd_modify_srq(void)
{
    struct ibv_srq_attr attr = { .max_wr = number("max_wr", 0), .srq_limit = number("limit", 0) };
    int mask = (has("max_wr") ? IBV_SRQ_MAX_WR : 0) | (has("limit") ? IBV_SRQ_LIMIT : 0);
    check(ibv_modify_srq(find(&srqs, required_number("srq")), &attr, mask), "ibv_modify_srq");
}

void cmd_query_srq(void)
{
    struct ibv_srq_attr attr;
    check(ibv_query_srq(find(&srqs, required_number("srq")), &attr), "ibv_query_srq");
    put_number("maxWr", attr.max_wr);
    put_number("maxSge", attr.max_sge);
    put_number("limit", attr.srq_limit);
}

void cmd_destroy_srq(void)
{
    check(ibv_destroy_srq(take(&srqs, required_number("srq"))), "ibv_destroy_srq");
}

struct ibv_ah_attr address_vector(void)
{
    struct ibv_ah_attr av = {
        .is_global = 1,
        .port_num = 1,
        .sl = number("sl", 0),
        .grh = {
            .sgid_index = number("sgid_index", gid_index),
            .hop_limit = number("hop_limit", 64),
            .traffic_class = number("traffic_class", 0),
            .flow_label = number("flow_label", 0),
        },
    };
    required_bytes("dgid", av.grh.dgid.raw, 16);
    return av;
}

/* ah dgid [sgid_index] [hop_limit=64] [traffic_class=0] [flow_label=0] [sl=0] [pd=0] → ah */
void cmd_ah(void)
{
    struct ibv_ah_attr av = address_vector();
    put_number("ah", add(&ahs, made(ibv_create_ah(find(&pds, number("pd", 0)), &av), "ibv_create_ah")));
}

void cmd_destroy_ah(void)
{
    check(ibv_destroy_ah(take(&ahs, required_number("ah"))), "ibv_destroy_ah");
}

/* mw type=1|2 [pd=0] → mw, rkey */
void cmd_mw(void)
{
    enum ibv_mw_type type = required_number("type") == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
    struct ibv_mw *mw = made(ibv_alloc_mw(find(&pds, number("pd", 0)), type), "ibv_alloc_mw");
    put_number("mw", add(&mws, mw));
    put_number("rkey", mw->rkey);
}

void cmd_dealloc_mw(void)
{
    check(ibv_dealloc_mw(take(&mws, required_number("mw"))), "ibv_dealloc_mw");
}

/* async_event [timeout=0 ms] → event (absent: none came), and qp, cq, srq or port */
void cmd_async_event(void)
{
    struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
    if (poll(&ready, 1, number("timeout", 0)) <= 0)
        return;
    struct ibv_async_event event;
    check(ibv_get_async_event(context, &event), "ibv_get_async_event");
    put_text("event", name_of(event_names, event.event_type));
    switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
        put_number("cq", (intptr_t)event.element.cq->cq_context);
        break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        put_number("srq", (intptr_t)event.element.srq->srq_context);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        put_number("qp", (intptr_t)event.element.qp->qp_context);
        break;
    default:
        put_number("port", event.element.port_num);
    }
    ibv_ack_async_event(&event);
}
