/* rverbs: libibverbs on a line protocol, so that a test can drive the guest's side step by step.
 *
 * A request is one line, `command key=value key=value …`; numbers are decimal or 0x…, lists are separated
 * by commas, bytes are hex. The reply is one line of JSON: {"ok":true,…} or {"ok":false,"error":…,"errno":…}.
 * 64-bit addresses and keys of any width are sent as "0x…" strings. Objects (pd, mr, mw, cq, qp, …) are named
 * by small numbers. Requests are served in order, one at a time; the end of stdin ends the program and with
 * it everything it made. main.c lists the commands, each is described where it is implemented. */
#ifndef RVERBS_H
#define RVERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- protocol.c: the request at hand and the reply to it */

bool has(const char *key);
uint64_t number(const char *key, uint64_t fallback);
uint64_t required_number(const char *key);
const char *text(const char *key, const char *fallback);
const char *required_text(const char *key);
/* Bytes of a hex value; fails unless it is exactly `length` bytes. */
void required_bytes(const char *key, uint8_t *bytes, size_t length);

void put_number(const char *key, int64_t value);
void put_hex(const char *key, uint64_t value);
void put_text(const char *key, const char *value);
void put_bytes(const char *key, const uint8_t *bytes, size_t length);
void put_boolean(const char *key, bool value);
void open_list(const char *key);
void close_list(void);
void open_object(const char *key);
void close_object(void);

/* Ends the request with an error reply; `error` is an errno value or 0. Does not return. */
_Noreturn void fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- names.c: libibverbs constants and their names without the IBV_ prefixes */

struct name {
    int value;
    const char *name;
};
extern const struct name access_names[], send_opcode_names[], send_flag_names[], wc_flag_names[], qp_state_names[],
    qp_type_names[], wc_opcode_names[], event_names[];
int value_of(const struct name *names, const char *name, size_t length);
int flags_of(const struct name *names, const char *key);
const char *name_of(const struct name *names, int value);
void put_flags(const char *key, const struct name *names, int flags);
enum ibv_mtu mtu_of(int bytes);
int bytes_of(enum ibv_mtu mtu);

/* --- objects.c: the device and the tables of what was made on it */

struct table {
    const char *what;
    void *items[4096];
    int count;
};
int add(struct table *table, void *item);
void *find(struct table *table, uint64_t handle);
void *take(struct table *table, uint64_t handle); /* out of the table */

extern struct ibv_context *context;
extern int gid_index; /* the source GID unless a request names another */
extern struct table pds, cqs, channels, srqs, ahs, mws, qps;
/* Path of an address handle or queue pair from dgid, sgid_index, hop_limit, traffic_class, flow_label, sl. */
struct ibv_ah_attr address_vector(void);

/* --- memory.c: regions between guards */

struct region {
    struct ibv_mr *mr;   /* NULL once deregistered; the memory stays readable */
    uint8_t *memory;     /* first byte of the region */
    uint64_t address;    /* as a peer or an SGE names it: the address, or iova */
    size_t length, guard;
    uint32_t lkey, rkey; /* as registered */
};
struct region *region_of(uint64_t handle);
void sha256(const uint8_t *data, size_t length, uint8_t digest[32]);

/* --- placement.c: FLUSH and ATOMIC_WRITE, which only the extended verbs post */

/* A queue pair like any other that can post both, too. */
struct ibv_qp *create_placement_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
bool is_placement(const struct ibv_send_wr *wr);
/* Posts the FLUSH or ATOMIC_WRITE that the keys describe; returns an errno value. */
int post_placement(struct ibv_qp *qp, const struct ibv_send_wr *wr);

/* --- the commands */

typedef void command(void);
command cmd_open, cmd_query_gid, cmd_query_port, cmd_query_device, cmd_pd, cmd_dealloc_pd, cmd_channel, cmd_cq, cmd_destroy_cq,
    cmd_srq, cmd_modify_srq, cmd_query_srq, cmd_destroy_srq, cmd_ah, cmd_destroy_ah, cmd_mw, cmd_dealloc_mw,
    cmd_async_event;
command cmd_mr, cmd_dereg_mr, cmd_fill, cmd_write, cmd_read, cmd_sha256;
command cmd_qp, cmd_modify_qp, cmd_query_qp, cmd_destroy_qp, cmd_attach_mcast, cmd_detach_mcast;
command cmd_post_send, cmd_post_recv, cmd_repeat, cmd_bind, cmd_poll, cmd_arm, cmd_wait_event;

#endif
