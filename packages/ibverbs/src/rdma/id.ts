/** Ids: created, given addresses, options and queue pairs, destroyed. */
import type { IdOptions } from '@node-roce/rdmacm';
import { invalid, RoceError } from '@node-roce/transport';
import { minusOne } from '../errno.ts';
import { given, ibv_cq, ibv_pd, ibv_qp } from '../objects.ts';
import { fromCap, toCap } from '../qp-attr.ts';
import type { ibv_qp_init_attr } from '../structs.ts';
import { RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_TOS } from './constants.ts';
import { checkedId, rdma_cm_id, type rdma_event_channel } from './ids.ts';
import type { rdma_sockaddr } from './structs.ts';

/**
 * rdma_create_id(3): element 0 of `id` is set. With channel null, calls resolve when they are done, and there are no events.
 *
 * @param options beyond C: `device` or `deviceOptions`, `timing`
 */
export function rdma_create_id(
  channel: rdma_event_channel | null,
  id: rdma_cm_id[],
  context: unknown,
  ps: number,
  options: IdOptions = {},
): Promise<0 | -1> {
  return minusOne(() => {
    given('id', id)[0] = new rdma_cm_id(channel, context, ps, options);
  });
}

/**
 * rdma_destroy_id(3), with its queue pair, and the domain that `rdma_create_qp` made unless memory is registered in it. Events that
 * were not acknowledged do not hold it up.
 */
export function rdma_destroy_id(id: rdma_cm_id): Promise<0 | -1> {
  return minusOne(async () => {
    if (checkedId(id).isNew) return;
    await id.rdmacm.destroy();
    id.qp?.pd.gone(id.qp);
    await destroyMade(id);
    await id.made.pd?.verbs.dealloc().catch(() => {}); // The program's regions are there still.
  });
}

/** The completion queues that `rdma_create_qp` made: after the queue pair. */
async function destroyMade({ made }: rdma_cm_id): Promise<void> {
  for (const cq of made.cqs.splice(0)) await cq.verbs.destroy().catch(() => {}); // The device may be closed.
}

/**
 * rdma_bind_addr(3): wildcards (0.0.0.0, ::) are permitted. Port 0 draws one, which `rdma_get_src_port` returns; EADDRINUSE for one that
 * another id has.
 */
export function rdma_bind_addr(id: rdma_cm_id, addr: rdma_sockaddr): Promise<0 | -1> {
  return minusOne(async () => {
    const { address, port } = given('addr', addr);
    await checkedId(id).rdmacm.bindAddr(address, port);
    id.port = rdma_get_src_port(id);
  });
}

/**
 * rdma_resolve_addr(3): ADDR_RESOLVED follows. The call itself returns the errors that C reports by ADDR_ERROR. It sends no
 * packet, so there is no timeout to choose.
 */
export function rdma_resolve_addr(
  id: rdma_cm_id,
  src_addr: rdma_sockaddr | null,
  dst_addr: rdma_sockaddr,
  _timeout_ms = 0,
): Promise<0 | -1> {
  return minusOne(() =>
    checkedId(id).rdmacm.resolveAddr({
      host: given('dst_addr', dst_addr).address,
      port: dst_addr.port ?? 0,
      ...(src_addr ? { source: src_addr.address, sourcePort: src_addr.port ?? 0 } : {}),
    }),
  );
}

/** rdma_resolve_route(3): ROUTE_RESOLVED follows. */
export function rdma_resolve_route(id: rdma_cm_id, _timeout_ms = 0): Promise<0 | -1> {
  return minusOne(() => checkedId(id).rdmacm.resolveRoute());
}

/** rdma_set_option(3): RDMA_OPTION_ID_TOS and RDMA_OPTION_ID_ACK_TIMEOUT, before the id has an address. */
export function rdma_set_option(
  id: rdma_cm_id,
  level: number,
  optname: number,
  optval: number,
): Promise<0 | -1> {
  return minusOne(() => {
    if (!checkedId(id).isNew)
      throw invalid('id', 'has an address', 'options before rdma_bind_addr and rdma_resolve_addr');
    if (level === RDMA_OPTION_ID && optname === RDMA_OPTION_ID_TOS) id.options.trafficClass = optval;
    else if (level === RDMA_OPTION_ID && optname === RDMA_OPTION_ID_ACK_TIMEOUT)
      id.options.ackTimeout = optval;
    else
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `optname: ${optname} of level ${level} is not offered`, {
        errno: 'EOPNOTSUPP',
        attribute: 'optname',
        expected: 'RDMA_OPTION_ID_TOS, RDMA_OPTION_ID_ACK_TIMEOUT',
      });
  });
}

/**
 * rdma_create_qp(3): sets `id.qp`, in INIT (of a datagram service, in RTS). Without `pd`, and without completion queues in
 * `qp_init_attr`, it makes them: `id.pd`, `id.send_cq`, `id.recv_cq`.
 */
export function rdma_create_qp(
  id: rdma_cm_id,
  pd: ibv_pd | null,
  qp_init_attr: Partial<ibv_qp_init_attr>,
): Promise<0 | -1> {
  return minusOne(async () => {
    const context = checkedId(id).verbs;
    if (!context) throw invalid('id', 'has no device', 'rdma_resolve_addr or rdma_bind_addr first');
    if (id.qp) throw invalid('id', 'has a queue pair', 'rdma_destroy_qp first');
    const { cap = {}, srq = null, sq_sig_all, qp_context } = given('qp_init_attr', qp_init_attr);
    const entries = (cap.max_send_wr ?? 1) + (cap.max_recv_wr ?? 1);
    const makeCq = async () => {
      const cq = new ibv_cq(context, null, await context.verbs.createCq(entries));
      id.made.cqs.push(cq);
      return cq;
    };
    if (!pd) id.made.pd ??= new ibv_pd(context, await context.verbs.allocPd());
    id.pd = pd ?? id.made.pd!;
    id.send_cq = qp_init_attr.send_cq ?? (await makeCq());
    id.recv_cq = qp_init_attr.recv_cq ?? (await makeCq());
    const qp = await id.rdmacm.createQp(id.pd.verbs, {
      sendCq: id.send_cq.verbs,
      recvCq: id.recv_cq.verbs,
      ...(srq ? { srq: srq.verbs } : {}),
      cap: toCap(cap),
      sqSigAll: Boolean(sq_sig_all),
      context: qp_context,
    });
    qp_init_attr.cap = fromCap(qp.cap);
    id.qp = new ibv_qp(id.pd, id.send_cq, id.recv_cq, srq, qp);
  });
}

/** rdma_destroy_qp(3), with the completion queues that `rdma_create_qp` made. */
export function rdma_destroy_qp(id: rdma_cm_id): Promise<0 | -1> {
  return minusOne(async () => {
    const { qp } = checkedId(id);
    if (qp) {
      await qp.verbs.close();
      qp.pd.gone(qp);
      id.rdmacm.qp = undefined;
    }
    id.qp = null;
    await destroyMade(id);
  });
}

/** rdma_get_local_addr(3). */
export function rdma_get_local_addr(id: rdma_cm_id): rdma_sockaddr | null {
  return (checkedId(id).isNew ? undefined : id.rdmacm.localAddress) ?? null;
}

/** rdma_get_peer_addr(3). */
export function rdma_get_peer_addr(id: rdma_cm_id): rdma_sockaddr | null {
  return (checkedId(id).isNew ? undefined : id.rdmacm.remoteAddress) ?? null;
}

/** rdma_get_src_port(3): 0 without one. A number, in no byte order. */
export function rdma_get_src_port(id: rdma_cm_id): number {
  return rdma_get_local_addr(id)?.port ?? 0;
}

/** rdma_get_dst_port(3). */
export function rdma_get_dst_port(id: rdma_cm_id): number {
  return rdma_get_peer_addr(id)?.port ?? 0;
}
