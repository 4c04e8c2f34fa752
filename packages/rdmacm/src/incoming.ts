/** Requests that come to a listener: those that can't be taken are refused here, the others wait for the program. */
import type { CmEvent } from '@node-roce/cm';
import { EventQueue } from '@node-roce/verbs-api';
import { CmRejReason, mtuBytesToEnum } from '@node-roce/wire';
import { parseHeader, type SocketAddress } from './addresses.ts';
import type { Endpoint } from './endpoint.ts';

/** The event of a request, for a connection or a datagram service. */
export type RequestEvent = Extract<CmEvent, { type: 'request' | 'datagram-request' }>;

/** A request that can be taken. */
export interface TakenRequest {
  event: RequestEvent;
  from: SocketAddress;
  /** The address that the peer asked for. */
  to: string;
  privateData: Uint8Array;
}

/** Requests as ids, in the order in which they came. */
export class Incoming<Id extends { destroy(): Promise<void> }> {
  readonly #queue = new EventQueue<Id>();
  readonly #endpoint: Endpoint;
  readonly #number: number;

  /** @param number of the listener @param makeId an id for a request */
  constructor(endpoint: Endpoint, number: number, makeId: (request: TakenRequest) => Id) {
    this.#endpoint = endpoint;
    this.#number = number;
    endpoint.addListener(number, {
      onEvent: (event) => {
        const request = this.#check(event);
        if (request) this.#queue.push(makeId(request));
      },
      onClosed: (reason) => this.#queue.fail(reason),
    });
  }

  next(signal?: AbortSignal): Promise<Id> {
    return this.#queue.next(signal);
  }

  /** Listens no more; requests that nobody has taken are refused. */
  async close(reason: unknown): Promise<void> {
    this.#endpoint.removeListener(this.#number);
    await this.#endpoint.call('cmUnlisten', this.#number).catch(() => {}); // The device may be closed.
    for (let left = this.#queue.poll(); left; left = this.#queue.poll()) await left.destroy();
    this.#queue.fail(reason);
  }

  /** A header of another version is refused, as by Linux; a path MTU that our port has not, by its reason. */
  #check(event: RequestEvent): TakenRequest | undefined {
    const { activeMtu } = this.#endpoint.device.facts;
    if (event.type === 'request' && event.request.pathMtu > mtuBytesToEnum(activeMtu)) {
      void this.#refuse(event.id, CmRejReason.INVALID_MTU);
      return undefined;
    }
    const header = parseHeader(event.request.privateData);
    if (header) return { event, ...header };
    void this.#refuse(event.id);
    return undefined;
  }

  async #refuse(id: number, reason?: number): Promise<void> {
    try {
      if (reason !== undefined) await this.#endpoint.call('cmReject', id, { reason });
      await this.#endpoint.call('cmDestroy', id);
    } catch {
      // The device may be closed, or the peer have given up.
    }
  }
}
