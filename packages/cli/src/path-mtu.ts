/** The MTU of the way to a host: of its route, and of routers on it, which answer packets that are too long with ICMP errors. */
import { execFile } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { isIPv4 } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { MTU_OVERHEAD_BYTES, pathMtuForInterface, ROCE_UDP_PORT } from '@node-roce/wire';

/** How long ICMP errors may take to come back, and how often they are looked for. */
const ICMP_WAIT_MS = 500;
const ICMP_LOOKS = 5;
/** IP and UDP headers of a probe. */
const PROBE_HEADERS_V4 = 28;
const PROBE_HEADERS_V6 = 48;

/**
 * The MTU that the kernel knows of the route: set by hand, or learnt from a router's ICMP error. From iproute2, where it is there;
 * undefined where the route has none of its own.
 */
export async function routeMtu(address: string): Promise<number | undefined> {
  try {
    const [to, zone] = address.split('%');
    const where = zone === undefined ? [to] : [to, 'dev', zone];
    const { stdout } = await promisify(execFile)('ip', ['-j', 'route', 'get', ...where]);
    const [route] = JSON.parse(stdout) as { metrics?: { mtu?: number }[]; mtu?: number }[];
    return route?.metrics?.find((metric) => metric.mtu !== undefined)?.mtu ?? route?.mtu;
  } catch {
    return undefined;
  }
}

/**
 * Sends one datagram of zeros, as long as the link allows, to the port of RoCE: a router with a smaller MTU answers with an ICMP error,
 * which the kernel remembers for the route. No adapter takes zeros for a packet: they name queue pair 0.
 * @returns the route's MTU afterwards
 */
export async function probePath(
  { address, source }: { address: string; source: string },
  linkMtu: number,
): Promise<number | undefined> {
  const isV4 = isIPv4(address);
  const longest = Math.min(linkMtu, 4096 + MTU_OVERHEAD_BYTES);
  const socket = createSocket(isV4 ? 'udp4' : 'udp6');
  try {
    const [, zone] = address.split('%');
    socket.bind({ address: zone === undefined ? source : `${source.split('%')[0]}%${zone}` });
    await once(socket, 'listening');
    // Not connected: a refusal by the peer is no failure of the probe.
    const probe = new Uint8Array(longest - (isV4 ? PROBE_HEADERS_V4 : PROBE_HEADERS_V6));
    await new Promise<void>((resolve) => socket.send(probe, ROCE_UDP_PORT, address, () => resolve()));
    for (let look = 0; look < ICMP_LOOKS; look++) {
      await sleep(ICMP_WAIT_MS / ICMP_LOOKS);
      const mtu = await routeMtu(address);
      if (mtu !== undefined && mtu < longest) return mtu;
    }
    return await routeMtu(address);
  } finally {
    socket.close();
  }
}

/** Why packets of a path MTU do not get through to a host, as far as routers have reported it; undefined: they have not. */
export async function tooLong(address: string, pathMtu: number): Promise<string | undefined> {
  const mtu = await routeMtu(address);
  if (mtu === undefined || mtu >= pathMtu + MTU_OVERHEAD_BYTES) return undefined;
  const allowed = pathMtuForInterface(mtu);
  return (
    `the way to ${address} has MTU ${mtu} (the route's, or reported by a router: "fragmentation needed"), ` +
    `packets of path MTU ${pathMtu} need ${pathMtu + MTU_OVERHEAD_BYTES}` +
    (allowed > 0 ? `: use path MTU ${allowed}` : '')
  );
}
