// Written from packages/device/src/messages.ts, where the comments are, and packages/transport/src/{rings,entry-words}.ts:
// npx vitest run packages/device/src/protocol.test.ts -u
#pragma once
#include <stddef.h>
#include <stdint.h>

#define ROCE_PROTOCOL_VERSION 7
#define ROCE_MAX_PAYLOAD 1048576
#define ROCE_HEADER_BYTES 8
#define ROCE_TOKEN_BYTES 16

enum roce_call {
  ROCE_HELLO = 1,
  ROCE_LISTEN = 2,
  ROCE_QUERY_DEVICE = 3,
  ROCE_QUERY_PORT = 4,
  ROCE_QUERY_GIDS = 5,
  ROCE_ALLOC_PD = 6,
  ROCE_REG_MR = 7,
  ROCE_REREG_MR = 8,
  ROCE_CREATE_CHANNEL = 9,
  ROCE_CREATE_CQ = 10,
  ROCE_RESIZE_CQ = 11,
  ROCE_CREATE_SRQ = 12,
  ROCE_MODIFY_SRQ = 13,
  ROCE_QUERY_SRQ = 14,
  ROCE_CREATE_AH = 15,
  ROCE_CREATE_QP = 16,
  ROCE_MODIFY_QP = 17,
  ROCE_QUERY_QP = 18,
  ROCE_ATTACH_MCAST = 19,
  ROCE_DETACH_MCAST = 20,
  ROCE_ALLOC_MW = 21,
  ROCE_DESTROY = 22,
  ROCE_POST_SRQ_OP = 23,
  ROCE_STATUS = 24,
  ROCE_UCMA_OPEN = 25,
  ROCE_UCMA_COMMAND = 26,
  ROCE_CLOSE = 27,
};

static inline const char *roce_call_name(enum roce_call call) {
  switch (call) {
    case ROCE_HELLO: return "HELLO";
    case ROCE_LISTEN: return "LISTEN";
    case ROCE_QUERY_DEVICE: return "QUERY_DEVICE";
    case ROCE_QUERY_PORT: return "QUERY_PORT";
    case ROCE_QUERY_GIDS: return "QUERY_GIDS";
    case ROCE_ALLOC_PD: return "ALLOC_PD";
    case ROCE_REG_MR: return "REG_MR";
    case ROCE_REREG_MR: return "REREG_MR";
    case ROCE_CREATE_CHANNEL: return "CREATE_CHANNEL";
    case ROCE_CREATE_CQ: return "CREATE_CQ";
    case ROCE_RESIZE_CQ: return "RESIZE_CQ";
    case ROCE_CREATE_SRQ: return "CREATE_SRQ";
    case ROCE_MODIFY_SRQ: return "MODIFY_SRQ";
    case ROCE_QUERY_SRQ: return "QUERY_SRQ";
    case ROCE_CREATE_AH: return "CREATE_AH";
    case ROCE_CREATE_QP: return "CREATE_QP";
    case ROCE_MODIFY_QP: return "MODIFY_QP";
    case ROCE_QUERY_QP: return "QUERY_QP";
    case ROCE_ATTACH_MCAST: return "ATTACH_MCAST";
    case ROCE_DETACH_MCAST: return "DETACH_MCAST";
    case ROCE_ALLOC_MW: return "ALLOC_MW";
    case ROCE_DESTROY: return "DESTROY";
    case ROCE_POST_SRQ_OP: return "POST_SRQ_OP";
    case ROCE_STATUS: return "STATUS";
    case ROCE_UCMA_OPEN: return "UCMA_OPEN";
    case ROCE_UCMA_COMMAND: return "UCMA_COMMAND";
    case ROCE_CLOSE: return "CLOSE";
  }
  return "?";
}

enum roce_kind_of_memory {
  ROCE_MEMORY_SHARED = 0,
  ROCE_MEMORY_ATTACHED = 1,
};

enum roce_cq_bits {
  ROCE_CQ_TIMES = 1,
  ROCE_CQ_TAGS = 2,
};

// Words of control pages and entries.
enum roce_control {
  ROCE_CONTROL_STATE = 0,
  ROCE_CONTROL_PRODUCER = 16,
  ROCE_CONTROL_CONSUMER = 32,
  ROCE_CONTROL_SLEEPING = 48,
  ROCE_CONTROL_MOVED = 50,
  ROCE_CONTROL_ARMED = 49,
  ROCE_CONTROL_TURNS = 51,
  ROCE_CONTROL_WAITING = 52,
  ROCE_CONTROL_PROCESSOR = 53,
};

enum roce_waiting {
  ROCE_WAITING_NONE = 0,
  ROCE_WAITING_APART = 1,
  ROCE_WAITING_SHARING = 2,
};

enum roce_send_wqe {
  ROCE_SEND_OPCODE_FLAGS = 0,
  ROCE_SEND_WR_ID_LOW = 1,
  ROCE_SEND_WR_ID_HIGH = 2,
  ROCE_SEND_SGE_COUNT = 3,
  ROCE_SEND_LENGTH = 4,
  ROCE_SEND_IMMEDIATE = 5,
  ROCE_SEND_REMOTE_ADDRESS_HIGH = 6,
  ROCE_SEND_REMOTE_ADDRESS_LOW = 7,
  ROCE_SEND_RKEY = 8,
  ROCE_SEND_COMPARE_ADD_HIGH = 9,
  ROCE_SEND_COMPARE_ADD_LOW = 10,
  ROCE_SEND_SWAP_HIGH = 11,
  ROCE_SEND_SWAP_LOW = 12,
  ROCE_SEND_ADDRESS_HANDLE = 9,
  ROCE_SEND_REMOTE_QPN = 10,
  ROCE_SEND_REMOTE_QKEY = 11,
  ROCE_SEND_BIND_WINDOW = 5,
  ROCE_SEND_BIND_LENGTH_HIGH = 9,
  ROCE_SEND_BIND_LENGTH_LOW = 10,
  ROCE_SEND_BIND_LKEY = 11,
  ROCE_SEND_BIND_ACCESS = 12,
  ROCE_SEND_FLUSH_LENGTH = 9,
  ROCE_SEND_FLUSH_TYPE = 10,
  ROCE_SEND_FLUSH_LEVEL = 11,
  ROCE_SEND_REMOTE_SRQN = 13,
  ROCE_SEND_SGE = 16,
};

enum roce_recv_wqe {
  ROCE_RECV_WR_ID_LOW = 0,
  ROCE_RECV_WR_ID_HIGH = 1,
  ROCE_RECV_SGE_COUNT = 2,
  ROCE_RECV_LENGTH = 3,
  ROCE_RECV_SGE = 4,
};

enum roce_sge_words {
  ROCE_SGE_ADDRESS_HIGH = 0,
  ROCE_SGE_ADDRESS_LOW = 1,
  ROCE_SGE_LENGTH = 2,
  ROCE_SGE_LKEY = 3,
};

enum roce_cqe {
  ROCE_CQE_WR_ID_LOW = 0,
  ROCE_CQE_WR_ID_HIGH = 1,
  ROCE_CQE_STATUS = 2,
  ROCE_CQE_OPCODE = 3,
  ROCE_CQE_BYTE_LEN = 4,
  ROCE_CQE_IMMEDIATE = 5,
  ROCE_CQE_QP_NUM = 6,
  ROCE_CQE_SRC_QP = 7,
  ROCE_CQE_FLAGS = 8,
  ROCE_CQE_VENDOR_ERR = 9,
  ROCE_CQE_PKEY_INDEX = 10,
  ROCE_CQE_SL = 11,
  ROCE_CQE_STAMP_LOW = 12,
  ROCE_CQE_STAMP_HIGH = 13,
  ROCE_CQE_TAG_HIGH = 14,
  ROCE_CQE_TAG_LOW = 15,
  ROCE_CQE_TAG_DATA = 16,
};

#define ROCE_CONTROL_WORDS 64
#define ROCE_SGE_WORDS 4
// Entries have times and tags where the queue was made so.
#define ROCE_CQE_WORDS 12
#define ROCE_STAMPED_CQE_WORDS 14
#define ROCE_TAGGED_CQE_WORDS 17

// As they go over the socket.
#pragma pack(push, 1)

struct roce_cap {
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline_data;
};

struct roce_address {
  uint8_t dgid[16];
  uint32_t flow_label;
  uint32_t sgid_index;
  uint32_t hop_limit;
  uint32_t traffic_class;
  uint32_t dlid;
  uint32_t sl;
  uint32_t src_path_bits;
  uint32_t static_rate;
  uint32_t is_global;
  uint32_t port_num;
};

struct roce_ring_place {
  uint32_t offset;
  uint32_t capacity;
  uint32_t stride;
};

struct roce_queue_place {
  uint32_t id;
  uint32_t offset;
  uint32_t capacity;
  uint32_t stride;
};

struct roce_sge {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};

struct roce_event {
  uint32_t type;
  uint32_t handle;
  uint32_t port;
};

struct roce_hello_request {
  uint32_t version;
  uint8_t name[16];
  uint8_t token[16];
  uint64_t network;
};

struct roce_hello_reply {
  uint8_t token[16];
  uint32_t arena_bytes;
  uint32_t bells_offset;
  uint32_t bells_capacity;
};

struct roce_listen_request {
  uint8_t token[16];
  uint32_t handle;
};

struct roce_query_device_reply {
  uint64_t node_guid;
  uint64_t max_mr_size;
  uint64_t page_size_cap;
  uint32_t vendor_id;
  uint32_t vendor_part_id;
  uint32_t max_qp;
  uint32_t max_qp_wr;
  uint32_t device_cap_flags;
  uint32_t max_sge;
  uint32_t max_sge_rd;
  uint32_t max_cq;
  uint32_t max_cqe;
  uint32_t max_mr;
  uint32_t max_pd;
  uint32_t max_qp_rd_atom;
  uint32_t max_res_rd_atom;
  uint32_t max_qp_init_rd_atom;
  uint32_t atomic_cap;
  uint32_t max_mw;
  uint32_t max_mcast_grp;
  uint32_t max_mcast_qp_attach;
  uint32_t max_total_mcast_qp_attach;
  uint32_t max_ah;
  uint32_t max_srq;
  uint32_t max_srq_wr;
  uint32_t max_srq_sge;
  uint32_t max_pkeys;
  uint32_t local_ca_ack_delay;
  uint32_t phys_port_cnt;
  uint32_t tm_max_rndv_hdr_size;
  uint32_t tm_max_num_tags;
  uint32_t tm_flags;
  uint32_t tm_max_ops;
  uint32_t tm_max_sge;
};

struct roce_query_port_request {
  uint32_t port;
};

struct roce_query_port_reply {
  uint32_t state;
  uint32_t max_mtu;
  uint32_t active_mtu;
  uint32_t gid_tbl_len;
  uint32_t port_cap_flags;
  uint32_t max_msg_sz;
  uint32_t bad_pkey_cntr;
  uint32_t qkey_viol_cntr;
  uint32_t pkey_tbl_len;
  uint32_t max_vl_num;
  uint32_t active_width;
  uint32_t active_speed;
  uint32_t phys_state;
  uint32_t link_layer;
  uint32_t flags;
};

struct roce_query_gids_reply {
  uint32_t gids_count;
  uint8_t gids[256][16];
};

struct roce_alloc_pd_reply {
  uint32_t handle;
};

struct roce_reg_mr_request {
  uint32_t pd;
  uint32_t access;
  uint64_t address;
  uint64_t length;
  uint64_t iova;
  uint32_t kind;
};

struct roce_reg_mr_reply {
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
};

struct roce_rereg_mr_request {
  uint32_t handle;
  uint32_t flags;
  uint32_t pd;
  uint32_t access;
  uint64_t address;
  uint64_t length;
  uint32_t kind;
};

struct roce_rereg_mr_reply {
  uint32_t lkey;
  uint32_t rkey;
};

struct roce_create_channel_reply {
  uint32_t handle;
};

struct roce_create_cq_request {
  uint32_t cqe;
  uint32_t channel;
  uint32_t bits;
};

struct roce_create_cq_reply {
  uint32_t handle;
  uint32_t cqe;
  struct roce_ring_place ring;
};

struct roce_resize_cq_request {
  uint32_t handle;
  uint32_t cqe;
};

struct roce_resize_cq_reply {
  uint32_t cqe;
  struct roce_ring_place ring;
};

struct roce_create_srq_request {
  uint32_t pd;
  uint32_t max_wr;
  uint32_t max_sge;
  uint32_t srq_limit;
  uint32_t cq;
  uint32_t max_num_tags;
  uint32_t max_ops;
};

struct roce_create_srq_reply {
  uint32_t handle;
  uint32_t max_wr;
  uint32_t max_sge;
  uint32_t number;
  struct roce_queue_place queue;
};

struct roce_modify_srq_request {
  uint32_t handle;
  uint32_t mask;
  uint32_t max_wr;
  uint32_t srq_limit;
};

struct roce_modify_srq_reply {
  uint32_t moved;
  struct roce_queue_place queue;
};

struct roce_query_srq_request {
  uint32_t handle;
};

struct roce_query_srq_reply {
  uint32_t max_wr;
  uint32_t max_sge;
  uint32_t srq_limit;
};

struct roce_create_ah_request {
  uint32_t pd;
  struct roce_address attr;
};

struct roce_create_ah_reply {
  uint32_t handle;
  uint32_t number;
};

struct roce_create_qp_request {
  uint32_t pd;
  uint32_t qp_type;
  uint32_t send_cq;
  uint32_t recv_cq;
  uint32_t srq;
  uint32_t sq_sig_all;
  struct roce_cap cap;
};

struct roce_create_qp_reply {
  uint32_t handle;
  uint32_t qp_num;
  struct roce_cap cap;
  struct roce_queue_place sends;
  struct roce_queue_place receives;
};

struct roce_modify_qp_request {
  uint32_t handle;
  uint32_t mask;
  struct {
    uint32_t qp_state;
    uint32_t cur_qp_state;
    uint32_t path_mtu;
    uint32_t path_mig_state;
    uint32_t qkey;
    uint32_t rq_psn;
    uint32_t sq_psn;
    uint32_t dest_qp_num;
    uint32_t qp_access_flags;
    uint32_t pkey_index;
    uint32_t en_sqd_async_notify;
    uint32_t max_rd_atomic;
    uint32_t max_dest_rd_atomic;
    uint32_t min_rnr_timer;
    uint32_t port_num;
    uint32_t timeout;
    uint32_t retry_cnt;
    uint32_t rnr_retry;
    uint32_t rate_limit;
  } attr;
  struct roce_cap cap;
  struct roce_address ah_attr;
};

struct roce_modify_qp_reply {
  struct roce_cap cap;
  uint32_t moved;
  struct roce_queue_place sends;
  struct roce_queue_place receives;
};

struct roce_query_qp_request {
  uint32_t handle;
  uint32_t mask;
};

struct roce_query_qp_reply {
  struct {
    uint32_t qp_state;
    uint32_t cur_qp_state;
    uint32_t path_mtu;
    uint32_t path_mig_state;
    uint32_t qkey;
    uint32_t rq_psn;
    uint32_t sq_psn;
    uint32_t dest_qp_num;
    uint32_t qp_access_flags;
    uint32_t pkey_index;
    uint32_t sq_draining;
    uint32_t max_rd_atomic;
    uint32_t max_dest_rd_atomic;
    uint32_t min_rnr_timer;
    uint32_t port_num;
    uint32_t timeout;
    uint32_t retry_cnt;
    uint32_t rnr_retry;
    uint32_t rate_limit;
  } attr;
  struct roce_cap cap;
  struct roce_address ah_attr;
  uint32_t sq_sig_all;
};

struct roce_attach_mcast_request {
  uint32_t handle;
  uint8_t gid[16];
};

struct roce_detach_mcast_request {
  uint32_t handle;
  uint8_t gid[16];
};

struct roce_alloc_mw_request {
  uint32_t pd;
  uint32_t type;
};

struct roce_alloc_mw_reply {
  uint32_t handle;
  uint32_t rkey;
  uint32_t number;
};

struct roce_destroy_request {
  uint32_t handle;
};

struct roce_post_srq_op_request {
  uint32_t handle;
  uint64_t wr_id;
  uint32_t opcode;
  uint32_t flags;
  uint32_t unexpected_cnt;
  uint32_t tag_handle;
  uint64_t recv_wr_id;
  uint64_t tag;
  uint64_t mask;
  uint32_t sges_count;
  struct roce_sge sges[32];
};

struct roce_post_srq_op_reply {
  uint32_t tag_handle;
};

struct roce_ucma_open_request {
  uint64_t network;
  uint32_t version;
};

struct roce_ucma_open_reply {
  uint8_t token[16];
};

struct roce_ucma_command_request {
  uint8_t token[16];
  uint32_t command;
  uint32_t out;
  uint32_t in;
  uint32_t bytes_count;
  uint8_t bytes[768];
};

struct roce_ucma_command_reply {
  uint32_t own;
  uint32_t other;
  uint32_t response_count;
  uint8_t response[4096];
};

#pragma pack(pop)

struct roce_context;
// Sends a request and waits for its reply, whose missing bytes are zeros. 0, or errno, which is set.
int roce_ask(struct roce_context *r, enum roce_call call, const void *request, size_t request_bytes, void *reply, size_t reply_bytes);

static inline int roce_ask_hello(struct roce_context *r, const struct roce_hello_request *request, struct roce_hello_reply *reply) {
  return roce_ask(r, ROCE_HELLO, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_listen(struct roce_context *r, const struct roce_listen_request *request) {
  return roce_ask(r, ROCE_LISTEN, request, sizeof *request, NULL, 0);
}

static inline int roce_ask_query_device(struct roce_context *r, struct roce_query_device_reply *reply) {
  return roce_ask(r, ROCE_QUERY_DEVICE, NULL, 0, reply, sizeof *reply);
}

static inline int roce_ask_query_port(struct roce_context *r, const struct roce_query_port_request *request, struct roce_query_port_reply *reply) {
  return roce_ask(r, ROCE_QUERY_PORT, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_query_gids(struct roce_context *r, struct roce_query_gids_reply *reply) {
  return roce_ask(r, ROCE_QUERY_GIDS, NULL, 0, reply, sizeof *reply);
}

static inline int roce_ask_alloc_pd(struct roce_context *r, struct roce_alloc_pd_reply *reply) {
  return roce_ask(r, ROCE_ALLOC_PD, NULL, 0, reply, sizeof *reply);
}

static inline int roce_ask_reg_mr(struct roce_context *r, const struct roce_reg_mr_request *request, struct roce_reg_mr_reply *reply) {
  return roce_ask(r, ROCE_REG_MR, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_rereg_mr(struct roce_context *r, const struct roce_rereg_mr_request *request, struct roce_rereg_mr_reply *reply) {
  return roce_ask(r, ROCE_REREG_MR, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_create_channel(struct roce_context *r, struct roce_create_channel_reply *reply) {
  return roce_ask(r, ROCE_CREATE_CHANNEL, NULL, 0, reply, sizeof *reply);
}

static inline int roce_ask_create_cq(struct roce_context *r, const struct roce_create_cq_request *request, struct roce_create_cq_reply *reply) {
  return roce_ask(r, ROCE_CREATE_CQ, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_resize_cq(struct roce_context *r, const struct roce_resize_cq_request *request, struct roce_resize_cq_reply *reply) {
  return roce_ask(r, ROCE_RESIZE_CQ, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_create_srq(struct roce_context *r, const struct roce_create_srq_request *request, struct roce_create_srq_reply *reply) {
  return roce_ask(r, ROCE_CREATE_SRQ, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_modify_srq(struct roce_context *r, const struct roce_modify_srq_request *request, struct roce_modify_srq_reply *reply) {
  return roce_ask(r, ROCE_MODIFY_SRQ, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_query_srq(struct roce_context *r, const struct roce_query_srq_request *request, struct roce_query_srq_reply *reply) {
  return roce_ask(r, ROCE_QUERY_SRQ, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_create_ah(struct roce_context *r, const struct roce_create_ah_request *request, struct roce_create_ah_reply *reply) {
  return roce_ask(r, ROCE_CREATE_AH, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_create_qp(struct roce_context *r, const struct roce_create_qp_request *request, struct roce_create_qp_reply *reply) {
  return roce_ask(r, ROCE_CREATE_QP, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_modify_qp(struct roce_context *r, const struct roce_modify_qp_request *request, struct roce_modify_qp_reply *reply) {
  return roce_ask(r, ROCE_MODIFY_QP, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_query_qp(struct roce_context *r, const struct roce_query_qp_request *request, struct roce_query_qp_reply *reply) {
  return roce_ask(r, ROCE_QUERY_QP, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_attach_mcast(struct roce_context *r, const struct roce_attach_mcast_request *request) {
  return roce_ask(r, ROCE_ATTACH_MCAST, request, sizeof *request, NULL, 0);
}

static inline int roce_ask_detach_mcast(struct roce_context *r, const struct roce_detach_mcast_request *request) {
  return roce_ask(r, ROCE_DETACH_MCAST, request, sizeof *request, NULL, 0);
}

static inline int roce_ask_alloc_mw(struct roce_context *r, const struct roce_alloc_mw_request *request, struct roce_alloc_mw_reply *reply) {
  return roce_ask(r, ROCE_ALLOC_MW, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_destroy(struct roce_context *r, const struct roce_destroy_request *request) {
  return roce_ask(r, ROCE_DESTROY, request, sizeof *request, NULL, 0);
}

static inline int roce_ask_post_srq_op(struct roce_context *r, const struct roce_post_srq_op_request *request, struct roce_post_srq_op_reply *reply) {
  return roce_ask(r, ROCE_POST_SRQ_OP, request, offsetof(struct roce_post_srq_op_request, sges) + request->sges_count * sizeof *request->sges, reply, sizeof *reply);
}

static inline int roce_ask_status(struct roce_context *r) {
  return roce_ask(r, ROCE_STATUS, NULL, 0, NULL, 0);
}

static inline int roce_ask_ucma_open(struct roce_context *r, const struct roce_ucma_open_request *request, struct roce_ucma_open_reply *reply) {
  return roce_ask(r, ROCE_UCMA_OPEN, request, sizeof *request, reply, sizeof *reply);
}

static inline int roce_ask_ucma_command(struct roce_context *r, const struct roce_ucma_command_request *request, struct roce_ucma_command_reply *reply) {
  return roce_ask(r, ROCE_UCMA_COMMAND, request, offsetof(struct roce_ucma_command_request, bytes) + request->bytes_count * sizeof *request->bytes, reply, sizeof *reply);
}

static inline int roce_ask_close(struct roce_context *r) {
  return roce_ask(r, ROCE_CLOSE, NULL, 0, NULL, 0);
}
