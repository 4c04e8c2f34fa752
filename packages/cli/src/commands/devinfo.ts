/** `roce devinfo`: the interfaces that can be opened as devices, in the format of ibv_devinfo. */
import { activeMtuOf, interfaceByName, listInterfaces, type NetworkInterface } from '@node-roce/link';
import { DEVICE_LIMITS } from '@node-roce/transport';
import { gidsOf } from '../devices.ts';
import { availableLink } from '../doctor/machine.ts';
import type { Terminal } from '../terminal.ts';

const LINKS = { udp: 'udp', dgram: 'dgram (no native addon: reaches node-roce programs only)' };

export async function run(
  _args: readonly string[],
  { verbose, ibDev, json }: { verbose: boolean; ibDev?: string; json: boolean },
  terminal: Terminal,
): Promise<number> {
  const devices = (ibDev === undefined ? listInterfaces() : [interfaceByName(ibDev)]).map(describe);
  const link = await availableLink();
  if (json) {
    terminal.json({ link, devices, limits: DEVICE_LIMITS });
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
  if (devices.length === 0) terminal.message('no interface has an address');
  if (!verbose) return devices.length === 0 ? 1 : 0;
  terminal.line(terminal.colors.bold('limits of every device:'));
  for (const [name, value] of Object.entries(DEVICE_LIMITS)) terminal.line(`\t${verbsName(name)}:\t${value}`);
  return devices.length === 0 ? 1 : 0;
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
