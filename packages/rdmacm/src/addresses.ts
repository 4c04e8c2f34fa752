/** Names and addresses: a peer's address, our address that reaches it, and the 36 bytes that carry both to the peer. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { networkInterfaces } from 'node:os';
import { RoceError } from '@node-roce/verbs-api';
import {
  decodeIpCmHeader,
  encodeIpCmHeader,
  gidFromText,
  gidToIpBytes,
  gidToIpText,
  IP_CM_HEADER_BYTES,
  isIpv4Mapped,
  isLinkLocal,
} from '@node-roce/wire';

/** An address and a port of a port space. */
export interface SocketAddress {
  /** Numeric IPv4 or IPv6 address. */
  address: string;
  /** 0 … 65535. */
  port: number;
}

/** The GID of a numeric address, whose zone is left out. */
export const gidOf = (address: string): Uint8Array<ArrayBuffer> => gidFromText(address.split('%')[0]);

/** IPv4, IPv6 of one link, or IPv6 that is routed: addresses reach each other within one of these. Groups of IPv6 count as routed. */
export type AddressKind = 'IPv4' | 'link-local' | 'IPv6' | 'none';

export function kindOf(gid: Uint8Array): AddressKind {
  if (isIpv4Mapped(gid)) return 'IPv4';
  if (isLinkLocal(gid)) return 'link-local';
  return gid.some((byte) => byte !== 0) ? 'IPv6' : 'none';
}

/** 0.0.0.0 or ::, which stand for all addresses of this machine (rdma_bind_addr(3): "wildcard values are permitted"). */
export function isAnyAddress(address: string): boolean {
  const gid = gidOf(address);
  return isIpv4Mapped(gid) ? gid.subarray(12).every((byte) => byte === 0) : kindOf(gid) === 'none';
}

/**
 * The addresses of this machine that a wildcard stands for: `::` for those of both IP versions. With their zones. Each once: two interfaces may
 * have the same one.
 */
export function localAddresses(any: string): string[] {
  const isV4 = !any.includes(':');
  const all = Object.entries(networkInterfaces()).flatMap(([name, entries = []]) =>
    entries
      .filter(({ family }) => family === 'IPv4' || !isV4)
      .map(({ address }) =>
        kindOf(gidOf(address)) === 'link-local' ? `${address.split('%')[0]}%${name}` : address,
      ),
  );
  return [...new Set(all)];
}

/** The numeric address of a host: the first one that is preferred, or else the first. Rejects as `resolveAll`. */
export async function resolveHost(
  host: string,
  isPreferred: (gid: Uint8Array) => boolean = () => true,
): Promise<string> {
  const all = await resolveAll(host);
  return all.find((address) => isPreferred(gidOf(address))) ?? all[0];
}

/** The numeric addresses of a host, one at least, in the resolver's order. Rejects with ERR_ROCE_CM_NO_ADDRESS where the name has none. */
export async function resolveAll(host: string): Promise<string[]> {
  try {
    const all = await lookup(host, { all: true });
    return [...new Set(all.map(({ address }) => address))];
  } catch (cause) {
    throw new RoceError('ERR_ROCE_CM_NO_ADDRESS', `host: ${host} has no address`, {
      errno: 'ENOENT',
      attribute: 'host',
      expected: 'an IP address, or a name that the resolver knows',
      cause,
    });
  }
}

/** Our address that packets to a peer leave from. Rejects with ERR_ROCE_CM_NO_ADDRESS where no route leads there. */
export async function sourceTowards(address: string): Promise<string> {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  try {
    // Nothing is sent: the kernel chooses the route.
    socket.connect(4791, address);
    await once(socket, 'connect');
    return socket.address().address;
  } catch (cause) {
    if (isLinkLocal(gidOf(address)) && !address.includes('%')) {
      throw new RoceError(
        'ERR_ROCE_CM_NO_ADDRESS',
        `host: ${address} is an address of one link, and names no interface`,
        { errno: 'EADDRNOTAVAIL', attribute: 'host', expected: `${address}%<interface>`, cause },
      );
    }
    throw new RoceError('ERR_ROCE_CM_NO_ADDRESS', `host: there is no route to ${address}`, {
      errno: 'EADDRNOTAVAIL',
      attribute: 'host',
      expected: 'an address that a route of this machine leads to',
      cause,
    });
  } finally {
    socket.close();
  }
}

/** Sixteen bytes of an address as the header has them: IPv4 without the prefix of a GID. */
function headerBytes(gid: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(16);
  const address = gidToIpBytes(gid);
  bytes.set(address, 16 - address.length);
  return bytes;
}

/** Private data of REQ or SIDR_REQ: who asks whom, then the program's own (IBTA annex A11). */
export function withHeader(
  from: SocketAddress,
  to: SocketAddress,
  privateData: Uint8Array | undefined,
): Uint8Array {
  const source = gidOf(from.address);
  const header = encodeIpCmHeader({
    ipVersion: isIpv4Mapped(source) ? 4 : 6,
    sourcePort: from.port,
    source: headerBytes(source),
    destination: headerBytes(gidOf(to.address)),
  });
  const bytes = new Uint8Array(IP_CM_HEADER_BYTES + (privateData?.length ?? 0));
  bytes.set(header);
  if (privateData) bytes.set(privateData, IP_CM_HEADER_BYTES);
  return bytes;
}

/** Reads the header of a request; undefined where it has none in a known format. */
export function parseHeader(
  privateData: Uint8Array,
): { from: SocketAddress; to: string; privateData: Uint8Array } | undefined {
  const { version, ipVersion, sourcePort, source, destination } = decodeIpCmHeader(privateData);
  if (version !== 0 || (ipVersion !== 4 && ipVersion !== 6)) return undefined;
  const text = (bytes: Uint8Array) => (ipVersion === 4 ? bytes.subarray(12).join('.') : gidToIpText(bytes));
  return {
    from: { address: text(source), port: sourcePort },
    to: text(destination),
    privateData: privateData.slice(IP_CM_HEADER_BYTES),
  };
}
