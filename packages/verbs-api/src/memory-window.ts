/** Memory windows: keys of their own for parts of a region, given and taken back by work requests. */
import type { MwCreated, MwType } from '@node-roce/transport';
import { Ending } from './ending.ts';
import type { Engine } from './engine/engine.ts';
import { custom, hex, line } from './inspect.ts';
import { checkArgument, INTEGER } from './options.ts';

/**
 * A memory window (`struct ibv_mw`, IBTA vol 1 §10.6.7). Made by `pd.allocMw`. It opens nothing until it is bound:
 * type 1 by `qp.bindMw`; type 2 (2B: to one queue pair) by a posted BIND_MW, and closed by LOCAL_INV, by
 * the peer's SEND_WITH_INV, or with the queue pair.
 */
export class MemoryWindow implements AsyncDisposable {
  /** The engine's number for it. */
  readonly handle: number;
  /** 1, or 2 (2B). */
  readonly type: MwType;
  /** The key of the last bind that was posted: peers use it once that bind is complete. */
  rkey: number;
  readonly #engine: Engine;
  readonly #ending = new Ending();

  constructor(engine: Engine, created: MwCreated, type: MwType) {
    this.#engine = engine;
    this.handle = created.handle;
    this.rkey = created.rkey;
    this.type = type;
  }

  /** The key with its low 8 bits counted on (ibv_inc_rkey(3)), so that the old one stays shut. */
  get nextRkey(): number {
    return incRkey(this.rkey);
  }

  /** ibv_dealloc_mw(3): closes what it was bound to. */
  dealloc(): Promise<void> {
    return this.#ending.once(this.#engine, () => this.#engine.call('deallocMw', this.handle));
  }

  /** @internal */
  [custom](): string {
    return line('MemoryWindow', { handle: this.handle, type: this.type, rkey: hex(this.rkey) });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dealloc();
  }
}

/** ibv_inc_rkey(3): the same index, the low 8 bits one further. Throws EINVAL for what is no key. */
export function incRkey(rkey: number): number {
  checkArgument('rkey', rkey, INTEGER);
  return ((rkey & 0xffff_ff00) | ((rkey + 1) & 0xff)) >>> 0;
}
