/** Checks of the route to a peer: its address, the MTU, whether it refuses. No privilege is needed. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { isIPv4 } from 'node:net';
import { interfaceByAddress, type NetworkInterface } from '@node-roce/link';
import { MTU_OVERHEAD_BYTES, pathMtuForInterface, ROCE_UDP_PORT } from '@node-roce/wire';
import { probePath, routeMtu } from '../path-mtu.ts';
import { sourceFor } from '../route.ts';
import { type Check, fail, ok, warn } from './check.ts';

/** How long an ICMP error may take to come back. */
const ICMP_TIMEOUT_MS = 1000;

export interface Way {
  /** The peer's address. */
  address: string;
  /** Ours. */
  source: string;
  nic: NetworkInterface;
}

/** A link-local address of IPv6 means a host only with its interface. */
const lacksZone = (address: string): boolean => /^fe[89ab][0-9a-f]:/i.test(address) && !address.includes('%');

/** Finds the way, or the check that failed on it. */
export async function findWay(peer: string, bind: string | undefined): Promise<Way | Check> {
  let address: string;
  try {
    ({ address } = await lookup(peer));
  } catch (error) {
    return fail(
      'route',
      `cannot find the address of ${peer} (${(error as NodeJS.ErrnoException).code}): check the name, or give an IP address`,
    );
  }
  if (lacksZone(address)) {
    return fail('route', `${address} is an address of one link: name the interface, as in ${address}%eth0`);
  }
  if (bind !== undefined && isIPv4(bind) !== isIPv4(address)) {
    return fail(
      'route',
      `${bind} and ${address} are of different IP versions: --bind needs the version of the peer`,
    );
  }
  try {
    const source = bind ?? (await sourceFor(address));
    return { address, source, nic: interfaceByAddress(source) };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const why = code === 'ENETUNREACH' || code === 'EHOSTUNREACH' ? 'no route; look at `ip route`' : message;
    return fail('route', `no route to ${address}: ${why}`);
  }
}

export function describeWay({ address, source, nic }: Way): Check {
  return ok('route', `packets to ${address} leave from ${source} on ${nic.name}`);
}

/** The MTU of the way, by its route and by a probe that routers answer, and the path MTU that it allows. */
export async function checkMtu({ address, source, nic }: Way): Promise<Check> {
  const before = await routeMtu(address);
  const route = await probePath({ address, source }, nic.mtu ?? 1500).catch(() => before);
  const mtu = Math.min(nic.mtu ?? 1500, route ?? Number.POSITIVE_INFINITY);
  const allowed = pathMtuForInterface(mtu);
  const isReported = route !== undefined && route !== before;
  const text = isReported
    ? `a router on the way reports MTU ${mtu} (ICMP)`
    : `${route === undefined ? nic.name : 'the route'} has MTU ${mtu}`;
  if (allowed === 0) return fail('mtu', `${text}, which is too small for RoCE: raise it to 1500`);
  // The engine takes the interface's: it does not know of routes.
  const engine = pathMtuForInterface(nic.mtu ?? 1500);
  if (engine > allowed) {
    return warn(
      'mtu',
      `${text}, but ${nic.name} has ${nic.mtu}: packets of path MTU ${engine} would be lost; connect with pathMtu ${allowed}`,
    );
  }
  if (allowed === 4096) return ok('mtu', `${text}, which allows the largest path MTU, 4096`);
  return warn(
    'mtu',
    `${text}, so the path MTU is ${allowed}; ${4096 + MTU_OVERHEAD_BYTES} or more on all of the way would allow 4096`,
  );
}

/** One empty datagram: a machine where nobody listens answers with an ICMP error. */
export async function checkReachable({ address, source }: Way): Promise<Check> {
  const socket = createSocket(isIPv4(address) ? 'udp4' : 'udp6');
  const over = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  try {
    // An address of one link is bound with its link.
    const [, zone] = address.split('%');
    socket.bind({ address: zone === undefined ? source : `${source.split('%')[0]}%${zone}` });
    await once(socket, 'listening');
    socket.connect(ROCE_UDP_PORT, address);
    await once(socket, 'connect');
    const refused = once(socket, 'message', { signal: over.signal });
    // After a stall of this process, timers run before sockets are read: the refusal may be there.
    timer = setTimeout(() => setImmediate(() => over.abort()), ICMP_TIMEOUT_MS);
    socket.send(new Uint8Array(0));
    await refused;
  } catch (error) {
    const { code, name, message } = error as NodeJS.ErrnoException;
    if (name === 'AbortError') return silent(address);
    if (code === 'ECONNREFUSED') {
      return fail(
        'peer',
        `no program has UDP port 4791 at ${address}: is RoCE running there ('rdma link', 'roce doctor')? A firewall may answer the same`,
      );
    }
    return fail('peer', `${address} can't be reached: ${code ?? message}`);
  } finally {
    clearTimeout(timer);
    socket.close();
  }
  return silent(address);
}

/** RoCE does not answer an empty datagram. */
function silent(address: string): Check {
  if (isIPv4(address) && arpFailed(address)) {
    return fail('peer', `${address} does not answer ARP: is it up, and on this network?`);
  }
  return ok('peer', `${address} did not refuse UDP port 4791 (a firewall that drops would look the same)`);
}

/** Whether the kernel has asked for the address and got no answer: flags 0x0 in /proc/net/arp. */
function arpFailed(address: string): boolean {
  const entry = readFileSync('/proc/net/arp', 'utf8')
    .split('\n')
    .map((line) => line.split(/\s+/))
    .find(([ip]) => ip === address);
  return entry?.[2] === '0x0';
}
