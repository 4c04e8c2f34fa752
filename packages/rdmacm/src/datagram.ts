/** Datagram services and groups: service ID resolution on both sides, and the way to those who receive. */
import type { AddressHandle, ProtectionDomain } from '@node-roce/verbs-api';
import { type CmFields, CmSidrStatus, ipCmServiceId, multicastGid, PortSpace } from '@node-roce/wire';
import { withHeader } from './addresses.ts';
import { unresolvedError } from './errors.ts';
import type { IdCore } from './id-core.ts';
import type { DatagramPeer } from './id-types.ts';
import type { ConnectionParameters } from './parameters.ts';

/** Q_Key of datagram services and groups (Linux `RDMA_UDP_QKEY`). */
export const RDMA_UDP_QKEY = 0x0123_4567;
const MULTICAST_QPN = 0xff_ffff;

/** Sends SIDR_REQ. Resolves with the number of the question. */
export function ask(id: IdCore, { privateData }: ConnectionParameters): Promise<number> {
  const { local, remote, route } = id.path;
  const serviceId = ipCmServiceId(PortSpace[id.portSpace], remote!.port);
  const header = withHeader(local!, remote!, privateData);
  const question = { serviceId, route: route!, privateData: header, ...id.options.timing };
  return id.endpoint.call('cmResolve', question);
}

/** SIDR_REP came: makes the address handle of the peer. */
export async function resolved(id: IdCore, reply: CmFields<'SIDR_REP'>): Promise<void> {
  const { path, fields } = id;
  if (reply.status !== CmSidrStatus.SUCCESS) {
    id.fail('UNREACHABLE', unresolvedError(path.remote!, reply.status, reply.privateData));
    return;
  }
  fields.replyData = reply.privateData;
  const ah = await createAh(id, path.towards(path.route!.gid));
  // `destroy` has not seen it.
  if (id.isDestroyed) await ah.destroy();
  id.checkAlive();
  fields.peer = { ah, remoteQpn: reply.qpn, remoteQkey: reply.qkey };
  id.connected();
}

/** Answers a question with the queue pair of this side. */
export async function answer(id: IdCore, qpn: number, { privateData }: ConnectionParameters): Promise<void> {
  await id.endpoint.call('cmAnswer', id.number!, { qpn, qkey: RDMA_UDP_QKEY, privateData });
  id.checkAlive();
  id.state = 'CONNECTED';
}

/** Refuses a question. */
export async function refuse(id: IdCore, privateData: Uint8Array | undefined): Promise<void> {
  await id.endpoint.call('cmAnswer', id.number!, { status: CmSidrStatus.REJECT, privateData });
}

/** An address handle in the domain of the id's queue pair. */
export async function createAh(
  id: IdCore,
  init: Parameters<ProtectionDomain['createAh']>[0],
): Promise<AddressHandle> {
  if (!id.pd) throw id.wrongState('createQp first');
  return id.pd.createAh(init);
}

/** rdma_join_multicast(3). */
export async function join(id: IdCore, group: string, isSendOnly: boolean): Promise<DatagramPeer> {
  const { qp } = id.fields;
  if (!id.isDatagram || !qp) throw id.wrongState('an id of port space UDP with a queue pair');
  const way = id.path.towards(multicastGid(group));
  const ah = await id.groups.join(qp, group, isSendOnly, () => createAh(id, way));
  id.checkAlive();
  id.raise('MULTICAST_JOIN');
  return { ah, remoteQpn: MULTICAST_QPN, remoteQkey: RDMA_UDP_QKEY };
}
