/** The device of an id, and its local address. */
import { type Device, type GidEntry, RoceError } from '@node-roce/verbs-api';
import { gidEquals, isIpv4Mapped } from '@node-roce/wire';
import { gidOf, isAnyAddress, kindOf } from './addresses.ts';
import {
  anyTable,
  type DeviceOptions,
  deviceTable,
  type Lease,
  leaseDevice,
  leasedTables,
} from './devices.ts';
import { closedError } from './errors.ts';
import type { PortTables } from './ports.ts';

/** The local end of an id: its device, its address, and the lease that keeps the device open. */
export class LocalSide {
  /** Of the program's, or leased by `bind`. */
  device: Device | undefined;
  #lease: Lease | undefined;
  #opening: Promise<Lease> | undefined;
  #released = false;
  readonly #options: DeviceOptions;

  constructor(device: Device | undefined, options: DeviceOptions = {}) {
    this.device = device;
    this.#options = options;
  }

  /** The same without a device, for another address. */
  another(): LocalSide {
    return new LocalSide(undefined, this.#options);
  }

  /** The tables that a port of this side is entered in. */
  get portTables(): PortTables {
    if (!this.device) return { own: anyTable(this.#options), others: leasedTables(this.#options) };
    const { numbers } = this.device.facts;
    return {
      own: deviceTable(this.device),
      others: this.#lease ? [anyTable(this.#options)] : [],
      ...(numbers ? { residue: numbers } : {}),
    };
  }

  /** Of a request: the device of its listener, for as long as the request lives. */
  share(): LocalSide {
    const side = new LocalSide(this.device, this.#options);
    side.#lease = this.#lease?.share();
    return side;
  }

  /**
   * Takes a device, if there is none yet, and returns our address on it: the one asked for, or the first of the peer's
   * kind.
   */
  async bind(address: string | undefined, peer: Uint8Array | undefined): Promise<string> {
    if (!this.device) {
      if (address === undefined)
        throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', 'address: none', {
          errno: 'EINVAL',
          attribute: 'address',
          expected: 'the local address to listen at, or a device',
        });
      if (this.#released) throw closedError('the id is destroyed');
      this.#opening = leaseDevice(address, this.#options);
      const lease = await this.#opening;
      if (this.#released) throw closedError('the id is destroyed');
      this.#lease = lease;
      this.device = lease.device;
    }
    const { gids } = this.device;
    if (address !== undefined && isAnyAddress(address)) return address;
    const own =
      address ?? (peer ? towards(peer, gids) : gids.find(({ gid }) => kindOf(gid) !== 'none'))?.address;
    if (own !== undefined && this.gidIndex(own) >= 0) return own;
    throw new RoceError(
      'ERR_ROCE_CM_NO_ADDRESS',
      `the device has no address ${own ?? "of the peer's kind"}`,
      {
        errno: 'EADDRNOTAVAIL',
        attribute: 'address',
        expected: gids.map((entry) => entry.address).join(', '),
      },
    );
  }

  /** Takes a device as `bind` does, and then the port. Where that fails, it releases the device, and the id can be bound elsewhere. */
  async bindWith(
    address: string | undefined,
    peer: Uint8Array | undefined,
    take: (own: string) => void,
  ): Promise<void> {
    const isNew = !this.device;
    try {
      take(await this.bind(address, peer));
    } catch (error) {
      // `release` does it where the id is destroyed.
      if (isNew && !this.#released) await this.#unbind();
      throw error;
    }
  }

  async #unbind(): Promise<void> {
    const lease = this.#lease;
    if (!lease) return;
    this.#lease = this.#opening = this.device = undefined;
    await lease.release();
  }

  /** Whether the device, where there is one yet, has an address of this one's kind. */
  reaches(gid: Uint8Array): boolean {
    return this.device === undefined || towards(gid, this.device.gids) !== undefined;
  }

  /** The address of an alternate path's near end: another one of the peer's kind, or else the one in use. */
  otherThan(own: string, peer: Uint8Array): string {
    const other = this.device!.gids.find(
      ({ gid }) => kindOf(gid) === kindOf(peer) && !gidEquals(gid, gidOf(own)),
    );
    return other?.address ?? own;
  }

  /** Index of an address in the device's GID table, −1 if it is not there. */
  gidIndex(address: string): number {
    const wanted = gidOf(address);
    return this.device!.gids.findIndex(({ gid }) => gidEquals(gid, wanted));
  }

  /** Lets the device go, also one that is being opened. */
  async release(): Promise<void> {
    this.#released = true;
    const opened = await this.#opening?.catch(() => undefined); // `bind` rejects with it.
    await (this.#lease ?? opened)?.release();
  }
}

/** The first address of a peer's kind, or else of its IP version. */
function towards(peer: Uint8Array, gids: readonly GidEntry[]): GidEntry | undefined {
  const isOfVersion = ({ gid }: GidEntry) =>
    kindOf(gid) !== 'none' && isIpv4Mapped(gid) === isIpv4Mapped(peer);
  return gids.find(({ gid }) => kindOf(gid) === kindOf(peer)) ?? gids.find(isOfVersion);
}
