/** Shared by the links on UDP sockets: the addresses to open, and the errors when that fails. */
import { RoceError } from '@node-roce/transport';
import { isIpv4Mapped, isLinkLocal } from '@node-roce/wire';
import { explainDescriptors } from './descriptors.ts';
import { interfaceByAddress, interfaceByName, type NetworkInterface } from './interfaces.ts';
import { describePortOwner } from './port-owner.ts';

/** Where a link on sockets is. */
export interface LocalOptions {
  /** Numeric local addresses, one GID each; they have to be on one interface. */
  address?: string | readonly string[];
  /** Or all addresses of an interface: link-local, IPv4, other IPv6, in this order. */
  interface?: string;
  /** UDP port to listen at and to send to. Default 4791. */
  port?: number;
  /**
   * Shares the addresses and the port with other devices, of this process and of others of the same user, which all set this
   * option (docs/sharing.md). Default false.
   */
  shared?: boolean;
}

/** Bytes of receive buffer to ask for. */
export const DEFAULT_RECEIVE_BUFFER = 32 * 1024 * 1024;
/** Half of this holds the packets that rxe sends unacknowledged (128). */
const SHORT_BUFFER = 2 * 1024 * 1024;
/** The kernel's charge for a datagram of 4112 bytes, measured on Linux 6. */
const CHARGE_OF_FULL_PACKET = 8520;

/** A sentence on a receive buffer that is small, if it is. */
export function bufferLimitation(granted: number): string[] {
  if (granted >= SHORT_BUFFER) return [];
  const packets = Math.floor(granted / CHARGE_OF_FULL_PACKET);
  return [
    `The receive buffer holds ${packets} packets of 4096 bytes (${granted} bytes granted): a peer that sends more at once loses some. Raise the sysctl net.core.rmem_max, or run with CAP_NET_ADMIN.`,
  ];
}

/**
 * The addresses to open, without zone, and the interface that they are on.
 * @throws RoceError EINVAL, ENOENT, EADDRNOTAVAIL
 */
export function chooseAddresses(options: LocalOptions): {
  nic: NetworkInterface;
  addresses: readonly string[];
} {
  if (options.address !== undefined) {
    const addresses = typeof options.address === 'string' ? [options.address] : options.address;
    if (addresses.length === 0) throw missing();
    const nics = addresses.map((address) => interfaceByAddress(address));
    const nic = nics[0];
    const other = nics.findIndex((n) => n.name !== nic.name);
    if (other >= 0) {
      throw new RoceError(
        'ERR_ROCE_INVALID_ATTRIBUTE',
        `address: ${addresses[other]} is on ${nics[other].name}, ${addresses[0]} on ${nic.name}`,
        {
          errno: 'EINVAL',
          attribute: 'address',
          expected: 'addresses of one interface',
        },
      );
    }
    return { nic, addresses: addresses.map((address) => address.split('%')[0]) };
  }
  if (options.interface === undefined) throw missing();
  const nic = interfaceByName(options.interface);
  const rank = (a: NetworkInterface['addresses'][number]) => (a.linkLocal ? 0 : a.family === 4 ? 1 : 2);
  const addresses = [...nic.addresses].sort((a, b) => rank(a) - rank(b)).map((a) => a.address);
  return { nic, addresses };
}

function missing(): RoceError {
  return new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', 'address: which address or interface?', {
    errno: 'EINVAL',
    attribute: 'address',
    expected: '{ address } or { interface }',
  });
}

/** The error of a socket that could not be bound: who has the port, or what is wrong with the address. */
export function bindError(cause: unknown, address: string, family: 4 | 6, port: number): unknown {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === 'EADDRINUSE') {
    return new RoceError(
      'ERR_ROCE_PORT_IN_USE',
      `UDP port ${port} at ${address} is in use: ${describePortOwner(port, family)}`,
      { errno: 'EADDRINUSE', attribute: 'port', cause },
    );
  }
  if (code === 'EADDRNOTAVAIL') {
    return new RoceError(
      'ERR_ROCE_NO_INTERFACE',
      `${address} is no address of this machine, or not usable yet`,
      {
        errno: 'EADDRNOTAVAIL',
        attribute: 'address',
        expected: 'an address that `ip address` shows without “tentative”',
        cause,
      },
    );
  }
  return explainDescriptors(cause);
}

/** Where a socket of a GID is bound. */
export function placeOf(gid: Uint8Array, address: string, nic: string) {
  const family: 4 | 6 = isIpv4Mapped(gid) ? 4 : 6;
  return { family, address: needsScope(gid) ? `${address}%${nic}` : address, multicastInterface: nic };
}

/** An address whose packets never leave the host (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3); lo may have others as well. */
export const isLoopback = (address: string): boolean => address.startsWith('127.') || address === '::1';

/** An address that means one thing on each interface: fe80::/10, and groups of interface and link (RFC 4291 §2.7). */
function needsScope(gid: Uint8Array): boolean {
  return isLinkLocal(gid) || (gid[0] === 0xff && ((gid[1] & 15) === 1 || (gid[1] & 15) === 2));
}
