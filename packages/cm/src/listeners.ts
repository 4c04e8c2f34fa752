/** Services that a program listens to, and the requests that wait for it. */
import { RoceError } from '@node-roce/transport';

/** A service. Promise: at most `backlog` requests wait. */
export class Listener {
  readonly number: number;
  readonly serviceId: bigint;
  readonly #backlog: number;
  readonly #waiting = new Set<number>();

  constructor(number: number, serviceId: bigint, backlog: number) {
    this.number = number;
    this.serviceId = serviceId;
    this.#backlog = backlog;
  }

  get full(): boolean {
    return this.#waiting.size >= this.#backlog;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** The request waits for the program. */
  hold(id: number): void {
    this.#waiting.add(id);
  }

  /** It waits no more. */
  release(id: number): void {
    this.#waiting.delete(id);
  }
}

/** Service IDs with a listener, exact or by range. */
export class Listeners {
  readonly #byService = new Map<bigint, Listener>();
  readonly #byNumber = new Map<number, Listener>();
  #next = 1;

  /** EADDRINUSE where the service has a listener. */
  add(serviceId: bigint, backlog: number): number {
    if (this.#byService.has(serviceId)) {
      throw new RoceError('ERR_ROCE_PORT_IN_USE', `service ${serviceId} has a listener`, {
        errno: 'EADDRINUSE',
        attribute: 'port',
      });
    }
    const listener = new Listener(this.#next++, serviceId, backlog);
    this.#byService.set(serviceId, listener);
    this.#byNumber.set(listener.number, listener);
    return listener.number;
  }

  /** @returns its service, if there was such a listener */
  remove(number: number): bigint | undefined {
    const listener = this.#byNumber.get(number);
    if (!listener) return undefined;
    this.#byNumber.delete(number);
    this.#byService.delete(listener.serviceId);
    return listener.serviceId;
  }

  find(serviceId: bigint): Listener | undefined {
    return this.#byService.get(serviceId);
  }

  get size(): number {
    return this.#byNumber.size;
  }

  /** Requests that wait, of all listeners. */
  get pending(): number {
    let sum = 0;
    for (const listener of this.#byNumber.values()) sum += listener.waiting;
    return sum;
  }

  /** A request waits for its listener no more, or never did. */
  release({ listener, id }: { listener: number; id: number }): void {
    this.#byNumber.get(listener)?.release(id);
  }
}
