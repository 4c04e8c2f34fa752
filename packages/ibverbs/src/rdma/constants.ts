/** Constants of `rdma/rdma_cma.h`. */

// enum rdma_cm_event_type
export const RDMA_CM_EVENT_ADDR_RESOLVED = 0;
export const RDMA_CM_EVENT_ADDR_ERROR = 1;
export const RDMA_CM_EVENT_ROUTE_RESOLVED = 2;
export const RDMA_CM_EVENT_ROUTE_ERROR = 3;
export const RDMA_CM_EVENT_CONNECT_REQUEST = 4;
export const RDMA_CM_EVENT_CONNECT_RESPONSE = 5;
export const RDMA_CM_EVENT_CONNECT_ERROR = 6;
export const RDMA_CM_EVENT_UNREACHABLE = 7;
export const RDMA_CM_EVENT_REJECTED = 8;
export const RDMA_CM_EVENT_ESTABLISHED = 9;
export const RDMA_CM_EVENT_DISCONNECTED = 10;
export const RDMA_CM_EVENT_DEVICE_REMOVAL = 11;
export const RDMA_CM_EVENT_MULTICAST_JOIN = 12;
export const RDMA_CM_EVENT_MULTICAST_ERROR = 13;
export const RDMA_CM_EVENT_ADDR_CHANGE = 14;
export const RDMA_CM_EVENT_TIMEWAIT_EXIT = 15;

// enum rdma_port_space
export const RDMA_PS_IPOIB = 0x0002;
export const RDMA_PS_TCP = 0x0106;
export const RDMA_PS_UDP = 0x0111;
export const RDMA_PS_IB = 0x013f;

// rdma_set_option(3)
export const RDMA_OPTION_ID = 0;
export const RDMA_OPTION_ID_TOS = 0;
export const RDMA_OPTION_ID_ACK_TIMEOUT = 3;

/** Q_Key of datagram services and groups. */
export const RDMA_UDP_QKEY = 0x0123_4567;

/** In `rdma_conn_param`: as many READs and atomics as the device has. */
export const RDMA_MAX_RESP_RES = 0xff;
export const RDMA_MAX_INIT_DEPTH = 0xff;
