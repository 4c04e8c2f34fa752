/** The options of an adapter: what it is given at its start. */
import type { PeerTable } from './addresses.ts';
import type { CopyBatch, RegionTable } from './batch.ts';
import type { Congestion } from './congestion/options.ts';
import type { Experimental } from './constants.ts';
import type { Host } from './context.ts';
import type { DeviceLimits, GidEntry, Recovery } from './control.ts';
import type { FrameHost } from './raw/frames.ts';
import type { ResidueClass } from './residue-class.ts';

/** The services and the limits of a new adapter. */
export interface AdapterOptions extends Host {
  /** Uniform unsigned 32-bit numbers that nobody can predict: keys, QPNs and addresses come from it. */
  random: () => number;
  peers: PeerTable;
  gids: readonly GidEntry[];
  /** Largest path MTU of the port, bytes. */
  activeMtu: number;
  /** Ethernet frames of the interface, for raw packet queue pairs; without it they are refused. */
  frames?: FrameHost | undefined;
  regions?: RegionTable;
  /** Copies payload into regions; plain JavaScript unless the link brings something better. */
  copy?: CopyBatch;
  limits?: Partial<DeviceLimits>;
  /** Bytes of the receive socket's buffer as the kernel counts them: READs ask for no more at once. */
  receiveBuffer?: number;
  /** Whether ACKs carry the count of posted receives; otherwise 31, no limit. `setCredits` changes it for a queue pair. */
  credits?: boolean;
  /** Whether program and engine may be on two threads, so that the rings between them are SharedArrayBuffers (true). */
  sharedRings?: boolean;
  /** How reliable connections recover from losses, unless they are created otherwise. */
  recovery?: Partial<Recovery>;
  /** Congestion control of connections, unless they are created otherwise. */
  congestion?: Partial<Congestion>;
  /** Parts that no other implementation has confirmed; without, they are refused. */
  experimental?: readonly Experimental[] | undefined;
  /** The QPNs that it draws; other adapters at its addresses draw the others. */
  numbers?: ResidueClass | undefined;
  /** Throws `RoceBug` where an invariant of the engine is broken; otherwise that is counted and fails the queue pair. */
  throwBugs?: boolean;
  /**
   * Reading of the clock of completion times when the time of the calls was 0, ns: the clock that the link stamps packets by,
   * CLOCK_MONOTONIC. Default 0.
   */
  clockOrigin?: number;
}
