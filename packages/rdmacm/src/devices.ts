/** Devices that connections open by themselves, one for each local address, shared and closed with the last user. */
import { type Device, type OpenOptions, openDevice } from '@node-roce/verbs-api';
import { gidToIpText } from '@node-roce/wire';
import { gidOf } from './addresses.ts';

/** How a device is opened: what `openDevice` takes but for the place. */
export type DeviceOptions = Omit<OpenOptions, 'signal' | 'link'> & {
  link?: 'auto' | 'udp' | 'dgram' | 'xdp';
};

interface Shared {
  opening: Promise<Device>;
  /** Once it is open. */
  device?: Device;
  users: number;
}

const shared = new Map<string, Shared>();
/** Devices that are being closed: their address can be opened once they are. */
const closing = new Map<string, Promise<void>>();

/** Closes the device of an address, which is shared no more. */
function closeShared(address: string, device: Device): Promise<void> {
  shared.delete(address);
  const closed = device.close().finally(() => closing.delete(address));
  closing.set(
    address,
    closed.catch(() => {}),
  );
  return closed;
}

/** A device in use; `release` when it is not any more. */
export class Lease {
  readonly device: Device;
  readonly #address: string;
  readonly #entry: Shared;
  #released = false;

  constructor(device: Device, address: string, entry: Shared) {
    this.device = device;
    this.#address = address;
    this.#entry = entry;
  }

  /** Another user of the same device. */
  share(): Lease {
    this.#entry.users++;
    return new Lease(this.device, this.#address, this.#entry);
  }

  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    if (--this.#entry.users > 0) return;
    // Otherwise it has ended before, and `leaseDevice` has closed it.
    if (shared.get(this.#address) === this.#entry) await closeShared(this.#address, this.device);
  }
}

/** An address as it is written shortest, with its zone. */
function canonical(address: string): string {
  const [, zone] = address.split('%');
  return gidToIpText(gidOf(address)) + (zone === undefined ? '' : `%${zone}`);
}

/**
 * The device of a local address. `options` count for the one who opens it first. A device that has ended, by a failure or because the
 * program closed it, is replaced, also where some still have a lease of it.
 */
export async function leaseDevice(text: string, options: DeviceOptions): Promise<Lease> {
  const address = canonical(text);
  const ended = shared.get(address)?.device;
  if (ended?.closed) closeShared(address, ended).catch(() => {}); // Its own end has reported an error.
  const entry = shared.get(address) ?? openShared(address, options);
  entry.users++;
  try {
    return new Lease(await entry.opening, address, entry);
  } catch (error) {
    entry.users--;
    throw error;
  }
}

function openShared(address: string, options: DeviceOptions): Shared {
  const before = closing.get(address) ?? Promise.resolve();
  const entry: Shared = { opening: before.then(() => openDevice({ ...options, address })), users: 0 };
  shared.set(address, entry);
  entry.opening.then(
    (device) => {
      entry.device = device;
    },
    () => shared.delete(address),
  );
  return entry;
}
