/* Constants of verbs.h by name. */
#include <errno.h>
#include <string.h>

#include "rverbs.h"

const struct name access_names[] = {
    { IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE" },
    { IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE" },
    { IBV_ACCESS_REMOTE_READ, "REMOTE_READ" },
    { IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC" },
    { IBV_ACCESS_MW_BIND, "MW_BIND" },
    { IBV_ACCESS_ZERO_BASED, "ZERO_BASED" },
#ifdef HAVE_FLUSH
    { IBV_ACCESS_FLUSH_GLOBAL, "FLUSH_GLOBAL" },
    { IBV_ACCESS_FLUSH_PERSISTENT, "FLUSH_PERSISTENT" },
#endif
    { 0, NULL },
};

const struct name send_opcode_names[] = {
    { IBV_WR_SEND, "SEND" },
    { IBV_WR_SEND_WITH_IMM, "SEND_WITH_IMM" },
    { IBV_WR_SEND_WITH_INV, "SEND_WITH_INV" },
    { IBV_WR_RDMA_WRITE, "RDMA_WRITE" },
    { IBV_WR_RDMA_WRITE_WITH_IMM, "RDMA_WRITE_WITH_IMM" },
    { IBV_WR_RDMA_READ, "RDMA_READ" },
    { IBV_WR_ATOMIC_CMP_AND_SWP, "ATOMIC_CMP_AND_SWP" },
    { IBV_WR_ATOMIC_FETCH_AND_ADD, "ATOMIC_FETCH_AND_ADD" },
    { IBV_WR_LOCAL_INV, "LOCAL_INV" },
#ifdef HAVE_FLUSH
    { IBV_WR_FLUSH, "FLUSH" },
    { IBV_WR_ATOMIC_WRITE, "ATOMIC_WRITE" },
#endif
    { 0, NULL },
};

const struct name send_flag_names[] = {
    { IBV_SEND_FENCE, "FENCE" },         { IBV_SEND_SIGNALED, "SIGNALED" },
    { IBV_SEND_SOLICITED, "SOLICITED" }, { IBV_SEND_INLINE, "INLINE" },
    { 0, NULL },
};

const struct name wc_flag_names[] = {
    { IBV_WC_GRH, "GRH" },
    { IBV_WC_WITH_IMM, "WITH_IMM" },
    { IBV_WC_WITH_INV, "WITH_INV" },
    { 0, NULL },
};

const struct name qp_state_names[] = {
    { IBV_QPS_RESET, "RESET" }, { IBV_QPS_INIT, "INIT" }, { IBV_QPS_RTR, "RTR" }, { IBV_QPS_RTS, "RTS" },
    { IBV_QPS_SQD, "SQD" },     { IBV_QPS_SQE, "SQE" },   { IBV_QPS_ERR, "ERR" }, { 0, NULL },
};

const struct name qp_type_names[] = {
    { IBV_QPT_RC, "RC" },
    { IBV_QPT_UC, "UC" },
    { IBV_QPT_UD, "UD" },
    { 0, NULL },
};

const struct name wc_opcode_names[] = {
    { IBV_WC_SEND, "SEND" },           { IBV_WC_RDMA_WRITE, "RDMA_WRITE" },
    { IBV_WC_RDMA_READ, "RDMA_READ" }, { IBV_WC_COMP_SWAP, "COMP_SWAP" },
    { IBV_WC_FETCH_ADD, "FETCH_ADD" }, { IBV_WC_BIND_MW, "BIND_MW" },
    { IBV_WC_LOCAL_INV, "LOCAL_INV" }, { IBV_WC_RECV, "RECV" },
    { IBV_WC_RECV_RDMA_WITH_IMM, "RECV_RDMA_WITH_IMM" },
#ifdef HAVE_FLUSH
    { IBV_WC_FLUSH, "FLUSH" },         { IBV_WC_ATOMIC_WRITE, "ATOMIC_WRITE" },
#endif
    { 0, NULL },
};

const struct name event_names[] = {
    { IBV_EVENT_CQ_ERR, "CQ_ERR" },
    { IBV_EVENT_QP_FATAL, "QP_FATAL" },
    { IBV_EVENT_QP_REQ_ERR, "QP_REQ_ERR" },
    { IBV_EVENT_QP_ACCESS_ERR, "QP_ACCESS_ERR" },
    { IBV_EVENT_COMM_EST, "COMM_EST" },
    { IBV_EVENT_SQ_DRAINED, "SQ_DRAINED" },
    { IBV_EVENT_PATH_MIG, "PATH_MIG" },
    { IBV_EVENT_PATH_MIG_ERR, "PATH_MIG_ERR" },
    { IBV_EVENT_DEVICE_FATAL, "DEVICE_FATAL" },
    { IBV_EVENT_PORT_ACTIVE, "PORT_ACTIVE" },
    { IBV_EVENT_PORT_ERR, "PORT_ERR" },
    { IBV_EVENT_LID_CHANGE, "LID_CHANGE" },
    { IBV_EVENT_PKEY_CHANGE, "PKEY_CHANGE" },
    { IBV_EVENT_SM_CHANGE, "SM_CHANGE" },
    { IBV_EVENT_SRQ_ERR, "SRQ_ERR" },
    { IBV_EVENT_SRQ_LIMIT_REACHED, "SRQ_LIMIT_REACHED" },
    { IBV_EVENT_QP_LAST_WQE_REACHED, "QP_LAST_WQE_REACHED" },
    { IBV_EVENT_CLIENT_REREGISTER, "CLIENT_REREGISTER" },
    { IBV_EVENT_GID_CHANGE, "GID_CHANGE" },
    { 0, NULL },
};

int value_of(const struct name *names, const char *name, size_t length)
{
    for (; names->name; names++)
        if (strlen(names->name) == length && !memcmp(names->name, name, length))
            return names->value;
    fail(EINVAL, "no constant %.*s", (int)length, name);
}

/* The flags of a comma-separated list; an absent key is no flag. */
int flags_of(const struct name *names, const char *key)
{
    int flags = 0;
    for (const char *at = text(key, ""); *at;) {
        size_t length = strcspn(at, ",");
        flags |= value_of(names, at, length);
        at += length + (at[length] == ',');
    }
    return flags;
}

const char *name_of(const struct name *names, int value)
{
    for (; names->name; names++)
        if (names->value == value)
            return names->name;
    return "?";
}

void put_flags(const char *key, const struct name *names, int flags)
{
    open_list(key);
    for (; names->name; names++)
        if (flags & names->value)
            put_text(NULL, names->name);
    close_list();
}

enum ibv_mtu mtu_of(int bytes)
{
    for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
        if (bytes_of(mtu) == bytes)
            return mtu;
    fail(EINVAL, "%d is no InfiniBand MTU", bytes);
}

int bytes_of(enum ibv_mtu mtu)
{
    return 128 << mtu;
}
