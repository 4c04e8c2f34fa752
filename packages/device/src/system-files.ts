/**
 * Files of the device for /sys and /dev, as an RDMA driver has them, in a folder next to the socket. native/ibverbs/paths redirects a
 * program's paths to it below `/sys/class/infiniband`, `/sys/class/infiniband_verbs`, `/sys/class/misc/rdma_cm` and
 * `/dev/infiniband`; the machine's own /sys and /dev stay as they are.
 */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { IBV_PORT_ACTIVE } from '@node-roce/ibverbs';
import { portAttr } from '@node-roce/ibverbs/parts';
import type { Device } from '@node-roce/verbs-api';

/** Entries of the GID table at least: programs expect free ones behind those in use. */
const MIN_GIDS = 16;
/** And at most; the index is a byte in `struct ibv_global_route`. */
const MAX_GIDS = 256;

/** Length of the GID table that programs see, some of it free: one that holds so many and one more, a power of two. */
export function gidTableLength(inUse: number): number {
  let length = MIN_GIDS;
  while (length <= inUse && length < MAX_GIDS) length *= 2;
  return length;
}

/** A file's text, or where a symbolic link leads. */
type Entry = string | { link: string };

/** Codes of `active_speed`: Gb/s of a lane, and the name in `rate`, as the kernel writes it. */
const SPEEDS: Readonly<Record<number, readonly [gigabits: number, name: string]>> = {
  1: [2.5, ''],
  2: [5, ' DDR'],
  4: [10, ' QDR'],
  8: [10, ' FDR10'],
  16: [14, ' FDR'],
  32: [25, ' EDR'],
  64: [50, ' HDR'],
  128: [100, ' NDR'],
};
/** Codes of `active_width`. */
const LANES: Readonly<Record<number, number>> = { 1: 1, 2: 4, 4: 8, 8: 12, 16: 2 };

const groupsOf = (hex: string) => hex.match(/.{4}/g)!.join(':');

/** The entries by their path, as the kernel writes them (Documentation/ABI/stable/sysfs-class-infiniband). */
async function entriesOf(open: Device): Promise<Map<string, Entry>> {
  const port = await portAttr(open);
  const { nodeGuid, interface: nic, gids } = open.query();
  const isUp = port.state === IBV_PORT_ACTIVE;
  const [gigabits, speed] = SPEEDS[port.active_speed];
  const lanes = LANES[port.active_width];
  const device: Record<string, Entry> = {
    node_type: '1: CA',
    node_guid: nodeGuid,
    sys_image_guid: nodeGuid,
    node_desc: 'node-roce',
    fw_ver: 'node-roce',
    'device/numa_node': '-1',
  };
  if (nic) {
    device.parent = nic.name;
    device[`device/net/${nic.name}`] = { link: `/sys/class/net/${nic.name}` };
  }
  const ofPort: Record<string, string> = {
    state: isUp ? '4: ACTIVE' : '1: DOWN',
    phys_state: isUp ? '5: LinkUp' : '3: Disabled',
    link_layer: 'Ethernet',
    rate: `${lanes * gigabits} Gb/sec (${lanes}X${speed})`,
    lid: '0x0',
    lid_mask_count: '0',
    sm_lid: '0x0',
    sm_sl: '0',
    cap_mask: `0x${port.port_cap_flags.toString(16).padStart(8, '0')}`,
    'pkeys/0': '0xffff',
  };
  for (let i = 0; i < gidTableLength(gids.length); i++) {
    const gid = Buffer.from(gids[i]?.gid ?? new Uint8Array(16)).toString('hex');
    ofPort[`gids/${i}`] = groupsOf(gid);
    // The kernel has these files for free entries, too, and an error for who reads them.
    if (/^0*$/.test(gid)) continue;
    ofPort[`gid_attrs/types/${i}`] = 'RoCE v2';
    if (nic) ofPort[`gid_attrs/ndevs/${i}`] = nic.name;
  }
  const verbs = { ibdev: 'roce0', abi_version: '1', dev: '1:3' };
  return new Map<string, Entry>([
    ...Object.entries(device).map(([name, is]) => [`sys/class/infiniband/roce0/${name}`, is] as const),
    ...Object.entries(ofPort).map(
      ([name, is]) => [`sys/class/infiniband/roce0/ports/1/${name}`, is] as const,
    ),
    ...Object.entries(verbs).map(([name, is]) => [`sys/class/infiniband_verbs/uverbs0/${name}`, is] as const),
    ['sys/class/infiniband_verbs/abi_version', '6'],
    // A character device that can be opened; nobody talks to it, as the library does not.
    ['dev/infiniband/uverbs0', { link: '/dev/null' }],
    // The library answers open() of it; the link is for who looks whether it is there.
    ['dev/infiniband/rdma_cm', { link: '/dev/null' }],
    ['sys/class/misc/rdma_cm/abi_version', '4'],
  ]);
}

/** The folder of a device. */
export class SystemFiles {
  readonly folder: string;
  readonly #shown = new Map<string, string>();

  /** @param socket the device's; what another device left there is removed */
  constructor(socket: string) {
    this.folder = `${socket}.root`;
    this.remove();
  }

  /** Writes what has changed since the last call. */
  async refresh(device: Device): Promise<void> {
    const entries = await entriesOf(device);
    for (const path of this.#shown.keys()) {
      if (entries.has(path)) continue;
      rmSync(join(this.folder, path), { force: true });
      this.#shown.delete(path);
    }
    for (const [path, entry] of entries) {
      const text = JSON.stringify(entry);
      if (this.#shown.get(path) === text) continue;
      this.#shown.set(path, text);
      const at = join(this.folder, path);
      mkdirSync(dirname(at), { recursive: true, mode: 0o700 });
      // A new file: nobody can write to the one that is there, and a program may have put a link in its place.
      rmSync(at, { force: true });
      if (typeof entry === 'string') writeFileSync(at, `${entry}\n`, { mode: 0o444, flag: 'wx' });
      else symlinkSync(entry.link, at);
    }
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
    this.#shown.clear();
  }
}
