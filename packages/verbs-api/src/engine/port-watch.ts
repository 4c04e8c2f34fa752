/** Changes of a device's network interface, as events of its port; the GID table follows. */
import { type InterfaceEvent, type InterfaceWatch, watchInterface } from '@node-roce/link';
import type { GidEntry } from '@node-roce/transport';
import type { PortEvent } from '../async-events.ts';
import type { Engine } from './engine.ts';

/** Watches the network interface of a device and raises the events of its port. */
export class PortWatch {
  readonly #engine: Engine;
  #watch: InterfaceWatch | undefined;
  #closed = false;
  /** One change after the other: the engine may be in another thread. */
  #last: Promise<void> = Promise.resolve();
  /** The subscribers. */
  onEvent: (event: PortEvent) => void = () => {};

  /** Watches from now on. A link without an interface has nothing to watch. */
  static async open(engine: Engine): Promise<PortWatch> {
    const port = new PortWatch(engine);
    const nic = engine.facts.interface;
    if (nic) port.#watch = await watchInterface(nic.name, (event) => port.#take(event));
    return port;
  }

  private constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** In the order of the changes. */
  #take(event: InterfaceEvent): void {
    this.#last = this.#last.then(() => this.#follow(event)).catch(() => {});
  }

  async #follow(event: InterfaceEvent): Promise<void> {
    if (this.#closed) return;
    const { facts } = this.#engine;
    if (event.type === 'gone') {
      if (facts.link === 'xdp') this.#lose();
      return;
    }
    if (!('address' in event)) {
      if (facts.interface) facts.interface.up = event.type === 'up';
      this.onEvent({ type: event.type === 'up' ? 'PORT_ACTIVE' : 'PORT_ERR', portNum: 1 });
      return;
    }
    const gids = await this.#changed(event.address, event.type === 'address-added');
    if (!gids || this.#closed) return;
    // Holders of the table see it change. In this thread, it is the link's own.
    const table = facts.gids as GidEntry[];
    if (!this.#engine.inline) table.splice(0, table.length, ...gids);
    this.onEvent({ type: 'GID_CHANGE', portNum: 1 });
  }

  /** The GID table after a change; undefined if it is as it was, with a process warning if an address can't be served. */
  async #changed(address: string, present: boolean): Promise<GidEntry[] | undefined> {
    try {
      return await this.#engine.call('setAddress', address, present);
    } catch (error) {
      if (this.#closed) return undefined;
      process.emitWarning(`${address} has no GID: ${(error as Error).message}`, {
        type: 'RoceWarning',
        code: 'ROCE_ADDRESS_NOT_SERVED',
      });
      return undefined;
    }
  }

  /** The sockets and the program of AF_XDP went with the interface: one of its name is another one, and the port stays down. */
  #lose(): void {
    this.#watch?.close();
    const name = this.#engine.facts.interface?.name;
    process.emitWarning(`${name} is gone: open the device again when an interface has this name`, {
      type: 'RoceWarning',
      code: 'ROCE_INTERFACE_GONE',
    });
  }

  close(): void {
    this.#closed = true;
    this.#watch?.close();
  }
}
