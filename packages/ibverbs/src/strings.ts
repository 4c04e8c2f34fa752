/** Names of values: completions, events, ports, nodes. The words are the specification's. */
import * as c from './constants.ts';

/** IBTA vol 1 §11.6.2. */
const STATUSES: Record<number, string> = {
  [c.IBV_WC_SUCCESS]: 'success',
  [c.IBV_WC_LOC_LEN_ERR]: 'local length error',
  [c.IBV_WC_LOC_QP_OP_ERR]: 'local QP operation error',
  [c.IBV_WC_LOC_EEC_OP_ERR]: 'local EE context operation error',
  [c.IBV_WC_LOC_PROT_ERR]: 'local protection error',
  [c.IBV_WC_WR_FLUSH_ERR]: 'work request flushed error',
  [c.IBV_WC_MW_BIND_ERR]: 'memory window bind error',
  [c.IBV_WC_BAD_RESP_ERR]: 'bad response error',
  [c.IBV_WC_LOC_ACCESS_ERR]: 'local access error',
  [c.IBV_WC_REM_INV_REQ_ERR]: 'remote invalid request error',
  [c.IBV_WC_REM_ACCESS_ERR]: 'remote access error',
  [c.IBV_WC_REM_OP_ERR]: 'remote operation error',
  [c.IBV_WC_RETRY_EXC_ERR]: 'transport retry counter exceeded',
  [c.IBV_WC_RNR_RETRY_EXC_ERR]: 'RNR retry counter exceeded',
  [c.IBV_WC_LOC_RDD_VIOL_ERR]: 'local RDD violation error',
  [c.IBV_WC_REM_INV_RD_REQ_ERR]: 'remote invalid RD request',
  [c.IBV_WC_REM_ABORT_ERR]: 'remote aborted error',
  [c.IBV_WC_INV_EECN_ERR]: 'invalid EE context number',
  [c.IBV_WC_INV_EEC_STATE_ERR]: 'invalid EE context state',
  [c.IBV_WC_FATAL_ERR]: 'fatal error',
  [c.IBV_WC_RESP_TIMEOUT_ERR]: 'response timeout error',
  [c.IBV_WC_GENERAL_ERR]: 'general error',
  [c.IBV_WC_TM_ERR]: 'tag matching error',
  [c.IBV_WC_TM_RNDV_INCOMPLETE]: 'rendezvous incomplete',
};

/** IBTA vol 1 §11.6.3. */
const EVENTS: Record<number, string> = {
  [c.IBV_EVENT_CQ_ERR]: 'CQ error',
  [c.IBV_EVENT_QP_FATAL]: 'local work queue catastrophic error',
  [c.IBV_EVENT_QP_REQ_ERR]: 'invalid request local work queue error',
  [c.IBV_EVENT_QP_ACCESS_ERR]: 'local access violation work queue error',
  [c.IBV_EVENT_COMM_EST]: 'communication established',
  [c.IBV_EVENT_SQ_DRAINED]: 'send queue drained',
  [c.IBV_EVENT_PATH_MIG]: 'path migrated',
  [c.IBV_EVENT_PATH_MIG_ERR]: 'path migration request error',
  [c.IBV_EVENT_DEVICE_FATAL]: 'local catastrophic error',
  [c.IBV_EVENT_PORT_ACTIVE]: 'port active',
  [c.IBV_EVENT_PORT_ERR]: 'port error',
  [c.IBV_EVENT_LID_CHANGE]: 'LID changed',
  [c.IBV_EVENT_PKEY_CHANGE]: 'P_Key changed',
  [c.IBV_EVENT_SM_CHANGE]: 'SM changed',
  [c.IBV_EVENT_SRQ_ERR]: 'SRQ catastrophic error',
  [c.IBV_EVENT_SRQ_LIMIT_REACHED]: 'SRQ limit reached',
  [c.IBV_EVENT_QP_LAST_WQE_REACHED]: 'last WQE reached',
  [c.IBV_EVENT_CLIENT_REREGISTER]: 'client reregistration',
  [c.IBV_EVENT_GID_CHANGE]: 'GID changed',
};

const PORT_STATES: Record<number, string> = {
  [c.IBV_PORT_NOP]: 'PORT_NOP',
  [c.IBV_PORT_DOWN]: 'PORT_DOWN',
  [c.IBV_PORT_INIT]: 'PORT_INIT',
  [c.IBV_PORT_ARMED]: 'PORT_ARMED',
  [c.IBV_PORT_ACTIVE]: 'PORT_ACTIVE',
  [c.IBV_PORT_ACTIVE_DEFER]: 'PORT_ACTIVE_DEFER',
};

const NODES: Record<number, string> = {
  [c.IBV_NODE_CA]: 'channel adapter',
  [c.IBV_NODE_SWITCH]: 'switch',
  [c.IBV_NODE_ROUTER]: 'router',
  [c.IBV_NODE_RNIC]: 'iWARP NIC',
  [c.IBV_NODE_USNIC]: 'usNIC',
  [c.IBV_NODE_USNIC_UDP]: 'usNIC over UDP',
  [c.IBV_NODE_UNSPECIFIED]: 'unspecified',
};

const WR_OPCODES: Record<number, string> = {
  [c.IBV_WR_RDMA_WRITE]: 'IBV_WR_RDMA_WRITE',
  [c.IBV_WR_RDMA_WRITE_WITH_IMM]: 'IBV_WR_RDMA_WRITE_WITH_IMM',
  [c.IBV_WR_SEND]: 'IBV_WR_SEND',
  [c.IBV_WR_SEND_WITH_IMM]: 'IBV_WR_SEND_WITH_IMM',
  [c.IBV_WR_RDMA_READ]: 'IBV_WR_RDMA_READ',
  [c.IBV_WR_ATOMIC_CMP_AND_SWP]: 'IBV_WR_ATOMIC_CMP_AND_SWP',
  [c.IBV_WR_ATOMIC_FETCH_AND_ADD]: 'IBV_WR_ATOMIC_FETCH_AND_ADD',
  [c.IBV_WR_LOCAL_INV]: 'IBV_WR_LOCAL_INV',
  [c.IBV_WR_BIND_MW]: 'IBV_WR_BIND_MW',
  [c.IBV_WR_SEND_WITH_INV]: 'IBV_WR_SEND_WITH_INV',
  14: 'IBV_WR_FLUSH',
  15: 'IBV_WR_ATOMIC_WRITE',
};

/** ibv_wc_status_str(3): `local protection error`; `unknown` for a number that is no status. */
export const ibv_wc_status_str = (status: number): string => STATUSES[status] ?? 'unknown';

/** ibv_event_type_str(3): `send queue drained`; `unknown` for a number that is no event. */
export const ibv_event_type_str = (event_type: number): string => EVENTS[event_type] ?? 'unknown';

/** ibv_port_state_str(3): `PORT_ACTIVE`. */
export const ibv_port_state_str = (port_state: number): string => PORT_STATES[port_state] ?? 'unknown';

/** ibv_node_type_str(3): `channel adapter`. */
export const ibv_node_type_str = (node_type: number): string => NODES[node_type] ?? 'unknown';

/** ibv_wr_opcode_str(3): `IBV_WR_RDMA_READ`. */
export const ibv_wr_opcode_str = (opcode: number): string => WR_OPCODES[opcode] ?? 'unknown';
