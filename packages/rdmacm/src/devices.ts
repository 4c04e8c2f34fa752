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
  users: number;
}

const shared = new Map<string, Shared>();
/** Devices that are being closed: their address can be opened once they are. */
const closing = new Map<string, Promise<void>>();

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
    const address = this.#address;
    if (shared.get(address) === this.#entry) shared.delete(address);
    const closed = this.device.close().finally(() => closing.delete(address));
    closing.set(
      address,
      closed.catch(() => {}),
    );
    await closed;
  }
}

/** An address as it is written shortest, with its zone. */
function canonical(address: string): string {
  const [, zone] = address.split('%');
  return gidToIpText(gidOf(address)) + (zone === undefined ? '' : `%${zone}`);
}

/** The device of a local address. `options` count for the one who opens it first. */
export async function leaseDevice(text: string, options: DeviceOptions): Promise<Lease> {
  const address = canonical(text);
  let entry = shared.get(address);
  if (!entry) {
    const opening = (closing.get(address) ?? Promise.resolve()).then(() =>
      openDevice({ ...options, address }),
    );
    entry = { opening, users: 0 };
    shared.set(address, entry);
    entry.opening.catch(() => shared.delete(address));
  }
  entry.users++;
  try {
    return new Lease(await entry.opening, address, entry);
  } catch (error) {
    entry.users--;
    throw error;
  }
}
