/**
 * The link past the kernel's UDP stack: AF_XDP sockets through the native addon. It takes packets for its own addresses,
 * port and queue pairs off the interface, and leaves all others to the kernel (docs/xdp.md).
 */
import { Socket, XdpPort, type XdpPortOptions } from '@node-roce/dgram-native';
import {
  EMPTY_GID,
  type FrameHost,
  type GidEntry,
  isEmptyGid,
  type RxBatch,
  type TxBatch,
} from '@node-roce/transport';
import { gidEquals, gidFromText, gidToIpText, gidToText, ROCE_UDP_PORT } from '@node-roce/wire';
import { withDescriptors } from './descriptors.ts';
import { InterfaceFrames } from './frames.ts';
import { activeMtuOf, type NetworkInterface } from './interfaces.ts';
import type { Link } from './link.ts';
import { bindError, chooseAddresses, placeOf } from './local-sockets.ts';
import { copy, timeOrigin } from './native-link.ts';
import type { UdpLinkOptions } from './udp.ts';
import { isTooMuchMemory, noXdp, queuesOf, whyNot, type XdpMode } from './xdp-support.ts';

/** Chunks to receive into, by how many queues share the memory; fewer where the kernel lets this user lock less. */
const RECEIVE_CHUNKS = 4096;
const MIN_RECEIVE_CHUNKS = 512;
const SEND_SLOTS = 1024;
const CHUNK = 4096;
/** Largest path MTU of frames that fit into one chunk behind the kernel's headroom. */
const MTU_OF_ONE_CHUNK = 2048;
/** The kernel's charge for a datagram of 4112 bytes, which `receiveBuffer` counts in, and the chunks that one takes here. */
const CHARGE_OF_FULL_PACKET = 8520;

const MODES: Record<XdpMode, Pick<XdpPortOptions, 'generic' | 'zeroCopy'>> = {
  'zero-copy': { zeroCopy: true },
  native: {},
  generic: { generic: true },
};

/** A link over AF_XDP sockets on all queues of an interface. */
export class XdpLink implements Link {
  readonly kind = 'xdp';
  readonly mode: XdpMode;
  readonly port: number;
  readonly activeMtu: number;
  readonly receiveBuffer: number;
  readonly copy = copy;
  readonly interface: NetworkInterface;
  readonly slab: Uint8Array<ArrayBuffer>;
  readonly #native: XdpPort;
  readonly #gids: GidEntry[] = [];
  readonly #locals = new Map<string, number>();
  readonly #groups = new Map<number, { gid: Uint8Array; socket: Socket }>();
  /** Sockets that hear nothing: they hold the port, so that the kernel does not answer that nobody is there. */
  readonly #holders: Socket[] = [];
  readonly #limitations: string[];
  readonly #whole: boolean;
  #clock: Float64Array | undefined;
  #onWake: (() => void) | undefined;

  /**
   * Opens the link in the first mode of these that the interface takes.
   * @throws RoceError ERR_ROCE_NO_XDP, with the reason of each mode
   */
  static open(options: UdpLinkOptions, modes: readonly XdpMode[]): XdpLink {
    const reasons: string[] = [];
    const { nic } = chooseAddresses(options);
    const queues = queuesOf(nic.name);
    for (const mode of modes) {
      for (let chunks = RECEIVE_CHUNKS; ; chunks /= 2) {
        try {
          return new XdpLink(options, mode, queues, chunks, reasons);
        } catch (error) {
          if (isTooMuchMemory(error) && chunks > MIN_RECEIVE_CHUNKS) continue;
          reasons.push(whyNot(error, mode));
          break;
        }
      }
    }
    throw noXdp(nic.name, reasons);
  }

  private constructor(
    options: UdpLinkOptions,
    mode: XdpMode,
    queues: number,
    receiveChunks: number,
    refused: readonly string[],
  ) {
    const { port = ROCE_UDP_PORT, flushIcrc = 'both' } = options;
    const { nic, addresses } = chooseAddresses(options);
    this.mode = mode;
    this.port = port;
    this.interface = nic;
    this.#whole = options.address === undefined;
    const activeMtu = activeMtuOf(nic);
    this.#native = withDescriptors(
      () =>
        new XdpPort({
          interface: nic.name,
          port,
          queues,
          receiveChunks,
          sendSlots: SEND_SLOTS,
          largeSlots: activeMtu > MTU_OF_ONE_CHUNK,
          ...MODES[mode],
          onWake: () => this.#onWake?.(),
          timeOrigin: timeOrigin(),
          takeFlushTwice: flushIcrc !== 'strict',
          sendFlushTwice: flushIcrc === 'rxe',
        }),
    );
    this.slab = this.#native.memory;
    const whole = this.#native.fragments;
    this.activeMtu = whole ? activeMtu : Math.min(activeMtu, MTU_OF_ONE_CHUNK);
    const chunksOfPacket = this.activeMtu > MTU_OF_ONE_CHUNK ? 2 : 1;
    this.receiveBuffer = Math.floor(receiveChunks / chunksOfPacket) * CHARGE_OF_FULL_PACKET;
    this.#limitations = [
      ...(mode === 'zero-copy'
        ? []
        : [
            `AF_XDP runs in ${mode} mode, which copies each packet once between the interface and this process${refused.length > 0 ? ` (${refused.join('; ')})` : ''}.`,
          ]),
      'tcpdump, netfilter, traffic control and socket statistics see none of its packets: use the trace option.',
      ...(whole || activeMtu <= MTU_OF_ONE_CHUNK
        ? []
        : ['This kernel has no AF_XDP frames of several buffers (Linux 6.6): the path MTU is 2048 at most.']),
      ...(receiveChunks < RECEIVE_CHUNKS
        ? [
            `The kernel locks ${(receiveChunks * CHUNK) / 2 ** 20} MiB to receive into, for want of CAP_IPC_LOCK or a higher RLIMIT_MEMLOCK.`,
          ]
        : []),
    ];
    try {
      for (const address of addresses) this.#addLocal(address);
    } catch (error) {
      this.#closeAll();
      throw error;
    }
  }

  get gids(): readonly GidEntry[] {
    return this.#gids;
  }

  get limitations(): readonly string[] {
    return this.#limitations;
  }

  #addLocal(address: string): void {
    const gid = gidFromText(address);
    const index = this.#native.addLocal(gid, this.#hold(gid, address));
    this.#locals.set(gidToText(gid), index);
    while (this.#gids.length < index) this.#gids.push(EMPTY_GID);
    this.#gids[index] = { gid, address, type: 'RoCE v2' };
  }

  /** Takes the UDP port at an address. False where another adapter has it, which then keeps queue pair 1, too. */
  #hold(gid: Uint8Array, address: string): boolean {
    const { port } = this;
    const place = placeOf(gid, address, this.interface.name);
    try {
      this.#holders.push(new Socket({ ...place, port, receive: false }));
      return true;
    } catch (cause) {
      const error = bindError(cause, place.address, place.family, port);
      if ((error as NodeJS.ErrnoException).code !== 'ERR_ROCE_PORT_IN_USE') throw error;
      this.#limitations.push(
        `Queue pair 1 at ${address}, and with it the connection manager, stays with another adapter (${(error as Error).message}).`,
      );
      return false;
    }
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
    this.#gids[index] = present ? { gid, address, type: 'RoCE v2' } : EMPTY_GID;
    return true;
  }

  setQueuePair(qpn: number, present: boolean): void {
    this.#native.setQueuePair(qpn, present);
  }

  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number {
    return this.#native.addPeer({ address: dgid, local: sgidIndex, hopLimit, port: this.port });
  }

  remove(peer: number): void {
    this.#native.removePeer(peer);
  }

  /** Joins by IGMP or MLD on the link's interface; the packets then come as all others. Throws the kernel's error. */
  join(group: Uint8Array, _sgidIndex: number): number {
    for (const [local, { gid }] of this.#groups) if (gidEquals(gid, group)) return local;
    const address = gidToIpText(group);
    const socket = new Socket({
      ...placeOf(group, address, this.interface.name),
      port: this.port,
      receive: false,
    });
    try {
      socket.joinGroup(address, this.interface.name);
      const local = this.#native.addLocal(group, false);
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
    group.socket.close();
  }

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
    return batch.count;
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
    return this.#native.stats();
  }

  async close(): Promise<void> {
    this.#closeAll();
  }

  #closeAll(): void {
    this.#onWake = undefined;
    this.#native.close();
    for (const socket of this.#holders) socket.close();
    for (const { socket } of this.#groups.values()) socket.close();
    this.#groups.clear();
  }
}
