/** `roce devinfo`: the interfaces that can be opened as devices, in the format of ibv_devinfo. */
import { activeMtuOf, interfaceByName, listInterfaces, type NetworkInterface } from '@node-roce/link';
import { DEVICE_LIMITS } from '@node-roce/transport';
import { gidsOf } from '../devices.ts';
import { availableLink } from '../doctor/machine.ts';
import type { Terminal } from '../terminal.ts';

const LINKS = { udp: 'udp', dgram: 'dgram (no native addon: reaches node-roce programs only)' };

export async function run(
  _args: readonly string[],
  { verbose, ibDev, json, socket }: { verbose: boolean; ibDev?: string; json: boolean; socket?: string },
  terminal: Terminal,
): Promise<number> {
  const devices = (ibDev === undefined ? listInterfaces() : [interfaceByName(ibDev)]).map(describe);
  const link = await availableLink();
  // The addon makes the memory that programs share.
  const served = link === 'udp' ? await servedTo(socket, terminal) : [];
  if (json) {
    terminal.json({ link, devices, limits: DEVICE_LIMITS, served });
    return 0;
  }
  for (const device of devices) {
    terminal.line(terminal.colors.bold(`device:\t${device.name}`));
    terminal.line(`\tstate:\t\t${device.state}`);
    terminal.line(`\tmac:\t\t${device.mac}`);
    terminal.line(`\tif_mtu:\t\t${device.mtu ?? 'unknown'}`);
    terminal.line(`\tlink:\t\t${LINKS[link]}`);
    terminal.line(`\tactive_mtu:\t${device.activeMtu}`);
    for (const [i, { gid, type }] of device.gids.entries()) terminal.line(`\tGID[${i}]:\t\t${gid}, ${type}`);
  }
  for (const { address, socket: path, programs, counters } of served) {
    terminal.line(terminal.colors.bold(`roce device:\t${address}`));
    terminal.line(`\tsocket:\t\t${path}`);
    for (const { name, objects } of programs) terminal.line(`\tprogram:\t${name}, ${objects} objects`);
    for (const [name, count] of Object.entries(counters))
      if (typeof count === 'number' && (count > 0 || verbose))
        terminal.line(`\t${verbsName(name)}:\t${count}`);
  }
  if (devices.length === 0) terminal.message('no interface has an address');
  if (!verbose) return devices.length === 0 ? 1 : 0;
  terminal.line(terminal.colors.bold('limits of every device:'));
  for (const [name, value] of Object.entries(DEVICE_LIMITS)) terminal.line(`\t${verbsName(name)}:\t${value}`);
  return devices.length === 0 ? 1 : 0;
}

/** Devices that `roce device` serves to programs of libibverbs: the one at the socket, else all of this user. */
async function servedTo(socket: string | undefined, { env }: Terminal) {
  const { deviceStatus, runningDevices } = await import('@node-roce/device');
  if (socket === undefined)
    return [...(await runningDevices(env))].map(([path, it]) => ({ socket: path, ...it }));
  const status = await deviceStatus(socket);
  if (status) return [{ socket, ...status }];
  throw Object.assign(
    new Error(`${socket}: no device answers there; start one with roce device --socket ${socket}`),
    { code: 'ERR_ROCE_NO_DEVICE' },
  );
}

/** `maxQpWr` → `max_qp_wr`, as ibv_devinfo prints it. */
const verbsName = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

function describe(nic: NetworkInterface) {
  return {
    name: nic.name,
    state: nic.up ? 'PORT_ACTIVE' : 'PORT_DOWN',
    mac: nic.mac,
    mtu: nic.mtu,
    activeMtu: activeMtuOf(nic),
    maxMtu: 4096,
    linkLayer: 'Ethernet',
    gids: gidsOf(nic),
  };
}
