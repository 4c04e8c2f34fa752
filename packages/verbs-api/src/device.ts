/** Opening a device, and what belongs to it. */
import type { Link, UdpLinkOptions } from '@node-roce/link';
import {
  type AdapterOptions,
  type AsyncEvent,
  type DeviceLimits,
  type GidEntry,
  invalid,
  type QpCap,
  type QpType,
  RoceError,
} from '@node-roce/transport';
import { CompletionQueue } from './completion-queue.ts';
import { type Engine, type EngineEvents, type EngineFacts, InlineEngine, systemRandom } from './engine.ts';
import {
  accessBits,
  backingOf,
  checkBuffer,
  MemoryRegion,
  RegionIndex,
  type RegisterOptions,
} from './memory-region.ts';
import { openLink } from './open-link.ts';
import { QueuePair } from './queue-pair.ts';
import { WorkerEngine } from './worker-engine.ts';

export interface OpenOptions extends UdpLinkOptions {
  /** Where the engine runs: in this thread, or in a worker (regions then need SharedArrayBuffers). */
  engine?: 'inline' | 'worker';
  /** A link of one's own instead of UDP sockets; inline only. */
  link?: Link;
  /** Writes every packet into this pcapng file. */
  trace?: string;
  /** Tells peers how many receives are posted (end-to-end credits). Default false: no limit. */
  credits?: boolean;
  limits?: Partial<DeviceLimits>;
}

/** What an async event is about, and the device's own end. */
export type DeviceEvent = AsyncEvent | { type: 'DEVICE_FATAL'; error: unknown };

/** `struct ibv_device_attr` and `struct ibv_port_attr`, the parts that mean something here. */
export interface DeviceAttributes extends DeviceLimits {
  link: string;
  limitations: readonly string[];
  gids: readonly GidEntry[];
  /** Largest path MTU, bytes. */
  activeMtu: number;
  maxMtu: 4096;
  physPortCnt: 1;
  portState: 'ACTIVE';
  linkLayer: 'Ethernet';
  atomicCap: 'HCA';
  receiveBuffer: number;
}

/**
 * Opens a RoCEv2 device on an address or an interface of this machine.
 *
 * Rejects with RoceError: EADDRINUSE (and who has UDP port 4791), EADDRNOTAVAIL, ENOENT, EINVAL; or with
 * ERR_ROCE_NO_ADDON where the native addon is missing.
 */
export async function openDevice(options: OpenOptions): Promise<Device> {
  const { engine = 'inline', link, trace, credits, limits, ...udp } = options;
  if (engine !== 'inline' && engine !== 'worker') throw invalid('engine', `${engine}`, 'inline or worker');
  const tuning: Pick<AdapterOptions, 'credits' | 'limits'> = {
    ...(credits === undefined ? {} : { credits }),
    ...(limits === undefined ? {} : { limits }),
  };
  if (engine === 'worker') {
    if (link) throw invalid('link', 'a link of one’s own can not go to another thread', 'engine: inline');
    const start = { link: udp, options: tuning, ...(trace === undefined ? {} : { trace }) };
    const events = new Events();
    return new Device(await WorkerEngine.open(start, events), events);
  }
  const events = new Events();
  return new Device(new InlineEngine(link ?? (await openLink(udp, trace)), events, tuning), events);
}

/** Takes the engine's events to the device, which exists only after the engine. */
class Events implements EngineEvents {
  target: EngineEvents | undefined;
  readonly onCompletionEvent = (cq: number): void => this.target?.onCompletionEvent(cq);
  readonly onAsyncEvent = (event: DeviceEvent): void => this.target?.onAsyncEvent(event);
}

export interface QueuePairInit {
  type?: QpType;
  sendCq: CompletionQueue;
  /** `sendCq` unless given. */
  recvCq?: CompletionQueue;
  /** Sizes; 128 requests, 4 elements, 128 bytes inline unless given. */
  cap?: Partial<QpCap>;
  /** Every send request raises a completion. */
  sqSigAll?: boolean;
}

const DEFAULT_CAP: QpCap = {
  maxSendWr: 128,
  maxRecvWr: 128,
  maxSendSge: 4,
  maxRecvSge: 4,
  maxInlineData: 128,
};

export class Device implements AsyncDisposable {
  readonly facts: EngineFacts;
  readonly #engine: Engine;
  readonly #cqs = new Map<number, CompletionQueue>();
  readonly #random = systemRandom();
  readonly #listeners = new Set<(event: DeviceEvent) => void>();
  #closed = false;

  constructor(engine: Engine, events: { target: EngineEvents | undefined }) {
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
    for (const listener of this.#listeners) listener(event);
  }

  /** Local addresses by GID index. */
  get gids(): readonly GidEntry[] {
    return this.facts.gids;
  }

  /** ibv_query_device(3) and ibv_query_port(3). */
  query(): DeviceAttributes {
    const { gids, activeMtu, limits, link, limitations, receiveBuffer } = this.facts;
    return {
      ...limits,
      link,
      limitations,
      gids,
      activeMtu,
      receiveBuffer,
      maxMtu: 4096,
      physPortCnt: 1,
      portState: 'ACTIVE',
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
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
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

  /** Closes sockets and ends the engine. Queue pairs that are still there end without a word to their peers. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#engine.close();
    const error = new RoceError('ERR_ROCE_CLOSED', 'the device is closed', { errno: 'ECANCELED' });
    for (const cq of this.#cqs.values()) cq.fail(error);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** A protection domain: what regions and queue pairs have to have in common. */
export class ProtectionDomain implements AsyncDisposable {
  readonly handle: number;
  readonly #engine: Engine;
  readonly #random: () => number;
  readonly #regions = new RegionIndex();
  #gone = false;

  constructor(engine: Engine, handle: number, random: () => number) {
    this.#engine = engine;
    this.handle = handle;
    this.#random = random;
  }

  /**
   * ibv_reg_mr(3): opens memory to the device, and to peers as `access` says. A view registers its own
   * bytes only. With the engine in a worker the memory has to be shared (docs/memory.md).
   */
  async registerMr(
    memory: ArrayBufferLike | ArrayBufferView,
    options: RegisterOptions = {},
  ): Promise<MemoryRegion> {
    const view = ArrayBuffer.isView(memory) ? memory : new Uint8Array(memory);
    const { buffer, byteOffset: offset, byteLength: length } = view;
    checkBuffer(this.#engine, buffer);
    const created = await this.#engine.call('registerMr', {
      pd: this.handle,
      backing: backingOf(buffer),
      buffer,
      offset,
      length,
      access: accessBits(options.access),
      ...(options.iova === undefined ? {} : { iova: options.iova }),
    });
    const mr = new MemoryRegion(this.#engine, created, buffer, offset, length, (gone) =>
      this.#regions.remove(gone),
    );
    this.#regions.add(mr);
    return mr;
  }

  /** ibv_create_qp(3). */
  async createQp(init: QueuePairInit): Promise<QueuePair> {
    const { type = 'RC', sendCq, recvCq = sendCq, sqSigAll = false } = init;
    const created = await this.#engine.call('createQp', {
      pd: this.handle,
      type,
      sendCq: sendCq.handle,
      recvCq: recvCq.handle,
      cap: { ...DEFAULT_CAP, ...init.cap },
      sqSigAll,
    });
    return new QueuePair({
      engine: this.#engine,
      type,
      created,
      sendCq,
      recvCq,
      find: this.#regions.find,
      random: this.#random,
    });
  }

  /** ibv_dealloc_pd(3): EBUSY while regions or queue pairs are in it. */
  async dealloc(): Promise<void> {
    if (this.#gone) return;
    await this.#engine.call('deallocPd', this.handle);
    this.#gone = true;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dealloc();
  }
}
