/** Requests that come to a listener: those that can't be taken are refused here, the others wait for the program. */
import type { CmEvent, DatagramRequestEvent, RequestEvent, Route } from '@node-roce/cm';
import { EventQueue } from '@node-roce/verbs-api';
import { type CmFields, CmRejReason, mtuBytesToEnum } from '@node-roce/wire';
import { parseHeader } from './addresses.ts';
import type { Endpoint } from './endpoint.ts';

/** Fields of REQ that its listener needs. */
export type RequestTerms = Pick<
  CmFields<'REQ'>,
  | 'localQpn'
  | 'startingPsn'
  | 'pathMtu'
  | 'retryCount'
  | 'rnrRetryCount'
  | 'responderResources'
  | 'initiatorDepth'
  | 'endToEndFlowControl'
  | 'primaryLocalGid'
  | 'primaryFlowLabel'
  | 'primaryTrafficClass'
  | 'primaryAckTimeout'
>;

/** A request, as its id needs it. */
export interface WaitingRequest {
  /** Number of the connection. */
  number: number;
  route: Route;
  /** Of the message: addresses, then the program's. */
  privateData: Uint8Array;
  /** Undefined for a datagram service. */
  terms: RequestTerms | undefined;
  /** The address in the request is not the one that it came from. */
  translated: boolean;
}

/** Requests in the order in which they came. */
export class Incoming<Id extends { destroy(): Promise<void> }> {
  /**
   * By number: the id, where an event channel needed that at once. The others stay with the connection manager until their
   * turn comes, as the bytes that came: strangers can fill a backlog.
   */
  readonly #waiting = new Map<number, Id | undefined>();
  /** One entry for each arrival; more than there are requests do no harm. */
  readonly #arrivals = new EventQueue<undefined>();
  readonly #endpoint: Endpoint;
  readonly #number: number;
  readonly #makeId: (request: WaitingRequest) => Id;

  /**
   * @param number of the listener
   * @param makeId an id for a request
   * @param onRequest gets the id of each request as it comes; `next` returns it, too
   */
  constructor(
    endpoint: Endpoint,
    number: number,
    makeId: (request: WaitingRequest) => Id,
    onRequest?: (id: Id) => void,
  ) {
    this.#endpoint = endpoint;
    this.#number = number;
    this.#makeId = makeId;
    endpoint.addListener(number, {
      onEvent: (event) => {
        const refusal = refusalOf(event, endpoint.device.facts.activeMtu);
        if (refusal) {
          void this.#refuse(event.id, refusal.reason);
          return;
        }
        const id = onRequest ? makeId(requestOf(event)) : undefined;
        this.#wait(event.id, id);
        if (id !== undefined) onRequest?.(id);
      },
      onClosed: (reason) => this.#arrivals.fail(reason),
    });
  }

  #wait(number: number, id: Id | undefined): void {
    this.#waiting.set(number, id);
    // One sink for all: of a request without an id, only its end is of interest.
    if (id === undefined) this.#endpoint.addConnection(number, this);
    this.#arrivals.push(undefined);
  }

  /** @internal An event of a request that waits: the peer has given it up. */
  onEvent({ id }: CmEvent): void {
    this.#waiting.delete(id);
    this.#endpoint.removeConnection(id);
    void this.#refuse(id); // The device counts it among its ids until then.
  }

  /** @internal */
  onClosed(): void {}

  /** An id for the oldest request. */
  async next(signal?: AbortSignal): Promise<Id> {
    for (;;) {
      signal?.throwIfAborted();
      const [oldest] = this.#waiting;
      if (oldest) {
        const [number, id] = oldest;
        this.#waiting.delete(number);
        if (id !== undefined) return id;
        const event = await this.#endpoint.call('cmRequestOf', number);
        if (event) return this.#makeId(requestOf(event));
        this.#endpoint.removeConnection(number); // Its sender has given it up, or the listener is closed.
      } else await this.#arrivals.next(signal);
    }
  }

  /** Listens no more; requests that nobody has taken are refused. */
  async close(reason: unknown): Promise<void> {
    this.#endpoint.removeListener(this.#number);
    await this.#endpoint.call('cmUnlisten', this.#number).catch(() => {}); // The device may be closed.
    for (const [number, id] of this.#waiting) {
      if (id === undefined) this.#endpoint.removeConnection(number);
      else await id.destroy();
    }
    this.#waiting.clear();
    this.#arrivals.fail(reason);
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

/** Why a request is refused before the program sees it: its path MTU is more than our port's, or its header of another version, as by Linux. */
function refusalOf(
  { type, request }: RequestEvent | DatagramRequestEvent,
  activeMtu: number,
): { reason?: number } | undefined {
  if (type === 'request' && request.pathMtu > mtuBytesToEnum(activeMtu))
    return { reason: CmRejReason.INVALID_MTU };
  return parseHeader(request.privateData) ? undefined : {};
}

function requestOf(event: RequestEvent | DatagramRequestEvent): WaitingRequest {
  const { id: number, route, request } = event;
  const { privateData } = request;
  if (event.type === 'datagram-request')
    return { number, route, privateData, terms: undefined, translated: false };
  const { translated } = event;
  const terms = translated ? event.request : { ...event.request, primaryLocalGid: route.gid };
  return { number, route, privateData, terms, translated };
}
