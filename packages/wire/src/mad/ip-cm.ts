/**
 * IP addresses in the connection manager's messages (IBTA annex A11, RDMA IP CM service): 36 bytes at the start of the
 * private data of REQ and SIDR_REQ, and the service ID that names port space and port.
 */
import { u32 } from '../bytes.ts';
import { bitsOf, data, type Field, readFields, uint, type ValuesOf, writeFields } from './field.ts';

export const IP_CM_HEADER_BYTES = 36;

export const IpCmHeader = {
  /** Of the header; 0. */
  version: uint(0, 8),
  /** 4 or 6. */
  ipVersion: bitsOf(1, 7, 4),
  /** Of the side that sent the message; the destination port is in the service ID. */
  sourcePort: uint(2, 16),
  /** 16 bytes; an IPv4 address is in the last 4. */
  source: data(4, 16, 'gid'),
  destination: data(20, 16, 'gid'),
} satisfies Record<string, Field<unknown>>;

export type IpCmHeaderValue = ValuesOf<typeof IpCmHeader>;

export const decodeIpCmHeader = (privateData: Uint8Array, o = 0): IpCmHeaderValue =>
  readFields(IpCmHeader, privateData, o);

/** @throws RangeError for a value that does not fit its field */
export function encodeIpCmHeader(value: Partial<IpCmHeaderValue>): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(IP_CM_HEADER_BYTES);
  writeFields(IpCmHeader, bytes, 0, value, 'IP CM header');
  return bytes;
}

/** Port spaces (Linux rdma_cma.h `enum rdma_ucm_port_space`). */
export const PortSpace = { IPOIB: 0x0002, TCP: 0x0106, UDP: 0x0111, IB: 0x013f } as const;

/** The service ID of a port (`rdma_get_service_id`). */
export const ipCmServiceId = (portSpace: number, port: number): bigint => BigInt(portSpace * 0x1_0000 + port);

/** Port space and port of a service ID; undefined where its high word is not that of annex A11. */
export function parseIpCmServiceId(serviceId: bigint): { portSpace: number; port: number } | undefined {
  const value = Number(serviceId);
  if (serviceId >> 32n !== 0n) return undefined;
  return { portSpace: value >>> 16, port: value & 0xffff };
}

/** Whether private data at `o` begin with this header, by the service ID at `serviceIdAt`. */
export const hasIpCmHeader = (b: Uint8Array, o: number, serviceIdAt: number): boolean => {
  const ipVersion = IpCmHeader.ipVersion.get(b, o);
  return u32(b, serviceIdAt) === 0 && (ipVersion === 4 || ipVersion === 6);
};
