/** Devices: listing, opening, asking. */
import { listInterfaces } from '@node-roce/link';
import { invalid } from '@node-roce/transport';
import { type Device, type OpenDeviceOptions, type OpenOptions, openDevice } from '@node-roce/verbs-api';
import { linkLocalGidFromMac, mtuBytesToEnum, sourcePortFromFlowLabel } from '@node-roce/wire';
import {
  IBV_FORK_UNNEEDED,
  IBV_GID_TYPE_ROCE_V2,
  IBV_LINK_LAYER_ETHERNET,
  IBV_PORT_ACTIVE,
  IBV_PORT_DOWN,
  IBV_PORT_IP_BASED_GIDS,
  IBV_QPF_GRH_REQUIRED,
} from './constants.ts';
import { IBV_GID_TYPE_SYSFS_ROCE_V2 } from './driver-constants.ts';
import { failed, minusOne, pointer, status } from './errno.ts';
import { checkKind, given, ibv_context, ibv_device, verbsOf } from './objects.ts';
import type { ibv_gid, ibv_gid_entry, ibv_port_attr } from './structs.ts';

/**
 * ibv_get_device_list(3): a device for each network interface that has an address.
 *
 * @param num_devices element 0 is set to their number (`int *num_devices`)
 */
export function ibv_get_device_list(num_devices?: number[] | null): ibv_device[] {
  const list = listInterfaces().map((nic) => new ibv_device(nic));
  if (num_devices) num_devices[0] = list.length;
  return list;
}

/** ibv_free_device_list(3): nothing has to be freed. */
export function ibv_free_device_list(_list: readonly ibv_device[]): void {}

/** ibv_get_device_name(3): the interface's name, `eth0`. */
export function ibv_get_device_name(device: ibv_device): string {
  checkKind('device', device, ibv_device);
  return device.name;
}

/** ibv_get_device_guid(3): EUI-64 of the interface's MAC address; of zeros where it has none, as rxe on lo. */
export function ibv_get_device_guid(device: ibv_device): bigint {
  checkKind('device', device, ibv_device);
  const mac = Uint8Array.from(device.interface.mac.split(':'), (part) => Number.parseInt(part, 16));
  return new DataView(linkLocalGidFromMac(mac).buffer).getBigUint64(8);
}

/** ibv_get_device_index(3): −1, as of any device that no RDMA driver of the kernel stands behind. */
export function ibv_get_device_index(device: ibv_device): number {
  checkKind('device', device, ibv_device);
  return -1;
}

/** Contexts that were opened: a second one shares the sockets of the first. */
type Opened = Promise<readonly Device[]>;

/** By the options. */
const byOptions = new Map<string, Opened>();
/** A link of one's own is a device, whatever the other options are. */
const byLink = new WeakMap<object, Opened>();

/** Opens the device, or another context of it. One after the other: the second has to see the first. */
async function openShared(options: OpenOptions): Promise<Device> {
  // The signal is of the context; the other options are of the device.
  const { signal, ...place } = options;
  const link = typeof place.link === 'object' ? place.link : null;
  // A bigint is wrong anywhere, as openDevice finds.
  const key = link ? '' : JSON.stringify(place, (_, value) => (typeof value === 'bigint' ? 'bigint' : value));
  const before = link ? byLink.get(link) : byOptions.get(key);
  const next = (before ?? Promise.resolve([])).then(async (devices) => {
    const alive = devices.filter(({ closed }) => !closed);
    const device =
      alive[0]?.openContext(signal ? { signal } : {}) ?? (await openDevice(options as OpenDeviceOptions));
    return [device, ...alive];
  });
  const after = next.catch(async () => (await before) ?? []);
  if (link) byLink.set(link, after);
  else byOptions.set(key, after);
  return (await next)[0];
}

/**
 * ibv_open_device(3): null and errno EADDRINUSE where UDP port 4791 of an address is taken, for example by an rxe or an
 * mlx5 device, or by another process. A device can be opened several times with the same options; its contexts
 * share the sockets, and nothing else.
 *
 * @param options what `openDevice` of verbs-api takes: `address` for one address of the interface instead of all,
 *   `link`, `engine`, `trace`, …
 */
export function ibv_open_device(device: ibv_device, options: OpenOptions = {}): Promise<ibv_context | null> {
  return pointer(async () => {
    checkKind('device', device, ibv_device);
    const isPlace = options.address !== undefined || typeof options.link === 'object';
    return new ibv_context(
      device,
      await openShared(isPlace ? options : { interface: device.name, ...options }),
    );
  });
}

/** ibv_close_device(3). Objects made with the context end; their peers are not notified. */
export function ibv_close_device(context: ibv_context): Promise<number> {
  return status(() => verbsOf('context', context).close());
}

/**
 * ibv_query_port(3): fills `port_attr`. EINVAL for a port other than 1. Width and speed are codes for the speed of the
 * interface, as rxe has them; 1X and 2.5 Gb/s where it is not known.
 */
export function ibv_query_port(
  context: ibv_context,
  port_num: number,
  port_attr: Partial<ibv_port_attr>,
): Promise<number> {
  return status(async () => {
    checkPort(port_num);
    const filled = await portAttr(verbsOf('context', context));
    Object.assign(given('port_attr', port_attr), filled);
  });
}

/** The port as `struct ibv_port_attr`. */
export async function portAttr(of: Device): Promise<ibv_port_attr> {
  const device = of.query();
  const counters = await of.counters();
  const up = device.portState === 'ACTIVE';
  return {
    state: up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
    max_mtu: mtuBytesToEnum(device.maxMtu),
    active_mtu: mtuBytesToEnum(device.activeMtu),
    gid_tbl_len: device.gids.length,
    port_cap_flags: IBV_PORT_IP_BASED_GIDS,
    max_msg_sz: device.maxMessageSize,
    bad_pkey_cntr: counters.badPkey,
    qkey_viol_cntr: counters.qkeyViolations,
    pkey_tbl_len: device.pkeyTblLen,
    lid: 0,
    sm_lid: 0,
    lmc: 0,
    max_vl_num: 1,
    sm_sl: 0,
    subnet_timeout: 0,
    init_type_reply: 0,
    ...widthAndSpeed(device.interface?.speed),
    // LinkUp, or Disabled (IBTA vol 1 §14.2.5.6).
    phys_state: up ? 5 : 3,
    link_layer: IBV_LINK_LAYER_ETHERNET,
    flags: IBV_QPF_GRH_REQUIRED,
    port_cap_flags2: 0,
  };
}

/** Codes of `active_width` (1X: 1, 4X: 2, 2X: 16) and `active_speed` (SDR: 1 … NDR: 128). */
const WIDTHS_AND_SPEEDS = [
  { megabits: 1000, active_width: 1, active_speed: 1 },
  { megabits: 10_000, active_width: 1, active_speed: 8 },
  { megabits: 20_000, active_width: 2, active_speed: 2 },
  { megabits: 25_000, active_width: 1, active_speed: 32 },
  { megabits: 40_000, active_width: 2, active_speed: 8 },
  { megabits: 50_000, active_width: 16, active_speed: 32 },
  { megabits: 100_000, active_width: 2, active_speed: 32 },
  { megabits: 200_000, active_width: 2, active_speed: 64 },
  { megabits: Number.POSITIVE_INFINITY, active_width: 2, active_speed: 128 },
] as const;

/** By Linux' `ib_get_width_and_speed`, which takes 1 Gb/s for an unknown speed. */
function widthAndSpeed(speed = 1000): { active_width: number; active_speed: number } {
  const { active_width, active_speed } = WIDTHS_AND_SPEEDS.find(({ megabits }) => speed <= megabits)!;
  return { active_width, active_speed };
}

/** ibv_query_gid(3): fills `gid.raw`; 0, or −1 and errno. */
export function ibv_query_gid(
  context: ibv_context,
  port_num: number,
  index: number,
  gid: Partial<ibv_gid>,
): Promise<0 | -1> {
  return minusOne(() => {
    checkPort(port_num);
    Object.assign(given('gid', gid), gidEntry(context, index).gid);
  });
}

/** ibv_query_gid_ex(3): fills `entry`. 0, or EINVAL for an index or a port that is not there. */
export function ibv_query_gid_ex(
  context: ibv_context,
  port_num: number,
  gid_index: number,
  entry: Partial<ibv_gid_entry>,
  _flags = 0,
): Promise<number> {
  return status(() => {
    checkPort(port_num);
    Object.assign(given('entry', entry), gidEntry(context, gid_index));
  });
}

/** ibv_query_gid_table(3): fills the elements of `entries`, up to `max_entries`; how many there were, or −errno. */
export async function ibv_query_gid_table(
  context: ibv_context,
  entries: Partial<ibv_gid_entry>[],
  max_entries: number,
  _flags = 0,
): Promise<number> {
  let length = 0;
  const error = await status(() => {
    length = verbsOf('context', context).gids.length;
    given('entries', entries);
    if (!(length <= max_entries)) throw invalid('max_entries', `${max_entries} for a table of ${length}`);
    for (let i = 0; i < length; i++) entries[i] = gidEntry(context, i);
  });
  return error === 0 ? length : -error;
}

/** ibv_query_gid_type: element 0 of `type` is set to IBV_GID_TYPE_SYSFS_ROCE_V2, the type of every GID; 0, or −1 and errno. */
export function ibv_query_gid_type(
  context: ibv_context,
  port_num: number,
  index: number,
  type: number[],
): Promise<0 | -1> {
  return minusOne(() => {
    checkPort(port_num);
    gidEntry(context, index);
    given('type', type)[0] = IBV_GID_TYPE_SYSFS_ROCE_V2;
  });
}

function gidEntry(context: ibv_context, gid_index: number): ibv_gid_entry {
  const { gids } = verbsOf('context', context);
  const entry = gids[gid_index];
  if (!entry) throw invalid('index', `no GID ${gid_index}`, `0 … ${gids.length - 1}`);
  return { gid: { raw: entry.gid.slice() }, gid_index, port_num: 1, gid_type: IBV_GID_TYPE_ROCE_V2 };
}

/** ibv_query_pkey(3): element 0 of `pkey` is set, to the default P_Key 0xffff, the table's one entry. */
export function ibv_query_pkey(
  _context: ibv_context,
  port_num: number,
  index: number,
  pkey: number[],
): Promise<0 | -1> {
  return minusOne(() => {
    checkPort(port_num);
    if (index !== 0) throw invalid('index', `no P_Key ${index}`, '0');
    given('pkey', pkey)[0] = 0xffff;
  });
}

/** ibv_get_pkey_index(3): 0 for the default P_Key, else −1 and errno. */
export function ibv_get_pkey_index(_context: ibv_context, port_num: number, pkey: number): number {
  try {
    checkPort(port_num);
    if (pkey !== 0xffff) throw invalid('pkey', `0x${pkey.toString(16)} is not in the table`, '0xffff');
    return 0;
  } catch (error) {
    failed(error);
    return -1;
  }
}

/** ibv_fork_init(3): nothing has to be done, as no memory is pinned; devices stay with the parent. */
export function ibv_fork_init(): number {
  return 0;
}

/** ibv_is_fork_initialized(3): IBV_FORK_UNNEEDED, for the same reason. */
export function ibv_is_fork_initialized(): number {
  return IBV_FORK_UNNEEDED;
}

/** ibv_flow_label_to_udp_sport: the UDP source port, 0xc000 … 0xffff, of packets with this flow label (20 bits). */
export function ibv_flow_label_to_udp_sport(fl: number): number {
  return sourcePortFromFlowLabel(fl);
}

export function checkPort(port_num: number): void {
  if (port_num !== 1) throw invalid('port_num', `no port ${port_num}`, '1');
}
