/** Accepts the requests that come to an id, as long as there is room for their connections. */
import { codeMicroseconds, DEFAULT_TIMING, type Timing } from '@node-roce/cm';
import { EventQueue, type RoceError } from '@node-roce/verbs-api';
import { CmRejReason } from '@node-roce/wire';
import type { CmId } from './cm-id.ts';
import { closedError } from './errors.ts';
import { Slots } from './slots.ts';

const DEFAULT_BACKLOG = 128;
/** Our response timeouts that a peer may take to confirm while others wait: time for a repetition of REP. */
const PATIENCE = 2;

/** A request that is being accepted, and since when (`performance.now`). */
interface Accepting {
  done: Promise<void>;
  since: number;
}

/** Makes connections of one kind. */
interface Maker<C> {
  /** The objects of a connection for a request. */
  open(request: CmId): Promise<C>;
  /** Resolves when both sides are ready. */
  accept(connection: C): Promise<void>;
  /** Ends a connection without a wait for its peer. */
  discard(connection: C): Promise<void>;
}

/** Options of a listener that concern its connections. */
interface Limits {
  backlog?: number | undefined;
  timing?: Timing | undefined;
  /** Ends it. */
  signal?: AbortSignal | undefined;
}

/** Connections of a listener: at most `backlog` of them are being made, or wait for the program. */
export class Acceptor<C> {
  readonly #id: CmId;
  readonly #maker: Maker<C>;
  /** Those that nobody has taken. */
  readonly #connections = new EventQueue<C>(Number.POSITIVE_INFINITY);
  /** Requests that are being accepted, the oldest first. */
  readonly #accepting = new Map<CmId, Accepting>();
  /** The request that waits for a place among them. */
  #next: CmId | undefined;
  /** A process warning has named the reason why no connection can be made. */
  #warned = false;
  readonly #room: Slots;
  /** Milliseconds after which a peer that has not confirmed gives its place to another one. */
  readonly #patience: number;
  readonly #signal: AbortSignal | undefined;
  readonly #onAbort = () => void this.end(this.#signal?.reason).catch(() => {}); // Callers of `end` get it.
  #ending: Promise<void> | undefined;

  /** @param id which listens */
  constructor(id: CmId, { backlog = DEFAULT_BACKLOG, timing, signal }: Limits, maker: Maker<C>) {
    this.#id = id;
    this.#maker = maker;
    this.#room = new Slots(backlog);
    const { responseTimeout } = { ...DEFAULT_TIMING, ...timing };
    this.#patience = (PATIENCE * codeMicroseconds(responseTimeout)) / 1000;
    this.#signal = signal;
    signal?.addEventListener('abort', this.#onAbort, { once: true });
    void this.#serve();
  }

  /** The next connection. Rejects with the reason of `end`, or with the signal's. */
  async next(signal?: AbortSignal): Promise<C> {
    const connection = await this.#connections.next(signal);
    this.#room.release(0);
    return connection;
  }

  /** Accepts requests as long as there is room for their connections; the others wait in the backlog. */
  async #serve(): Promise<void> {
    let reason: unknown = closedError('the device is closed');
    try {
      for (;;) {
        const request = await this.#id.getRequest();
        this.#next = request;
        if (!(await this.#place())) {
          await request.destroy();
          break;
        }
        this.#next = undefined;
        const done = this.#accept(request).finally(() => this.#accepting.delete(request));
        this.#accepting.set(request, { done, since: performance.now() });
      }
    } catch (error) {
      reason = error;
    }
    await this.end(reason).catch(() => {}); // Callers of `end` get it.
  }

  /**
   * Waits for a place; false once the listener is closed. A peer that does not confirm chooses how long it is waited for, and
   * strangers could hold all places: the oldest such one is given up when another request needs its place.
   */
  async #place(): Promise<boolean> {
    const giveUp = () => {
      const [oldest] = this.#accepting;
      if (!oldest || performance.now() - oldest[1].since < this.#patience) return;
      oldest[0].destroy().catch(() => {}); // `#accept` ends, and releases the place.
    };
    if (this.#room.isEmpty) giveUp();
    const looking = this.#room.isEmpty ? setInterval(giveUp, this.#patience / 8).unref() : undefined;
    try {
      return (await this.#room.take()) !== undefined;
    } finally {
      clearInterval(looking);
    }
  }

  /** A client that goes away meanwhile ends its own attempt, and no other. */
  async #accept(request: CmId): Promise<void> {
    try {
      // The program would take the request for one of the address in it, and data would go there.
      if (request.request!.translated) {
        await request.reject(undefined, CmRejReason.INVALID_GID);
        throw closedError('the address is translated');
      }
      const opening = this.#maker.open(request);
      opening.catch((error: RoceError) => this.#warn(error));
      const connection = await opening;
      try {
        await this.#maker.accept(connection);
        if (this.#ending) throw closedError('the listener is closed');
        this.#connections.push(connection);
      } catch {
        await this.#maker.discard(connection);
        this.#room.release(0);
      }
    } catch {
      // There was no room for its objects; otherwise it is in another state.
      if (request.state === 'CONNECT_REQUEST')
        await request.reject(undefined, CmRejReason.NO_RESOURCES).catch(() => {});
      await request.destroy().catch(() => {});
      this.#room.release(0);
    }
  }

  /** Warns once where the device has no room for a connection: its client is refused, and `next` waits for the next one. */
  #warn({ code, message }: RoceError): void {
    if (this.#warned || this.#ending || code === 'ERR_ROCE_CLOSED' || code === 'ERR_ROCE_DEVICE_FATAL')
      return;
    this.#warned = true;
    process.emitWarning(`the listener at port ${this.#id.localAddress?.port} refuses clients: ${message}`, {
      type: 'RoceWarning',
      code: 'ROCE_ACCEPT_FAILED',
    });
  }

  /** Listens no more: `next` rejects with the reason. Connections that were taken go on, the others are discarded. */
  end(reason: unknown): Promise<void> {
    this.#ending ??= this.#stop(reason);
    return this.#ending;
  }

  async #stop(reason: unknown): Promise<void> {
    this.#signal?.removeEventListener('abort', this.#onAbort);
    this.#room.close();
    const leaving = [this.#id.destroy()];
    if (this.#next) leaving.push(this.#next.destroy());
    for (const [request, { done }] of this.#accepting) leaving.push(request.destroy(), done);
    for (let left = this.#connections.poll(); left; left = this.#connections.poll())
      leaving.push(this.#maker.discard(left));
    try {
      await Promise.all(leaving);
    } finally {
      this.#connections.fail(reason);
    }
  }
}
