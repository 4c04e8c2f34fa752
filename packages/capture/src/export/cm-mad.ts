/**
 * Where the messages of the connection manager name hosts, and where they carry a program's private data: for
 * whoever passes a capture on (IBTA vol 1 §12.6 and §12.11; annex A11 for the IP addresses in private data).
 */
import { u16, u32 } from '@node-roce/wire';

/** A management datagram, and its header (IBTA vol 1 §13.4.2). */
export const MAD_BYTES = 256;
const BODY = 24;
const CLASS_CM = 0x07;

interface Fields {
  /** From the start of the MAD: 16 bytes each. */
  gids: readonly number[];
  /** 8 bytes each. */
  guids: readonly number[];
  /** To the MAD's end; where the IP header of annex A11 may stand in front of it. */
  privateData: number;
  /** The service ID, 8 bytes, that says whether it does; −1: it does not. */
  serviceId: number;
}

const fields = (
  privateData: number,
  { gids = [] as number[], guids = [] as number[], serviceId = -1 } = {},
): Fields => ({
  gids: gids.map((at) => BODY + at),
  guids: guids.map((at) => BODY + at),
  privateData: BODY + privateData,
  serviceId: serviceId < 0 ? -1 : BODY + serviceId,
});

/** By attribute ID. */
const MESSAGES: Readonly<Record<number, Fields>> = {
  /* REQ */ 16: fields(140, { gids: [56, 72, 100, 116], guids: [16], serviceId: 8 }),
  /* MRA */ 17: fields(10),
  /* REJ: additional information can be a GID */ 18: fields(12),
  /* REP */ 19: fields(36, { guids: [28] }),
  /* RTU */ 20: fields(8),
  /* DREQ */ 21: fields(12),
  /* DREP */ 22: fields(8),
  /* SIDR_REQ */ 23: fields(16, { serviceId: 8 }),
  /* SIDR_REP */ 24: fields(24),
  /* LAP */ 25: fields(64, { gids: [24, 40] }),
  /* APR */ 26: fields(12),
};

/** Bytes of the header of annex A11; its addresses, 16 bytes each with IPv4 in the last 4. */
const IP_HEADER = 36;
const IP_SOURCE = 4;
const IP_DESTINATION = 20;
const IPV4_IN = 12;

export interface HostNames {
  address(bytes: Uint8Array): Uint8Array;
  identifier(bytes: Uint8Array): Uint8Array;
}

const messageAt = (b: Uint8Array, o: number): Fields | undefined =>
  b[o + 1] === CLASS_CM ? MESSAGES[u16(b, o + 16)] : undefined;

/** Whether the private data of the message begin with IP addresses: RDMA CM's service IDs begin with zeros. */
function hasIpHeader(b: Uint8Array, o: number, { serviceId, privateData }: Fields): boolean {
  const version = b[o + privateData + 1] >> 4;
  return serviceId >= 0 && u32(b, o + serviceId) === 0 && (version === 4 || version === 6);
}

/** Renames the hosts in a MAD of 256 bytes at `o`, if it is one of the connection manager. */
export function renameHosts(b: Uint8Array, o: number, names: HostNames): void {
  const message = messageAt(b, o);
  if (message === undefined) return;
  const rename = (at: number, length: number, name: (bytes: Uint8Array) => Uint8Array) =>
    b.set(name(b.slice(o + at, o + at + length)), o + at);
  for (const at of message.gids) rename(at, 16, (gid) => (isZero(gid) ? gid : names.address(gid)));
  for (const at of message.guids) rename(at, 8, (guid) => names.identifier(guid));
  if (!hasIpHeader(b, o, message)) return;
  const isIpv4 = b[o + message.privateData + 1] >> 4 === 4;
  for (const field of [IP_SOURCE, IP_DESTINATION]) {
    const at = message.privateData + field + (isIpv4 ? IPV4_IN : 0);
    rename(at, isIpv4 ? 4 : 16, (address) => names.address(address));
  }
}

/**
 * Zeroes what a program said in a MAD of 256 bytes at `o`, and leaves what the connection manager needs.
 * @returns false if it is no message of the connection manager: nothing is known of what it holds
 */
export function zeroPrivateData(b: Uint8Array, o: number): boolean {
  const message = messageAt(b, o);
  if (message === undefined) return false;
  const kept = hasIpHeader(b, o, message) ? IP_HEADER : 0;
  b.fill(0, o + message.privateData + kept, o + MAD_BYTES);
  return true;
}

const isZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);
