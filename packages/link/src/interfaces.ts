/** The machine's network interfaces, as far as RoCE cares: addresses, MTU, state. */
import { networkInterfaces } from 'node:os';
import { RoceError } from '@node-roce/transport';
import { isLinkLocal, parseIpAddress, pathMtuForInterface } from '@node-roce/wire';
import { withDescriptors } from './descriptors.ts';
import { readText } from './kernel-files.ts';

export interface InterfaceAddress {
  /** As text, without scope. */
  address: string;
  family: 4 | 6;
  linkLocal: boolean;
  /** Index of the interface, of link-local addresses. */
  scopeId: number | undefined;
}

/** A network interface of this machine, with its addresses. */
export interface NetworkInterface {
  /** `eth0`. */
  name: string;
  /** `02:42:ac:11:00:02`; zeros where there is none. */
  mac: string;
  /** Bytes of IP packet; undefined where it can't be read. */
  mtu: number | undefined;
  /** Mb/s (`/sys/class/net/NAME/speed`); undefined if unknown, as for lo. */
  speed: number | undefined;
  /** False if the kernel reports no carrier; the port is then DOWN. */
  up: boolean;
  /** It is `lo`. */
  loopback: boolean;
  /** In the order in which the kernel lists them. */
  addresses: InterfaceAddress[];
}

/** All interfaces that have an address. Throws RoceError EMFILE. */
export function listInterfaces(): NetworkInterface[] {
  return Object.entries(withDescriptors(networkInterfaces)).map(([name, list = []]) => ({
    name,
    mac: list[0]?.mac ?? '00:00:00:00:00:00',
    mtu: mtuOf(name),
    speed: speedOf(name),
    up: readText(`/sys/class/net/${name}/operstate`).trim() !== 'down',
    loopback: list.some((a) => a.internal),
    addresses: list.map(({ address, family, scopeid }) => ({
      address: address.split('%')[0],
      family: family === 'IPv4' ? 4 : 6,
      linkLocal:
        family === 'IPv6' && isLinkLocal(parseIpAddress(address.split('%')[0]) ?? new Uint8Array(16)),
      scopeId: scopeid || undefined,
    })),
  }));
}

/** Largest path MTU that packets of an interface can have. */
export function activeMtuOf(nic: NetworkInterface): number {
  return pathMtuForInterface(Math.min(nic.mtu ?? 1500, 65_535)) || 256;
}

export function interfaceByName(name: string): NetworkInterface {
  const all = listInterfaces();
  const found = all.find((nic) => nic.name === name);
  if (found) return found;
  throw new RoceError('ERR_ROCE_NO_INTERFACE', `no interface ${name} with an address`, {
    errno: 'ENOENT',
    attribute: 'interface',
    expected: all.map((nic) => nic.name).join(', '),
  });
}

/**
 * The interface that has an address. All of 127.0.0.0/8 is on the loopback interface; a zone
 * (`fe80::1%eth0`) names the interface.
 */
export function interfaceByAddress(address: string): NetworkInterface {
  const [figures, zone] = address.split('%');
  const all = listInterfaces().filter((nic) => zone === undefined || nic.name === zone);
  const bytes = parseIpAddress(figures);
  if (!bytes) {
    throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `address: ${address} is not a numeric IP address`, {
      errno: 'EINVAL',
      attribute: 'address',
      expected: 'an IPv4 or IPv6 address',
    });
  }
  const same = (other: string) => {
    const b = parseIpAddress(other);
    return b !== undefined && b.length === bytes.length && b.every((byte, i) => byte === bytes[i]);
  };
  const found =
    all.find((nic) => nic.addresses.some((a) => same(a.address))) ??
    (bytes.length === 4 && bytes[0] === 127 ? all.find((nic) => nic.loopback) : undefined);
  if (found) return found;
  throw new RoceError('ERR_ROCE_NO_INTERFACE', `no interface has the address ${address}`, {
    errno: 'EADDRNOTAVAIL',
    attribute: 'address',
    expected: all.flatMap((nic) => nic.addresses.map((a) => a.address)).join(', '),
  });
}

/**
 * `/proc/sys` shows the network namespace of this process; `/sys` the one it was mounted in, which
 * `ip netns exec` takes care of and `nsenter` does not. So the first is asked first.
 */
function mtuOf(name: string): number | undefined {
  for (const path of [`/proc/sys/net/ipv6/conf/${name}/mtu`, `/sys/class/net/${name}/mtu`]) {
    const value = Number(readText(path).trim() || Number.NaN);
    if (Number.isInteger(value) && value > 0) return value;
  }
  return undefined;
}

function speedOf(name: string): number | undefined {
  const value = Number(readText(`/sys/class/net/${name}/speed`).trim() || Number.NaN);
  return value > 0 ? value : undefined; // −1: unknown
}
