/** Event channels. */
import { constants } from 'node:os';
import { type CmEventName, type CmId, type CmIdEvent, RefusedError } from '@node-roce/rdmacm';
import { gidEquals, gidFromText, multicastGid } from '@node-roce/wire';
import { minusOne } from '../errno.ts';
import type { ibv_ah_attr } from '../structs.ts';
import * as c from './constants.ts';
import { checkedChannel, rdma_cm_id, rdma_event_channel, structOfId } from './ids.ts';
import type { rdma_cm_event, rdma_event_param } from './structs.ts';

const MULTICAST_QPN = 0xff_ffff;

const CODES: Record<CmEventName, number> = {
  ADDR_RESOLVED: c.RDMA_CM_EVENT_ADDR_RESOLVED,
  ROUTE_RESOLVED: c.RDMA_CM_EVENT_ROUTE_RESOLVED,
  CONNECT_REQUEST: c.RDMA_CM_EVENT_CONNECT_REQUEST,
  CONNECT_ERROR: c.RDMA_CM_EVENT_CONNECT_ERROR,
  UNREACHABLE: c.RDMA_CM_EVENT_UNREACHABLE,
  REJECTED: c.RDMA_CM_EVENT_REJECTED,
  ESTABLISHED: c.RDMA_CM_EVENT_ESTABLISHED,
  DISCONNECTED: c.RDMA_CM_EVENT_DISCONNECTED,
  DEVICE_REMOVAL: c.RDMA_CM_EVENT_DEVICE_REMOVAL,
  MULTICAST_JOIN: c.RDMA_CM_EVENT_MULTICAST_JOIN,
  TIMEWAIT_EXIT: c.RDMA_CM_EVENT_TIMEWAIT_EXIT,
};

const NAMES = new Map(
  Object.entries(c)
    .filter(([name]) => name.startsWith('RDMA_CM_EVENT_'))
    .map(([name, code]) => [code, name]),
);

/** rdma_event_str(3). */
export function rdma_event_str(event: number): string {
  return NAMES.get(event) ?? 'UNKNOWN EVENT';
}

/** rdma_create_event_channel(3). */
export function rdma_create_event_channel(): rdma_event_channel {
  return new rdma_event_channel();
}

/** rdma_destroy_event_channel(3): who waits for an event gets −1 and ECANCELED. */
export async function rdma_destroy_event_channel(channel: rdma_event_channel): Promise<void> {
  return checkedChannel(channel).rdmacm.destroy();
}

/** rdma_get_cm_event(3): waits for the next event; element 0 of `event` is set. */
export function rdma_get_cm_event(channel: rdma_event_channel, event: rdma_cm_event[]): Promise<0 | -1> {
  return minusOne(async () => {
    for (;;) {
      const filled = translated(await checkedChannel(channel).rdmacm.getEvent());
      if (!filled) continue; // Of an id that this program did not make.
      event[0] = filled;
      return;
    }
  });
}

/** rdma_ack_cm_event(3): the event is an object of the program's; nothing has to be done. */
export function rdma_ack_cm_event(_event: rdma_cm_event): 0 {
  return 0;
}

function translated({ event, id, listenId, error }: CmIdEvent<CmId>): rdma_cm_event | undefined {
  const listen_id = listenId ? structOfId(listenId) : undefined;
  const struct = listen_id ? rdma_cm_id.ofRequest(id, listen_id) : structOfId(id);
  if (!struct) return undefined;
  return {
    id: struct,
    listen_id: listen_id ?? null,
    event: CODES[event],
    // As in Linux: the end of a device is no failure of the id.
    status: event === 'DEVICE_REMOVAL' ? 0 : statusOf(error),
    param: paramOf(event, struct, error),
  };
}

function statusOf(error: CmIdEvent<CmId>['error']): number {
  if (error === undefined) return 0;
  if (error instanceof RefusedError) return error.status;
  return -constants.errno[error.errno as keyof typeof constants.errno];
}

function paramOf(event: CmEventName, struct: rdma_cm_id, error: unknown): rdma_event_param {
  const { rdmacm, group } = struct;
  const refused = error instanceof RefusedError ? error.privateData : undefined;
  const private_data =
    refused ?? (event === 'CONNECT_REQUEST' ? rdmacm.request?.privateData : rdmacm.replyData) ?? null;
  const data = { private_data, private_data_len: private_data?.length ?? 0 };
  if (event === 'MULTICAST_JOIN' && group !== undefined)
    return {
      ud: {
        ...data,
        ah_attr: towards(rdmacm, multicastGid(group)),
        qp_num: MULTICAST_QPN,
        qkey: c.RDMA_UDP_QKEY,
      },
    };
  if (event === 'ESTABLISHED' && rdmacm.peer) {
    const { remoteQpn, remoteQkey } = rdmacm.peer;
    const ah_attr = towards(rdmacm, gidFromText(rdmacm.remoteAddress!.address));
    return { ud: { ...data, ah_attr, qp_num: remoteQpn, qkey: remoteQkey } };
  }
  if (event !== 'CONNECT_REQUEST' && event !== 'ESTABLISHED' && !refused) return {};
  // A refusal has no terms.
  const request = refused ? undefined : rdmacm.request;
  const terms = refused ? undefined : (rdmacm.reply ?? request);
  return {
    conn: {
      ...data,
      responder_resources: terms?.responderResources ?? 0,
      initiator_depth: terms?.initiatorDepth ?? 0,
      flow_control: terms?.flowControl ? 1 : 0,
      // REP has none.
      retry_count: request?.retryCount ?? 0,
      rnr_retry_count: terms?.rnrRetryCount ?? 0,
      srq: terms?.srq ? 1 : 0,
      qp_num: terms?.qpNum ?? 0,
    },
  };
}

/** The address vector towards a peer or a group, for `ibv_create_ah`. */
function towards({ device, localAddress }: CmId, dgid: Uint8Array): ibv_ah_attr {
  const own = gidFromText(localAddress!.address);
  const sgid_index = device.gids.findIndex(({ gid }) => gidEquals(gid, own));
  return { is_global: 1, port_num: 1, grh: { dgid: { raw: dgid }, sgid_index, hop_limit: 64 } };
}
