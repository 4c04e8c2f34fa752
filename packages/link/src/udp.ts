/**
 * The main link: unprivileged UDP sockets in batches, through the native addon. A device per interface,
 * or one for a list of addresses.
 */
import { copyBatch as nativeCopy, Port, Socket } from '@node-roce/dgram-native';
import {
  type CopyBatch,
  type GidEntry,
  RoceBug,
  RoceError,
  type RxBatch,
  type TxBatch,
} from '@node-roce/transport';
import { gidFromText, isIpv4Mapped, ROCE_UDP_PORT } from '@node-roce/wire';
import { activeMtuOf, interfaceByAddress, interfaceByName, type NetworkInterface } from './interfaces.ts';
import type { Link } from './link.ts';
import { describePortOwner } from './port-owner.ts';

export interface UdpLinkOptions {
  /** Local addresses in figures, one GID each; they have to be on one interface. */
  address?: string | readonly string[];
  /** Or all addresses of an interface: link-local, IPv4, other IPv6, in this order. */
  interface?: string;
  /** UDP port to listen at and to send to. Default 4791. */
  port?: number;
  /** Bytes of receive buffer to ask for; forced past the limit where CAP_NET_ADMIN allows. Default 32 MiB. */
  receiveBuffer?: number;
  /** Packets with UDP checksum 0, as rxe and ConnectX send them; excludes GSO. Default false. */
  zeroChecksum?: boolean;
  /** Runs of packets as one super-packet, out (GSO) and in (GRO). Default true. */
  offload?: boolean;
}

const DEFAULT_RECEIVE_BUFFER = 32 * 1024 * 1024;

const copy: CopyBatch = (slab, regions, list, count) => {
  if (nativeCopy(slab, regions.views, list, count) !== count) throw new RoceBug('a checked copy was refused');
};

export class UdpLink implements Link {
  readonly kind = 'udp';
  readonly gids: readonly GidEntry[];
  readonly activeMtu: number;
  readonly receiveBuffer: number;
  readonly copy = copy;
  readonly interface: NetworkInterface;
  readonly #port: Port;
  readonly #sockets: Socket[] = [];
  readonly #udpPort: number;
  #onWake: (() => void) | undefined;

  /** Opens the sockets. Throws RoceError: EADDRINUSE (with who has the port), EADDRNOTAVAIL, … */
  constructor(options: UdpLinkOptions) {
    const { port = ROCE_UDP_PORT, receiveBuffer = DEFAULT_RECEIVE_BUFFER, offload = true } = options;
    const { nic, addresses } = choose(options);
    this.interface = nic;
    this.activeMtu = activeMtuOf(nic);
    this.#udpPort = port;
    this.#port = new Port({
      onWake: () => this.#onWake?.(),
      udpChecksum: !options.zeroChecksum,
      gso: offload && !options.zeroChecksum,
    });
    const gids: GidEntry[] = [];
    try {
      for (const address of addresses) {
        const gid = gidFromText(address);
        const family = isIpv4Mapped(gid) ? 4 : 6;
        const scoped = gid[0] === 0xfe && (gid[1] & 0xc0) === 0x80 ? `${address}%${nic.name}` : address;
        const socket = this.#open({ family, address: scoped, port, receiveBuffer, gro: offload });
        this.#sockets.push(socket);
        this.#port.addLocal(socket);
        gids.push({ gid, address, type: 'RoCE v2' });
      }
    } catch (error) {
      this.#closeAll();
      throw error;
    }
    this.gids = gids;
    this.receiveBuffer = Math.min(...this.#sockets.map((s) => s.receiveBuffer));
  }

  #open(options: ConstructorParameters<typeof Socket>[0]): Socket {
    try {
      return new Socket(options);
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException;
      const where = `UDP port ${options.port} at ${options.address}`;
      if (code === 'EADDRINUSE') {
        const owner = describePortOwner(options.port, options.family);
        throw new RoceError('ERR_ROCE_PORT_IN_USE', `${where} is in use: ${owner}`, {
          errno: 'EADDRINUSE',
          attribute: 'port',
          cause,
        });
      }
      if (code === 'EADDRNOTAVAIL') {
        throw new RoceError('ERR_ROCE_NO_INTERFACE', `${options.address} is not an address of this machine`, {
          errno: 'EADDRNOTAVAIL',
          attribute: 'address',
          cause,
        });
      }
      throw cause;
    }
  }

  get limitations(): readonly string[] {
    return [
      'The IPv4 Identification of a received packet is solved from its ICRC, so a corrupt packet passes once in 2^16 / 65 cases instead of 2^32 (docs/icrc.md).',
      'Every packet passes the kernel’s UDP stack: no zero copy on receive.',
    ];
  }

  /** True when the receive buffer is smaller than what was asked for by so much that bursts will be lost. */
  get shortOfBuffer(): boolean {
    return this.receiveBuffer < 2 * 1024 * 1024;
  }

  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number {
    return this.#port.addPeer({ address: dgid, local: sgidIndex, hopLimit, port: this.#udpPort });
  }

  remove(peer: number): void {
    this.#port.removePeer(peer);
  }

  send(batch: TxBatch, from: number): number {
    const { slots, headers, fragments, count, regions } = batch;
    return this.#port.send(slots, headers, fragments, from, count, regions.views, regions.shared);
  }

  receive(batch: RxBatch): number {
    batch.count = this.#port.receive(batch.slab, batch.slots, batch.sources, batch.capacity);
    return batch.count;
  }

  watch(onWake: () => void): void {
    this.#onWake = onWake;
    this.#port.start();
  }

  unwatch(): void {
    this.#onWake = undefined;
    this.#port.stop();
  }

  setDeadline(microsecondsFromNow: number): void {
    this.#port.setDeadline(microsecondsFromNow);
  }

  wantWrite(on: boolean): void {
    this.#port.wantWrite(on);
  }

  ref(): void {
    this.#port.ref();
  }

  unref(): void {
    this.#port.unref();
  }

  stats(): Record<string, number> {
    return { ...this.#port.stats() };
  }

  async close(): Promise<void> {
    this.#closeAll();
  }

  #closeAll(): void {
    this.#onWake = undefined;
    this.#port.close();
    for (const socket of this.#sockets) socket.close();
  }
}

/** The addresses to open, and the interface that they are on. */
function choose(options: UdpLinkOptions): { nic: NetworkInterface; addresses: readonly string[] } {
  if (options.address !== undefined) {
    const addresses = typeof options.address === 'string' ? [options.address] : options.address;
    if (addresses.length === 0) throw missing();
    const nics = addresses.map((address) => interfaceByAddress(address));
    const nic = nics[0];
    const other = nics.findIndex((n) => n.name !== nic.name);
    if (other >= 0) {
      throw new RoceError(
        'ERR_ROCE_INVALID_ATTRIBUTE',
        `address: ${addresses[other]} is on ${nics[other].name}, ${addresses[0]} on ${nic.name}`,
        {
          errno: 'EINVAL',
          attribute: 'address',
          expected: 'addresses of one interface',
        },
      );
    }
    return { nic, addresses };
  }
  if (options.interface === undefined) throw missing();
  const nic = interfaceByName(options.interface);
  const rank = (a: NetworkInterface['addresses'][number]) => (a.linkLocal ? 0 : a.family === 4 ? 1 : 2);
  const addresses = [...nic.addresses].sort((a, b) => rank(a) - rank(b)).map((a) => a.address);
  return { nic, addresses };
}

function missing(): RoceError {
  return new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', 'address: which address or interface?', {
    errno: 'EINVAL',
    attribute: 'address',
    expected: '{ address } or { interface }',
  });
}
