/** Memory regions without memory: for scatter/gather lists alone. */
import type { NullMrCreated } from '@node-roce/transport';
import { Ending } from './ending.ts';
import type { Engine } from './engine/engine.ts';
import { custom, hex, line } from './inspect.ts';

/**
 * A null region (ibv_alloc_null_mr(3)), made by `pd.allocNullMr`: in a scatter/gather list, `length` bytes of it are zeros to send, or
 * discard what arrives. Peers have no key to it, and memory windows are not bound to it.
 */
export class NullMemoryRegion implements AsyncDisposable {
  /** The key for work requests of this side. */
  readonly lkey: number;
  /** Any offset lies in it: an element has to have a `length`. */
  readonly length = Number.MAX_SAFE_INTEGER;
  /** Its first address, which like all others stands for nothing. @internal */
  readonly startHigh = 0;
  /** @internal */
  readonly startLow = 0;
  readonly #engine: Engine;
  readonly #handle: number;
  readonly #ending = new Ending();

  constructor(engine: Engine, created: NullMrCreated) {
    this.#engine = engine;
    this.#handle = created.handle;
    this.lkey = created.lkey;
  }

  /** ibv_dereg_mr(3). Work that still names it fails. */
  deregister(): Promise<void> {
    return this.#ending.once(this.#engine, () => this.#engine.call('deregisterMr', this.#handle));
  }

  /** @internal */
  [custom](): string {
    return line('NullMemoryRegion', { lkey: hex(this.lkey) });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.deregister();
  }
}
