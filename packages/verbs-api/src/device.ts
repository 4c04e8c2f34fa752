/** Opening a device, and what belongs to it. */
import { EventEmitter, on } from 'node:events';
import type { Link, NetworkInterface } from '@node-roce/link';
import {
  type AdapterOptions,
  type AsyncEvent,
  type DeviceLimits,
  type GidEntry,
  invalid,
  RoceError,
} from '@node-roce/transport';
import { linkLocalGidFromMac } from '@node-roce/wire';
import { CompletionQueue } from './completion-queue.ts';
import {
  closedError,
  type Engine,
  type EngineEvents,
  type EngineFacts,
  InlineEngine,
  systemRandom,
} from './engine.ts';
import { type LinkOptions, openLink } from './open-link.ts';
import { ProtectionDomain } from './protection-domain.ts';
import { WorkerEngine } from './worker-engine.ts';

export interface OpenOptions extends Omit<LinkOptions, 'link'> {
  /** Where the engine runs: in this thread, or in a worker (regions then need SharedArrayBuffers). */
  engine?: 'inline' | 'worker';
  /** Which sockets (`auto`, `udp`, `dgram`), or a link of one's own instead of them; that inline only. */
  link?: LinkOptions['link'] | Link;
  /** Tells peers how many receives are posted (end-to-end credits). Default false: no limit. */
  credits?: boolean;
  limits?: Partial<DeviceLimits>;
  /** Aborting closes the device: whoever waits on it hears the signal's reason. */
  signal?: AbortSignal;
}

/** What an async event is about, and the device's own end. */
export type DeviceEvent = AsyncEvent | { type: 'DEVICE_FATAL'; error: unknown };

/** `struct ibv_device_attr` and `struct ibv_port_attr`, the parts that mean something here. */
export interface DeviceAttributes extends DeviceLimits {
  /** EUI-64 from the interface's MAC address: `0242:acff:fe11:0002`; zeros where there is none. */
  nodeGuid: string;
  /** Which link moves the packets (`udp`, `dgram`, …), and what it can't do. */
  link: string;
  /** Whether a program that polls a completion queue has to let the event loop turn, too (the dgram link). */
  needsEventLoop: boolean;
  limitations: readonly string[];
  /** The network interface, as it was when the device was opened. */
  interface: NetworkInterface | undefined;
  gids: readonly GidEntry[];
  /** Largest path MTU, bytes. */
  activeMtu: number;
  maxMtu: 4096;
  physPortCnt: 1;
  pkeyTblLen: 1;
  portState: 'ACTIVE' | 'DOWN';
  linkLayer: 'Ethernet';
  atomicCap: 'HCA';
  /** Bytes of socket buffer that the kernel granted, by its own account. */
  receiveBuffer: number;
}

/**
 * Opens a RoCEv2 device on an address or an interface of this machine.
 *
 * Rejects with RoceError: EADDRINUSE (and who has UDP port 4791), EADDRNOTAVAIL, ENOENT, EINVAL; or, with
 * `link: 'udp'`, with ERR_ROCE_NO_ADDON where the native addon is missing.
 */
export async function openDevice(options: OpenOptions): Promise<Device> {
  const { engine = 'inline', link, credits, limits, signal, ...others } = options;
  if (engine !== 'inline' && engine !== 'worker') throw invalid('engine', `${engine}`, 'inline or worker');
  signal?.throwIfAborted();
  const tuning: Pick<AdapterOptions, 'credits' | 'limits'> = {
    ...(credits === undefined ? {} : { credits }),
    ...(limits === undefined ? {} : { limits }),
  };
  const events = new Events();
  const own = typeof link === 'object' ? link : undefined;
  const linkOptions: LinkOptions = { ...others, ...(typeof link === 'string' ? { link } : {}) };
  let opened: Engine;
  if (engine === 'worker') {
    if (own) throw invalid('link', 'a link of one’s own can not go to another thread', 'engine: inline');
    opened = await WorkerEngine.open({ link: linkOptions, options: tuning }, events);
  } else opened = new InlineEngine(await openLink(linkOptions, own), events, tuning);
  if (signal?.aborted) {
    await opened.close();
    throw signal.reason;
  }
  return new Device(opened, events, signal);
}

/** The GUID that RoCE devices make of a MAC address: the modified EUI-64 of RFC 4291, as `ibv_devinfo` has it. */
function guidOf(mac = '00:00:00:00:00:00'): string {
  const bytes = Uint8Array.from(mac.split(':'), (part) => Number.parseInt(part, 16));
  if (bytes.every((byte) => byte === 0)) return '0000:0000:0000:0000';
  const words = new DataView(linkLocalGidFromMac(bytes).buffer, 8);
  return [0, 2, 4, 6].map((at) => words.getUint16(at).toString(16).padStart(4, '0')).join(':');
}

/** Takes the engine's events to the device, which exists only after the engine. */
class Events implements EngineEvents {
  target: EngineEvents | undefined;
  readonly onCompletionEvent = (cq: number): void => this.target?.onCompletionEvent(cq);
  readonly onAsyncEvent = (event: DeviceEvent): void => this.target?.onAsyncEvent(event);
}

export class Device implements AsyncDisposable {
  readonly facts: EngineFacts;
  readonly #engine: Engine;
  readonly #cqs = new Map<number, CompletionQueue>();
  readonly #random = systemRandom();
  readonly #emitter = new EventEmitter<{ event: [DeviceEvent]; close: [] }>();
  readonly #signal: AbortSignal | undefined;
  readonly #onAbort = (): void => void this.#close(this.#signal?.reason).catch(() => {});
  #closing: Promise<void> | undefined;

  constructor(engine: Engine, events: { target: EngineEvents | undefined }, signal?: AbortSignal) {
    this.#signal = signal;
    signal?.addEventListener('abort', this.#onAbort, { once: true });
    this.#engine = engine;
    this.facts = engine.facts;
    events.target = {
      onCompletionEvent: (cq) => this.#cqs.get(cq)?.notify(),
      onAsyncEvent: (event) => this.#event(event),
    };
  }

  #event(event: DeviceEvent): void {
    if (event.type === 'DEVICE_FATAL') {
      const error = new RoceError('ERR_ROCE_DEVICE_FATAL', 'the device failed', {
        errno: 'EIO',
        cause: event.error,
      });
      for (const cq of this.#cqs.values()) cq.fail(error);
    }
    // Not from inside of a turn: a listener may call what it likes, and throw.
    queueMicrotask(() => this.#emitter.emit('event', event));
  }

  /** Local addresses by GID index. */
  get gids(): readonly GidEntry[] {
    return this.facts.gids;
  }

  /** ibv_query_device(3) and ibv_query_port(3). */
  query(): DeviceAttributes {
    const { gids, activeMtu, limits, link, limitations, receiveBuffer, interface: nic } = this.facts;
    const needsEventLoop = this.#engine.inline && this.facts.needsEventLoop;
    return {
      ...limits,
      nodeGuid: guidOf(nic?.mac),
      interface: nic,
      link,
      needsEventLoop,
      limitations,
      gids,
      activeMtu,
      receiveBuffer,
      maxMtu: 4096,
      physPortCnt: 1,
      pkeyTblLen: 1,
      portState: nic?.up === false ? 'DOWN' : 'ACTIVE',
      linkLayer: 'Ethernet',
      atomicCap: 'HCA',
    };
  }

  /** ibv_alloc_pd(3). */
  async allocPd(): Promise<ProtectionDomain> {
    return new ProtectionDomain(this.#engine, await this.#engine.call('allocPd'), this.#random);
  }

  /** ibv_create_cq(3): room for at least `cqe` completions. */
  async createCq(cqe = 256): Promise<CompletionQueue> {
    const created = await this.#engine.call('createCq', cqe);
    const cq = new CompletionQueue(this.#engine, created, () => this.#cqs.delete(created.handle));
    this.#cqs.set(created.handle, cq);
    return cq;
  }

  /** Counts of packets, drops and retransmissions; the link's under `link`. */
  async counters(): Promise<Record<string, number> & { link: Record<string, number> }> {
    const counts = await this.#engine.call('counters');
    return Object.assign(counts, { link: await this.#engine.call('linkStats') }) as never;
  }

  /** Calls back for each async event (ibv_get_async_event(3)); returns what takes it off again. */
  onEvent(listener: (event: DeviceEvent) => void): () => void {
    this.#emitter.on('event', listener);
    return () => void this.#emitter.off('event', listener);
  }

  /** The same to iterate over: events from the call on, until the device is closed or the signal aborts. */
  async *events({ signal }: { signal?: AbortSignal } = {}): AsyncGenerator<DeviceEvent, void> {
    if (this.#closing) return;
    for await (const [event] of on(this.#emitter, 'event', { close: ['close'], signal })) yield event;
  }

  /**
   * Resolves when a peer may have changed memory since the call: for programs that look at memory until
   * an RDMA WRITE lands (`while (view[0] === 0) await device.progress()`). With the engine in this
   * thread, a loop that does not await waits for ever (docs/run-loop.md).
   */
  progress(): Promise<void> {
    return this.#engine.progress();
  }

  /** Whether the device keeps the process alive; it does at first. */
  ref(): this {
    this.#engine.ref();
    return this;
  }

  unref(): this {
    this.#engine.unref();
    return this;
  }

  /**
   * Closes sockets and ends the engine; rejects if a trace could not be written. Queue pairs that are
   * still there end without a word to their peers. Who waits on a completion queue gets ERR_ROCE_CLOSED;
   * an iteration over one ends.
   */
  close(): Promise<void> {
    return this.#close(closedError());
  }

  #close(reason: unknown): Promise<void> {
    this.#closing ??= (async () => {
      this.#signal?.removeEventListener('abort', this.#onAbort);
      try {
        await this.#engine.close();
      } finally {
        for (const cq of this.#cqs.values()) cq.fail(reason);
        this.#emitter.emit('close');
      }
    })();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
