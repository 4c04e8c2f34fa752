/**
 * The link past the kernel's UDP stack: AF_XDP sockets through the native addon. It takes packets for its own addresses,
 * port and queue pairs off the interface, and leaves all others to the kernel (docs/xdp.md).
 */
import { type Socket, XdpPort, type XdpPortOptions } from '@node-roce/dgram-native';
import { activeMtuOf } from './interfaces.ts';
import { chooseAddresses } from './local-sockets.ts';
import { PortLink } from './port-link.ts';
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

/** How a link is tried. */
interface Opening {
  mode: XdpMode;
  queues: number;
  /** To receive into. */
  chunks: number;
  /** Memory of the same size was locked just now. */
  waits: boolean;
}

/** A link over AF_XDP sockets on all queues of an interface. */
export class XdpLink extends PortLink<XdpPort> {
  readonly kind = 'xdp';
  readonly mode: XdpMode;
  readonly activeMtu: number;
  readonly receiveBuffer: number;
  readonly slab: Uint8Array<ArrayBuffer>;
  /** Sockets that hear nothing: they hold the port, so that the kernel does not answer that nobody is there. */
  readonly #holders: Socket[] = [];
  readonly #limitations: string[];

  /**
   * Opens the link in the first mode of these that the interface takes.
   * @throws RoceError ERR_ROCE_NO_XDP, with the reason of each mode
   */
  static open(options: UdpLinkOptions, modes: readonly XdpMode[]): XdpLink {
    const reasons: string[] = [];
    // Chunks that a refused mode had locked already.
    let locked: number | undefined;
    const { nic } = chooseAddresses(options);
    const queues = queuesOf(nic.name);
    for (const mode of modes) {
      for (let chunks = locked ?? RECEIVE_CHUNKS; ; chunks /= 2) {
        try {
          return new XdpLink(options, { mode, queues, chunks, waits: locked !== undefined }, reasons);
        } catch (error) {
          if (isTooMuchMemory(error)) {
            if (chunks > MIN_RECEIVE_CHUNKS) continue;
          } else locked = chunks;
          reasons.push(whyNot(error, mode));
          break;
        }
      }
    }
    throw noXdp(nic.name, reasons);
  }

  private constructor(
    options: UdpLinkOptions,
    { mode, queues, chunks, waits }: Opening,
    refused: readonly string[],
  ) {
    const { nic, addresses } = chooseAddresses(options);
    const activeMtu = activeMtuOf(nic);
    super(
      options,
      nic,
      { receive: false },
      (common) =>
        new XdpPort({
          ...common,
          ...MODES[mode],
          interface: nic.name,
          ...(options.port === undefined ? {} : { port: options.port }),
          queues,
          receiveChunks: chunks,
          waits,
          sendSlots: SEND_SLOTS,
          largeSlots: activeMtu > MTU_OF_ONE_CHUNK,
        }),
    );
    this.mode = mode;
    this.slab = this.native.memory();
    const whole = this.native.fragments();
    const { queuesWithoutSocket } = this.native.stats();
    this.activeMtu = whole ? activeMtu : Math.min(activeMtu, MTU_OF_ONE_CHUNK);
    const chunksOfPacket = this.activeMtu > MTU_OF_ONE_CHUNK ? 2 : 1;
    this.receiveBuffer = Math.floor(chunks / chunksOfPacket) * CHARGE_OF_FULL_PACKET;
    this.#limitations = [
      ...(mode === 'zero-copy'
        ? []
        : [
            `AF_XDP runs in ${mode} mode, which copies each packet once between the interface and this process${refused.length > 0 ? ` (${refused.join('; ')})` : ''}.`,
          ]),
      'tcpdump, netfilter, traffic control and socket statistics see none of its packets: use the trace option.',
      ...(queuesWithoutSocket === 0
        ? []
        : [
            `${queuesWithoutSocket} receive queues of ${nic.name} have no socket, and their packets are lost: make it 64 at most (ethtool -L).`,
          ]),
      ...(whole || activeMtu <= MTU_OF_ONE_CHUNK
        ? []
        : ['This kernel has no AF_XDP frames of several buffers (Linux 6.6): the path MTU is 2048 at most.']),
      ...(chunks < RECEIVE_CHUNKS
        ? [
            `The kernel locks ${(chunks * CHUNK) / 2 ** 20} MiB to receive into, for want of CAP_IPC_LOCK or a higher RLIMIT_MEMLOCK.`,
          ]
        : []),
    ];
    try {
      for (const address of addresses) this.addAddress(address);
    } catch (error) {
      this.closeAll();
      throw error;
    }
  }

  get limitations(): readonly string[] {
    return this.#limitations;
  }

  protected listen(gid: Uint8Array, address: string): number {
    return this.native.addLocal(gid, this.#hold(gid, address));
  }

  protected listenToGroup(group: Uint8Array): number {
    return this.native.addLocal(group, false);
  }

  /** Takes the UDP port at an address. False where another adapter has it, which then keeps queue pair 1, too. */
  #hold(gid: Uint8Array, address: string): boolean {
    try {
      this.#holders.push(this.bind(gid, address));
      return true;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code !== 'ERR_ROCE_PORT_IN_USE') throw error;
      this.#limitations.push(
        `Queue pair 1 at ${address}, and with it the connection manager, stays with another adapter (${message}).`,
      );
      return false;
    }
  }

  setQueuePair(qpn: number, present: boolean): void {
    this.native.setQueuePair(qpn, present);
  }

  stats(): Record<string, number> {
    return this.native.stats();
  }

  protected override closeAll(): void {
    super.closeAll();
    for (const socket of this.#holders) socket.close();
  }
}
