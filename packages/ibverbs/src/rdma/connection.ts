/** Connections: made, accepted, refused, ended; and groups. */
import type { CmIdState, ConnectionParameters } from '@node-roce/rdmacm';
import { invalid } from '@node-roce/transport';
import { minusOne } from '../errno.ts';
import { given } from '../objects.ts';
import { RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES } from './constants.ts';
import { checkedId, rdma_cm_id } from './ids.ts';
import type { rdma_conn_param, rdma_sockaddr } from './structs.ts';

/** READs and atomics both ways; undefined: what the peer asks for, as far as the device has it. */
type Depths = Pick<ConnectionParameters, 'responderResources' | 'initiatorDepth'>;

/** As in C, absent members are 0. @param most in place of RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH */
function parametersOf(param: rdma_conn_param, most: Depths): ConnectionParameters {
  const { responder_resources = 0, initiator_depth = 0, private_data } = param;
  return {
    responderResources:
      responder_resources === RDMA_MAX_RESP_RES ? most.responderResources : responder_resources,
    initiatorDepth: initiator_depth === RDMA_MAX_INIT_DEPTH ? most.initiatorDepth : initiator_depth,
    retryCount: param.retry_count ?? 0,
    rnrRetryCount: param.rnr_retry_count ?? 0,
    flowControl: Boolean(param.flow_control),
    ...(private_data ? { privateData: private_data } : {}),
  };
}

/** As many as the device has. */
function depthsOf({ rdmacm }: rdma_cm_id): Depths {
  const { maxQpRdAtom, maxQpInitRdAtom } = rdmacm.device.facts.limits;
  return { responderResources: maxQpRdAtom, initiatorDepth: maxQpInitRdAtom };
}

/**
 * With a channel, a call ends once its message is on its way, and fails where that fails; its outcome is an event. Without
 * one, the call waits for the outcome.
 */
function begun(id: rdma_cm_id, call: () => Promise<void>, under: CmIdState): Promise<0 | -1> {
  return minusOne(async () => {
    const { channel } = checkedId(id);
    const done = call();
    if (!channel || id.rdmacm.state !== under) return done;
    done.catch(() => {}); // The event reports it.
    if (under === 'CONNECTING') await id.rdmacm.begun;
  });
}

/**
 * rdma_connect(3): ESTABLISHED follows, or REJECTED, UNREACHABLE, CONNECT_ERROR. Without `conn_param`: the device's depths, and 7
 * retries of both kinds. EINVAL for depths beyond the device's; RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH stand for the device's.
 */
export function rdma_connect(id: rdma_cm_id, conn_param: rdma_conn_param | null = null): Promise<0 | -1> {
  const call = async () => {
    if (conn_param) return id.rdmacm.connect(parametersOf(conn_param, depthsOf(id)));
    return id.rdmacm.connect({ ...depthsOf(id), retryCount: 7, rnrRetryCount: 7 });
  };
  return begun(id, call, 'CONNECTING');
}

/** rdma_listen(3): at the address of `rdma_bind_addr`; without one, at a port that is drawn of all addresses. CONNECT_REQUEST follows. A backlog of 0 is 128. */
export function rdma_listen(id: rdma_cm_id, backlog: number): Promise<0 | -1> {
  return minusOne(async () => {
    await checkedId(id).rdmacm.listen({ port: id.port, ...(backlog > 0 ? { backlog } : {}) });
    id.port = id.rdmacm.localAddress!.port;
  });
}

/** rdma_get_request(3), of a listener without a channel: element 0 of `id` is set. */
export function rdma_get_request(listen: rdma_cm_id, id: rdma_cm_id[]): Promise<0 | -1> {
  return minusOne(async () => {
    if (checkedId(listen, 'listen').channel)
      throw invalid('listen', 'has an event channel', 'rdma_get_cm_event');
    id[0] = rdma_cm_id.ofRequest(await listen.rdmacm.getRequest(), listen);
  });
}

/**
 * rdma_accept(3): ESTABLISHED follows. Without `conn_param`, and for RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH: what the peer asks for,
 * as far as the device has it. EINVAL for depths beyond the device's.
 */
export function rdma_accept(id: rdma_cm_id, conn_param: rdma_conn_param | null = null): Promise<0 | -1> {
  return begun(id, () => id.rdmacm.accept(conn_param ? parametersOf(conn_param, {}) : {}), 'CONNECTING');
}

/** rdma_reject(3). */
export function rdma_reject(id: rdma_cm_id, private_data: Uint8Array | null = null): Promise<0 | -1> {
  return minusOne(() => checkedId(id).rdmacm.reject(private_data ?? undefined));
}

/** rdma_disconnect(3): DISCONNECTED follows. Where the peer was first, its message is answered already. */
export function rdma_disconnect(id: rdma_cm_id): Promise<0 | -1> {
  const call = async () => {
    const { state } = id.rdmacm;
    if (state !== 'DISCONNECTING' && state !== 'DISCONNECTED') await id.rdmacm.disconnect();
  };
  return begun(id, call, 'DISCONNECTING');
}

/** rdma_join_multicast(3): MULTICAST_JOIN follows, with where to send. */
export function rdma_join_multicast(id: rdma_cm_id, addr: rdma_sockaddr): Promise<0 | -1> {
  return minusOne(async () => {
    checkedId(id).group = given('addr', addr).address;
    const { ah } = await id.rdmacm.joinMulticast(addr.address);
    // The program makes a handle of its own from the event, as in C.
    await ah.destroy();
  });
}

/** rdma_leave_multicast(3). */
export function rdma_leave_multicast(id: rdma_cm_id, addr: rdma_sockaddr): Promise<0 | -1> {
  return minusOne(() => checkedId(id).rdmacm.leaveMulticast(given('addr', addr).address));
}
