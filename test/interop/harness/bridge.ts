/** The network between a guest and us: a bridge of this namespace and the guest's tap device. */
import { execFileSync } from 'node:child_process';

const ip = (...args: string[]): void => {
  execFileSync('ip', args, { stdio: 'pipe' });
};

export interface Bridge {
  /** Distinguishes the guests of one namespace: it is in every name and address. */
  number: number;
  bridge: string;
  tap: string;
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
    tap: `tap${number}`,
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

export function raiseBridge({ number, bridge, tap, hostIp4, hostIp6 }: Bridge, mtu: number): void {
  ip('link', 'set', 'lo', 'up');
  // Without snooping, the bridge floods multicast: no querier is needed.
  ip('link', 'add', bridge, 'type', 'bridge', 'mcast_snooping', '0');
  ip('tuntap', 'add', tap, 'mode', 'tap');
  // A guest that is emulated takes its packets late: of a burst of UC or UD, nothing is to be lost before it.
  ip('link', 'set', tap, 'txqueuelen', '20000', 'mtu', String(mtu), 'master', bridge, 'up');
  ip('link', 'set', bridge, 'address', macOf(number, 0, 1), 'mtu', String(mtu), 'up');
  ip('addr', 'add', `${hostIp4}/24`, 'dev', bridge);
  ip('-6', 'addr', 'add', `${hostIp6}/64`, 'dev', bridge, 'nodad');
}

export function dropBridge({ bridge, tap }: Bridge): void {
  for (const link of [tap, bridge]) {
    try {
      ip('link', 'delete', link);
    } catch {
      // Gone with the namespace, or never made.
    }
  }
}
