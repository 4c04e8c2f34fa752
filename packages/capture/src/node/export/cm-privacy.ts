/** Removes hosts' names and private data from messages of the connection manager, by wire's layouts. */
import {
  CM_LAYOUTS,
  type CmName,
  CmRejReason,
  cmNameAt,
  type Field,
  GID_BYTES,
  hasIpCmHeader,
  IP_CM_HEADER_BYTES,
  IpCmHeader,
  MAD_BYTES,
  MAD_HEADER_BYTES,
} from '@node-roce/wire';

/** An IPv4 address is in the last 4 of its 16 bytes. */
const IPV4_AT = 12;
const GUID_BYTES = 8;

export interface HostNames {
  address(bytes: Uint8Array): Uint8Array;
  identifier(bytes: Uint8Array): Uint8Array;
}

const fieldsOf = (name: CmName): [name: string, Field<unknown>][] => Object.entries(CM_LAYOUTS[name]);

/** Offset in the MAD of additional information and private data, which go to the MAD's end. */
const dataAt = (name: CmName): number =>
  MAD_HEADER_BYTES + Math.min(...fieldsOf(name).flatMap(([, { kind, at }]) => (kind === 'data' ? [at] : [])));

/**
 * Bytes of a GID or GUID at the beginning of a REJ's additional information (IBTA vol 1 §12.6.7.2). With a timeout Linux
 * and node-roce send the GUID of the channel adapter (core/cm.c).
 */
const NAMED_BY_REJ: ReadonlyMap<number, number> = new Map([
  [CmRejReason.TIMEOUT, GUID_BYTES],
  [CmRejReason.INVALID_GID, GID_BYTES],
  [CmRejReason.INVALID_ALT_GID, GID_BYTES],
  [CmRejReason.PORT_REDIRECT, GID_BYTES],
]);

/** Whether the private data of the message begin with IP addresses: only where there is a service ID. */
function hasIpHeader(mad: Uint8Array, name: CmName): boolean {
  if (name !== 'REQ' && name !== 'SIDR_REQ') return false;
  return hasIpCmHeader(mad, dataAt(name), MAD_HEADER_BYTES + CM_LAYOUTS[name].serviceId.at);
}

/**
 * Renames the hosts in a MAD of 256 bytes. Of additional information only such a GID or GUID stays: a
 * ClassPortInfo, where a redirection has one, names hosts too.
 * @returns false if it is not a message of the connection manager
 */
export function renameHosts(mad: Uint8Array, names: HostNames): boolean {
  const message = cmNameAt(mad, 0);
  if (message === undefined) return false;
  const rename = (at: number, bytes: number, name: (id: Uint8Array) => Uint8Array) =>
    mad.set(name(mad.slice(at, at + bytes)), at);
  const renameGid = (at: number) => rename(at, GID_BYTES, (id) => (isZero(id) ? id : names.address(id)));
  const renameGuid = (at: number) => rename(at, GUID_BYTES, (id) => names.identifier(id));
  for (const [name, { kind, at, bytes }] of fieldsOf(message)) {
    const start = MAD_HEADER_BYTES + at;
    if (kind === 'gid') renameGid(start);
    if (kind === 'guid') renameGuid(start);
    if (name !== 'additionalInfo') continue;
    const reason = message === 'REJ' ? CM_LAYOUTS.REJ.reason.get(mad, MAD_HEADER_BYTES) : -1;
    const named = NAMED_BY_REJ.get(reason) ?? 0;
    if (named === GID_BYTES) renameGid(start);
    if (named === GUID_BYTES) renameGuid(start);
    mad.fill(0, start + named, start + bytes);
  }
  if (hasIpHeader(mad, message)) {
    const header = dataAt(message);
    const isIpv4 = IpCmHeader.ipVersion.get(mad, header) === 4;
    for (const field of [IpCmHeader.source, IpCmHeader.destination]) {
      const at = header + field.at + (isIpv4 ? IPV4_AT : 0);
      rename(at, isIpv4 ? 4 : GID_BYTES, (address) => names.address(address));
    }
  }
  return true;
}

/**
 * Zeroes additional information and private data in a MAD of 256 bytes; the connection manager's own fields stay.
 * @returns false if it is not a message of the connection manager: the meaning of its bytes is unknown
 */
export function zeroPrivateData(mad: Uint8Array): boolean {
  const message = cmNameAt(mad, 0);
  if (message === undefined) return false;
  const kept = hasIpHeader(mad, message) ? IP_CM_HEADER_BYTES : 0;
  mad.fill(0, dataAt(message) + kept, MAD_BYTES);
  return true;
}

const isZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);
