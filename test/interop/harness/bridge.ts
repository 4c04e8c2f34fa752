/** The network between a guest and us: a bridge of this namespace and its port for the guest. */
import { execFileSync } from 'node:child_process';

const ip = (...args: string[]): void => {
  execFileSync('ip', args, { stdio: 'pipe' });
};

export interface Bridge {
  /** Distinguishes the guests of one namespace: it is in every name and address. */
  number: number;
  bridge: string;
  /** The bridge's port: a tap device of QEMU, or one end of a cable whose other end has the kernel of User-Mode Linux. */
  port: string;
  /** Under User-Mode Linux, the network for commands: our end of a cable, and the addresses of both. */
  control: string;
  hostControl: string;
  guestControl: string;
  /** Our end, and the guest's. */
  hostIp4: string;
  hostIp6: string;
  ip4: string;
  ip6: string;
}

export function bridgeOf(number: number): Bridge {
  const [net4, net6] = [`10.77.${number}`, `fd77:${number}`];
  return {
    number,
    bridge: `br${number}`,
    port: `port${number}`,
    control: `control${number}`,
    hostControl: `10.78.${number}.1`,
    guestControl: `10.78.${number}.2`,
    hostIp4: `${net4}.1`,
    hostIp6: `${net6}::1`,
    ip4: `${net4}.2`,
    ip6: `${net6}::2`,
  };
}

/** Of network card `card` (0 RDMA, 1 control) at end `host` (1 ours, 2 the guest's). */
export function macOf(number: number, card: 0 | 1, host: 1 | 2): string {
  return `52:54:00:7${7 + card}:${number.toString(16).padStart(2, '0')}:0${host}`;
}

/** @param cable whether the guest has one end of a cable, instead of a tap device */
export function raiseBridge(of: Bridge, mtu: number, cable: boolean): void {
  const { number, bridge, port, control } = of;
  ip('link', 'set', 'lo', 'up');
  // Without snooping, the bridge floods multicast: no querier is needed.
  ip('link', 'add', bridge, 'type', 'bridge', 'mcast_snooping', '0');
  if (cable) {
    addCable(port, mtu);
    addCable(control, 1500);
    ip('addr', 'add', `${of.hostControl}/24`, 'dev', control);
    ip('link', 'set', control, 'up');
  } else ip('tuntap', 'add', port, 'mode', 'tap');
  // A guest that is emulated takes its packets late: of a burst of UC or UD, nothing is to be lost before it.
  ip('link', 'set', port, 'txqueuelen', '20000', 'mtu', String(mtu), 'master', bridge, 'up');
  ip('link', 'set', bridge, 'address', macOf(number, 0, 1), 'mtu', String(mtu), 'up');
  ip('addr', 'add', `${of.hostIp4}/24`, 'dev', bridge);
  ip('-6', 'addr', 'add', `${of.hostIp6}/64`, 'dev', bridge, 'nodad');
}

/** The guest's end of a cable. */
export const guestEnd = (name: string): string => `${name}-um`;

/** A pair of devices without offloads: what passes is what a wire would carry. */
function addCable(name: string, mtu: number): void {
  const far = guestEnd(name);
  const size = ['mtu', String(mtu)];
  ip('link', 'add', name, ...size, 'type', 'veth', 'peer', 'name', far, ...size);
  const off = ['tx', 'tso', 'gso', 'gro'].flatMap((offload) => [offload, 'off']);
  for (const end of [name, far]) {
    execFileSync('ethtool', ['-K', end, ...off], { stdio: 'pipe' });
    ip('link', 'set', end, 'addrgenmode', 'none'); // no IPv6 address, so nothing of ours but what the bridge sends
  }
  ip('link', 'set', far, 'up');
}

export function dropBridge({ bridge, port, control }: Bridge): void {
  for (const link of [port, control, bridge]) {
    try {
      ip('link', 'delete', link);
    } catch {
      // Gone with the namespace, or never made.
    }
  }
}
