/**
 * The main link: unprivileged UDP sockets in batches, through the native addon. A device per interface,
 * or one for a list of addresses.
 */
import { features, Port, type Socket } from '@node-roce/dgram-native';
import { RX_SLOT_WORDS, Rx, type RxBatch } from '@node-roce/transport';
import { gidFromText, gidToText, ROCE_UDP_PORT } from '@node-roce/wire';
import { explainDescriptors } from './descriptors.ts';
import { activeMtuOf } from './interfaces.ts';
import {
  bufferLimitation,
  chooseAddresses,
  DEFAULT_RECEIVE_BUFFER,
  isLoopback,
  placeOf,
} from './local-sockets.ts';
import { PortLink, type PortLinkOptions } from './port-link.ts';
import { joinAddresses, type SharedAddress } from './sharing/shared-address.ts';
import { RETRY_MICROSECONDS, Sharing } from './sharing/sharing.ts';

export interface UdpLinkOptions extends PortLinkOptions {
  /** Bytes of receive buffer to ask for; forced past the limit where CAP_NET_ADMIN allows. Default 32 MiB. */
  receiveBuffer?: number;
  /** Packets with UDP checksum 0, as rxe and ConnectX send them; excludes GSO. Default false. */
  zeroChecksum?: boolean;
  /** Runs of packets as one super-packet, out (GSO) and in (GRO). Default true. */
  offload?: boolean;
  /** Packets that differ in their PSNs alone in one slot, where `offload` sends them as one message, and taken at once where they arrive in one. Without, for tests. Default true. */
  runs?: boolean;
  /** Sentences to put in front of the link's own `limitations`. */
  limitations?: readonly string[];
}

/** Source ports of an address: flows that ECMP and RSS may spread. */
const TRANSMIT_SOCKETS = 16;

/** ROCE_LINK_RUNS=off, for tests: links without the option are without runs. */
const RUNS = process.env.ROCE_LINK_RUNS !== 'off';

const SHARED_LIMITATION =
  'The address is shared: addresses that the interface gets later are not served, and no program of another user can join.';

/** A link over the native addon's UDP sockets: the one that talks to rxe and RoCE cards. */
export class UdpLink extends PortLink<Port> {
  readonly kind = 'udp';
  readonly activeMtu: number;
  readonly receiveBuffer: number;
  readonly sharing: Sharing | undefined;
  readonly takesRuns: boolean;
  /** Runs are switched off: packets that arrive are in none, either. */
  readonly #endsRuns: boolean;
  readonly #sockets: Socket[] = [];
  readonly #limitations: readonly string[];

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
      receiveBuffer = DEFAULT_RECEIVE_BUFFER,
      offload = true,
      zeroChecksum = false,
      runs = RUNS,
    } = options;
    const { nic, addresses } = chooseAddresses(options);
    super(options, nic, { receiveBuffer, gro: offload }, (common) => {
      // A peer counts what it sends to all who share the address: one of them sees gaps of any size.
      // With the first one that joins later, the window is opened.
      const idWindow = shared.every(({ isAlone }) => isAlone);
      // Nothing spreads packets by their source port there, and the kernel merges those of one port alone.
      const transmitSockets = addresses.every(isLoopback) ? 1 : TRANSMIT_SOCKETS;
      const gso = offload && !zeroChecksum;
      return new Port({ ...common, udpChecksum: !zeroChecksum, gso, idWindow, transmitSockets });
    });
    this.activeMtu = activeMtuOf(nic);
    // Without GSO each packet is a message of its own, and a slot is little compared with that.
    this.takesRuns = runs && offload && !zeroChecksum && features().gso;
    this.#endsRuns = !runs;
    this.#limitations = options.limitations ?? [];
    try {
      for (const [i, address] of addresses.entries()) {
        if (shared.length === 0) this.addAddress(address);
        else this.addAddress(address, () => this.#take(shared[i].own));
      }
      if (shared.length > 0) this.sharing = this.#share(shared);
    } catch (error) {
      this.native.close();
      if (shared.length === 0) for (const socket of this.#sockets) socket.close();
      throw error;
    }
    this.receiveBuffer = Math.min(...this.#sockets.map((s) => s.receiveBuffer));
  }

  /** The socket of queue pair 1 of each address; behind the addresses, whose indices are those of GIDs. */
  #share(shared: readonly SharedAddress[]): Sharing {
    const sharing = new Sharing(this.native, shared);
    for (const [index, address] of shared.entries()) {
      sharing.opened(address, index, this.native.addLocal(address.management));
    }
    return sharing;
  }

  protected listen(gid: Uint8Array, address: string): number {
    return this.#take(this.bind(gid, address));
  }

  protected listenToGroup(_group: Uint8Array, socket: Socket): number {
    return this.native.addLocal(socket);
  }

  /** Receives from a socket; closes it if that fails. Returns its local index. */
  #take(socket: Socket): number {
    try {
      const index = this.native.addLocal(socket);
      this.#sockets.push(socket);
      return index;
    } catch (error) {
      socket.close();
      throw explainDescriptors(error);
    }
  }

  get limitations(): readonly string[] {
    return [
      ...this.#limitations,
      `Over IPv4, about one damaged packet in ${this.sharing?.isAlone === false ? '32,768' : '2^24'} passes the ICRC check, instead of one in 2^32: the kernel hides the IPv4 Identification (docs/icrc.md).`,
      'Every packet passes through the kernel’s UDP stack, and is copied once when it is received.',
      ...(this.sharing ? [SHARED_LIMITATION] : []),
      ...bufferLimitation(this.receiveBuffer),
    ];
  }

  override receive(batch: RxBatch, time?: Float64Array): number {
    super.receive(batch, time);
    if (this.#endsRuns) for (let i = 0; i < batch.count; i++) batch.slots[i * RX_SLOT_WORDS + Rx.RUN] = 1;
    this.sharing?.exchange(batch);
    return batch.count;
  }

  stampArrivals(): void {
    this.native.stampArrivals();
  }

  override setDeadline(microsecondsFromNow: number): void {
    const soon = this.sharing?.waiting ? RETRY_MICROSECONDS : Number.POSITIVE_INFINITY;
    this.native.setDeadline(Math.min(microsecondsFromNow, soon));
  }

  stats(): Record<string, number> {
    return { ...this.native.stats(), ...this.sharing?.stats };
  }

  protected override closeAll(): void {
    super.closeAll();
    this.sharing?.close();
    for (const socket of this.#sockets) socket.close();
  }
}
