/** Opening a device, and its objects. */
import { EventEmitter, on } from 'node:events';
import type { Link } from '@node-roce/link';
import {
  type AhAttr,
  type Congestion,
  type DeviceLimits,
  type Experimental,
  type GidEntry,
  invalid,
  type Recovery,
  type RingFactory,
  RoceError,
} from '@node-roce/transport';
import { addressAttr, addressFromCompletion } from './address-handle.ts';
import { type DeviceEvent, type TakenEvent, takeEvent } from './async-events.ts';
import { causeOf } from './closing.ts';
import { CompletionChannel } from './completion-channel.ts';
import { CompletionQueue, type CompletionQueueOptions } from './completion-queue.ts';
import { type DeviceCounters, deviceCounters } from './counters.ts';
import { type DeviceAttributes, deviceAttributes } from './device-attributes.ts';
import { CHANNELS } from './diagnostics.ts';
import type { Tuning } from './engine/assemble.ts';
import { ConnectionPort } from './engine/connection-port.ts';
import { type EngineContext, type EngineEvent, EventHub, SharedEngine } from './engine/contexts.ts';
import { closedError, type EngineFacts, type OwnEngine } from './engine/engine.ts';
import { InlineEngine } from './engine/inline-engine.ts';
import { type LinkOptions, openLink } from './engine/open-link.ts';
import type { Attached, WorkSource } from './engine/serving.ts';
import { systemRandom } from './engine/system-random.ts';
import { WorkerEngine } from './engine/worker-engine.ts';
import { custom, line } from './inspect.ts';
import { DeviceObjects } from './objects.ts';
import { checkCall, checkOpenOptions, checkWaitOptions, checkXrcDomainInit } from './option-types.ts';
import { ANY, BOOLEAN, checkArgument, described, FUNCTION, INTEGER } from './options.ts';
import { ProtectionDomain } from './protection-domain.ts';
import type { WorkCompletion } from './work-completion.ts';
import { XrcDomain, type XrcDomainInit } from './xrc-domain.ts';

/** Options of `openDevice`: an address or an interface, and how to run. */
export interface OpenOptions extends Omit<LinkOptions, 'link'> {
  /** Where the engine runs: in this thread, or in a worker (regions then need SharedArrayBuffers). */
  engine?: 'inline' | 'worker';
  /** Which sockets (`auto`, `udp`, `dgram`, `xdp`), or a link of one's own instead of them; that inline only. */
  link?: LinkOptions['link'] | Link;
  /** Announces the number of posted receives to peers (end-to-end credits). Default false: no limit. */
  credits?: boolean;
  /** How reliable connections recover from losses, unless they are created otherwise. */
  recovery?: Partial<Recovery>;
  /** Congestion control of connections, unless they are created otherwise: DCQCN, or the default (docs/congestion.md). */
  congestion?: Partial<Congestion>;
  /** Parts of the specification that no other implementation has confirmed, by name: `xrc`, `apm` (docs/rules.md). Default none. */
  experimental?: readonly Experimental[];
  /** Smaller limits than the default ones: `device.query()` returns those in force. */
  limits?: Partial<DeviceLimits>;
  /** Aborting closes the device: waiting calls reject with the signal's reason. */
  signal?: AbortSignal;
}

/** Options with a place: an address, an interface, or a link of one's own. */
export type OpenDeviceOptions = OpenOptions &
  ({ address: string | readonly string[] } | { interface: string } | { link: Link });

/**
 * Opens a RoCEv2 device on an address or an interface of this machine.
 *
 * Rejects with RoceError: EADDRINUSE (and who has UDP port 4791), EADDRNOTAVAIL, ENOENT, EINVAL; or, with
 * `link: 'udp'`, with ERR_ROCE_NO_ADDON where the native addon is missing.
 */
export async function openDevice(options: OpenDeviceOptions): Promise<Device> {
  checkOpenOptions(options);
  if (options.address === undefined && options.interface === undefined && typeof options.link !== 'object')
    throw invalid('address', 'a device needs a place', 'an address of this machine, an interface, or a link');
  const {
    engine = 'inline',
    link,
    credits,
    recovery,
    congestion,
    experimental,
    limits,
    signal,
    ...others
  } = options;
  signal?.throwIfAborted();
  const tuning: Tuning = {
    ...(credits === undefined ? {} : { credits }),
    ...(recovery === undefined ? {} : { recovery }),
    ...(congestion === undefined ? {} : { congestion }),
    ...(experimental === undefined ? {} : { experimental }),
    ...(limits === undefined ? {} : { limits }),
  };
  const hub = new EventHub();
  const own = typeof link === 'object' ? link : undefined;
  const linkOptions: LinkOptions = { ...others, ...(typeof link === 'string' ? { link } : {}) };
  let opened: OwnEngine;
  if (engine === 'worker') {
    if (own) throw invalid('link', 'a custom link cannot be used in another thread', 'engine: inline');
    opened = await WorkerEngine.open({ link: linkOptions, options: tuning }, hub);
  } else opened = new InlineEngine(await openLink(linkOptions, own), hub, tuning);
  const context = (await SharedEngine.open(opened, hub)).context();
  if (signal?.aborted) {
    await context.close();
    throw signal.reason;
  }
  return new Device(context, devicesOpened++, signal);
}

/** All contexts of this thread that were not closed. */
export const openDevices = new Set<Device>();
let devicesOpened = 0;

/** Events as they arrive; rejects with the signal's reason. */
async function* iterated(
  arrivals: Iterable<DeviceEvent[]> | AsyncIterable<DeviceEvent[]>,
  signal: AbortSignal | undefined,
): AsyncGenerator<DeviceEvent, void> {
  try {
    for await (const [event] of arrivals) yield event;
  } catch (error) {
    throw signal?.aborted ? signal.reason : error;
  }
}

/** Async events that take a queue pair to the error state, in words. */
const QP_FAILURES: Readonly<Record<string, string>> = {
  QP_FATAL: 'a local error',
  QP_REQ_ERR: 'the peer sent an invalid request',
  QP_ACCESS_ERR: 'the peer had no access to the memory that it named',
};

/** A device (`struct ibv_context`): what `openDevice` gives. */
export class Device implements AsyncDisposable {
  /** @internal */
  readonly facts: EngineFacts;
  /** Of the device in this thread, by the order of opening; contexts of one device have the same. @internal */
  readonly number: number;
  readonly #engine: EngineContext;
  /** For `@node-roce/rdmacm`. @internal */
  readonly connections: ConnectionPort;
  readonly #objects = new DeviceObjects();
  readonly #channels = new Set<CompletionChannel>();
  readonly #random = systemRandom();
  readonly #emitter = new EventEmitter<{ event: [DeviceEvent]; close: [] }>();
  readonly #signal: AbortSignal | undefined;
  readonly #onAbort = (): void => void this.#close(this.#signal?.reason).catch(() => {});
  #linkDowned = 0;
  #closing: Promise<void> | undefined;
  /** The cause of the end, once it has come. */
  #end: unknown;

  constructor(engine: EngineContext, number: number, signal?: AbortSignal) {
    this.number = number;
    openDevices.add(this);
    // Each part of a program may have a listener: their number shows no leak.
    this.#emitter.setMaxListeners(0);
    this.#signal = signal;
    signal?.addEventListener('abort', this.#onAbort, { once: true });
    this.#engine = engine;
    this.facts = engine.facts;
    this.connections = new ConnectionPort(engine);
    engine.listener = {
      onPortEvent: (event) => this.#tell(event),
      onCompletionEvent: (cq) => this.#objects.cqs.get(cq)?.notify(),
      onAsyncEvent: (event) => this.#event(event),
      onModified: (qpn, attr) => {
        for (const target of this.#objects.targets.values()) if (target.qpNum === qpn) target.modified(attr);
      },
      onCmEvent: (event) => this.connections.listener?.onEvent(event),
      onDiagnostics: (told) => {
        for (const { channel, message } of told) CHANNELS[channel].publish({ device: this, ...message });
      },
    };
  }

  #event(event: EngineEvent): void {
    if (event.type === 'DEVICE_FATAL') {
      const error = new RoceError('ERR_ROCE_DEVICE_FATAL', 'the device failed', {
        errno: 'EIO',
        cause: event.error,
      });
      this.#end = error;
      for (const cq of this.#objects.cqs.values()) cq.fail(error);
      for (const qp of this.#objects.qps.values()) qp.end(error);
      for (const target of this.#objects.targets.values()) target.end(error);
      for (const channel of this.#channels) channel.fail(error);
      this.#objects.end();
      this.connections.listener?.onClosed(error);
    }
    // The object of the event is looked up now: it may be gone when the program reads the event.
    this.#tell(event.type === 'DEVICE_FATAL' ? event : this.#objects.withElement(event));
    if (event.type in QP_FAILURES && 'qpn' in event) {
      const qp = this.#objects.qps.get(event.qpn);
      const peer = qp?.peer === undefined ? '' : `, connected to ${qp.peer}`;
      const message = `${QP_FAILURES[event.type]}: QP ${event.qpn}${peer}`;
      qp?.fail(message);
      for (const target of this.#objects.targets.values())
        if (target.qpNum === event.qpn) target.fail(message);
    }
  }

  #tell(event: DeviceEvent): void {
    if (event.type === 'PORT_ERR') this.#linkDowned++;
    this.#objects.events.push(event);
    // Not from inside of a turn: a listener may call what it likes, and throw.
    queueMicrotask(() => this.#emitter.emit('event', event));
  }

  /**
   * Opens the same device once more: another context with objects, events and an end of its own, as a second
   * ibv_open_device(3). An address can be open once in a machine unless all openers set `shared: true`, so this is how parts of a
   * program share it. Sockets close with the last context; options are those of the first.
   *
   * @throws ECANCELED (ERR_ROCE_CLOSED) once the device is closed
   */
  openContext(options: { signal?: AbortSignal } = {}): Device {
    checkWaitOptions(options);
    const { signal } = options;
    signal?.throwIfAborted();
    return new Device(this.#engine.sibling(), this.number, signal);
  }

  /**
   * The program of this context is another process: rings of its objects are made where `rings` makes them, and `source`
   * takes over what is posted there. Throws EOPNOTSUPP with an engine in another thread. @internal
   */
  serve(rings: RingFactory, source: WorkSource): Attached {
    const attached = this.#engine.attach(source);
    this.#engine.rings = rings;
    return attached;
  }

  /** Rings for a queue pair whose queue was found sleeping. @internal */
  ring(qpNum: number, recv: boolean): void {
    this.#engine.ring(qpNum, recv);
  }

  /** Whether it was closed, or its engine has failed. For `@node-roce/rdmacm`. @internal */
  get closed(): boolean {
    return this.#engine.closed;
  }

  /** Local addresses by GID index. */
  get gids(): readonly GidEntry[] {
    return this.facts.gids;
  }

  /** ibv_query_device(3) and ibv_query_port(3): limits, capabilities, the port. */
  query(): DeviceAttributes {
    return deviceAttributes(this.facts, this.#engine.inline);
  }

  /**
   * ibv_init_ah_from_wc(3): the attributes of the way back to the sender of a datagram, for `pd.createAh`.
   *
   * @param grh the first 40 bytes of the receive that completed: the sender's IP header
   * @throws EINVAL for a completion without GRH, or fewer bytes
   */
  addressFromWc(wc: WorkCompletion, grh: Uint8Array): AhAttr {
    return addressAttr(addressFromCompletion(wc, grh, this.facts), this.facts);
  }

  /** ibv_alloc_pd(3). Rejects with ENOMEM when there are `maxPd`, ECANCELED (ERR_ROCE_CLOSED) once the device is closed. */
  async allocPd(): Promise<ProtectionDomain> {
    return new ProtectionDomain(
      this.#engine,
      await this.#engine.call('allocPd'),
      this.#random,
      this.#objects,
    );
  }

  /**
   * ibv_open_xrcd(3): an XRC domain, of one's own or shared by name between contexts of this device. The device has to be opened
   * with `experimental: ['xrc']`.
   *
   * Rejects with EOPNOTSUPP without; EAGAIN for a name that nobody has open, with `create: false`; EINVAL for one that
   * somebody has, with `exclusive`.
   */
  async openXrcDomain(init: XrcDomainInit = {}): Promise<XrcDomain> {
    checkXrcDomainInit(init);
    const { name } = init;
    const handle = await this.#engine.call('openXrcd', init);
    return new XrcDomain(this.#engine, handle, name, this.#objects.targets, this.#random);
  }

  /**
   * ibv_create_cq(3): room for at least `cqe` completions.
   *
   * Rejects with EINVAL beyond `maxCqe`, ENOMEM when there are `maxCq` queues.
   */
  async createCq(cqe = 256, options: CompletionQueueOptions = {}): Promise<CompletionQueue> {
    checkCall(options, { channel: ANY, context: ANY, timestamps: BOOLEAN, tags: BOOLEAN });
    checkArgument('cqe', cqe, INTEGER);
    const { channel, timestamps = false, tags = false } = options;
    if (channel !== undefined && !(channel instanceof CompletionChannel))
      throw invalid('channel', described(channel), 'the result of device.createCompChannel');
    const created = await this.#engine.call('createCq', cqe, { stamped: timestamps, tagged: tags });
    const { cqs, qps } = this.#objects;
    return new CompletionQueue(this.#engine, created, cqs, options, (qpn) => qps.get(qpn)?.peer);
  }

  /** ibv_create_comp_channel(3). Throws ECANCELED (ERR_ROCE_CLOSED) once the device is closed. */
  createCompChannel(): CompletionChannel {
    if (this.#closing) throw closedError();
    const channel = new CompletionChannel((gone) => this.#channels.delete(gone));
    this.#channels.add(channel);
    return channel;
  }

  /**
   * Counts of packets, drops and retransmissions over all queue pairs, also those that are gone; under rxe's
   * and mlx5's names in `rxe` and `mlx5`, the link's in `link` (docs/counters.md).
   */
  async counters(): Promise<DeviceCounters> {
    const counts = await this.#engine.call('counters');
    return deviceCounters(counts, await this.#engine.call('linkStats'), this.#linkDowned);
  }

  /** How many queue pairs this context has. @internal */
  get queuePairs(): number {
    return this.#objects.qps.size;
  }

  /**
   * Calls back for each async event; returns a function that removes the callback. Such events count as acknowledged:
   * the callback may destroy what they are about.
   */
  onEvent(listener: (event: DeviceEvent) => void): () => void {
    checkArgument('listener', listener, FUNCTION);
    this.#emitter.on('event', listener);
    return () => void this.#emitter.off('event', listener);
  }

  /**
   * The same to iterate over: events from the call on, until the device is closed or the signal aborts (rejects with its reason). Begin the
   * iteration: until then, the events are kept.
   */
  events(options: { signal?: AbortSignal } = {}): AsyncGenerator<DeviceEvent, void> {
    checkWaitOptions(options);
    const { signal } = options;
    signal?.throwIfAborted();
    return iterated(this.#closing ? [] : on(this.#emitter, 'event', { close: ['close'], signal }), signal);
  }

  /**
   * ibv_get_async_event(3): the oldest event that was not taken this way, of the last 1024. It has to be
   * acknowledged (`ack`): until then the destruction of what it is about does not resolve. Rejects with
   * the signal's reason; with ERR_ROCE_CLOSED once the device is closed.
   */
  async getEvent(options: { signal?: AbortSignal } = {}): Promise<TakenEvent> {
    checkWaitOptions(options);
    return takeEvent(await this.#objects.events.next(options.signal));
  }

  /** The same without waiting: undefined if there is none (an `async_fd` in non-blocking mode). */
  pollEvent(): TakenEvent | undefined {
    const event = this.#objects.events.poll();
    return event && takeEvent(event);
  }

  /**
   * Resolves when a peer may have changed memory since the call: for programs that look at memory until
   * an RDMA WRITE lands (`while (view[0] === 0) await device.progress()`). With the engine in this
   * thread, a loop that does not await waits for ever (docs/run-loop.md). Rejects with the cause once the device has ended.
   */
  progress(): Promise<void> {
    if (this.#engine.closed) return Promise.reject(this.#end ?? closedError());
    return this.#engine.progress();
  }

  /** Whether the device keeps the process alive; it does at first. */
  ref(): this {
    this.#engine.ref();
    return this;
  }

  /** Lets the process end while the device is open. */
  unref(): this {
    this.#engine.unref();
    return this;
  }

  /**
   * Closes sockets and ends the engine; rejects if a trace could not be written. Queue pairs that are
   * still there end without notifying their peers. A pending wait on a completion queue rejects with ERR_ROCE_CLOSED;
   * an iteration over one ends.
   */
  close(): Promise<void> {
    return this.#close(closedError());
  }

  #close(reason: unknown): Promise<void> {
    this.#end ??= reason;
    this.#closing ??= (async () => {
      openDevices.delete(this);
      this.#signal?.removeEventListener('abort', this.#onAbort);
      try {
        await this.#engine.close();
      } finally {
        for (const cq of this.#objects.cqs.values()) cq.fail(reason);
        for (const qp of this.#objects.qps.values()) qp.end(causeOf(reason));
        for (const target of this.#objects.targets.values()) target.end(causeOf(reason));
        for (const channel of this.#channels) channel.fail(reason);
        this.#objects.end();
        this.#objects.events.fail(reason);
        this.connections.listener?.onClosed(reason);
        this.#emitter.emit('close');
      }
    })();
    return this.#closing;
  }

  /** @internal */
  [custom](): string {
    return line('Device', {
      address: this.gids.map(({ address }) => address).join(' '),
      link: this.facts.link,
      closed: this.#closing !== undefined,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
