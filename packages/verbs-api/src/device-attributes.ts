/** The attributes of a device: ibv_query_device(3) and ibv_query_port(3). */
import type { NetworkInterface } from '@node-roce/link';
import type { DeviceLimits, Experimental, GidEntry } from '@node-roce/transport';
import { linkLocalGidFromMac } from '@node-roce/wire';
import type { EngineFacts } from './engine/engine.ts';
import { LARGEST_VIEW } from './memory-region.ts';

/** `enum ibv_device_cap_flags`: what a device may be able to do. */
export const DeviceCap = {
  /** Queue pairs can be resized by `modify` (`cap`). */
  RESIZE_MAX_WR: 1 << 0,
  BAD_PKEY_CNTR: 1 << 1,
  BAD_QKEY_CNTR: 1 << 2,
  RAW_MULTI: 1 << 3,
  /** Automatic path migration: with `experimental: ['apm']`. */
  AUTO_PATH_MIG: 1 << 4,
  CHANGE_PHY_PORT: 1 << 5,
  UD_AV_PORT_ENFORCE: 1 << 6,
  /** `curQpState` may be given to `modify`. */
  CURR_QP_STATE_MOD: 1 << 7,
  SHUTDOWN_PORT: 1 << 8,
  INIT_TYPE: 1 << 9,
  PORT_ACTIVE_EVENT: 1 << 10,
  SYS_IMAGE_GUID: 1 << 11,
  RC_RNR_NAK_GEN: 1 << 12,
  SRQ_RESIZE: 1 << 13,
  N_NOTIFY_CQ: 1 << 14,
  MEM_WINDOW: 1 << 17,
  UD_IP_CSUM: 1 << 18,
  /** XRC domains: with `experimental: ['xrc']`. */
  XRC: 1 << 20,
  /** Fast registration by work request. Not offered; SEND_WITH_INV and LOCAL_INV are, for windows of type 2. */
  MEM_MGT_EXTENSIONS: 1 << 21,
  MEM_WINDOW_TYPE_2A: 1 << 23,
  MEM_WINDOW_TYPE_2B: 1 << 24,
} as const;

const OFFERED =
  DeviceCap.RESIZE_MAX_WR |
  DeviceCap.BAD_PKEY_CNTR |
  DeviceCap.BAD_QKEY_CNTR |
  DeviceCap.CURR_QP_STATE_MOD |
  DeviceCap.PORT_ACTIVE_EVENT |
  DeviceCap.SYS_IMAGE_GUID |
  DeviceCap.RC_RNR_NAK_GEN |
  DeviceCap.SRQ_RESIZE |
  DeviceCap.MEM_WINDOW |
  DeviceCap.MEM_WINDOW_TYPE_2B;

const EXPERIMENTAL_CAPS: Record<Experimental, number> = {
  xrc: DeviceCap.XRC,
  apm: DeviceCap.AUTO_PATH_MIG,
};

/** `struct ibv_device_attr` and `struct ibv_port_attr`, the parts that mean something here. */
export interface DeviceAttributes extends DeviceLimits {
  /** EUI-64 from the interface's MAC address: `0242:acff:fe11:0002`; without one `0200:00ff:fe00:0000`, as rxe has it. */
  nodeGuid: string;
  /** `DeviceCap` bits (`device_cap_flags`). */
  deviceCapFlags: number;
  /** Which link moves the packets (`udp`, `dgram`, …), and its limitations. */
  link: string;
  /** Whether a program that polls a completion queue has to let the event loop turn, too (the dgram link). */
  needsEventLoop: boolean;
  /** Whether the link has whole Ethernet frames, for RAW_PACKET queue pairs. */
  rawPackets: boolean;
  /** Limitations of the link, a sentence each. */
  limitations: readonly string[];
  /** The network interface, as it was when the device was opened; but for `up`, which is as of now. */
  interface: NetworkInterface | undefined;
  /** Local addresses by GID index. */
  gids: readonly GidEntry[];
  /** Largest path MTU, bytes. */
  activeMtu: number;
  /** Bytes. */
  maxMtu: 4096;
  /** One port: number 1. */
  physPortCnt: 1;
  /** One P_Key: the default one, 0xffff. */
  pkeyTblLen: 1;
  /** The interface's, as of now. */
  portState: 'ACTIVE' | 'DOWN';
  /** RoCE. */
  linkLayer: 'Ethernet';
  /** Atomic among all queue pairs of the device (`IBV_ATOMIC_HCA`), and to nobody else. */
  atomicCap: 'HCA';
  /** Bytes of socket buffer that the kernel granted, by its own account. */
  receiveBuffer: number;
}

export function deviceAttributes(facts: EngineFacts, inline: boolean): DeviceAttributes {
  const { gids, activeMtu, limits, link, limitations, receiveBuffer, interface: nic } = facts;
  return {
    ...limits,
    maxMrSize: Math.min(limits.maxMrSize, LARGEST_VIEW),
    nodeGuid: guidOf(nic?.mac),
    deviceCapFlags: facts.experimental.reduce((caps, name) => caps | EXPERIMENTAL_CAPS[name], OFFERED),
    interface: nic,
    link,
    needsEventLoop: inline && facts.needsEventLoop,
    rawPackets: facts.rawPackets,
    limitations,
    gids,
    activeMtu,
    receiveBuffer,
    maxMtu: 4096,
    physPortCnt: 1,
    pkeyTblLen: 1,
    portState: nic?.up === false ? 'DOWN' : 'ACTIVE',
    linkLayer: 'Ethernet',
    atomicCap: 'HCA',
  };
}

/** The GUID that RoCE devices make of a MAC address: the modified EUI-64 of RFC 4291, as `ibv_devinfo` has it. */
function guidOf(mac = '00:00:00:00:00:00'): string {
  const bytes = Uint8Array.from(mac.split(':'), (part) => Number.parseInt(part, 16));
  const words = new DataView(linkLocalGidFromMac(bytes).buffer, 8);
  return [0, 2, 4, 6].map((at) => words.getUint16(at).toString(16).padStart(4, '0')).join(':');
}
