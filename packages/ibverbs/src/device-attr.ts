/** The attributes of a device: ibv_query_device(3), ibv_query_device_ex(3). */
import { MAX_RENDEZVOUS_BYTES } from '@node-roce/transport';
import type { Device } from '@node-roce/verbs-api';
import { checkMask } from './arguments.ts';
import {
  IBV_ATOMIC_HCA,
  IBV_DEVICE_MANAGED_FLOW_STEERING,
  IBV_QPT_RAW_PACKET,
  IBV_QPT_RC,
  IBV_QPT_UC,
  IBV_QPT_UD,
  IBV_QPT_XRC_SEND,
  IBV_TM_CAP_RC,
} from './constants.ts';
import { status } from './errno.ts';
import { given, type ibv_context, verbsOf } from './objects.ts';
import { IBV_DEVICE_ATOMIC_WRITE, IBV_DEVICE_FLUSH_GLOBAL } from './placement-constants.ts';
import type { ibv_device_attr, ibv_device_attr_ex, ibv_query_device_ex_input } from './structs.ts';
import { MAX_TAG_OPS } from './tag-matching.ts';

/** Types with a `rate_limit`. */
const PACED = [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND];

/** ibv_query_device(3): fills `device_attr`. */
export function ibv_query_device(
  context: ibv_context,
  device_attr: Partial<ibv_device_attr>,
): Promise<number> {
  return status(() => {
    const filled = deviceAttr(verbsOf('context', context));
    Object.assign(given('device_attr', device_attr), filled);
  });
}

/**
 * ibv_query_device_ex(3): fills `attr`. Features of hardware alone are 0: on-demand paging, segmentation
 * of TCP, receive side scaling, device memory. EINVAL for a `comp_mask` in `input`.
 */
export function ibv_query_device_ex(
  context: ibv_context,
  input: ibv_query_device_ex_input | null,
  attr: Partial<ibv_device_attr_ex>,
): Promise<number> {
  return status(() => {
    checkMask('input.comp_mask', input?.comp_mask || 0);
    const device = verbsOf('context', context);
    const orig_attr = deviceAttr(device);
    const filled: ibv_device_attr_ex = {
      orig_attr,
      comp_mask: 0,
      odp_caps: {
        general_caps: 0n,
        per_transport_caps: { rc_odp_caps: 0, uc_odp_caps: 0, ud_odp_caps: 0 },
      },
      // Nanoseconds in 64 bits.
      completion_timestamp_mask: 0xffff_ffff_ffff_ffffn,
      hca_core_clock: 1_000_000n,
      device_cap_flags_ex:
        BigInt(orig_attr.device_cap_flags) | IBV_DEVICE_FLUSH_GLOBAL | IBV_DEVICE_ATOMIC_WRITE,
      tso_caps: { max_tso: 0, supported_qpts: 0 },
      rss_caps: {
        supported_qpts: 0,
        max_rwq_indirection_tables: 0,
        max_rwq_indirection_table_size: 0,
        rx_hash_fields_mask: 0n,
        rx_hash_function: 0,
      },
      max_wq_type_rq: 0,
      packet_pacing_caps: {
        qp_rate_limit_min: 1,
        qp_rate_limit_max: 0xffff_ffff,
        supported_qpts: PACED.reduce((bits, type) => bits | (1 << type), 0),
      },
      raw_packet_caps: 0,
      tm_caps: tagCaps(device),
      cq_mod_caps: { max_cq_count: 0, max_cq_period: 0 },
      max_dm_size: 0n,
      pci_atomic_caps: { fetch_add: 0, swap: 0, compare_swap: 0 },
      xrc_odp_caps: 0,
      phys_port_cnt_ex: orig_attr.phys_port_cnt,
    };
    Object.assign(given('attr', attr), filled);
  });
}

/** The limits of tag matching. */
export function tagCaps(of: Device): ibv_device_attr_ex['tm_caps'] {
  const { maxTags, maxSrqSge } = of.query();
  return {
    max_rndv_hdr_size: MAX_RENDEZVOUS_BYTES,
    max_num_tags: maxTags,
    flags: IBV_TM_CAP_RC,
    max_ops: MAX_TAG_OPS,
    max_sge: maxSrqSge,
  };
}

/** The device's own numbers as `struct ibv_device_attr`. */
export function deviceAttr(of: Device): ibv_device_attr {
  const device = of.query();
  const guid = BigInt(`0x${device.nodeGuid.replaceAll(':', '')}`);
  return {
    fw_ver: '',
    node_guid: guid,
    sys_image_guid: guid,
    max_mr_size: BigInt(device.maxMrSize),
    // Any alignment is accepted; the value of rxe.
    page_size_cap: 0xffff_f000n,
    // "Not assigned" (IBTA vol 1 §14.2.5.3), as rxe has it.
    vendor_id: 0xff_ffff,
    vendor_part_id: 0,
    hw_ver: 0,
    max_qp: device.maxQp,
    max_qp_wr: device.maxQpWr,
    device_cap_flags: device.deviceCapFlags | (device.rawPackets ? IBV_DEVICE_MANAGED_FLOW_STEERING : 0),
    max_sge: device.maxSge,
    max_sge_rd: device.maxSge,
    max_cq: device.maxCq,
    max_cqe: device.maxCqe,
    max_mr: device.maxMr,
    max_pd: device.maxPd,
    max_qp_rd_atom: device.maxQpRdAtom,
    max_ee_rd_atom: 0,
    max_res_rd_atom: device.maxQpRdAtom * device.maxQp,
    max_qp_init_rd_atom: device.maxQpInitRdAtom,
    max_ee_init_rd_atom: 0,
    atomic_cap: IBV_ATOMIC_HCA,
    max_ee: 0,
    max_rdd: 0,
    max_mw: device.maxMw,
    max_raw_ipv6_qp: 0,
    max_raw_ethy_qp: device.rawPackets ? device.maxQp : 0,
    max_mcast_grp: device.maxMcastGrp,
    max_mcast_qp_attach: device.maxMcastQpAttach,
    max_total_mcast_qp_attach: device.maxMcastGrp * device.maxMcastQpAttach,
    max_ah: device.maxAh,
    max_fmr: 0,
    max_map_per_fmr: 0,
    max_srq: device.maxSrq,
    max_srq_wr: device.maxSrqWr,
    max_srq_sge: device.maxSrqSge,
    max_pkeys: device.pkeyTblLen,
    // 4.096 µs · 2^15, as rxe has it: software answers when it is scheduled.
    local_ca_ack_delay: 15,
    phys_port_cnt: device.physPortCnt,
  };
}
