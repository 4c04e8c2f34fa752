/** The places at which an id listens: one, or each address of this machine. */
import { type Device, EventQueue } from '@node-roce/verbs-api';
import type { Endpoint, Member } from './endpoint.ts';
import { type Arrivals, Incoming, type Service, type WaitingRequest } from './incoming.ts';
import type { Path } from './path.ts';

/** The id of a listener: makes ids for requests, and hears of them. */
interface Owner<Id> {
  service: Service;
  /** An id for a request that came to a place. */
  makeId(request: WaitingRequest, place: Place): Id;
  /** Gets the id of each request as it comes; `next` returns it, too. */
  onRequest: ((id: Id) => void) | undefined;
  /** The device of the last place has ended. */
  onRemoval(reason: unknown): void;
}

/** One of the places: an address of a device. */
export interface Place {
  path: Path;
  /** Forgets a request that the program has answered. */
  forget(number: number): void;
}

interface OpenPlace<Id extends { destroy(): Promise<void> }> extends Place {
  endpoint: Endpoint;
  incoming: Incoming<Id>;
  /** Hears of the end of the device, where that is not the id's. */
  member: Member | undefined;
}

/** Requests of all places of a listener. */
export class Listening<Id extends { destroy(): Promise<void> }> {
  readonly #owner: Owner<Id>;
  readonly #places = new Set<OpenPlace<Id>>();
  readonly #arrivals: Arrivals = new EventQueue<undefined>();

  constructor(owner: Owner<Id>) {
    this.#owner = owner;
  }

  get isEmpty(): boolean {
    return this.#places.size === 0;
  }

  get devices(): Device[] {
    return [...this.#places].map(({ endpoint }) => endpoint.device);
  }

  /**
   * Takes requests of a listener of the connection manager.
   *
   * @param path of the place
   * @param number of the listener
   * @param isIds the path is the id's, which releases it, and hears of the end of its device
   */
  add(path: Path, endpoint: Endpoint, number: number, isIds: boolean): void {
    const { service, makeId, onRequest } = this.#owner;
    const take = (request: WaitingRequest): Id => makeId(request, place);
    const incoming = new Incoming<Id>(endpoint, number, service, this.#arrivals, take, onRequest);
    const member = isIds ? undefined : { onRemoval: (reason: unknown) => this.#removed(place, reason) };
    const forget = (id: number) => incoming.forget(id);
    const place: OpenPlace<Id> = { path, endpoint, incoming, member, forget };
    if (member) endpoint.addMember(member);
    this.#places.add(place);
  }

  /** A device has ended: its address is not served any more. */
  #removed(place: OpenPlace<Id>, reason: unknown): void {
    this.#places.delete(place);
    place.path.release().catch(() => {}); // It has ended by itself.
    if (this.#places.size === 0) this.#owner.onRemoval(reason);
  }

  /** An id for a request; the places take turns. */
  async next(signal?: AbortSignal): Promise<Id> {
    for (;;) {
      signal?.throwIfAborted();
      for (const place of [...this.#places]) {
        const id = await this.#take(place);
        if (id === undefined) continue;
        if (this.#places.delete(place)) this.#places.add(place);
        return id;
      }
      await this.#arrivals.next(signal);
    }
  }

  async #take(place: OpenPlace<Id>): Promise<Id | undefined> {
    try {
      return await place.incoming.take();
    } catch (error) {
      // The others go on without a device that has ended.
      if (this.#places.has(place)) throw error;
      return undefined;
    }
  }

  /** Rejects pending and later calls of `next` with the reason. */
  fail(reason: unknown): void {
    this.#arrivals.fail(reason);
  }

  /** Listens no more; requests that nobody has taken are refused. */
  async close(reason: unknown): Promise<void> {
    const places = [...this.#places];
    this.#places.clear();
    for (const { endpoint, incoming, member } of places) {
      if (member) endpoint.removeMember(member);
      await incoming.close();
    }
    this.fail(reason);
    for (const { path, member } of places) if (member) await path.release();
  }
}
