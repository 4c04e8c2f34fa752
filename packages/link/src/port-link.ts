/** The links over ports of the native addon: their addresses, groups, peers, batches and wake-ups. */
import { type LinkPort, type LinkPortOptions, Socket, type SocketOptions } from '@node-roce/dgram-native';
import {
  EMPTY_GID,
  Fragment,
  type FrameHost,
  type GidEntry,
  isEmptyGid,
  type RxBatch,
  splitRun,
  type TxBatch,
} from '@node-roce/transport';
import { gidEquals, gidFromText, gidToIpText, gidToText, ROCE_UDP_PORT } from '@node-roce/wire';
import { withDescriptors } from './descriptors.ts';
import { InterfaceFrames } from './frames.ts';
import type { NetworkInterface } from './interfaces.ts';
import type { Link } from './link.ts';
import { bindError, type LocalOptions, placeOf } from './local-sockets.ts';
import { copies, timeOrigin } from './native-link.ts';

/** Options of the links over the native addon. */
export interface PortLinkOptions extends LocalOptions {
  /**
   * ICRCs of FLUSHes. rxe of Linux 6.12 computes them over BTH to RETH twice, and takes no others (docs/quirks.md). `both`: send right
   * ones, take either; `rxe`: send rxe's, take either; `strict`: right ones alone. Default `both`.
   */
  flushIcrc?: FlushIcrc;
}

/** Which ICRCs FLUSHes have: `PortLinkOptions.flushIcrc`. */
export type FlushIcrc = 'both' | 'rxe' | 'strict';

/** A link over a port of the native addon. A class over it defines how addresses and groups are listened to. */
export abstract class PortLink<P extends LinkPort> implements Link {
  abstract readonly kind: string;
  abstract readonly activeMtu: number;
  abstract readonly receiveBuffer: number;
  abstract readonly limitations: readonly string[];
  readonly port: number;
  readonly interface: NetworkInterface;
  readonly copy = copies();
  protected readonly native: P;
  /** Opened for the interface as a whole: an address that it gets is taken. */
  readonly #whole: boolean;
  /** Of the sockets of addresses and groups. */
  readonly #socketOptions: Partial<SocketOptions>;
  readonly #gids: GidEntry[] = [];
  /** Local indices of the addresses that are listened to, by the text of their GID. */
  readonly #locals = new Map<string, number>();
  /** Groups joined, by local index. */
  readonly #groups = new Map<number, { gid: Uint8Array; socket: Socket }>();
  #clock: Float64Array | undefined;
  /** The batch, and its list of shared regions, that `#send` is bound to; the batch of `#receive`. */
  #sent: TxBatch | undefined;
  #regionShared: Uint8Array | undefined;
  #send: ((from: number, count: number, view?: Uint8Array) => number) | undefined;
  #received: RxBatch | undefined;
  #receive: (() => number) | undefined;
  #onWake: (() => void) | undefined;

  protected constructor(
    { port = ROCE_UDP_PORT, flushIcrc = 'both', address }: PortLinkOptions,
    nic: NetworkInterface,
    socketOptions: Partial<SocketOptions>,
    open: (common: LinkPortOptions) => P,
  ) {
    this.port = port;
    this.interface = nic;
    this.#whole = address === undefined;
    this.#socketOptions = socketOptions;
    this.native = withDescriptors(() =>
      open({
        onWake: () => this.#onWake?.(),
        timeOrigin: timeOrigin(),
        takeFlushTwice: flushIcrc !== 'strict',
        sendFlushTwice: flushIcrc === 'rxe',
      }),
    );
  }

  /** Listens to an address. Returns its local index. Throws the kernel's error. */
  protected abstract listen(gid: Uint8Array, address: string): number;

  /** Listens to a group, which that socket has joined. Returns its local index. */
  protected abstract listenToGroup(group: Uint8Array, socket: Socket): number;

  get gids(): readonly GidEntry[] {
    return this.#gids;
  }

  /** A socket at the link's port. */
  protected bind(gid: Uint8Array, address: string): Socket {
    const { port } = this;
    const place = placeOf(gid, address, this.interface.name);
    try {
      return new Socket({ ...place, port, ...this.#socketOptions });
    } catch (cause) {
      throw bindError(cause, place.address, place.family, port);
    }
  }

  /** Gives an address an entry, and listens to it. */
  protected addAddress(address: string, listen = this.listen): void {
    const gid = gidFromText(address);
    const index = listen.call(this, gid, address);
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
      this.addAddress(address);
      return true;
    }
    if (isEmptyGid(this.#gids[index]) !== present) return false;
    // It is listened to all the time: it works again as soon as its address is back.
    this.#gids[index] = present ? { gid, address, type: 'RoCE v2' } : EMPTY_GID;
    return true;
  }

  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number {
    return this.native.addPeer({ address: dgid, local: sgidIndex, hopLimit, port: this.port });
  }

  remove(peer: number): void {
    this.native.removePeer(peer);
  }

  /** Joins by IGMP or MLD on the link's interface, whatever the GID. Throws the kernel's error. */
  join(group: Uint8Array, _sgidIndex: number): number {
    for (const [local, { gid }] of this.#groups) if (gidEquals(gid, group)) return local;
    const address = gidToIpText(group);
    const socket = this.bind(group, address);
    try {
      socket.joinGroup(address, this.interface.name);
      const local = this.listenToGroup(group, socket);
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
    this.native.removeLocal(local);
    group.socket.close(); // The kernel leaves the group with it.
  }

  /** Has the addon write the time of each batch; not into memory that could be detached. */
  #setClock(time: Float64Array): void {
    if (time.buffer instanceof SharedArrayBuffer) this.native.setClock(time);
    this.#clock = time;
  }

  send(batch: TxBatch, from: number, time?: Float64Array): number {
    if (time !== undefined && time !== this.#clock) this.#setClock(time);
    if (batch !== this.#sent || batch.regions.shared !== this.#regionShared) this.#bindSend(batch);
    const { fragments, fragmentCount, regions } = batch;
    const view = fragmentCount === 1 ? regions.views[fragments[Fragment.REGION]] : undefined;
    const taken = view === undefined ? this.#send!(from, batch.count) : this.#send!(from, batch.count, view);
    if (taken < batch.count) splitRun(batch, taken);
    return taken;
  }

  /** A run loop has one batch for ever, so that its arrays are looked up once. */
  #bindSend(batch: TxBatch): void {
    const { slots, headers, fragments, regions } = batch;
    this.#send = this.native.sender(slots, headers, fragments, regions.views, regions.shared);
    this.#sent = batch;
    this.#regionShared = regions.shared;
  }

  receive(batch: RxBatch, time?: Float64Array): number {
    if (time !== undefined && time !== this.#clock) this.#setClock(time);
    if (batch !== this.#received) this.#bindReceive(batch);
    batch.count = this.#receive!();
    return batch.count;
  }

  #bindReceive(batch: RxBatch): void {
    const { slab, slots, sources, capacity } = batch;
    // Memory that is the link's own is not shared.
    const isShared = slab.buffer instanceof SharedArrayBuffer;
    this.#receive = isShared
      ? this.native.receiver(slab, slots, sources, capacity)
      : () => this.native.receive(slab, slots, sources, capacity);
    this.#received = batch;
  }

  frames(onWake: () => void): FrameHost {
    return new InterfaceFrames(this.interface.name, onWake);
  }

  watch(onWake: () => void): void {
    this.#onWake = onWake;
    this.native.start();
  }

  unwatch(): void {
    this.#onWake = undefined;
    this.native.stop();
  }

  setDeadline(microsecondsFromNow: number): void {
    this.native.setDeadline(microsecondsFromNow);
  }

  wantWrite(on: boolean): void {
    this.native.wantWrite(on);
  }

  ref(): void {
    this.native.ref();
  }

  unref(): void {
    this.native.unref();
  }

  abstract stats(): Record<string, number>;

  async close(): Promise<void> {
    this.closeAll();
  }

  /** Closes the port and the sockets of groups; a class over it adds what it has opened. */
  protected closeAll(): void {
    this.#onWake = undefined;
    this.#sent = this.#received = undefined;
    this.#send = this.#receive = undefined;
    this.native.close();
    for (const { socket } of this.#groups.values()) socket.close();
    this.#groups.clear();
  }
}
