/** XRC domains: what shared receive queues and target queue pairs have to have in common (IBTA vol 1 annex A14). */
import { invalid } from '@node-roce/transport';
import { Ending } from './ending.ts';
import type { Engine } from './engine/engine.ts';
import { custom, line } from './inspect.ts';
import { checkCall } from './option-types.ts';
import { ANY, checkArgument, INTEGER } from './options.ts';
import type { Registry } from './registry.ts';
import { XrcTarget } from './xrc-target.ts';

/** Options of `device.openXrcDomain` (`struct ibv_xrcd_init_attr`). */
export interface XrcDomainInit {
  /** Opens the domain that all contexts of the device share which open this name; a domain of one's own without. */
  name?: string;
  /** Make a domain of that name if there is none (`O_CREAT`). Default true. */
  create?: boolean;
  /** Refuse a name that is open already (`O_EXCL`). Default false. */
  exclusive?: boolean;
}

/** An opening of an XRC domain (`struct ibv_xrcd`). Made by `device.openXrcDomain`. */
export class XrcDomain implements AsyncDisposable {
  /** The engine's number for this opening. */
  readonly handle: number;
  /** Shared under this name; undefined for a domain of one's own. */
  readonly name: string | undefined;
  readonly #engine: Engine;
  readonly #targets: Registry<XrcTarget>;
  readonly #random: () => number;
  readonly #ending = new Ending();
  #closed = false;

  constructor(
    engine: Engine,
    handle: number,
    name: string | undefined,
    targets: Registry<XrcTarget>,
    random: () => number,
  ) {
    this.#engine = engine;
    this.handle = handle;
    this.name = name;
    this.#targets = targets;
    this.#random = random;
  }

  /** Whether it is of this device, or of another context of the same one. @internal */
  isOf(device: { readonly facts: Engine['facts'] }): boolean {
    return this.#engine.facts === device.facts;
  }

  /** @internal */
  checkOpen(engine: Engine): void {
    if (this.#closed || engine !== this.#engine)
      throw invalid('domain', 'it is closed, or of another device', 'the result of device.openXrcDomain');
  }

  /**
   * ibv_create_qp_ex(3) with IBV_QPT_XRC_RECV: a queue pair that takes requests for the SRQs of the domain. It goes with its
   * last opening. Rejects with ENOMEM when there are `maxQp`.
   */
  createTarget(options: { context?: unknown } = {}): Promise<XrcTarget> {
    return this.#open(undefined, options);
  }

  /** ibv_open_qp(3): one more opening of a target queue pair of the domain. Rejects with EINVAL for another number. */
  openTarget(qpNum: number, options: { context?: unknown } = {}): Promise<XrcTarget> {
    checkArgument('qpNum', qpNum, INTEGER);
    return this.#open(qpNum, options);
  }

  async #open(qpNum: number | undefined, options: { context?: unknown }): Promise<XrcTarget> {
    this.checkOpen(this.#engine);
    checkCall(options, { context: ANY });
    const opened = await this.#engine.call('openXrcTarget', this.handle, qpNum);
    const { context } = options;
    return new XrcTarget({
      engine: this.#engine,
      opened,
      context,
      random: this.#random,
      registry: this.#targets,
    });
  }

  /** ibv_close_xrcd(3): EBUSY while SRQs and target queue pairs that were made by this opening are there. */
  close(): Promise<void> {
    return this.#ending.once(this.#engine, async () => {
      await this.#engine.call('closeXrcd', this.handle);
      this.#closed = true;
    });
  }

  /** @internal */
  [custom](): string {
    return line('XrcDomain', { handle: this.handle, name: this.name, closed: this.#closed || undefined });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
