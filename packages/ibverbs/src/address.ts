/** Address vectors and address handles, multicast groups. */
import type { AhAttr } from '@node-roce/transport';
import { WorkCompletion } from '@node-roce/verbs-api';
import { checkPort } from './device.ts';
import { pointer, status, statusNow } from './errno.ts';
import { given, ibv_ah, type ibv_context, type ibv_pd, type ibv_qp, verbsOf } from './objects.ts';
import type { ibv_ah_attr, ibv_gid, ibv_wc } from './structs.ts';

/** As verbs-api takes it; the engine checks the values. */
export function toAhAttr(attr: ibv_ah_attr | undefined): AhAttr {
  const { dgid, flow_label = 0, sgid_index = 0, hop_limit = 0, traffic_class = 0 } = attr?.grh ?? {};
  return {
    grh: {
      dgid: dgid?.raw ?? new Uint8Array(16),
      flowLabel: flow_label,
      sgidIndex: sgid_index,
      hopLimit: hop_limit,
      trafficClass: traffic_class,
    },
    isGlobal: Boolean(attr?.is_global),
    dlid: attr?.dlid ?? 0,
    sl: attr?.sl ?? 0,
    srcPathBits: attr?.src_path_bits ?? 0,
    staticRate: attr?.static_rate ?? 0,
    portNum: attr?.port_num ?? 0,
  };
}

export function fromAhAttr(attr: Readonly<AhAttr>): ibv_ah_attr {
  const { dgid, flowLabel, sgidIndex, hopLimit, trafficClass } = attr.grh;
  return {
    grh: {
      dgid: { raw: dgid.slice() },
      flow_label: flowLabel,
      sgid_index: sgidIndex,
      hop_limit: hopLimit,
      traffic_class: trafficClass,
    },
    dlid: attr.dlid,
    sl: attr.sl,
    src_path_bits: attr.srcPathBits,
    static_rate: attr.staticRate,
    is_global: attr.isGlobal ? 1 : 0,
    port_num: attr.portNum,
  };
}

/** ibv_create_ah(3). EINVAL where the route can't be taken. */
export function ibv_create_ah(pd: ibv_pd, attr: ibv_ah_attr): Promise<ibv_ah | null> {
  return pointer(async () => new ibv_ah(pd, await verbsOf('pd', pd).createAh(toAhAttr(attr))));
}

/**
 * ibv_create_ah_from_wc(3): the way back to the sender of a datagram.
 *
 * @param grh the first 40 bytes of the receive
 */
export function ibv_create_ah_from_wc(
  pd: ibv_pd,
  wc: Pick<ibv_wc, 'wc_flags' | 'src_qp'>,
  grh: Uint8Array,
  port_num: number,
): Promise<ibv_ah | null> {
  return pointer(async () => {
    checkPort(port_num);
    return new ibv_ah(pd, await verbsOf('pd', pd).createAhFromWc(completionOf(wc), grh));
  });
}

/** ibv_init_ah_from_wc(3): fills `ah_attr` with the way back to the sender of a datagram. 0, or −1 and errno. */
export function ibv_init_ah_from_wc(
  context: ibv_context,
  port_num: number,
  wc: Pick<ibv_wc, 'wc_flags' | 'src_qp'>,
  grh: Uint8Array,
  ah_attr: Partial<ibv_ah_attr>,
): 0 | -1 {
  const code = statusNow(() => {
    checkPort(port_num);
    Object.assign(ah_attr, fromAhAttr(verbsOf('context', context).addressFromWc(completionOf(wc), grh)));
  });
  return code === 0 ? 0 : -1;
}

function completionOf(wc: Pick<ibv_wc, 'wc_flags' | 'src_qp'>): WorkCompletion {
  const completion = new WorkCompletion();
  completion.flags = wc.wc_flags;
  completion.srcQp = wc.src_qp;
  return completion;
}

/** ibv_destroy_ah(3). Requests that still name it complete with IBV_WC_LOC_QP_OP_ERR. */
export function ibv_destroy_ah(ah: ibv_ah): Promise<number> {
  return status(async () => {
    await verbsOf('ah', ah).destroy();
    ah.pd.gone(ah);
  });
}

/** ibv_attach_mcast(3), UD: joins the group on the device's sockets. The LID means nothing on RoCE. */
export function ibv_attach_mcast(qp: ibv_qp, gid: ibv_gid, _lid = 0): Promise<number> {
  return status(() => verbsOf('qp', qp).attachMcast(given('gid', gid).raw));
}

/** ibv_detach_mcast(3): EINVAL where it is not attached. */
export function ibv_detach_mcast(qp: ibv_qp, gid: ibv_gid, _lid = 0): Promise<number> {
  return status(() => verbsOf('qp', qp).detachMcast(given('gid', gid).raw));
}
