/** The interface between the run loop and the sockets. */
import type {
  CopyBatch,
  FrameHost,
  GidEntry,
  PeerTable,
  ResidueClass,
  RxBatch,
  TxBatch,
} from '@node-roce/transport';
import type { NetworkInterface } from './interfaces.ts';

/** The numbers and services of one of the devices that share addresses. */
export interface LinkSharing {
  /** Its QPNs and communication ids. */
  readonly numbers: ResidueClass;
  /** Takes requests to a service of the connection manager. Throws EADDRINUSE where another device does. */
  claim(service: bigint): void;
  /** Takes them no longer. */
  release(service: bigint): void;
}

export interface Link extends PeerTable {
  /** `udp`, `memory`, …; that of a wrapper contains the kind of the link inside: `tracer(udp)`. */
  readonly kind: string;
  /**
   * Local addresses; an index here is an index of the GID table. `setAddress` changes entries in place; one that
   * stands for no address now has 16 zero bytes for its GID.
   */
  readonly gids: readonly GidEntry[];
  /** The network interface behind it, as it was when the link was opened, if there is one. */
  readonly interface?: NetworkInterface | undefined;
  /** UDP port that packets go to and come in at. */
  readonly port: number;
  /** Largest path MTU, bytes. */
  readonly activeMtu: number;
  /** Bytes of receive buffer, as the kernel counts them. */
  readonly receiveBuffer: number;
  /** A copy into memory regions that is better than plain JavaScript, if it has one. */
  readonly copy?: CopyBatch | undefined;
  /**
   * The memory that packets arrive in, if that is the link's own: a batch with this slab has them where they lie, any
   * other slab gets a copy.
   */
  readonly slab?: Uint8Array<ArrayBuffer> | undefined;
  /**
   * True where packets come in only while the event loop turns: then a program in the same thread that
   * polls without awaiting anything waits for ever.
   */
  readonly needsEventLoop?: boolean;
  /** True where it takes run slots (`Tx.RUN`): it writes the STATUS of each packet, and writes the slot that it stops at. */
  readonly takesRuns?: boolean;
  /** The other devices at its addresses; absent where it has them alone. */
  readonly sharing?: LinkSharing | undefined;
  /** Limitations of this link, a sentence each. */
  readonly limitations: readonly string[];

  /**
   * Sends slots `from` … `batch.count` − 1. Each slot's STATUS shows whether it was taken.
   *
   * @param time two elements; the first becomes the time at the end, `performance.now()` in µs, if the link has a clock of its own
   *   and the array is over a SharedArrayBuffer: V8 allocates the number that a function returns
   * @returns the first slot that was not looked at: `batch.count`, or less when there is no room now
   */
  send(batch: TxBatch, from: number, time?: Float64Array): number;
  /**
   * Fills the batch with packets that have arrived; returns their number. In the slab each packet is
   * followed by its ICRC as it arrived (4 bytes, zeros where the link has none).
   *
   * @param time as with `send`; the second element becomes 0 where the link knows that it left nothing. Where it is 2, the caller will have
   *   enough with one datagram
   */
  receive(batch: RxBatch, time?: Float64Array): number;

  /** Calls back when a packet, room to send or the deadline comes, while watched. */
  watch(onWake: () => void): void;
  unwatch(): void;
  /** While watched: wakes after so many microseconds; Infinity never. */
  setDeadline(microsecondsFromNow: number): void;
  /** While watched: wakes when there is room to send again. */
  wantWrite(on: boolean): void;
  /** Whether a watched link keeps the process alive. */
  ref(): void;
  unref(): void;

  /**
   * The interface got an address, or lost it: the GID table follows. An address that comes back has its old index.
   * A link that was opened for some addresses takes no others. Absent where addresses do not change.
   * Throws RoceError as opening the link does: another program may have the port there.
   * @returns whether the table changed
   */
  setAddress?(address: string, present: boolean): boolean;

  /** Stamps packets from now on with the time of their arrival (`Rx.STAMP_LOW`). Absent where the link does not know it. */
  stampArrivals?(): void;

  /**
   * A queue pair was made or is gone. There where the link takes packets for these alone, and leaves all others to the
   * kernel; queue pair 1 is the link's.
   */
  setQueuePair?(qpn: number, present: boolean): void;

  /**
   * Whole Ethernet frames of the interface, for raw packet queue pairs. Absent where there is none.
   *
   * @param onWake called in the event loop when frames or room to send have come
   */
  frames?(onWake: () => void): FrameHost;

  /** Counts under names of the link's own. */
  stats(): Record<string, number>;
  close(): Promise<void>;
}
