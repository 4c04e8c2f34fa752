/** Protection domains: registering memory, and what is created in them. */
import {
  type AhAttr,
  type Congestion,
  invalid,
  type MwType,
  type QpCap,
  type QpType,
  type Recovery,
} from '@node-roce/transport';
import { AddressHandle, type AddressInit, addressAttr, addressFromCompletion } from './address-handle.ts';
import type { CompletionQueue } from './completion-queue.ts';
import { Ending } from './ending.ts';
import type { Engine } from './engine/engine.ts';
import { custom, line } from './inspect.ts';
import { accessBits, checkMemory, MemoryRegion, RegionIndex, type RegisterOptions } from './memory-region.ts';
import { MemoryWindow } from './memory-window.ts';
import { NullMemoryRegion } from './null-region.ts';
import type { DeviceObjects } from './objects.ts';
import { checkAddressInit, checkQueuePairInit, checkRegisterOptions, checkSrqInit } from './option-types.ts';
import { described } from './options.ts';
import { QueuePair } from './queue-pair.ts';
import type { Registry } from './registry.ts';
import { SharedReceiveQueue, type SharedReceiveQueueInit } from './shared-receive-queue.ts';
import type { WorkCompletion } from './work-completion.ts';
import { XrcDomain } from './xrc-domain.ts';

/** `struct ibv_qp_init_attr`. */
export interface QueuePairInit {
  /**
   * RC unless given. GSI is QP1, of which a device has one; RAW_PACKET sends and takes whole Ethernet frames (CAP_NET_RAW); XRC_INI
   * sends to the SRQs of a domain. XRC_TGT is made by the domain (`XrcDomain`).
   */
  type?: Exclude<QpType, 'XRC_TGT'>;
  /** Where send requests complete. */
  sendCq: CompletionQueue;
  /** `sendCq` unless given. */
  recvCq?: CompletionQueue;
  /** Where its receives come from; without it, from a receive queue of its own. */
  srq?: SharedReceiveQueue;
  /** Sizes; 128 requests, 4 elements, 128 bytes inline unless given. */
  cap?: Partial<QpCap>;
  /** Every send request raises a completion. */
  sqSigAll?: boolean;
  /** RC: how it recovers from losses, where that differs from the device's. */
  recovery?: Partial<Recovery>;
  /** RC and UC: its congestion control, where that differs from the device's (docs/congestion.md). */
  congestion?: Partial<Congestion>;
  /** Comes back as `context` (`qp_context`). */
  context?: unknown;
}

const DEFAULT_CAP: QpCap = {
  maxSendWr: 128,
  maxRecvWr: 128,
  maxSendSge: 4,
  maxRecvSge: 4,
  maxInlineData: 128,
};

/** A protection domain (`struct ibv_pd`): what regions, windows and queue pairs have to have in common. */
export class ProtectionDomain implements AsyncDisposable {
  /** The engine's number for it. */
  readonly handle: number;
  readonly #engine: Engine;
  readonly #random: () => number;
  /** The regions registered in it, to find the one that a view lies in. @internal */
  readonly regions = new RegionIndex();
  readonly #objects: DeviceObjects;
  readonly #ending = new Ending();
  #gone = false;

  constructor(engine: Engine, handle: number, random: () => number, objects: DeviceObjects) {
    this.#engine = engine;
    this.handle = handle;
    this.#random = random;
    this.#objects = objects;
  }

  /** Whether it is of this device, or of another context of the same one. @internal */
  isOf(device: { readonly facts: Engine['facts'] }): boolean {
    return this.#engine.facts === device.facts;
  }

  /**
   * ibv_reg_mr(3): opens memory to the device, and to peers with the rights in `access` (IBTA vol 1 §10.6.3). A view
   * registers its own bytes only. With the engine in a worker the memory has to be shared (docs/memory.md).
   *
   * Rejects with EINVAL for what is no memory, is not shared or can be resized, for remote write or atomic without
   * local write, for an `iova` that would wrap; ENOMEM when there are `maxMr`.
   */
  async registerMr(
    memory: ArrayBufferLike | ArrayBufferView,
    options: RegisterOptions = {},
  ): Promise<MemoryRegion<ProtectionDomain>> {
    this.#checkAlive();
    checkRegisterOptions(options);
    const init = {
      pd: this.handle,
      ...checkMemory(this.#engine, memory),
      access: accessBits(options.access),
      ...(options.iova === undefined ? {} : { iova: options.iova }),
    };
    return new MemoryRegion(this.#engine, await this.#engine.call('registerMr', init), init, this);
  }

  /**
   * ibv_alloc_null_mr(3): a region without memory, for scatter/gather lists: zeros to send, and what arrives there is discarded.
   * Rejects with ENOMEM when there are `maxMr`.
   */
  async allocNullMr(): Promise<NullMemoryRegion> {
    this.#checkAlive();
    return new NullMemoryRegion(this.#engine, await this.#engine.call('allocNullMr', this.handle));
  }

  /**
   * ibv_create_qp(3). `cap` of what is returned is at least what was asked for.
   *
   * Rejects with EINVAL, naming the attribute, for what is beyond the device (`device.query()`); EBUSY for a second
   * GSI; ENOMEM when there are `maxQp`; for RAW_PACKET EPERM without CAP_NET_RAW, EOPNOTSUPP where the link is not `udp`.
   */
  async createQp(init: QueuePairInit): Promise<QueuePair> {
    checkQueuePairInit(init);
    const {
      type = 'RC',
      sendCq,
      recvCq = sendCq,
      srq,
      sqSigAll = false,
      recovery,
      congestion,
      context,
    } = init;
    this.#checkAlive();
    this.#checkOwn('sendCq', sendCq, this.#objects.cqs, 'device.createCq');
    this.#checkOwn('recvCq', recvCq, this.#objects.cqs, 'device.createCq');
    if (srq !== undefined) this.#checkOwn('srq', srq, this.#objects.srqs, 'pd.createSrq');
    const created = await this.#engine.call('createQp', {
      pd: this.handle,
      type,
      sendCq: sendCq.handle,
      recvCq: recvCq.handle,
      ...(srq ? { srq: srq.handle } : {}),
      cap: { ...DEFAULT_CAP, ...init.cap },
      sqSigAll,
      ...(recovery === undefined ? {} : { recovery }),
      ...(congestion === undefined ? {} : { congestion }),
    });
    return new QueuePair({
      engine: this.#engine,
      type,
      created,
      sendCq,
      recvCq,
      srq,
      context,
      find: this.regions.find,
      random: this.#random,
      registry: this.#objects.qps,
    });
  }

  #checkAlive(): void {
    if (this.#gone) throw invalid('pd', 'it is deallocated', 'a protection domain (device.allocPd)');
  }

  /** An object that the program names has to be one of this context, and not destroyed. */
  #checkOwn<T extends { handle: number }>(
    attribute: string,
    object: T | undefined,
    own: Registry<T>,
    made: string,
  ): void {
    const expected = `the result of ${made}`;
    if (typeof object !== 'object' || object === null) throw invalid(attribute, `${object}`, expected);
    if (own.get(object.handle) !== object)
      throw invalid(attribute, 'it is destroyed, or of another device', expected);
  }

  #xrcOf({ domain, cq }: NonNullable<SharedReceiveQueueInit['xrc']>): { domain: number; cq: number } {
    if (!(domain instanceof XrcDomain))
      throw invalid('xrc.domain', described(domain), 'the result of device.openXrcDomain');
    domain.checkOpen(this.#engine);
    this.#checkOwn('xrc.cq', cq, this.#objects.cqs, 'device.createCq');
    return { domain: domain.handle, cq: cq.handle };
  }

  /** ibv_create_srq(3), and with `xrc` or `tags` ibv_create_srq_ex(3). Rejects with EINVAL beyond `maxSrqWr`, `maxSrqSge` or `maxTags`, ENOMEM when there are `maxSrq`. */
  async createSrq(init: SharedReceiveQueueInit = {}): Promise<SharedReceiveQueue> {
    this.#checkAlive();
    checkSrqInit(init);
    const { maxWr = 128, maxSge = 4, limit = 0, xrc, tags, context } = init;
    if (tags) this.#checkOwn('tags.cq', tags.cq, this.#objects.cqs, 'device.createCq');
    const created = await this.#engine.call('createSrq', {
      pd: this.handle,
      maxWr,
      maxSge,
      limit,
      ...(xrc ? { xrc: this.#xrcOf(xrc) } : {}),
      ...(tags ? { tags: { max: tags.max, cq: tags.cq.handle } } : {}),
    });
    return new SharedReceiveQueue(this.#engine, created, this.regions.find, this.#objects.srqs, context);
  }

  /**
   * ibv_create_ah(3): a way for datagrams, from the peer's address or with every attribute (IBTA vol 1 §10.2.2.2).
   *
   * Rejects with EINVAL, naming the attribute, where no packet could go that way; ENOMEM when there are `maxAh`.
   */
  async createAh(init: AddressInit | AhAttr): Promise<AddressHandle> {
    this.#checkAlive();
    checkAddressInit(init);
    const attr = 'grh' in init ? init : addressAttr(init, this.#engine.facts);
    return new AddressHandle(this.#engine, await this.#engine.call('createAh', this.handle, attr), attr);
  }

  /**
   * ibv_create_ah_from_wc(3): the way back to the sender of a datagram.
   *
   * @param grh the first 40 bytes of the receive that completed: the sender's IP header
   * @throws EINVAL for a completion without GRH, or fewer bytes
   */
  async createAhFromWc(wc: WorkCompletion, grh: Uint8Array): Promise<AddressHandle> {
    return this.createAh(addressFromCompletion(wc, grh, this.#engine.facts));
  }

  /** ibv_alloc_mw(3): of type 1 or 2 (2B). Rejects with EINVAL for another type, ENOMEM when there are `maxMw`. */
  async allocMw(type: MwType = 2): Promise<MemoryWindow> {
    if (type !== 1 && type !== 2) throw invalid('type', described(type), '1 or 2');
    return new MemoryWindow(this.#engine, await this.#engine.call('allocMw', this.handle, type), type);
  }

  /** ibv_dealloc_pd(3): EBUSY while regions, windows, queues, queue pairs or address handles are in it. */
  dealloc(): Promise<void> {
    return this.#ending.once(this.#engine, async () => {
      await this.#engine.call('deallocPd', this.handle);
      this.#gone = true;
    });
  }

  /** @internal */
  [custom](): string {
    return line('ProtectionDomain', { handle: this.handle, deallocated: this.#gone || undefined });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dealloc();
  }
}
