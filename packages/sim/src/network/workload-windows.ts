/**
 * Memory windows in a workload: one side binds them, the other goes through them, and each ends in one of the ways in which
 * windows end. One keeper stands for the windows of one side of a connection, one at a time.
 */
import { Access } from '@node-roce/transport';
import type { Random } from '@node-roce/wire';
import type { ModelCompletion } from '../model/work.ts';
import type { SimBind, SimDevice, SimSend, SimWindow } from './endpoint.ts';
import { require } from './workload-checks.ts';
import { WRITTEN } from './workload-layout.ts';

/** The life of one binding. */
export interface WindowSession {
  type: 1 | 2;
  /** In the arena of the side that binds. */
  offset: number;
  length: number;
  zeroBased: boolean;
  /** READs go through it, too. */
  reads: boolean;
  /** By the peer's SEND, by the owner's LOCAL_INV, or, type 1, by the owner's binding it to nothing. */
  endsWith: 'SEND_WITH_INV' | 'LOCAL_INV' | 'unbinding';
  /** The completion, at the owner, of the message that ends it. */
  last?: Omit<ModelCompletion, 'wrId'>;
  lastWrId?: number;
}

/** Work requests of keepers have numbers from here on. */
const FIRST_WR = 1_000_000;
export const isWindowRequest = (wrId: number): boolean => wrId >= FIRST_WR;

/** Binds, uses and invalidates memory windows in a workload. */
export class WindowKeeper {
  readonly #device: SimDevice;
  readonly #post: (send: SimSend) => void;
  readonly #allowReads: boolean;
  readonly #windows: Partial<Record<1 | 2, SimWindow>> = {};
  /** Of each window, the key it was bound with last. */
  readonly #keys: Partial<Record<1 | 2, number>> = {};
  #session: WindowSession | undefined;
  #state: 'free' | 'binding' | 'bound' | 'ending' = 'free';
  #requests = 0;

  /**
   * @param post to the queue pair through which windows are bound
   * @param allowReads where no request can come late: a READ that arrives again after its window went ends the connection
   */
  constructor(device: SimDevice, post: (send: SimSend) => void, allowReads: boolean) {
    this.#device = device;
    this.#post = post;
    this.#allowReads = allowReads;
  }

  /** No binding is under way or left. */
  get idle(): boolean {
    return this.#state === 'free';
  }

  draw(random: Random): WindowSession {
    const type = random.pick([1, 2, 2] as const);
    const length = random.between(1, 4000);
    const endsWith = type === 1 ? 'unbinding' : random.pick(['SEND_WITH_INV', 'LOCAL_INV'] as const);
    return {
      type,
      length,
      offset: WRITTEN.at + random.between(0, WRITTEN.bytes - length),
      zeroBased: type === 2 && random.chance(0.4),
      reads: this.#allowReads && endsWith === 'SEND_WITH_INV',
      endsWith,
    };
  }

  /** Gives a request the session's key; false while the window is not bound yet. */
  aim(session: WindowSession, send: SimSend): boolean {
    if (this.#session !== session) {
      if (this.#state === 'free') this.#begin(session);
      return false;
    }
    if (this.#state !== 'bound') return false;
    const rkey = this.#keys[session.type];
    if (send.wrId !== session.lastWrId) {
      send.rkey = rkey;
    } else if (session.endsWith === 'SEND_WITH_INV') {
      send.invalidateRkey = rkey;
      session.last!.invalidatedRkey = rkey;
    }
    return true;
  }

  #begin(session: WindowSession): void {
    this.#session = session;
    this.#state = 'binding';
    const rights = Access.REMOTE_WRITE | Access.REMOTE_READ | (session.zeroBased ? Access.ZERO_BASED : 0);
    this.#bind(session, { offset: session.offset, length: session.length, access: rights });
  }

  #bind({ type }: WindowSession, range: Pick<SimBind, 'offset' | 'length' | 'access'>): void {
    this.#windows[type] ??= this.#device.allocWindow(type);
    const window = this.#windows[type];
    const last = this.#keys[type] ?? window.rkey;
    const rkey = ((last & ~0xff) | ((last + 1) & 0xff)) >>> 0;
    this.#keys[type] = rkey;
    this.#request({ opcode: 'BIND_MW', bind: { window, rkey, ...range } });
  }

  #request(send: Pick<SimSend, 'opcode' | 'bind' | 'invalidateRkey'>): void {
    this.#post({ wrId: FIRST_WR + this.#requests++, offset: 0, length: 0, ...send });
  }

  /** The peer has seen the end of its requests through the window. */
  done(session: WindowSession): void {
    if (session.endsWith === 'SEND_WITH_INV') return;
    this.#state = 'ending';
    if (session.endsWith === 'unbinding') this.#bind(session, { offset: 0, length: 0, access: 0 });
    else this.#request({ opcode: 'LOCAL_INV', invalidateRkey: this.#keys[session.type] });
  }

  /** The peer took the window away. */
  invalidated(rkey: number): void {
    require(rkey === this.#keys[2] && this.#state === 'bound', 'not the window that was bound', { rkey });
    this.#state = 'free';
  }

  /** A request of ours completed. @throws Error if it failed, or is not the one under way */
  completed({ wrId, status, opcode }: ModelCompletion): void {
    if (status === 'WR_FLUSH_ERR') return;
    require(status === 'SUCCESS', `a window's ${this.#state} failed`, { status, session: this.#session });
    require(wrId === FIRST_WR + this.#requests - 1, 'a window request completed out of order', { wrId });
    const binds = this.#state === 'binding' || this.#session!.endsWith === 'unbinding';
    require(opcode === (binds ? 'BIND_MW' : 'LOCAL_INV'), 'a window request completed otherwise', { opcode });
    this.#state = this.#state === 'binding' ? 'bound' : 'free';
  }
}
