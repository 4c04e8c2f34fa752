/** The addresses of an id of a C program: bound, resolved, and the way between them. */
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import type { Route } from '@node-roce/cm';
import {
  bindPort,
  gidOf,
  isAnyAddress,
  kindOf,
  LocalSide,
  type PortBinding,
  type SocketAddress,
  sourceTowards,
} from '@node-roce/rdmacm/parts';
import type { AhAttr, Device } from '@node-roce/verbs-api';
import { addressVector } from '@node-roce/verbs-api/parts';
import { gidEquals, type PortSpace } from '@node-roce/wire';
import { Failed } from '../protocol.ts';
import type { PathInit, Places } from './abi.ts';

const { EADDRNOTAVAIL } = constants.errno;
const HOP_LIMIT = 64;

export type PortSpaceName = keyof typeof PortSpace;

const isLoopback = (address: string): boolean => address.startsWith('127.') || address === '::1';
const isV4 = (address: string): boolean => kindOf(gidOf(address)) === 'IPv4';
/** Whether both are of one IP version. */
export const isSameVersion = (a: string, b: string): boolean => isV4(a) === isV4(b);
/** Whether a socket of this network namespace has UDP port 4791 of an IPv4 address: a device on the loopback. */
function hasDevice(address: string): boolean {
  if (!isV4(address)) return false;
  const place = `${Buffer.from(gidOf(address).subarray(12)).readUInt32LE().toString(16).padStart(8, '0')}:12B7`;
  return readFileSync('/proc/net/udp', 'latin1').toUpperCase().includes(` ${place.toUpperCase()} `);
}

/** Some address of the same IP version. */
const likeOf = (address: string): string => (isV4(address) ? '192.0.2.1' : '2001:db8::1');

/** Both addresses of one id, and its port (core/cma.c `struct rdma_addr`). */
export class Addresses {
  /** SO_REUSEADDR: the port may be another id's, too. */
  reuses = false;
  /** RDMA_OPTION_ID_AFONLY. */
  isV6Only = false;
  trafficClass = 0;
  /** The address as the program sees it: a wildcard, or the loopback, stays as it is. */
  bound: SocketAddress | undefined;
  /** It is bound to a wildcard, and has no device. */
  isAny = false;
  /** Where packets leave from. */
  local: SocketAddress | undefined;
  remote: SocketAddress | undefined;
  route: Route | undefined;
  readonly #device: Device;
  readonly #portSpace: PortSpaceName;
  #port: PortBinding | undefined;

  constructor(device: Device, portSpace: PortSpaceName) {
    this.#device = device;
    this.#portSpace = portSpace;
  }

  /** The first address of the device of this kind, or else of its IP version. */
  #ownLike(address: string): string | undefined {
    const kind = kindOf(gidOf(address));
    const own = this.#device.gids.filter(({ gid }) => kindOf(gid) !== 'none');
    const same = own.find(({ gid }) => kindOf(gid) === kind);
    return (same ?? own.find((entry) => isSameVersion(entry.address, address)))?.address;
  }

  #gidIndex(address: string): number {
    const gid = gidOf(address);
    return this.#device.gids.findIndex((entry) => gidEquals(entry.gid, gid));
  }

  /** Takes an address and a port. A loopback address that the device does not have is a wildcard (core/cma.c `cma_any_addr`). */
  bind({ address, port: asked }: SocketAddress): void {
    const isOwn = this.#gidIndex(address) >= 0;
    if (!isOwn && !isAnyAddress(address) && !isLoopback(address)) throw new Failed(EADDRNOTAVAIL);
    const own = isOwn ? address : this.#ownLike(likeOf(address));
    const port = this.#bindPort(address, asked);
    this.isAny = !isOwn;
    this.bound = { address, port };
    this.local = own === undefined ? undefined : { address: own, port };
  }

  #bindPort(address: string, port: number): number {
    if (port !== 0 && this.reuses) return port;
    this.release();
    const { portTables } = new LocalSide(this.#device);
    this.#port = bindPort(portTables, this.#portSpace, address, port, this.isV6Only);
    return this.#port.port;
  }

  /** The addresses that lead to a peer; undefined where the device has none. Nothing has changed then. */
  async towards(to: SocketAddress): Promise<{ own: string; peer: string } | undefined> {
    // To itself: a wildcard, or a loopback address that no device has (core/cma.c `cma_resolve_loopback`).
    const isSelf = isAnyAddress(to.address) || (isLoopback(to.address) && !hasDevice(to.address));
    const peer = isSelf ? this.#ownLike(likeOf(to.address)) : to.address;
    if (peer === undefined) return undefined;
    const isBound = this.bound !== undefined && !this.isAny;
    const own = isBound ? this.local?.address : await this.#sourceTowards(peer);
    return own !== undefined && isSameVersion(own, peer) ? { own, peer } : undefined;
  }

  /** The address that the kernel's route to the peer starts from, if it is the device's; or else the first of the peer's kind. */
  async #sourceTowards(peer: string): Promise<string | undefined> {
    const routed = await sourceTowards(peer).catch(() => undefined);
    if (routed !== undefined && this.#gidIndex(routed) >= 0) return routed;
    return this.#ownLike(peer);
  }

  /** Takes the addresses of `towards`. */
  resolved({ own, peer }: { own: string; peer: string }, peerPort: number): void {
    const port = this.bound?.port ?? this.#bindPort(own, 0);
    this.local = this.bound = { address: own, port };
    this.isAny = false;
    this.remote = { address: peer, port: peerPort };
    this.route = {
      sgidIndex: this.#gidIndex(own),
      gid: gidOf(peer),
      trafficClass: this.trafficClass,
      hopLimit: HOP_LIMIT,
      // core/cma.c `cma_get_roce_udp_flow_label`.
      flowLabel: (port * 31 + peerPort) & 0xf_ffff,
    };
  }

  /** Of a request that came to a listener. */
  requested(local: SocketAddress, remote: SocketAddress, route: Route): void {
    this.local = this.bound = local;
    this.remote = remote;
    this.route = route;
  }

  /** Addresses, as the program sees them. */
  places(nodeGuid: Uint8Array): Places {
    const hasDevice = this.local !== undefined && !this.isAny;
    return { nodeGuid: hasDevice ? nodeGuid : undefined, local: this.bound, remote: this.remote };
  }

  get path(): PathInit | undefined {
    const { route } = this;
    if (!route) return undefined;
    const { sgidIndex, gid: dgid, flowLabel, trafficClass, hopLimit } = route;
    const { gid: sgid } = this.#device.gids[sgidIndex] ?? { gid: new Uint8Array(16) };
    return { dgid, sgid, flowLabel, trafficClass, hopLimit, mtu: this.#device.facts.activeMtu };
  }

  /** The way to a GID, of the peer or a group. */
  addressHandle(dgid: Uint8Array): AhAttr {
    const own = this.local ? this.#gidIndex(this.local.address) : 0;
    const { trafficClass, flowLabel = 0 } = { trafficClass: this.trafficClass, ...this.route };
    return addressVector({
      gid: dgid,
      sgidIndex: Math.max(own, 0),
      flowLabel,
      trafficClass,
      hopLimit: HOP_LIMIT,
    });
  }

  /** Gives the port back. */
  release(): void {
    this.#port?.release();
    this.#port = undefined;
  }
}
