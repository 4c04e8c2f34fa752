/** Removes hosts' names and private data from messages of the connection manager, by wire's layouts. */
import {
  CM_LAYOUTS,
  type CmName,
  cmNameAt,
  type Field,
  hasIpCmHeader,
  IP_CM_HEADER_BYTES,
  IpCmHeader,
  MAD_BYTES,
  MAD_HEADER_BYTES,
} from '@node-roce/wire';

/** An IPv4 address is in the last 4 of its 16 bytes. */
const IPV4_AT = 12;

export interface HostNames {
  address(bytes: Uint8Array): Uint8Array;
  identifier(bytes: Uint8Array): Uint8Array;
}

const fieldsOf = (name: CmName): [name: string, Field<unknown>][] => Object.entries(CM_LAYOUTS[name]);

/** Offset in the MAD of additional information and private data, which go to the MAD's end. */
const dataAt = (name: CmName): number =>
  MAD_HEADER_BYTES + Math.min(...fieldsOf(name).flatMap(([, { kind, at }]) => (kind === 'data' ? [at] : [])));

/** Whether the private data of the message begin with IP addresses: only where there is a service ID. */
function hasIpHeader(b: Uint8Array, o: number, name: CmName): boolean {
  if (name !== 'REQ' && name !== 'SIDR_REQ') return false;
  return hasIpCmHeader(b, o + dataAt(name), o + MAD_HEADER_BYTES + CM_LAYOUTS[name].serviceId.at);
}

/** Renames the hosts in a MAD of 256 bytes at `o`, if it is one of the connection manager. */
export function renameHosts(b: Uint8Array, o: number, names: HostNames): void {
  const message = cmNameAt(b, o);
  if (message === undefined) return;
  const rename = (at: number, length: number, name: (bytes: Uint8Array) => Uint8Array) =>
    b.set(name(b.slice(o + at, o + at + length)), o + at);
  for (const [, { kind, at, bytes }] of fieldsOf(message)) {
    if (kind === 'gid') rename(MAD_HEADER_BYTES + at, bytes, (id) => (isZero(id) ? id : names.address(id)));
    if (kind === 'guid') rename(MAD_HEADER_BYTES + at, bytes, (id) => names.identifier(id));
  }
  if (!hasIpHeader(b, o, message)) return;
  const header = dataAt(message);
  const isIpv4 = IpCmHeader.ipVersion.get(b, o + header) === 4;
  for (const field of [IpCmHeader.source, IpCmHeader.destination]) {
    const at = header + field.at + (isIpv4 ? IPV4_AT : 0);
    rename(at, isIpv4 ? 4 : 16, (address) => names.address(address));
  }
}

/**
 * Zeroes additional information and private data in a MAD of 256 bytes at `o`; the connection manager's own fields stay.
 * @returns false if it is not a message of the connection manager: the meaning of its bytes is unknown
 */
export function zeroPrivateData(b: Uint8Array, o: number): boolean {
  const message = cmNameAt(b, o);
  if (message === undefined) return false;
  const kept = hasIpHeader(b, o, message) ? IP_CM_HEADER_BYTES : 0;
  b.fill(0, o + dataAt(message) + kept, o + MAD_BYTES);
  return true;
}

const isZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);
