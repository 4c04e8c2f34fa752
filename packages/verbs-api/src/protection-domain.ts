/** Protection domains: registering memory, creating queue pairs. */
import { invalid, type QpCap, type QpType, RoceError } from '@node-roce/transport';
import type { CompletionQueue } from './completion-queue.ts';
import type { Engine } from './engine.ts';
import {
  accessBits,
  backingOf,
  checkBuffer,
  MemoryRegion,
  RegionIndex,
  type RegisterOptions,
} from './memory-region.ts';
import { QueuePair } from './queue-pair.ts';

/** Types whose work requests can be written here; the engine knows UD and GSI, too. */
const OFFERED: readonly QpType[] = ['RC', 'UC'];

export interface QueuePairInit {
  /** RC unless given, or UC. */
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
    if (
      !ArrayBuffer.isView(memory) &&
      !(memory instanceof ArrayBuffer) &&
      !(memory instanceof SharedArrayBuffer)
    ) {
      throw invalid('memory', 'not memory', 'a buffer, or a view of one');
    }
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
    if (!OFFERED.includes(type)) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `type: ${type} queue pairs are not offered`, {
        errno: 'EOPNOTSUPP',
        attribute: 'type',
        expected: OFFERED.join(', '),
      });
    }
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
    if (this.#gone || this.#engine.closed) return;
    await this.#engine.call('deallocPd', this.handle);
    this.#gone = true;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dealloc();
  }
}
