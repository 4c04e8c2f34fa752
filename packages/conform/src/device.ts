/**
 * The services that a rule can ask of a device under test. A way to reach a device (an agent next to it, the simulator, a perftest
 * server) implements what it can; a rule that asks for more is not testable there.
 */

export type Right = 'write' | 'read' | 'atomic' | 'flush';

/** A queue pair to create, with one memory region, and its connection to the tester. */
export interface ConnectionSpec {
  /** XRC: the end that responds, or the one that requests. */
  service: 'rc' | 'uc' | 'ud' | 'xrc-target' | 'xrc-initiator';
  /** Remote operations that the queue pair allows. */
  access: readonly Right[];
  /** Remote operations that the region allows. */
  regionAccess: readonly Right[];
  /** Remote operations that the rule makes use of: a device that can't give all rights at once gives these. */
  uses: readonly Right[];
  /** Bytes of the region. */
  size: number;
  /** The tester's end. */
  address: string;
  qpn: number;
  /** First PSN of the tester's requests. */
  psn: number;
  /** First PSN that the device is asked to use. */
  devicePsn: number;
  pathMtu: number;
  maxRdAtomic: number;
  maxDestRdAtomic: number;
  minRnrTimer: number;
  timeout: number;
  retryCnt: number;
  rnrRetry: number;
  /** Receives posted before the connection is open, one behind the other in the region. */
  receives: number;
  receiveLength: number;
  qkey: number;
  /** Receives come from a shared receive queue: one of its own, or that of another connection. */
  srq?: 'own' | DeviceConnection;
  /** Windows may show parts of the region. */
  windows: boolean;
  /** The state that the queue pair is left in. */
  state: 'INIT' | 'RTR' | 'RTS';
}

/** A memory window to bind to a part of the region. */
export interface WindowSpec {
  type: 1 | 2;
  /** In the region. */
  offset: number;
  length: number;
  access: readonly Right[];
  /** Of the completion. */
  id?: number;
}

/** A bound window; the addresses are the region's. */
export interface Window {
  readonly rkey: number;
  free(): Promise<void>;
}

type PostOpcode =
  | 'send'
  | 'send_imm'
  | 'write'
  | 'write_imm'
  | 'read'
  | 'cas'
  | 'faa'
  | 'local_inv'
  | 'flush'
  | 'atomic_write';

/** A work request for the device's send queue. */
export interface Post {
  opcode: PostOpcode;
  /** Of the first; each further one counts up. */
  id?: number;
  count?: number;
  /** In the region. */
  offset?: number;
  length?: number;
  /** local_inv: the key of the window. */
  remote?: { va: bigint; rkey: number };
  immediate?: number;
  solicited?: boolean;
  /** It waits for the READs and atomics before it. */
  fence?: boolean;
  /** XRC: the number of the peer's shared receive queue. */
  remoteSrqn?: number;
  /** cas: the value compared with; faa: the value added. */
  compareAdd?: bigint;
  swap?: bigint;
  /** UD: the destination's Q_Key, instead of the queue pair's own. */
  qkey?: number;
}

/** A receive for the device's receive queue. */
export interface Receive {
  id?: number;
  /** In the region. */
  offset?: number;
  length: number;
}

/** A work completion of the device; fields but `id` and `status` on success only. */
export interface Completion {
  id: number;
  /** The name in `enum ibv_wc_status`, without `IBV_WC_`. */
  status: string;
  length?: number;
  immediate?: number;
  /** UD: the sender. */
  sourceQpn?: number;
}

/** Optional members are abilities: a device that has not one of them leaves it out. */
export interface DeviceConnection {
  readonly qpn: number;
  /** First PSN of the device's requests. */
  readonly psn: number;
  readonly va: bigint;
  readonly rkey: number;
  /** Of an XRC target: numbers of two shared receive queues of its domain. Receives are posted to the first one. */
  readonly srqns?: readonly [number, number];
  receive?(receive: Receive): Promise<void>;
  post?(post: Post): Promise<void>;
  /** Waits for `want` completions, at most `ms`; returns all there are. */
  completions?(want: number, ms: number): Promise<Completion[]>;
  state?(): Promise<string>;
  peek?(offset: number, length: number): Promise<Uint8Array>;
  poke?(offset: number, bytes: Uint8Array): Promise<void>;
  /** To the error state. */
  fail?(): Promise<void>;
  /** To SQD, with an event when what was begun is done. */
  drain?(): Promise<void>;
  /** From SQD back to RTS. */
  resume?(): Promise<void>;
  destroyQp?(): Promise<void>;
  deregister?(): Promise<void>;
  /** The binding is posted: it has a completion. */
  bindWindow?(spec: WindowSpec): Promise<Window>;
  reregister?(access: readonly Right[]): Promise<void>;
  /** A region with the same rights in another protection domain; it goes with the connection. */
  foreignRegion?(): Promise<{ va: bigint; rkey: number }>;
  /** Arms the limit of the shared receive queue. */
  limitReceives?(limit: number): Promise<void>;
  /** Events since the last call, by the names of `ibv_event_type_str`; waits up to `ms` for the first one. */
  events?(ms: number): Promise<string[]>;
  /** Destroys the queue pair and the region, in any state; completions that nobody fetched are forgotten. */
  close(): Promise<void>;
}

/** Facts about a device. */
export interface DeviceInfo {
  /** For reports, and to choose a list of known deviations. */
  name: string;
  [fact: string]: string | number | undefined;
}

/** A device under test. */
export interface Device {
  readonly info: DeviceInfo;
  /** Needs that it serves. */
  readonly offers: ReadonlySet<string>;
  /** A service at its connection manager that accepts connections. */
  readonly listener?: { readonly serviceId: bigint };
  /** Makes a client at the device connect to the tester. A client on a network does so by itself. */
  call?(): void;
  /** Counters by the names of the device's driver (`hw_counters`). */
  counters?(): Promise<Readonly<Record<string, number>>>;
  /** The way to the device is gone: nothing more can be tested. */
  readonly isLost?: boolean;
  /** @throws Untestable if it has no such connection */
  connect(spec: ConnectionSpec): Promise<DeviceConnection>;
}

/** The device, or the way to it, has not what a rule needs: no verdict. */
export class Untestable extends Error {
  override readonly name = 'Untestable';
}
