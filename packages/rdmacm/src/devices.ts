/** Devices that connections open by themselves, one for each local address and UDP port, shared and closed with the last user. */
import { isDeepStrictEqual } from 'node:util';
import {
  type Device,
  type LinkOptions,
  type OpenOptions,
  openDevice,
  type RoceError,
} from '@node-roce/verbs-api';
import { gidToIpText, ROCE_UDP_PORT } from '@node-roce/wire';
import { gidOf } from './addresses.ts';
import { invalid } from './errors.ts';

/**
 * How a device is opened: what `openDevice` takes but for the place, which is the id's local address. Ids of one address and UDP port share
 * a device: options that are given have to be those that it was opened with. `shared` is on by default: other programs of the user may
 * have the same address.
 */
export type DeviceOptions = Omit<OpenOptions, 'signal' | 'link' | 'address' | 'interface'> & {
  link?: LinkOptions['link'];
};

/** Values of options that are not given, as `openDevice` takes them. */
const DEFAULTS: DeviceOptions = {
  engine: 'inline',
  link: 'auto',
  port: ROCE_UDP_PORT,
  shared: true,
  credits: false,
  experimental: [],
  offload: true,
  zeroChecksum: false,
  flushIcrc: 'both',
  xdpMode: 'auto',
};

interface Shared {
  /** It was opened with these. */
  options: DeviceOptions;
  opening: Promise<Device>;
  /** Once it is open. */
  device?: Device;
  users: number;
}

/** By `placeOf`. */
const shared = new Map<string, Shared>();
/** Devices that are being closed: their place can be opened once they are. */
const closing = new Map<string, Promise<void>>();

/** Closes the device of a place, which is shared no more. */
function closeShared(place: string, device: Device): Promise<void> {
  shared.delete(place);
  const closed = device.close().finally(() => closing.delete(place));
  closing.set(
    place,
    closed.catch(() => {}),
  );
  return closed;
}

/** A device in use; `release` when it is not any more. */
export class Lease {
  readonly device: Device;
  readonly #place: string;
  readonly #entry: Shared;
  #released = false;

  constructor(device: Device, place: string, entry: Shared) {
    this.device = device;
    this.#place = place;
    this.#entry = entry;
  }

  /** Another user of the same device. */
  share(): Lease {
    this.#entry.users++;
    return new Lease(this.device, this.#place, this.#entry);
  }

  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    if (--this.#entry.users > 0) return;
    // Otherwise it has ended before, and `leaseDevice` has closed it.
    if (shared.get(this.#place) === this.#entry) await closeShared(this.#place, this.device);
  }
}

/** An address as it is written shortest, with its zone. */
function canonical(address: string): string {
  const [, zone] = address.split('%');
  return gidToIpText(gidOf(address)) + (zone === undefined ? '' : `%${zone}`);
}

/** Names of the tables of ports (`bindPort`) of ids that wait at any address, and of a device. */
export const anyTable = ({ port = ROCE_UDP_PORT }: DeviceOptions): string => `any ${port}`;
export const deviceTable = ({ number }: Device): string => `device ${number}`;

/** The tables of the devices at a UDP port that are open here. */
export function leasedTables({ port = ROCE_UDP_PORT }: DeviceOptions): string[] {
  return [...shared.values()].flatMap(({ device, options }) =>
    device && (options.port ?? ROCE_UDP_PORT) === port ? [deviceTable(device)] : [],
  );
}

/** An address and a UDP port, which a device has. */
const placeOf = (address: string, { port = ROCE_UDP_PORT }: DeviceOptions): string => `${address} ${port}`;

/** @throws EINVAL where an option that is given is not what the device was opened with */
function checkSame(address: string, before: DeviceOptions, given: DeviceOptions): void {
  for (const name of Object.keys(given) as (keyof DeviceOptions)[]) {
    const value = given[name];
    const theirs = before[name] ?? DEFAULTS[name];
    if (value === undefined || isDeepStrictEqual(value, theirs)) continue;
    const text = theirs === undefined ? 'without it' : `with ${JSON.stringify(theirs)}`;
    throw invalid(
      `deviceOptions.${name}`,
      `${address} is open ${text}`,
      'the same options for all that share the device of an address, or another address or device',
    );
  }
}

/**
 * The device of a local address. A device that has ended, by a failure or because the program closed it, is replaced, also where
 * some still have a lease of it.
 *
 * Rejects with EINVAL for options that an open device does not have; as `openDevice`.
 */
export async function leaseDevice(text: string, options: DeviceOptions): Promise<Lease> {
  const address = canonical(text);
  const place = placeOf(address, options);
  const ended = shared.get(place)?.device;
  if (ended?.closed) closeShared(place, ended).catch(() => {}); // Its own end has reported an error.
  const before = shared.get(place);
  if (before) checkSame(address, before.options, options);
  const entry = before ?? openShared(place, address, options);
  entry.users++;
  try {
    return new Lease(await entry.opening, place, entry);
  } catch (error) {
    entry.users--;
    throw error;
  }
}

/**
 * Opens a device that other programs of the user can share the address with, as sockets of different ports do; alone where the
 * program asks for that, or the link can't share.
 */
async function openAt(address: string, asked: DeviceOptions): Promise<Device> {
  if (asked.shared !== undefined) return openDevice({ ...asked, address });
  asked.shared = asked.link === undefined || asked.link === 'auto' || asked.link === 'udp';
  try {
    return await openDevice({ ...asked, address });
  } catch (error) {
    // Without the addon, `auto` stands for the dgram link.
    if (!asked.shared || (error as RoceError).attribute !== 'shared') throw error;
    asked.shared = false;
    return openDevice({ ...asked, address });
  }
}

function openShared(place: string, address: string, given: DeviceOptions): Shared {
  const before = closing.get(place) ?? Promise.resolve();
  const options = { ...given };
  const opening = before.then(() => openAt(address, options));
  const entry: Shared = { options, opening, users: 0 };
  shared.set(place, entry);
  opening.then(
    (device) => {
      entry.device = device;
    },
    () => shared.delete(place),
  );
  return entry;
}
