/** The connections of one device: takes events to the ids that they are about. */
import type { CmEvent } from '@node-roce/cm';
import type { ConnectionPort, Device } from '@node-roce/verbs-api';

type Request = Extract<CmEvent, { type: 'request' | 'datagram-request' }>;

/** Receiver of the events of one connection, or of the requests of one listener. */
export interface Sink<E> {
  onEvent(event: E): void;
}

/** An id that has the device. */
export interface Member {
  /** The device has ended: closed, or failed. Called once. */
  onRemoval(reason: unknown): void;
}

/** Ids whose events are kept: those of one that was just destroyed may still come from a worker. */
const MAX_EARLY = 1024;

const endpoints = new WeakMap<Device, Endpoint>();

/** A device's connection manager as its ids see it: events go to the sink of their connection or listener. */
export class Endpoint {
  readonly device: Device;
  readonly #connections = new Map<number, Sink<CmEvent>>();
  readonly #listeners = new Map<number, Sink<Request>>();
  /** The ids that have the device, the oldest first. */
  readonly #members = new Set<Member>();
  /** Events that came before the command that made their id had resolved here; only while there is such a command. */
  readonly #early = new Map<number, CmEvent[]>();
  #opening = 0;

  /** The one of a device. */
  static of(device: Device): Endpoint {
    let endpoint = endpoints.get(device);
    if (!endpoint) {
      endpoint = new Endpoint(device);
      endpoints.set(device, endpoint);
    }
    return endpoint;
  }

  private constructor(device: Device) {
    this.device = device;
    device.connections.listener = {
      onEvent: (event) => this.#onEvent(event),
      onClosed: (reason) => {
        const members = [...this.#members];
        this.#members.clear();
        this.#connections.clear();
        this.#listeners.clear();
        for (const member of members) member.onRemoval(reason);
      },
    };
  }

  get call(): ConnectionPort['call'] {
    return this.device.connections.call.bind(this.device.connections);
  }

  /**
   * Opens a connection, or asks for a datagram service: no event of it is lost.
   *
   * @param command resolves to its number
   * @param attach is called with the number, and calls `addConnection`
   */
  async open(command: () => Promise<number>, attach: (id: number) => void): Promise<void> {
    this.#opening++;
    try {
      attach(await command());
    } finally {
      this.#opening--;
      if (this.#opening === 0) this.#early.clear();
    }
  }

  /** An id has the device from now on. */
  addMember(member: Member): void {
    this.#members.add(member);
  }

  removeMember(member: Member): void {
    this.#members.delete(member);
  }

  addConnection(id: number, sink: Sink<CmEvent>): void {
    this.#connections.set(id, sink);
    const early = this.#early.get(id);
    this.#early.delete(id);
    for (const event of early ?? []) sink.onEvent(event);
  }

  removeConnection(id: number): void {
    this.#connections.delete(id);
    this.#early.delete(id);
  }

  addListener(number: number, sink: Sink<Request>): void {
    this.#listeners.set(number, sink);
  }

  removeListener(number: number): void {
    this.#listeners.delete(number);
  }

  #onEvent(event: CmEvent): void {
    if (event.type === 'request' || event.type === 'datagram-request') {
      const listener = this.#listeners.get(event.listener);
      if (listener) listener.onEvent(event);
      else void this.call('cmDestroy', event.id).catch(() => {}); // The program has just stopped listening.
      return;
    }
    const sink = this.#connections.get(event.id);
    if (sink) sink.onEvent(event);
    else if (this.#opening > 0) this.#keep(event);
  }

  #keep(event: CmEvent): void {
    const early = this.#early;
    const events = early.get(event.id);
    if (events) events.push(event);
    else early.set(event.id, [event]);
    // The oldest is of an id that was destroyed long ago.
    if (early.size > MAX_EARLY) early.delete(early.keys().next().value!);
  }
}
