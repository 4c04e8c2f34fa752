/** Events of ids (rdma_get_cm_event(3)), and the channels that report them. */
import { inspect } from 'node:util';
import { EventQueue, type RoceError } from '@node-roce/verbs-api';
import { checkOptions, SIGNAL } from '@node-roce/verbs-api/options';
import { closedError } from './errors.ts';

/** Names of `enum rdma_cm_event_type`, without `RDMA_CM_EVENT_`. */
export type CmEventName =
  | 'ADDR_RESOLVED'
  | 'ROUTE_RESOLVED'
  | 'CONNECT_REQUEST'
  | 'CONNECT_ERROR'
  | 'UNREACHABLE'
  | 'REJECTED'
  | 'ESTABLISHED'
  | 'DISCONNECTED'
  | 'DEVICE_REMOVAL'
  | 'MULTICAST_JOIN'
  | 'TIMEWAIT_EXIT';

/** An event of an id (`struct rdma_cm_event`): a `CmIdEvent`. `Id` is `CmId`. */
export interface IdEvent<Id> {
  /** Its name. */
  event: CmEventName;
  /** The id that it is about; of a CONNECT_REQUEST, the new one. */
  id: Id;
  /** Of a CONNECT_REQUEST: the id that listens. */
  listenId?: Id;
  /** Of a failure, or of the end of a device: why. */
  error?: RoceError;
}

/** Events of all ids that were made with it, in order (rdma_create_event_channel(3)): an `EventChannel`. */
export class IdEventChannel<Id> implements AsyncDisposable {
  /** None is dropped: a request of which the program does not hear would keep its place in the backlog. */
  readonly #events = new EventQueue<IdEvent<Id>>(Number.POSITIVE_INFINITY);
  #closed = false;

  /** rdma_get_cm_event(3). Rejects with the signal's reason, or ERR_ROCE_CLOSED. */
  async getEvent(options: { signal?: AbortSignal | undefined } = {}): Promise<IdEvent<Id>> {
    checkOptions('', options, { signal: SIGNAL });
    return this.#events.next(options.signal);
  }

  /** Events as they come, until the channel is destroyed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<IdEvent<Id>, void> {
    while (!this.#closed) {
      let event: IdEvent<Id>;
      try {
        event = await this.#events.next();
      } catch (error) {
        if (this.#closed) return;
        throw error;
      }
      yield event;
    }
  }

  /** @internal */
  push(event: IdEvent<Id>): void {
    if (!this.#closed) this.#events.push(event);
  }

  /** Takes back the CONNECT_REQUEST of an id. Returns false where the program has it. @internal */
  withdraw(id: Id): boolean {
    let isThere = false;
    this.#events.discard((entry) => {
      const isIt = entry.event === 'CONNECT_REQUEST' && entry.id === id;
      isThere ||= isIt;
      return isIt;
    });
    return isThere;
  }

  /** Drops the events about an id, and the requests that came to it: the id is destroyed. @internal */
  forget(id: Id): void {
    this.#events.discard((entry) => entry.id === id || entry.listenId === id);
  }

  /** rdma_destroy_event_channel(3): who waits gets ERR_ROCE_CLOSED. */
  async destroy(reason: unknown = closedError('the event channel is destroyed')): Promise<void> {
    this.#closed = true;
    this.#events.fail(reason);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }

  /** @internal */
  [inspect.custom](): string {
    return `EventChannel { destroyed: ${this.#closed} }`;
  }
}
