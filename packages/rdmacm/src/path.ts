/** Both addresses of an id, its device, and the route of its packets. */
import { DEFAULT_TIMING, type Route, type Timing } from '@node-roce/cm';
import { type AddressInit, type Device, RoceError } from '@node-roce/verbs-api';
import { gidEquals, isIpv4Mapped } from '@node-roce/wire';
import {
  gidOf,
  isAnyAddress,
  kindOf,
  localAddresses,
  resolveHost,
  type SocketAddress,
  sourceTowards,
} from './addresses.ts';
import { orAborted } from './attempt.ts';
import { closedError, invalid } from './errors.ts';
import { LocalSide } from './local-side.ts';
import type { IdOptions } from './parameters.ts';
import { bindPort, type PortBinding } from './ports.ts';

const HOP_LIMIT = 64;

/** The peer, and where packets to it leave from. */
export interface Destination {
  /** Numeric address or name. */
  host: string;
  /** Port of the peer's program. */
  port: number;
  /** Our address; with a wildcard, that of the route. */
  source?: string;
  /** Our port; 0, the default, is that of `bindAddr`, or one that is drawn. */
  sourcePort?: number;
}

/** The source, destination and header fields of an id's packets. */
export class Path {
  local: SocketAddress | undefined;
  remote: SocketAddress | undefined;
  route: Route | undefined;
  /** Bytes; of our port, once the route is resolved. */
  pathMtu = 1024;
  readonly #options: IdOptions;
  readonly #side: LocalSide;
  #binding: PortBinding | undefined;
  #isReleased = false;

  constructor(options: IdOptions, side = new LocalSide(options.device, options.deviceOptions)) {
    this.#options = options;
    this.#side = side;
  }

  /** The device; undefined until an address is bound. */
  get device(): Device | undefined {
    return this.#side.device;
  }

  /** The path of a request that came to this listener; it keeps the device open, too. */
  ofRequest(from: SocketAddress, to: SocketAddress, route: Route): Path {
    // The traffic class is that of the request.
    const { trafficClass: _own, ...options } = this.#options;
    const path = new Path(options, this.#side.share());
    path.remote = from;
    path.local = to;
    path.route = route;
    return path;
  }

  /**
   * Takes the device of an address, and a port there. A wildcard, or no address, stands for all addresses of this machine: without a device
   * of the program's, there is none then.
   *
   * @param port 0 draws one, or leaves the one that there is
   */
  async bind(address: string | undefined, port: number): Promise<void> {
    const isAny = address === undefined || isAnyAddress(address);
    if (isAny && !this.device) this.#take(address ?? '::', port);
    else await this.#side.bindWith(address, undefined, (own) => this.#take(own, port));
  }

  /** Of a side that is bound to a wildcard without a device: a path for each address that the wildcard stands for. */
  everywhere(): Path[] {
    const { address, port } = this.local!;
    return localAddresses(address).map((each) => {
      const path = new Path(this.#options, this.#side.another());
      path.local = { address: each, port };
      return path;
    });
  }

  /** Takes the device of its address: the port is that of the wildcard. */
  async open(): Promise<void> {
    await this.#side.bind(this.local!.address, undefined);
  }

  /** Takes another port in place of one that was drawn. False for a port that the program has chosen. */
  redraw(): boolean {
    const taken = this.#binding;
    if (!taken?.isDrawn) return false;
    // The taken port stays ours until the draw is over: the draw would find it free.
    this.#binding = undefined;
    try {
      this.#bindTo(this.local!.address, 0);
    } finally {
      taken.release();
    }
    return true;
  }

  #take(address: string, port: number): void {
    const before = this.#binding;
    const hasChosen = before?.isDrawn === false;
    if (hasChosen && port !== 0 && port !== before.port)
      throw invalid('port', `the id is bound to port ${before.port}`, `${before.port}, or 0`);
    const isThere = this.local !== undefined && gidEquals(gidOf(this.local.address), gidOf(address));
    if (before && isThere && (port === 0 || port === before.port))
      this.local = { address, port: before.port };
    else this.#bindTo(address, port === 0 && hasChosen ? before.port : port);
  }

  #bindTo(address: string, port: number): void {
    // A call may still be under way when its id is destroyed: nobody would release the port that it takes.
    if (this.#isReleased) throw closedError('the id is destroyed');
    this.#binding?.release();
    this.#binding = undefined;
    this.#binding = bindPort(this.#side.portTables, this.#options.portSpace ?? 'TCP', address, port);
    this.local = { address, port: this.#binding.port };
  }

  /** Finds the peer's address, ours that leads there, and its device. */
  async resolve(
    { host, port, source, sourcePort = 0 }: Destination,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const chosen = source ?? this.local?.address;
    // A name may have addresses of both IP versions, and we may have one.
    const bound = chosen === undefined || isAnyAddress(chosen) ? undefined : chosen;
    const isPreferred = (gid: Uint8Array) =>
      bound === undefined ? this.#side.reaches(gid) : isIpv4Mapped(gidOf(bound)) === isIpv4Mapped(gid);
    // A resolver may take its time. A device opens at once, and is waited for: it has to be closed again.
    const found = await orAborted(resolveHost(host, isPreferred), signal);
    const address = isAnyAddress(found) ? this.#ownEnd(found, bound) : found;
    if (bound !== undefined && isIpv4Mapped(gidOf(bound)) !== isIpv4Mapped(gidOf(address)))
      throw otherVersion(bound, address);
    const from = bound ?? (this.#options.device ? undefined : await sourceTowards(address));
    await this.#side.bindWith(from, gidOf(address), (local) => {
      signal?.throwIfAborted();
      this.#take(local, sourcePort);
    });
    this.remote = { address, port };
    this.route = {
      sgidIndex: this.#side.gidIndex(this.local!.address),
      gid: gidOf(address),
      trafficClass: this.trafficClass,
      hopLimit: HOP_LIMIT,
      // core/cma.c `cma_get_roce_udp_flow_label`: so the paths of connections differ.
      flowLabel: (this.local!.port * 31 + port) & 0xf_ffff,
    };
  }

  /** A wildcard as the peer is this machine, at the address that packets leave from (core/addr.c `addr_resolve`, core/cma.c `cma_resolve_loopback`). */
  #ownEnd(any: string, bound: string | undefined): string {
    if (bound !== undefined) return bound;
    const { device } = this.#side;
    const own = device?.gids.find(
      ({ gid }) => (kindOf(gid) === 'IPv4') === !any.includes(':') && kindOf(gid) !== 'none',
    );
    return own?.address ?? (any.includes(':') ? '::1' : '127.0.0.1');
  }

  /** A path to another address of the peer. Throws where `source` is not an address of the device. */
  alternate(address: string, source: string | undefined): Route {
    const gid = gidOf(address);
    const own = source ?? this.#side.otherThan(this.local!.address, gid);
    const sgidIndex = this.#side.gidIndex(own);
    if (sgidIndex < 0 || kindOf(gidOf(own)) !== kindOf(gid))
      throw new RoceError(
        'ERR_ROCE_CM_NO_ADDRESS',
        `source: the device has no ${own} that reaches ${address}`,
        {
          errno: 'EADDRNOTAVAIL',
          attribute: 'source',
          expected: this.device!.gids.map((entry) => entry.address).join(', '),
        },
      );
    return { ...this.route!, sgidIndex, gid };
  }

  get trafficClass(): number {
    return this.#options.trafficClass ?? 0;
  }

  /** An address vector towards a GID, of a peer or a group: from our address, if packets from there reach it. */
  towards(gid: Uint8Array): AddressInit {
    const own = this.local ? this.#side.gidIndex(this.local.address) : -1;
    const reaches = own >= 0 && kindOf(this.#side.device!.gids[own].gid) === kindOf(gid);
    return { gid, hopLimit: HOP_LIMIT, trafficClass: this.trafficClass, ...(reaches && { gidIndex: own }) };
  }

  /** Intervals and retries of messages. */
  get timing(): Timing & { packetLifetime: number } {
    const { timing = {}, ackTimeout } = this.#options;
    // As RDMA_OPTION_ID_ACK_TIMEOUT: REQ carries the option, or one more where our ACK delay needs that.
    const lifetime = ackTimeout === undefined ? timing.packetLifetime : Math.max(0, ackTimeout - 1);
    return { ...timing, packetLifetime: lifetime ?? DEFAULT_TIMING.packetLifetime };
  }

  release(): Promise<void> {
    this.#isReleased = true;
    this.#binding?.release();
    this.#binding = undefined;
    return this.#side.release();
  }
}

const otherVersion = (source: string, peer: string): RoceError =>
  new RoceError('ERR_ROCE_CM_NO_ADDRESS', `source: ${source} and ${peer} are of different IP versions`, {
    errno: 'EADDRNOTAVAIL',
    attribute: 'source',
    expected: `an IPv${peer.includes(':') ? 6 : 4} address of this machine`,
  });
