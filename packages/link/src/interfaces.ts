/** The machine's network interfaces, as far as RoCE cares: addresses, MTU, state. */
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { RoceError } from '@node-roce/transport';
import { isLinkLocal, parseIpAddress, pathMtuForInterface } from '@node-roce/wire';

export interface InterfaceAddress {
  /** As text, without scope. */
  address: string;
  family: 4 | 6;
  linkLocal: boolean;
}

export interface NetworkInterface {
  name: string;
  mac: string;
  /** Bytes of IP packet; undefined where it can't be read. */
  mtu: number | undefined;
  up: boolean;
  loopback: boolean;
  addresses: InterfaceAddress[];
}

/** All interfaces that have an address. */
export function listInterfaces(): NetworkInterface[] {
  return Object.entries(networkInterfaces()).map(([name, list = []]) => ({
    name,
    mac: list[0]?.mac ?? '00:00:00:00:00:00',
    mtu: readNumber(name, 'mtu'),
    up: readText(name, 'operstate') !== 'down',
    loopback: list.some((a) => a.internal),
    addresses: list.map(({ address, family }) => ({
      address: address.split('%')[0],
      family: family === 'IPv4' ? 4 : 6,
      linkLocal:
        family === 'IPv6' && isLinkLocal(parseIpAddress(address.split('%')[0]) ?? new Uint8Array(16)),
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

/** The interface that has an address. All of 127.0.0.0/8 is on the loopback interface. */
export function interfaceByAddress(address: string): NetworkInterface {
  const all = listInterfaces();
  const bytes = parseIpAddress(address);
  if (!bytes) {
    throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `address: ${address} is not an IP address in figures`, {
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

function readText(name: string, file: string): string | undefined {
  try {
    return readFileSync(`/sys/class/net/${name}/${file}`, 'utf8').trim();
  } catch {
    return undefined;
  }
}

// In a network namespace without a /sys of its own, the file shows the other namespace's interfaces:
// `ip netns exec` mounts a fresh one, so this holds there too.
function readNumber(name: string, file: string): number | undefined {
  const value = Number(readText(name, file));
  return Number.isInteger(value) && value > 0 ? value : undefined;
}
