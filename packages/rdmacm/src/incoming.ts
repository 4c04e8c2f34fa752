/** Requests that come to a listener: those that can't be taken are refused here, the others wait for the program. */
import {
  type CmEvent,
  type DatagramRequestEvent,
  type RequestEvent,
  type Route,
  serviceOf,
} from '@node-roce/cm';
import type { EventQueue } from '@node-roce/verbs-api';
import { type CmFields, CmRejReason, gidEquals, mtuBytesToEnum } from '@node-roce/wire';
import { gidOf, parseHeader } from './addresses.ts';
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
  | 'srq'
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

/** The service of a listener; `undefined`: it takes questions for a datagram service. */
export type Service = 'RC' | 'XRC' | undefined;

/** One entry for each arrival; more than there are requests do no harm. */
export type Arrivals = EventQueue<undefined>;

/** Requests in the order in which they came. */
export class Incoming<Id extends { destroy(): Promise<void> }> {
  /**
   * By number: the id, where an event channel needed that at once. The others stay with the connection manager until their
   * turn comes, as the bytes that came: strangers can fill a backlog.
   */
  readonly #waiting = new Map<number, Id | undefined>();
  readonly #arrivals: Arrivals;
  readonly #endpoint: Endpoint;
  readonly #number: number;
  readonly #makeId: (request: WaitingRequest) => Id;

  /**
   * @param number of the listener
   * @param service the requests that it takes
   * @param arrivals gets an entry for each request that waits
   * @param makeId an id for a request
   * @param onRequest gets the id of each request as it comes; `next` returns it, too
   */
  constructor(
    endpoint: Endpoint,
    number: number,
    service: Service,
    arrivals: Arrivals,
    makeId: (request: WaitingRequest) => Id,
    onRequest?: (id: Id) => void,
  ) {
    this.#endpoint = endpoint;
    this.#number = number;
    this.#arrivals = arrivals;
    this.#makeId = makeId;
    endpoint.addListener(number, {
      onEvent: (event) => {
        const refusal = refusalOf(event, service, endpoint.device.facts.activeMtu);
        if (refusal) {
          void this.#refuse(event.id, refusal.reason);
          return;
        }
        const id = onRequest ? makeId(requestOf(event)) : undefined;
        this.#wait(event.id, id);
        if (id !== undefined) onRequest?.(id);
      },
    });
  }

  #wait(number: number, id: Id | undefined): void {
    this.#waiting.set(number, id);
    // One sink for all: of a request without an id, only its end is of interest.
    if (id === undefined) this.#endpoint.addConnection(number, this);
    this.#arrivals.push(undefined);
  }

  /** @internal An event of a request that waits: the peer has given it up. */
  onEvent({ id }: Pick<CmEvent, 'id'>): void {
    this.#waiting.delete(id);
    this.#endpoint.removeConnection(id);
    void this.#refuse(id); // The device counts it among its ids until then.
  }

  /** An id for the oldest request; undefined where none waits. */
  async take(): Promise<Id | undefined> {
    for (;;) {
      const [oldest] = this.#waiting;
      if (!oldest) return undefined;
      const [number, id] = oldest;
      this.#waiting.delete(number);
      if (id !== undefined) return id;
      const event = await this.#endpoint.call('cmRequestOf', number);
      if (event) return this.#makeId(requestOf(event));
      this.#endpoint.removeConnection(number); // Its sender has given it up, or the listener is closed.
    }
  }

  /** The program has answered the request of an id, or it has ended. */
  forget(number: number): void {
    this.#waiting.delete(number);
  }

  /** Listens no more; requests that nobody has taken are refused. */
  async close(): Promise<void> {
    this.#endpoint.removeListener(this.#number);
    await this.#endpoint.call('cmUnlisten', this.#number).catch(() => {}); // The device may be closed.
    for (const [number, id] of this.#waiting) {
      if (id === undefined) this.onEvent({ id: number });
      else await id.destroy();
    }
    this.#waiting.clear();
  }

  async #refuse(id: number, reason?: number): Promise<void> {
    const ignore = () => {}; // The device may be closed, or the peer have given up.
    if (reason !== undefined) await this.#endpoint.call('cmReject', id, { reason }).catch(ignore);
    await this.#endpoint.call('cmDestroy', id).catch(ignore);
  }
}

/**
 * Returns the reason to refuse a request before the program sees it: it asks for another service than the listener's, its path
 * MTU is invalid or more than our port's, or its header has another version. As Linux does (core/cma.c `cma_ib_req_handler`), but
 * with a reason.
 */
export function refusalOf(
  event: RequestEvent | DatagramRequestEvent,
  service: Service,
  activeMtu: number,
): { reason?: number } | undefined {
  if ((event.type === 'datagram-request') !== (service === undefined)) return {};
  if (event.type === 'request') {
    const { pathMtu } = event.request;
    if (serviceOf(event.request, true) !== service) return { reason: CmRejReason.INVALID_TRANSPORT_TYPE };
    if (pathMtu < 1 || pathMtu > mtuBytesToEnum(activeMtu)) return { reason: CmRejReason.INVALID_MTU };
  }
  return parseHeader(event.request.privateData) ? undefined : {};
}

/** A request as its id needs it. */
export function requestOf(event: RequestEvent | DatagramRequestEvent): WaitingRequest {
  const { id: number, route, request } = event;
  const { privateData } = request;
  if (event.type === 'datagram-request')
    return { number, route, privateData, terms: undefined, translated: false };
  // The program gets the peer's address from the header: it has to be the one that the request came from.
  const source = parseHeader(privateData)?.from.address;
  const translated = event.translated || source === undefined || !gidEquals(gidOf(source), route.gid);
  const terms = event.translated ? event.request : { ...event.request, primaryLocalGid: route.gid };
  return { number, route, privateData, terms, translated };
}
