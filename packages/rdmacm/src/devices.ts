/** Devices that connections open by themselves, one for each local address, shared and closed with the last user. */
import { type Device, type OpenOptions, openDevice } from '@node-roce/verbs-api';

/** How a device is opened: what `openDevice` takes but for the place. */
export type DeviceOptions = Omit<OpenOptions, 'signal' | 'link'> & { link?: 'auto' | 'udp' | 'dgram' };

interface Shared {
  opening: Promise<Device>;
  users: number;
}

const shared = new Map<string, Shared>();
/** Devices that are being closed: their address can be opened once they are. */
const closing = new Map<string, Promise<void>>();

/** A device in use; `release` when it is not any more. */
export interface Lease {
  device: Device;
  release(): Promise<void>;
}

/** The device of a local address. `options` count for the one who opens it first. */
export async function leaseDevice(address: string, options: DeviceOptions): Promise<Lease> {
  let entry = shared.get(address);
  if (!entry) {
    const opening = (closing.get(address) ?? Promise.resolve()).then(() =>
      openDevice({ ...options, address }),
    );
    entry = { opening, users: 0 };
    shared.set(address, entry);
    entry.opening.catch(() => shared.delete(address));
  }
  const held = entry;
  held.users++;
  let device: Device;
  try {
    device = await held.opening;
  } catch (error) {
    held.users--;
    throw error;
  }
  let released = false;
  return {
    device,
    release: async () => {
      if (released) return;
      released = true;
      if (--held.users > 0) return;
      if (shared.get(address) === held) shared.delete(address);
      const closed = device.close().finally(() => closing.delete(address));
      closing.set(
        address,
        closed.catch(() => {}),
      );
      await closed;
    },
  };
}
