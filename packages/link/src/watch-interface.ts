/**
 * Watches a network interface: over rtnetlink with the native addon, else by looking from time to time.
 * Every change is reported once.
 */
import { readFileSync } from 'node:fs';
import { listInterfaces } from './interfaces.ts';

export type InterfaceEvent =
  | { type: 'up' | 'down' }
  /** Deleted, or in another network namespace; behind `down`, and by netlink alone. One of its name is watched once it comes. */
  | { type: 'gone' }
  /** Numeric, without zone; usable from now on, or no longer. */
  | { type: 'address-added' | 'address-removed'; address: string };

export interface InterfaceWatch {
  readonly how: 'netlink' | 'polling';
  /** Reports nothing any more. */
  close(): void;
}

export interface WatchOptions {
  /** `polling` even where the addon is. */
  how?: 'polling';
  /** Milliseconds between two looks. Default 1000. */
  interval?: number;
}

const DEFAULT_INTERVAL = 1000;

/** The known state of the interface, and its differences from a new one. */
class Known {
  #up: boolean;
  readonly #addresses: Set<string>;
  readonly #name: string;
  readonly #tell: (event: InterfaceEvent) => void;

  constructor(name: string, tell: (event: InterfaceEvent) => void) {
    this.#name = name;
    this.#tell = tell;
    const { up, addresses } = look(name);
    this.#up = up;
    this.#addresses = new Set(addresses);
  }

  runs(up: boolean): void {
    if (up === this.#up) return;
    this.#up = up;
    this.#tell({ type: up ? 'up' : 'down' });
  }

  gone(): void {
    this.runs(false);
    this.#tell({ type: 'gone' });
  }

  added(address: string): void {
    if (this.#addresses.has(address)) return;
    this.#addresses.add(address);
    this.#tell({ type: 'address-added', address });
  }

  removed(address: string): void {
    if (this.#addresses.delete(address)) this.#tell({ type: 'address-removed', address });
  }

  lookAgain(): void {
    const { up, addresses } = look(this.#name);
    this.runs(up);
    // Of an interface that is down no addresses are shown, whether it has some or not.
    if (!up) return;
    for (const address of [...this.#addresses]) if (!addresses.includes(address)) this.removed(address);
    for (const address of addresses) this.added(address);
  }
}

/**
 * The list and the state are two reads, and the interface may come up between them: then the list without it
 * would look like one of an interface that runs and has lost its addresses. So the state is read on both sides.
 */
function look(name: string): { up: boolean; addresses: string[] } {
  const operated = operates(name);
  const nic = listInterfaces().find((each) => each.name === name);
  // An interface without addresses is not in the list.
  if (!nic) return { up: operated && operates(name), addresses: [] };
  return { up: nic.up, addresses: nic.addresses.map(({ address }) => address) };
}

function operates(name: string): boolean {
  try {
    return /^(up|unknown)$/.test(readFileSync(`/sys/class/net/${name}/operstate`, 'utf8').trim());
  } catch {
    return false;
  }
}

/**
 * Watches the interface of this name, from now on, until it is closed; keeps no process alive.
 *
 * @param tell called with each change, in the event loop, not from inside of this call
 */
export async function watchInterface(
  name: string,
  tell: (event: InterfaceEvent) => void,
  { how, interval = DEFAULT_INTERVAL }: WatchOptions = {},
): Promise<InterfaceWatch> {
  // The addon is loaded only by who needs it, and may be missing; so may netlink, in a sandbox.
  const native =
    how === 'polling' ? undefined : await import('@node-roce/dgram-native').catch(() => undefined);
  if (native) {
    try {
      return watchByNetlink(native.InterfaceWatcher, name, tell);
    } catch {
      // Polling does it as well.
    }
  }
  const known = new Known(name, tell);
  const timer = setInterval(() => known.lookAgain(), interval).unref();
  return { how: 'polling', close: () => clearInterval(timer) };
}

type Watcher = typeof import('@node-roce/dgram-native').InterfaceWatcher;

function watchByNetlink(
  InterfaceWatcher: Watcher,
  name: string,
  tell: (event: InterfaceEvent) => void,
): InterfaceWatch {
  const watcher = new InterfaceWatcher({
    interface: name,
    onWake: () => {
      for (const { kind, address } of watcher.read()) {
        if (kind === 'up' || kind === 'down') known.runs(kind === 'up');
        else if (kind === 'overrun') known.lookAgain();
        else if (kind === 'gone') known.gone();
        else known[kind](address!);
      }
    },
  });
  let known: Known;
  try {
    // Read after the watch has begun: a change in between is reported, and in the state that is read.
    known = new Known(name, tell);
  } catch (error) {
    watcher.close();
    throw error;
  }
  return { how: 'netlink', close: () => watcher.close() };
}
