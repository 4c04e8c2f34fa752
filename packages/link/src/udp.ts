/**
 * The main link: unprivileged UDP sockets in batches, through the native addon. A device per interface,
 * or one for a list of addresses.
 */
import { Port, Socket } from '@node-roce/dgram-native';
import {
  EMPTY_GID,
  type FrameHost,
  type GidEntry,
  isEmptyGid,
  type RxBatch,
  type TxBatch,
} from '@node-roce/transport';
import { gidEquals, gidFromText, gidToIpText, gidToText, ROCE_UDP_PORT } from '@node-roce/wire';
import { explainDescriptors, withDescriptors } from './descriptors.ts';
import { InterfaceFrames } from './frames.ts';
import { activeMtuOf, type NetworkInterface } from './interfaces.ts';
import type { Link } from './link.ts';
import {
  bindError,
  bufferLimitation,
  chooseAddresses,
  DEFAULT_RECEIVE_BUFFER,
  type LocalOptions,
  placeOf,
} from './local-sockets.ts';
import { copy, timeOrigin } from './native-link.ts';
import { joinAddresses, type SharedAddress } from './sharing/shared-address.ts';
import { RETRY_MICROSECONDS, Sharing } from './sharing/sharing.ts';

export interface UdpLinkOptions extends LocalOptions {
  /** Bytes of receive buffer to ask for; forced past the limit where CAP_NET_ADMIN allows. Default 32 MiB. */
  receiveBuffer?: number;
  /** Packets with UDP checksum 0, as rxe and ConnectX send them; excludes GSO. Default false. */
  zeroChecksum?: boolean;
  /** Runs of packets as one super-packet, out (GSO) and in (GRO). Default true. */
  offload?: boolean;
  /**
   * ICRCs of FLUSHes. rxe of Linux 6.12 computes them over BTH to RETH twice, and takes no others (docs/quirks.md). `both`: send right
   * ones, take either; `rxe`: send rxe's, take either; `strict`: right ones alone. Default `both`.
   */
  flushIcrc?: FlushIcrc;
  /** Sentences to put in front of the link's own `limitations`. */
  limitations?: readonly string[];
}

/** Which ICRCs FLUSHes have: `UdpLinkOptions.flushIcrc`. */
export type FlushIcrc = 'both' | 'rxe' | 'strict';

const SHARED_LIMITATION =
  'The address is shared: addresses that the interface gets later are not served, and no program of another user can join.';

/** A link over the native addon's UDP sockets: the one that talks to rxe and RoCE cards. */
export class UdpLink implements Link {
  readonly kind = 'udp';
  readonly port: number;
  readonly activeMtu: number;
  readonly receiveBuffer: number;
  readonly copy = copy;
  readonly interface: NetworkInterface;
  readonly #native: Port;
  readonly #sockets: Socket[] = [];
  /** Local indices of the addresses that have a socket, by the text of their GID. */
  readonly #locals = new Map<string, number>();
  readonly #gids: GidEntry[] = [];
  /** Opened for the interface as a whole: an address that it gets is taken. */
  readonly #whole: boolean;
  /** Groups joined, by local index. */
  readonly #groups = new Map<number, { gid: Uint8Array; socket: Socket }>();
  readonly #limitations: readonly string[];
  readonly #receiving: { receiveBuffer: number; gro: boolean };
  readonly sharing: Sharing | undefined;
  #clock: Float64Array | undefined;
  #onWake: (() => void) | undefined;

  /** Opens the sockets. Rejects with RoceError: EADDRINUSE (with who has the port), EADDRNOTAVAIL, EMFILE, … */
  static async open(options: UdpLinkOptions): Promise<UdpLink> {
    if (!options.shared) return new UdpLink(options, []);
    const { nic, addresses } = chooseAddresses(options);
    const { port = ROCE_UDP_PORT, receiveBuffer = DEFAULT_RECEIVE_BUFFER, offload = true } = options;
    const bindings = addresses.map((address) => ({
      gid: gidToText(gidFromText(address)),
      ...placeOf(gidFromText(address), address, nic.name),
      port,
      receiveBuffer,
      gro: offload,
    }));
    const shared = await joinAddresses(bindings);
    try {
      return new UdpLink({ ...options, address: bindings.map(({ address }) => address) }, shared);
    } catch (error) {
      for (const each of shared) each.close();
      throw error;
    }
  }

  /** @param shared the sockets of the addresses, in their order; empty: opened here */
  private constructor(options: UdpLinkOptions, shared: readonly SharedAddress[]) {
    const {
      port = ROCE_UDP_PORT,
      receiveBuffer = DEFAULT_RECEIVE_BUFFER,
      offload = true,
      flushIcrc = 'both',
    } = options;
    const { nic, addresses } = chooseAddresses(options);
    this.interface = nic;
    this.activeMtu = activeMtuOf(nic);
    this.port = port;
    this.#limitations = options.limitations ?? [];
    this.#receiving = { receiveBuffer, gro: offload };
    const gso = offload && !options.zeroChecksum;
    const onWake = () => this.#onWake?.();
    this.#native = withDescriptors(
      () =>
        new Port({
          onWake,
          udpChecksum: !options.zeroChecksum,
          gso,
          takeFlushTwice: flushIcrc !== 'strict',
          sendFlushTwice: flushIcrc === 'rxe',
          timeOrigin: timeOrigin(),
          // A peer counts what it sends to all who share the address: one of them sees gaps of any size.
          idWindow: shared.length === 0,
        }),
    );
    this.#whole = options.address === undefined;
    try {
      for (const [i, address] of addresses.entries())
        this.#addLocal(address, shared.length === 0 ? undefined : shared[i].own);
      if (shared.length > 0) this.sharing = this.#share(shared);
    } catch (error) {
      this.#native.close();
      if (shared.length === 0) for (const socket of this.#sockets) socket.close();
      throw error;
    }
    this.receiveBuffer = Math.min(...this.#sockets.map((s) => s.receiveBuffer));
  }

  get gids(): readonly GidEntry[] {
    return this.#gids;
  }

  /** The socket of queue pair 1 of each address; behind the addresses, whose indices are those of GIDs. */
  #share(shared: readonly SharedAddress[]): Sharing {
    const sharing = new Sharing(this.#native, shared);
    for (const [index, address] of shared.entries()) {
      sharing.opened(address, index, this.#native.addLocal(address.management));
    }
    return sharing;
  }

  /** Gives an address an entry, and opens a socket on it unless there is one. @throws the kernel's error */
  #addLocal(address: string, bound?: Socket): void {
    const gid = gidFromText(address);
    const socket = bound ?? this.#open(gid, address);
    const index = this.#take(socket);
    this.#sockets.push(socket);
    this.#locals.set(gidToText(gid), index);
    // A group may have the index between.
    while (this.#gids.length < index) this.#gids.push(EMPTY_GID);
    this.#gids[index] = { gid, address, type: 'RoCE v2' };
  }

  setAddress(address: string, present: boolean): boolean {
    const gid = gidFromText(address);
    const index = this.#locals.get(gidToText(gid));
    if (index === undefined) {
      if (!present || !this.#whole) return false;
      this.#addLocal(address);
      return true;
    }
    if (isEmptyGid(this.#gids[index]) !== present) return false;
    // The socket stays open: it works again as soon as its address is back.
    this.#gids[index] = present ? { gid, address, type: 'RoCE v2' } : EMPTY_GID;
    return true;
  }

  /** Receives from a socket; closes it if that fails. Returns its local index. */
  #take(socket: Socket): number {
    try {
      return this.#native.addLocal(socket);
    } catch (error) {
      socket.close();
      throw explainDescriptors(error);
    }
  }

  #open(gid: Uint8Array, address: string): Socket {
    const { port } = this;
    const place = placeOf(gid, address, this.interface.name);
    try {
      return new Socket({ ...place, port, ...this.#receiving });
    } catch (cause) {
      throw bindError(cause, place.address, place.family, port);
    }
  }

  get limitations(): readonly string[] {
    return [
      ...this.#limitations,
      `The IPv4 Identification of a received packet is solved from its ICRC, so one corrupt packet in ${this.sharing ? '65,536' : 'some 2^24'} passes instead of one in 2^32 (docs/icrc.md).`,
      'Every packet passes through the kernel’s UDP stack and is copied once on receive.',
      ...(this.sharing ? [SHARED_LIMITATION] : []),
      ...bufferLimitation(this.receiveBuffer),
    ];
  }

  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number {
    return this.#native.addPeer({ address: dgid, local: sgidIndex, hopLimit, port: this.port });
  }

  remove(peer: number): void {
    this.#native.removePeer(peer);
  }

  /** Joins by IGMP or MLD on the link's interface, whatever the GID. Throws the kernel's error. */
  join(group: Uint8Array, _sgidIndex: number): number {
    for (const [local, { gid }] of this.#groups) if (gidEquals(gid, group)) return local;
    const address = gidToIpText(group);
    const socket = this.#open(group, address);
    try {
      socket.joinGroup(address, this.interface.name);
      const local = this.#native.addLocal(socket);
      this.#groups.set(local, { gid: group.slice(), socket });
      return local;
    } catch (error) {
      socket.close();
      throw error;
    }
  }

  leave(local: number): void {
    const group = this.#groups.get(local);
    if (!group) return;
    this.#groups.delete(local);
    this.#native.removeLocal(local);
    group.socket.close(); // The kernel leaves the group with it.
  }

  /** Has the addon write the time of each batch; not into memory that could be detached. */
  #setClock(time: Float64Array): void {
    this.#clock = time;
    if (time.buffer instanceof SharedArrayBuffer) this.#native.setClock(time);
  }

  send(batch: TxBatch, from: number, time?: Float64Array): number {
    if (time !== undefined && time !== this.#clock) this.#setClock(time);
    const { slots, headers, fragments, count, regions } = batch;
    return this.#native.send(slots, headers, fragments, from, count, regions.views, regions.shared);
  }

  receive(batch: RxBatch, time?: Float64Array): number {
    if (time !== undefined && time !== this.#clock) this.#setClock(time);
    batch.count = this.#native.receive(batch.slab, batch.slots, batch.sources, batch.capacity);
    this.sharing?.exchange(batch);
    return batch.count;
  }

  stampArrivals(): void {
    this.#native.stampArrivals();
  }

  frames(onWake: () => void): FrameHost {
    return new InterfaceFrames(this.interface.name, onWake);
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
    const soon = this.sharing?.waiting ? RETRY_MICROSECONDS : Number.POSITIVE_INFINITY;
    this.#native.setDeadline(Math.min(microsecondsFromNow, soon));
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
    return { ...this.#native.stats(), ...this.sharing?.stats };
  }

  async close(): Promise<void> {
    this.#closeAll();
  }

  #closeAll(): void {
    this.#onWake = undefined;
    this.#native.close();
    this.sharing?.close();
    for (const socket of this.#sockets) socket.close();
    for (const { socket } of this.#groups.values()) socket.close();
    this.#groups.clear();
  }
}
