/**
 * The constants of `<infiniband/verbs.h>`, with their values there: names and numbers are the interface that
 * programs are ported against (constants.test.ts compares them with the header).
 */

// `enum ibv_node_type`: what a device is
export const IBV_NODE_UNKNOWN = -1;
export const IBV_NODE_CA = 1;
export const IBV_NODE_SWITCH = 2;
export const IBV_NODE_ROUTER = 3;
export const IBV_NODE_RNIC = 4;
export const IBV_NODE_USNIC = 5;
export const IBV_NODE_USNIC_UDP = 6;
export const IBV_NODE_UNSPECIFIED = 7;

// `enum ibv_transport_type`: what a device speaks. RoCE is IBV_TRANSPORT_IB on a link layer of Ethernet
export const IBV_TRANSPORT_UNKNOWN = -1;
export const IBV_TRANSPORT_IB = 0;
export const IBV_TRANSPORT_IWARP = 1;
export const IBV_TRANSPORT_USNIC = 2;
export const IBV_TRANSPORT_USNIC_UDP = 3;
export const IBV_TRANSPORT_UNSPECIFIED = 4;

// `enum ibv_device_cap_flags`: `device_cap_flags` of `ibv_query_device`
export const IBV_DEVICE_RESIZE_MAX_WR = 1 << 0;
export const IBV_DEVICE_BAD_PKEY_CNTR = 1 << 1;
export const IBV_DEVICE_BAD_QKEY_CNTR = 1 << 2;
export const IBV_DEVICE_RAW_MULTI = 1 << 3;
export const IBV_DEVICE_AUTO_PATH_MIG = 1 << 4;
export const IBV_DEVICE_CHANGE_PHY_PORT = 1 << 5;
export const IBV_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6;
export const IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7;
export const IBV_DEVICE_SHUTDOWN_PORT = 1 << 8;
export const IBV_DEVICE_INIT_TYPE = 1 << 9;
export const IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10;
export const IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11;
export const IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12;
export const IBV_DEVICE_SRQ_RESIZE = 1 << 13;
export const IBV_DEVICE_N_NOTIFY_CQ = 1 << 14;
export const IBV_DEVICE_MEM_WINDOW = 1 << 17;
export const IBV_DEVICE_UD_IP_CSUM = 1 << 18;
export const IBV_DEVICE_XRC = 1 << 20;
export const IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21;
export const IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23;
export const IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24;
export const IBV_DEVICE_RC_IP_CSUM = 1 << 25;
export const IBV_DEVICE_RAW_IP_CSUM = 1 << 26;
export const IBV_DEVICE_MANAGED_FLOW_STEERING = 1 << 29;

// `enum ibv_atomic_cap`: `atomic_cap`: with whom atomics are atomic
export const IBV_ATOMIC_NONE = 0;
export const IBV_ATOMIC_HCA = 1;
export const IBV_ATOMIC_GLOB = 2;

// `enum ibv_mtu`: path MTUs; the codes, not the bytes
export const IBV_MTU_256 = 1;
export const IBV_MTU_512 = 2;
export const IBV_MTU_1024 = 3;
export const IBV_MTU_2048 = 4;
export const IBV_MTU_4096 = 5;

// `enum ibv_port_state`
export const IBV_PORT_NOP = 0;
export const IBV_PORT_DOWN = 1;
export const IBV_PORT_INIT = 2;
export const IBV_PORT_ARMED = 3;
export const IBV_PORT_ACTIVE = 4;
export const IBV_PORT_ACTIVE_DEFER = 5;

// Link layers: `link_layer` of a port
export const IBV_LINK_LAYER_UNSPECIFIED = 0;
export const IBV_LINK_LAYER_INFINIBAND = 1;
export const IBV_LINK_LAYER_ETHERNET = 2;

// `enum ibv_port_cap_flags`: `port_cap_flags`; the one that means something for RoCE
export const IBV_PORT_CM_SUP = 1 << 16;
export const IBV_PORT_IP_BASED_GIDS = 1 << 26;

// `enum ibv_gid_type`
export const IBV_GID_TYPE_IB = 0;
export const IBV_GID_TYPE_ROCE_V1 = 1;
export const IBV_GID_TYPE_ROCE_V2 = 2;

// `enum ibv_fork_status`
export const IBV_FORK_DISABLED = 0;
export const IBV_FORK_ENABLED = 1;
export const IBV_FORK_UNNEEDED = 2;

// `flags` of a port
export const IBV_QPF_GRH_REQUIRED = 1 << 0;

// `enum ibv_event_type`: asynchronous events
export const IBV_EVENT_CQ_ERR = 0;
export const IBV_EVENT_QP_FATAL = 1;
export const IBV_EVENT_QP_REQ_ERR = 2;
export const IBV_EVENT_QP_ACCESS_ERR = 3;
export const IBV_EVENT_COMM_EST = 4;
export const IBV_EVENT_SQ_DRAINED = 5;
export const IBV_EVENT_PATH_MIG = 6;
export const IBV_EVENT_PATH_MIG_ERR = 7;
export const IBV_EVENT_DEVICE_FATAL = 8;
export const IBV_EVENT_PORT_ACTIVE = 9;
export const IBV_EVENT_PORT_ERR = 10;
export const IBV_EVENT_LID_CHANGE = 11;
export const IBV_EVENT_PKEY_CHANGE = 12;
export const IBV_EVENT_SM_CHANGE = 13;
export const IBV_EVENT_SRQ_ERR = 14;
export const IBV_EVENT_SRQ_LIMIT_REACHED = 15;
export const IBV_EVENT_QP_LAST_WQE_REACHED = 16;
export const IBV_EVENT_CLIENT_REREGISTER = 17;
export const IBV_EVENT_GID_CHANGE = 18;

// `enum ibv_wc_status`: how a work request ended
export const IBV_WC_SUCCESS = 0;
export const IBV_WC_LOC_LEN_ERR = 1;
export const IBV_WC_LOC_QP_OP_ERR = 2;
export const IBV_WC_LOC_EEC_OP_ERR = 3;
export const IBV_WC_LOC_PROT_ERR = 4;
export const IBV_WC_WR_FLUSH_ERR = 5;
export const IBV_WC_MW_BIND_ERR = 6;
export const IBV_WC_BAD_RESP_ERR = 7;
export const IBV_WC_LOC_ACCESS_ERR = 8;
export const IBV_WC_REM_INV_REQ_ERR = 9;
export const IBV_WC_REM_ACCESS_ERR = 10;
export const IBV_WC_REM_OP_ERR = 11;
export const IBV_WC_RETRY_EXC_ERR = 12;
export const IBV_WC_RNR_RETRY_EXC_ERR = 13;
export const IBV_WC_LOC_RDD_VIOL_ERR = 14;
export const IBV_WC_REM_INV_RD_REQ_ERR = 15;
export const IBV_WC_REM_ABORT_ERR = 16;
export const IBV_WC_INV_EECN_ERR = 17;
export const IBV_WC_INV_EEC_STATE_ERR = 18;
export const IBV_WC_FATAL_ERR = 19;
export const IBV_WC_RESP_TIMEOUT_ERR = 20;
export const IBV_WC_GENERAL_ERR = 21;
export const IBV_WC_TM_ERR = 22;
export const IBV_WC_TM_RNDV_INCOMPLETE = 23;

// `enum ibv_wc_opcode`: what completed; receives have the bit IBV_WC_RECV
export const IBV_WC_SEND = 0;
export const IBV_WC_RDMA_WRITE = 1;
export const IBV_WC_RDMA_READ = 2;
export const IBV_WC_COMP_SWAP = 3;
export const IBV_WC_FETCH_ADD = 4;
export const IBV_WC_BIND_MW = 5;
export const IBV_WC_LOCAL_INV = 6;
export const IBV_WC_RECV = 128;
export const IBV_WC_RECV_RDMA_WITH_IMM = 129;
export const IBV_WC_TM_ADD = 130;
export const IBV_WC_TM_DEL = 131;
export const IBV_WC_TM_SYNC = 132;
export const IBV_WC_TM_RECV = 133;
export const IBV_WC_TM_NO_TAG = 134;

// `enum ibv_wc_flags`: `wc_flags` of a completion
export const IBV_WC_GRH = 1 << 0;
export const IBV_WC_WITH_IMM = 1 << 1;
export const IBV_WC_WITH_INV = 1 << 3;
export const IBV_WC_TM_SYNC_REQ = 1 << 4;
export const IBV_WC_TM_MATCH = 1 << 5;
export const IBV_WC_TM_DATA_VALID = 1 << 6;

// `enum ibv_create_cq_wc_flags`: members of a completion that an extended queue is to have
export const IBV_WC_EX_WITH_BYTE_LEN = 1 << 0;
export const IBV_WC_EX_WITH_IMM = 1 << 1;
export const IBV_WC_EX_WITH_QP_NUM = 1 << 2;
export const IBV_WC_EX_WITH_SRC_QP = 1 << 3;
export const IBV_WC_EX_WITH_SLID = 1 << 4;
export const IBV_WC_EX_WITH_SL = 1 << 5;
export const IBV_WC_EX_WITH_DLID_PATH_BITS = 1 << 6;
export const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7;
export const IBV_WC_EX_WITH_CVLAN = 1 << 8;
export const IBV_WC_EX_WITH_FLOW_TAG = 1 << 9;
export const IBV_WC_EX_WITH_TM_INFO = 1 << 10;
export const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11;
export const IBV_WC_STANDARD_FLAGS = 0x7f;

// `enum ibv_cq_init_attr_mask`, `enum ibv_create_cq_attr_flags`
export const IBV_CQ_INIT_ATTR_MASK_FLAGS = 1 << 0;
export const IBV_CQ_INIT_ATTR_MASK_PD = 1 << 1;
export const IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1 << 0;
export const IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 1 << 1;

// `enum ibv_access_flags`: rights of regions, windows and queue pairs
export const IBV_ACCESS_LOCAL_WRITE = 1 << 0;
export const IBV_ACCESS_REMOTE_WRITE = 1 << 1;
export const IBV_ACCESS_REMOTE_READ = 1 << 2;
export const IBV_ACCESS_REMOTE_ATOMIC = 1 << 3;
export const IBV_ACCESS_MW_BIND = 1 << 4;
export const IBV_ACCESS_ZERO_BASED = 1 << 5;
export const IBV_ACCESS_ON_DEMAND = 1 << 6;
export const IBV_ACCESS_HUGETLB = 1 << 7;
export const IBV_ACCESS_RELAXED_ORDERING = 1 << 20;

// `enum ibv_rereg_mr_flags`: what `ibv_rereg_mr` changes
export const IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0;
export const IBV_REREG_MR_CHANGE_PD = 1 << 1;
export const IBV_REREG_MR_CHANGE_ACCESS = 1 << 2;
export const IBV_REREG_MR_FLAGS_SUPPORTED = 7;

// `enum ibv_advise_mr_advice`, and flags of `ibv_advise_mr`
export const IBV_ADVISE_MR_ADVICE_PREFETCH = 0;
export const IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1;
export const IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2;
export const IBV_ADVISE_MR_FLAG_FLUSH = 1 << 0;

// `enum ibv_parent_domain_init_attr_mask`: members of `struct ibv_parent_domain_init_attr` that are there
export const IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0;
export const IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1;

// `enum ibv_rereg_mr_err_code`: what `ibv_rereg_mr` returns but 0. Here a call that fails leaves the region as it was: IBV_REREG_MR_ERR_INPUT
export const IBV_REREG_MR_ERR_INPUT = -1;
export const IBV_REREG_MR_ERR_DONT_FORK_NEW = -2;
export const IBV_REREG_MR_ERR_DO_FORK_OLD = -3;
export const IBV_REREG_MR_ERR_CMD = -4;
export const IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5;

// `enum ibv_mw_type`
export const IBV_MW_TYPE_1 = 1;
export const IBV_MW_TYPE_2 = 2;

// `enum ibv_srq_attr_mask`: what `ibv_modify_srq` changes
export const IBV_SRQ_MAX_WR = 1 << 0;
export const IBV_SRQ_LIMIT = 1 << 1;

// `enum ibv_srq_type`: kinds of shared receive queues
export const IBV_SRQT_BASIC = 0;
export const IBV_SRQT_XRC = 1;
export const IBV_SRQT_TM = 2;

// `enum ibv_srq_init_attr_mask`: members of `ibv_srq_init_attr_ex` that are there
export const IBV_SRQ_INIT_ATTR_TYPE = 1 << 0;
export const IBV_SRQ_INIT_ATTR_PD = 1 << 1;
export const IBV_SRQ_INIT_ATTR_XRCD = 1 << 2;
export const IBV_SRQ_INIT_ATTR_CQ = 1 << 3;
export const IBV_SRQ_INIT_ATTR_TM = 1 << 4;

// `enum ibv_tm_cap_flags`
export const IBV_TM_CAP_RC = 1 << 0;

// `enum ibv_ops_wr_opcode`, `enum ibv_ops_flags`: operations on the list of a tag matching SRQ
export const IBV_WR_TAG_ADD = 0;
export const IBV_WR_TAG_DEL = 1;
export const IBV_WR_TAG_SYNC = 2;
export const IBV_OPS_SIGNALED = 1 << 0;
export const IBV_OPS_TM_SYNC = 1 << 1;

// `enum ibv_xrcd_init_attr_mask`: members of `ibv_xrcd_init_attr` that are there
export const IBV_XRCD_INIT_ATTR_FD = 1 << 0;
export const IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1;

// `enum ibv_qp_open_attr_mask`: members of `ibv_qp_open_attr` that are there
export const IBV_QP_OPEN_ATTR_NUM = 1 << 0;
export const IBV_QP_OPEN_ATTR_XRCD = 1 << 1;
export const IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2;
export const IBV_QP_OPEN_ATTR_TYPE = 1 << 3;

// `enum ibv_qp_type`: transport service types
export const IBV_QPT_RC = 2;
export const IBV_QPT_UC = 3;
export const IBV_QPT_UD = 4;
export const IBV_QPT_RAW_PACKET = 8;
export const IBV_QPT_XRC_SEND = 9;
export const IBV_QPT_XRC_RECV = 10;
export const IBV_QPT_DRIVER = 255;

// `enum ibv_qp_attr_mask`: which members of `ibv_qp_attr` a call is about
export const IBV_QP_STATE = 1 << 0;
export const IBV_QP_CUR_STATE = 1 << 1;
export const IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2;
export const IBV_QP_ACCESS_FLAGS = 1 << 3;
export const IBV_QP_PKEY_INDEX = 1 << 4;
export const IBV_QP_PORT = 1 << 5;
export const IBV_QP_QKEY = 1 << 6;
export const IBV_QP_AV = 1 << 7;
export const IBV_QP_PATH_MTU = 1 << 8;
export const IBV_QP_TIMEOUT = 1 << 9;
export const IBV_QP_RETRY_CNT = 1 << 10;
export const IBV_QP_RNR_RETRY = 1 << 11;
export const IBV_QP_RQ_PSN = 1 << 12;
export const IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
export const IBV_QP_ALT_PATH = 1 << 14;
export const IBV_QP_MIN_RNR_TIMER = 1 << 15;
export const IBV_QP_SQ_PSN = 1 << 16;
export const IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
export const IBV_QP_PATH_MIG_STATE = 1 << 18;
export const IBV_QP_CAP = 1 << 19;
export const IBV_QP_DEST_QPN = 1 << 20;
export const IBV_QP_RATE_LIMIT = 1 << 25;

// `enum ibv_qp_state`
export const IBV_QPS_RESET = 0;
export const IBV_QPS_INIT = 1;
export const IBV_QPS_RTR = 2;
export const IBV_QPS_RTS = 3;
export const IBV_QPS_SQD = 4;
export const IBV_QPS_SQE = 5;
export const IBV_QPS_ERR = 6;

// `enum ibv_mig_state`: states of path migration
export const IBV_MIG_MIGRATED = 0;
export const IBV_MIG_REARM = 1;
export const IBV_MIG_ARMED = 2;

// `enum ibv_wr_opcode`: operations of the send queue
export const IBV_WR_RDMA_WRITE = 0;
export const IBV_WR_RDMA_WRITE_WITH_IMM = 1;
export const IBV_WR_SEND = 2;
export const IBV_WR_SEND_WITH_IMM = 3;
export const IBV_WR_RDMA_READ = 4;
export const IBV_WR_ATOMIC_CMP_AND_SWP = 5;
export const IBV_WR_ATOMIC_FETCH_AND_ADD = 6;
export const IBV_WR_LOCAL_INV = 7;
export const IBV_WR_BIND_MW = 8;
export const IBV_WR_SEND_WITH_INV = 9;

// `enum ibv_qp_init_attr_mask`: members of `ibv_qp_init_attr_ex` that are there
export const IBV_QP_INIT_ATTR_PD = 1 << 0;
export const IBV_QP_INIT_ATTR_XRCD = 1 << 1;
export const IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2;
export const IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3;
export const IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4;
export const IBV_QP_INIT_ATTR_RX_HASH = 1 << 5;
export const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6;

// `enum ibv_qp_create_send_ops_flags`: operations that `ibv_wr_…` posts to a queue pair
export const IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0;
export const IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1;
export const IBV_QP_EX_WITH_SEND = 1 << 2;
export const IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3;
export const IBV_QP_EX_WITH_RDMA_READ = 1 << 4;
export const IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5;
export const IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6;
export const IBV_QP_EX_WITH_LOCAL_INV = 1 << 7;
export const IBV_QP_EX_WITH_BIND_MW = 1 << 8;
export const IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9;
export const IBV_QP_EX_WITH_TSO = 1 << 10;

// `enum ibv_send_flags`
export const IBV_SEND_FENCE = 1 << 0;
export const IBV_SEND_SIGNALED = 1 << 1;
export const IBV_SEND_SOLICITED = 1 << 2;
export const IBV_SEND_INLINE = 1 << 3;
export const IBV_SEND_IP_CSUM = 1 << 4;

// `enum ibv_rate`: `static_rate` of an address vector; kept, and not acted on
export const IBV_RATE_MAX = 0;
export const IBV_RATE_2_5_GBPS = 2;
export const IBV_RATE_5_GBPS = 5;
export const IBV_RATE_10_GBPS = 3;
export const IBV_RATE_20_GBPS = 6;
export const IBV_RATE_30_GBPS = 4;
export const IBV_RATE_40_GBPS = 7;
export const IBV_RATE_60_GBPS = 8;
export const IBV_RATE_80_GBPS = 9;
export const IBV_RATE_120_GBPS = 10;
export const IBV_RATE_14_GBPS = 11;
export const IBV_RATE_56_GBPS = 12;
export const IBV_RATE_112_GBPS = 13;
export const IBV_RATE_168_GBPS = 14;
export const IBV_RATE_25_GBPS = 15;
export const IBV_RATE_100_GBPS = 16;
export const IBV_RATE_200_GBPS = 17;
export const IBV_RATE_300_GBPS = 18;
export const IBV_RATE_28_GBPS = 19;
export const IBV_RATE_50_GBPS = 20;
export const IBV_RATE_400_GBPS = 21;
export const IBV_RATE_600_GBPS = 22;
export const IBV_RATE_800_GBPS = 23;
export const IBV_RATE_1200_GBPS = 24;

// `enum ibv_flow_attr_type`, flags, and `enum ibv_flow_spec_type`: flows of raw packets
export const IBV_FLOW_ATTR_NORMAL = 0;
export const IBV_FLOW_ATTR_ALL_DEFAULT = 1;
export const IBV_FLOW_ATTR_MC_DEFAULT = 2;
export const IBV_FLOW_ATTR_SNIFFER = 3;
export const IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1;
export const IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2;
export const IBV_FLOW_SPEC_ETH = 0x20;
export const IBV_FLOW_SPEC_IPV4 = 0x30;
export const IBV_FLOW_SPEC_IPV6 = 0x31;
export const IBV_FLOW_SPEC_IPV4_EXT = 0x32;
export const IBV_FLOW_SPEC_ESP = 0x34;
export const IBV_FLOW_SPEC_TCP = 0x40;
export const IBV_FLOW_SPEC_UDP = 0x41;
export const IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50;
export const IBV_FLOW_SPEC_GRE = 0x51;
export const IBV_FLOW_SPEC_MPLS = 0x60;
export const IBV_FLOW_SPEC_INNER = 0x100;
export const IBV_FLOW_SPEC_ACTION_TAG = 0x1000;
export const IBV_FLOW_SPEC_ACTION_DROP = 0x1001;
export const IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002;
export const IBV_FLOW_SPEC_ACTION_COUNT = 0x1003;

// `enum ibv_counter_description`, and flags of `ibv_read_counters`
export const IBV_COUNTER_PACKETS = 0;
export const IBV_COUNTER_BYTES = 1;
export const IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0;
