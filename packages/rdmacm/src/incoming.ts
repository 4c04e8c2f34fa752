/** Requests that come to a listener: those that can't be taken are refused here, the others wait for the program. */
import type { CmEvent, Route } from '@node-roce/cm';
import { EventQueue } from '@node-roce/verbs-api';
import { type CmFields, CmRejReason, mtuBytesToEnum } from '@node-roce/wire';
import { parseHeader } from './addresses.ts';
import type { Endpoint } from './endpoint.ts';

/** The event of a request, for a connection or a datagram service. */
type RequestEvent = Extract<CmEvent, { type: 'request' | 'datagram-request' }>;

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

/** A request that waits: no more of it than is needed, since strangers can fill a backlog. */
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

/** A literal: an object that grows takes twice the room. */
const termsOf = (request: RequestTerms): RequestTerms => ({
  localQpn: request.localQpn,
  startingPsn: request.startingPsn,
  pathMtu: request.pathMtu,
  retryCount: request.retryCount,
  rnrRetryCount: request.rnrRetryCount,
  responderResources: request.responderResources,
  initiatorDepth: request.initiatorDepth,
  endToEndFlowControl: request.endToEndFlowControl,
  primaryLocalGid: request.primaryLocalGid,
  primaryFlowLabel: request.primaryFlowLabel,
  primaryTrafficClass: request.primaryTrafficClass,
  primaryAckTimeout: request.primaryAckTimeout,
});

/** Requests in the order in which they came. */
export class Incoming<Id extends { destroy(): Promise<void> }> {
  /** By number; in place of the request its id, where an event channel needed that at once. */
  readonly #waiting = new Map<number, WaitingRequest | Id>();
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
        const request = this.#check(event);
        if (!request) return;
        const id = onRequest ? makeId(request) : undefined;
        this.#wait(request, id);
        if (id !== undefined) onRequest?.(id);
      },
      onClosed: (reason) => this.#arrivals.fail(reason),
    });
  }

  #wait(request: WaitingRequest, id: Id | undefined): void {
    const { number } = request;
    this.#waiting.set(number, id ?? request);
    // One sink for all: of a request without an id, only its end is of interest.
    if (id === undefined) this.#endpoint.addConnection(number, this);
    this.#arrivals.push(undefined);
  }

  /** @internal An event of a request that waits: the peer has given it up. */
  onEvent({ id }: CmEvent): void {
    this.#waiting.delete(id);
    this.#endpoint.removeConnection(id);
  }

  /** @internal */
  onClosed(): void {}

  /** An id for the oldest request. */
  async next(signal?: AbortSignal): Promise<Id> {
    for (;;) {
      signal?.throwIfAborted();
      const [oldest] = this.#waiting;
      if (oldest) {
        const [number, waiting] = oldest;
        this.#waiting.delete(number);
        return 'terms' in waiting ? this.#makeId(waiting) : waiting;
      }
      await this.#arrivals.next(signal);
    }
  }

  /** Listens no more; requests that nobody has taken are refused. */
  async close(reason: unknown): Promise<void> {
    this.#endpoint.removeListener(this.#number);
    await this.#endpoint.call('cmUnlisten', this.#number).catch(() => {}); // The device may be closed.
    for (const [number, waiting] of this.#waiting) {
      if ('terms' in waiting) this.#endpoint.removeConnection(number);
      else await waiting.destroy();
    }
    this.#waiting.clear();
    this.#arrivals.fail(reason);
  }

  /** A header of another version is refused, as by Linux; a path MTU that our port has not, by its reason. */
  #check(event: RequestEvent): WaitingRequest | undefined {
    const { id: number, route, request } = event;
    const terms = event.type === 'request' ? termsOf(event.request) : undefined;
    if (terms && terms.pathMtu > mtuBytesToEnum(this.#endpoint.device.facts.activeMtu)) {
      void this.#refuse(number, CmRejReason.INVALID_MTU);
      return undefined;
    }
    const translated = event.type === 'request' && event.translated;
    if (terms && !translated) terms.primaryLocalGid = route.gid;
    const { privateData } = request;
    if (parseHeader(privateData)) return { number, route, privateData, terms, translated };
    void this.#refuse(number);
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
