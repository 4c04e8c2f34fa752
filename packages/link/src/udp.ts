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
import { gidFromText, isIpv4Mapped, isLinkLocal, ROCE_UDP_PORT } from '@node-roce/wire';
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
/** What rxe sends unacknowledged (128 packets) is charged about half of this. */
const SHORT_BUFFER = 2 * 1024 * 1024;
/** What the kernel charges a datagram of 4112 bytes, measured on Linux 6. */
const CHARGE_OF_FULL_PACKET = 8520;

const copy: CopyBatch = (slab, regions, list, count) => {
  if (nativeCopy(slab, regions.views, list, count) !== count) throw new RoceBug('a checked copy was refused');
};

export class UdpLink implements Link {
  readonly kind = 'udp';
  readonly port: number;
  readonly gids: readonly GidEntry[];
  readonly activeMtu: number;
  readonly receiveBuffer: number;
  readonly copy = copy;
  readonly interface: NetworkInterface;
  readonly #native: Port;
  readonly #sockets: Socket[] = [];
  #onWake: (() => void) | undefined;

  /** Opens the sockets. Throws RoceError: EADDRINUSE (with who has the port), EADDRNOTAVAIL, … */
  constructor(options: UdpLinkOptions) {
    const { port = ROCE_UDP_PORT, receiveBuffer = DEFAULT_RECEIVE_BUFFER, offload = true } = options;
    const { nic, addresses } = choose(options);
    this.interface = nic;
    this.activeMtu = activeMtuOf(nic);
    this.port = port;
    this.#native = new Port({
      onWake: () => this.#onWake?.(),
      udpChecksum: !options.zeroChecksum,
      gso: offload && !options.zeroChecksum,
    });
    const gids: GidEntry[] = [];
    try {
      for (const address of addresses) {
        const gid = gidFromText(address);
        const family = isIpv4Mapped(gid) ? 4 : 6;
        const scoped = isLinkLocal(gid) ? `${address}%${nic.name}` : address;
        const socket = this.#open({ family, address: scoped, port, receiveBuffer, gro: offload });
        this.#sockets.push(socket);
        this.#native.addLocal(socket);
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
        throw new RoceError(
          'ERR_ROCE_NO_INTERFACE',
          `${options.address} is no address of this machine, or not usable yet`,
          {
            errno: 'EADDRNOTAVAIL',
            attribute: 'address',
            expected: 'an address that `ip address` shows without “tentative”',
            cause,
          },
        );
      }
      throw cause;
    }
  }

  get limitations(): readonly string[] {
    const list = [
      'The IPv4 Identification of a received packet is solved from its ICRC, so one corrupt packet in some 2^25 passes instead of one in 2^32 (docs/icrc.md).',
      'Every packet passes through the kernel’s UDP stack and is copied once on receive.',
    ];
    if (this.receiveBuffer < SHORT_BUFFER) {
      const packets = Math.floor(this.receiveBuffer / CHARGE_OF_FULL_PACKET);
      list.push(
        `The receive buffer holds ${packets} packets of 4096 bytes (${this.receiveBuffer} bytes granted): a peer that sends more at once loses some. Raise the sysctl net.core.rmem_max, or run with CAP_NET_ADMIN.`,
      );
    }
    return list;
  }

  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number {
    return this.#native.addPeer({ address: dgid, local: sgidIndex, hopLimit, port: this.port });
  }

  remove(peer: number): void {
    this.#native.removePeer(peer);
  }

  send(batch: TxBatch, from: number): number {
    const { slots, headers, fragments, count, regions } = batch;
    return this.#native.send(slots, headers, fragments, from, count, regions.views, regions.shared);
  }

  receive(batch: RxBatch): number {
    batch.count = this.#native.receive(batch.slab, batch.slots, batch.sources, batch.capacity);
    return batch.count;
  }

  watch(onWake: () => void): void {
    this.#onWake = onWake;
    this.#native.start();
  }

  unwatch(): void {
    this.#onWake = undefined;
    this.#native.stop();
  }

  setDeadline(microsecondsFromNow: number): void {
    this.#native.setDeadline(microsecondsFromNow);
  }

  wantWrite(on: boolean): void {
    this.#native.wantWrite(on);
  }

  ref(): void {
    this.#native.ref();
  }

  unref(): void {
    this.#native.unref();
  }

  stats(): Record<string, number> {
    return { ...this.#native.stats() };
  }

  async close(): Promise<void> {
    this.#closeAll();
  }

  #closeAll(): void {
    this.#onWake = undefined;
    this.#native.close();
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
    return { nic, addresses: addresses.map((address) => address.split('%')[0]) };
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
