/** Listeners of C programs: the connection manager has one for a port, programs one for each address of it. */
import type { DatagramRequestEvent, RequestEvent } from '@node-roce/cm';
import { type Endpoint, gidOf, parseHeader, type SocketAddress } from '@node-roce/rdmacm/parts';
import { CmRejReason, gidEquals, ipCmServiceId, isIpv4Mapped } from '@node-roce/wire';

type Request = RequestEvent | DatagramRequestEvent;

/** An id that listens. */
export interface Listening {
  /** The address that the program has bound: a wildcard stands for all addresses of its IP version, `::` for both. */
  readonly place: SocketAddress & { isAny: boolean };
  /** `::` stands for IPv6 alone. */
  readonly isV6Only: boolean;
  /** @param settled has to be called once the request is answered, or over */
  onRequest(event: Request, settled: () => Promise<void>): void;
}

interface Service {
  key: string;
  number: number;
  ids: Set<Listening>;
  /** Requests that no program has answered. */
  unanswered: Set<number>;
}

function takes({ place, isV6Only }: Listening, to: string): 'exactly' | 'also' | undefined {
  const { address, isAny } = place;
  if (!isAny) return gidEquals(gidOf(address), gidOf(to)) ? 'exactly' : undefined;
  const isV4 = isIpv4Mapped(gidOf(to));
  const covers = address.includes(':') ? !isV4 || !isV6Only : isV4;
  return covers ? 'also' : undefined;
}

/** The services of one device. */
export class Services {
  readonly #endpoint: Endpoint;
  readonly #services = new Map<string, Promise<Service>>();
  readonly #byId = new Map<Listening, Service>();

  constructor(endpoint: Endpoint) {
    this.#endpoint = endpoint;
  }

  /** Ids that listen. */
  get size(): number {
    return this.#byId.size;
  }

  /** Takes requests for an id. EADDRINUSE where another program's device at the address listens to the port. */
  async add(portSpace: number, id: Listening, backlog: number): Promise<void> {
    const key = `${portSpace} ${id.place.port}`;
    const opening =
      this.#services.get(key) ?? this.#open(key, ipCmServiceId(portSpace, id.place.port), backlog);
    this.#services.set(key, opening);
    const service = await opening;
    service.ids.add(id);
    this.#byId.set(id, service);
  }

  async #open(key: string, serviceId: bigint, backlog: number): Promise<Service> {
    try {
      const number = await this.#endpoint.call('cmListen', serviceId, backlog);
      const service: Service = { key, number, ids: new Set(), unanswered: new Set() };
      this.#endpoint.addListener(number, { onEvent: (event) => this.#requested(service, event) });
      return service;
    } catch (error) {
      this.#services.delete(key);
      throw error;
    }
  }

  #requested(service: Service, event: Request): void {
    const to = parseHeader(event.request.privateData)?.to;
    const ids = [...service.ids];
    const id =
      to !== undefined &&
      (ids.find((one) => takes(one, to) === 'exactly') ?? ids.find((one) => takes(one, to) === 'also'));
    if (id) {
      service.unanswered.add(event.id);
      id.onRequest(event, async () => {
        if (service.unanswered.delete(event.id)) await this.#close(service);
      });
      return;
    }
    const ignore = () => {}; // The peer has given up.
    if (event.type === 'request')
      void this.#endpoint
        .call('cmReject', event.id, { reason: CmRejReason.INVALID_SERVICE_ID })
        .catch(ignore);
    void this.#endpoint.call('cmDestroy', event.id).catch(ignore);
  }

  /** Takes no more requests for an id. Those that its program has may still be accepted. */
  async remove(id: Listening): Promise<void> {
    const service = this.#byId.get(id);
    if (!service) return;
    this.#byId.delete(id);
    service.ids.delete(id);
    await this.#close(service);
  }

  /** The connection manager refuses all requests that wait at a listener which ends. */
  async #close(service: Service): Promise<void> {
    if (service.ids.size > 0 || service.unanswered.size > 0) return;
    if (!this.#services.delete(service.key)) return;
    this.#endpoint.removeListener(service.number);
    await this.#endpoint.call('cmUnlisten', service.number).catch(() => {}); // The device may be closed.
  }
}
