/** The RoCE frames of a network interface as records of a capture: what `roce capture` reads instead of a file. */
import { readdirSync, readFileSync } from 'node:fs';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { Capture, CaptureOptions } from '@node-roce/dgram-native';
import { type InterfaceInfo, PacketRecord, type SectionInfo } from '@node-roce/pcap';
import { RoceError } from '@node-roce/transport';

export type InterfaceOptions = Pick<
  CaptureOptions,
  'interface' | 'snapLength' | 'wholeFrom' | 'promiscuous' | 'mirrors' | 'buffer'
>;

/** The kernel's filter, in the words of pcap-filter(7). */
export const FILTER =
  'udp dst port 4791 or ether proto 0x8915 or ether proto 0x8808 or ' +
  'icmp[0] = 3 or icmp[0] = 11 or icmp[0] = 12 or icmp6[0] < 128';

/**
 * A frame that is longer holds several packets (segmentation offload): path MTU 4096, the longest headers of RoCE, and those of
 * tunnels around it. It can be taken apart only whole.
 */
export const LONGEST_PACKET = 4096 + 80 + 256;

/**
 * Whether an interface carries super-packets as they are, of any size: loopback, veth and other devices without hardware.
 * Devices on top of others (VLAN, bond) are as those are.
 */
export function isVirtual(name: string): boolean {
  try {
    return !readdirSync(`/sys/class/net/${name}`).some(
      (entry) => entry === 'device' || entry.startsWith('lower_'),
    );
  } catch {
    // /sys shows the interfaces of the network namespace that mounted it: this one is of another, so most likely a veth.
    return true;
  }
}

/** Bytes that no frame has. */
const WHOLE = 262_144;

/** Bytes and frames that are taken from the ring in one piece. */
const SLAB = 4 << 20;
const SLOTS = 8192;
/** The interval at which frames leave the ring, ms; all of them after a few intervals. */
const RETIRE = 20;
const MAX_DRAIN_TIME = 50 * RETIRE;

/** Batches of frames from the packet ring of an interface. */
export class InterfaceSource implements AsyncDisposable {
  readonly info: InterfaceInfo;
  /** Frames that came out of `batches`. */
  delivered = 0;
  readonly #capture: Capture;
  readonly #layout: typeof import('@node-roce/dgram-native').layout;
  readonly #section: SectionInfo;
  readonly #slab = new Uint8Array(SLAB);
  readonly #slots: Uint32Array;
  #wake: () => void = () => {};
  /** Drops that a record has reported. */
  #told = 0;

  /**
   * @throws RoceError without the addon (ERR_ROCE_NO_ADDON), without the privilege (ERR_ROCE_NOT_PERMITTED), for
   * an interface that is not there or has other frames (ERR_ROCE_NO_INTERFACE); the system's error for all else
   */
  static async open(options: InterfaceOptions): Promise<InterfaceSource> {
    const native = await import('@node-roce/dgram-native');
    return new InterfaceSource(native, options);
  }

  private constructor(native: typeof import('@node-roce/dgram-native'), options: InterfaceOptions) {
    this.#layout = native.layout;
    this.#slots = new Uint32Array(SLOTS * native.layout.CAPTURED_SLOT_WORDS);
    try {
      this.#capture = new native.Capture({ ...options, onWake: () => this.#wake() });
    } catch (error) {
      throw explained(error as NodeJS.ErrnoException, options.interface);
    }
    this.info = {
      id: 0,
      linkType: this.#capture.linkType,
      snapLength: options.wholeFrom === undefined ? (options.snapLength ?? WHOLE) : WHOLE,
      timestampUnitsPerSecond: 1_000_000_000n,
      timestampOffset: 0n,
      name: options.interface,
      filter: FILTER,
      comments: [],
    };
    this.#section = {
      index: 0,
      format: 'pcapng',
      byteOrder: 'little',
      versionMajor: 1,
      versionMinor: 0,
      interfaces: [this.info],
      comments: [],
    };
  }

  /**
   * Frames as they arrive, until the signal aborts; then those that the kernel still has. The records of
   * a batch hold until the next one is asked for. While nobody asks, frames wait in the kernel's ring, and those
   * that find no room there are counted.
   *
   * @throws the socket's error, ENETDOWN when the interface goes down or away
   */
  async *batches(signal: AbortSignal): AsyncGenerator<PacketRecord[], void> {
    const onAbort = () => this.#wake();
    signal.addEventListener('abort', onAbort);
    try {
      while (!signal.aborted) {
        const batch = this.#read();
        if (batch.length === 0) await this.#arrival(signal);
        else {
          yield batch;
          // Files are written and keys are heard by the event loop.
          await nextTurn();
        }
      }
      yield* this.#rest();
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** Frames that passed the filter, and those of them that found no room. */
  stats(): { received: number; dropped: number } {
    return this.#capture.stats();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#capture.close();
  }

  async #arrival(signal: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (signal.aborted) resolve();
      else this.#capture.start();
    });
    this.#capture.stop();
  }

  /** Takes nothing new, and waits until the kernel has handed over its frames. */
  async *#rest(): AsyncGenerator<PacketRecord[], void> {
    this.#capture.finish();
    for (let waited = 0; waited < MAX_DRAIN_TIME; ) {
      const batch = this.#read();
      if (batch.length > 0) {
        yield batch;
        continue;
      }
      const { received, dropped } = this.stats();
      if (this.delivered === received - dropped) return;
      await sleep(RETIRE);
      waited += RETIRE;
    }
  }

  #read(): PacketRecord[] {
    const slots = this.#slots;
    const count = this.#capture.read(this.#slab, slots);
    const { Captured: word, CAPTURED_SLOT_WORDS: words } = this.#layout;
    const batch = Array.from({ length: count }, (_, i) => {
      const at = i * words;
      const record = new PacketRecord(
        this.#slab,
        slots[at + word.OFFSET],
        slots[at + word.LENGTH],
        slots[at + word.ORIGINAL_LENGTH],
        slots[at + word.SECONDS],
        slots[at + word.NANOSECONDS],
        true,
        this.#section,
        this.info,
        0,
      );
      record.flags = slots[at + word.OUTGOING] === 1 ? 2 : 1;
      return record;
    });
    this.delivered += count;
    if (count > 0) {
      const { dropped } = this.#capture.stats();
      if (dropped > this.#told) batch[0].dropCount = dropped - this.#told;
      this.#told = dropped;
    }
    return batch;
  }
}

/** All interfaces of this network namespace, those without an address too. */
export function interfaceNames(): string[] {
  // Two lines of headings; then a name, a colon and numbers (proc_net_dev(5)).
  const lines = readFileSync('/proc/net/dev', 'utf8').split('\n').slice(2);
  return lines.map((line) => line.split(':')[0].trim()).filter((name) => name !== '');
}

function explained(error: NodeJS.ErrnoException, name: string): Error {
  switch (error.code) {
    case 'EPERM':
      return new RoceError(
        'ERR_ROCE_NOT_PERMITTED',
        'capturing needs the capability CAP_NET_RAW. Run it with sudo, or give the capability to this node, for ' +
          `all who may run it: sudo setcap cap_net_raw+ep ${process.execPath}`,
        { errno: 'EPERM', cause: error },
      );
    case 'ENODEV':
    case 'ERR_OUT_OF_RANGE':
      return new RoceError('ERR_ROCE_NO_INTERFACE', `there is no interface ${name}`, {
        errno: 'ENOENT',
        attribute: 'interface',
        expected: interfaceNames().join(', '),
        cause: error,
      });
    case 'EPROTONOSUPPORT':
      return new RoceError(
        'ERR_ROCE_NO_INTERFACE',
        `frames of ${name} start with neither an Ethernet nor an IP header`,
        { errno: 'EOPNOTSUPP', attribute: 'interface', cause: error },
      );
    default:
      return error;
  }
}
