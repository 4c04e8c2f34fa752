/** Asynchronous events: what they are about, and the queue of ibv_get_async_event(3) with its acknowledgments. */
import type { AsyncEvent } from '@node-roce/transport';
import type { CompletionQueue } from './completion-queue.ts';
import type { DeviceObjects } from './objects.ts';
import type { QueuePair } from './queue-pair.ts';
import type { SharedReceiveQueue } from './shared-receive-queue.ts';

/** The port's state or its table of GIDs changed. */
export interface PortEvent {
  /** The port came up, went down, or has other addresses. */
  type: 'PORT_ACTIVE' | 'PORT_ERR' | 'GID_CHANGE';
  /** The one port. */
  portNum: 1;
}

/** What an event concerns; `undefined` where the program has let go of it meanwhile. */
export type EventElement = QueuePair | CompletionQueue | SharedReceiveQueue;

/**
 * What the device tells unasked (`struct ibv_async_event`): about a queue (`element`, and its number), about
 * the port, or its own end.
 */
export type DeviceEvent =
  | (AsyncEvent & { element?: EventElement })
  | PortEvent
  | { type: 'DEVICE_FATAL'; error: unknown };

/** Adds the object that an event of the engine is about. */
export function withElement(event: AsyncEvent, { qps, cqs, srqs }: DeviceObjects): DeviceEvent {
  const element =
    'qpn' in event ? qps.get(event.qpn) : 'cq' in event ? cqs.get(event.cq) : srqs.get(event.srq);
  return { ...event, element };
}

/** Events about one object that a program has taken and not acknowledged: its destruction waits for them. */
export class AffiliatedEvents {
  #out = 0;
  #waiters: (() => void)[] = [];

  /** Taken and not acknowledged. */
  get pending(): number {
    return this.#out;
  }

  take(): void {
    this.#out++;
  }

  acknowledge(count = 1): void {
    this.#out = Math.max(0, this.#out - count);
    if (this.#out > 0) return;
    for (const resolve of this.#waiters.splice(0)) resolve();
  }

  /** Resolves once every one is acknowledged. */
  async acknowledged(): Promise<void> {
    if (this.#out > 0) await new Promise<void>((resolve) => this.#waiters.push(resolve));
  }
}

/** An event that a program has taken with `device.getEvent`, and what acknowledges it. */
export interface TakenEvent {
  /** What happened. */
  readonly event: DeviceEvent;
  /** ibv_ack_async_event(3); once counts. Until then the destruction of what it is about waits. */
  ack(): void;
}

/** Hands an event out: it holds what it is about until it is acknowledged. */
export function takeEvent(event: DeviceEvent): TakenEvent {
  let held = 'element' in event ? event.element?.asyncEvents : undefined;
  held?.take();
  return {
    event,
    ack() {
      held?.acknowledge();
      held = undefined;
    },
  };
}

/** Events that nobody takes: the oldest go when there are more. */
const QUEUE_LIMIT = 1024;

/** Things one at a time, for whoever asks for the next. */
export class EventQueue<T> {
  #queue: T[] = [];
  #waiters: { resolve(value: T): void; reject(reason: unknown): void }[] = [];
  #failure: unknown;

  push(value: T): void {
    const waiter = this.#waiters.shift();
    if (waiter) {
      waiter.resolve(value);
      return;
    }
    if (this.#queue.length === QUEUE_LIMIT) this.#queue.shift();
    this.#queue.push(value);
  }

  /** The next, or undefined if there is none now. */
  poll(): T | undefined {
    return this.#queue.shift();
  }

  /** Rejects with the signal's reason, or with that of `fail`, after what was there is taken. */
  async next(signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    if (this.#queue.length > 0) return this.#queue.shift() as T;
    if (this.#failure !== undefined) throw this.#failure;
    return new Promise<T>((resolve, reject) => {
      const onAbort = () => {
        this.#waiters = this.#waiters.filter((w) => w !== waiter);
        reject(signal?.reason);
      };
      const done = () => signal?.removeEventListener('abort', onAbort);
      const waiter = {
        resolve: (value: T) => {
          done();
          resolve(value);
        },
        reject: (reason: unknown) => {
          done();
          reject(reason);
        },
      };
      this.#waiters.push(waiter);
      signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** Drops what nobody has taken. */
  discard(test: (value: T) => boolean): void {
    this.#queue = this.#queue.filter((value) => !test(value));
  }

  /** Whoever waits, and whoever asks later, gets the reason. */
  fail(reason: unknown): void {
    this.#failure = reason;
    for (const waiter of this.#waiters.splice(0)) waiter.reject(reason);
  }
}
