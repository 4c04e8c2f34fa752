/** Datagrams to a port of RoCE that are no RoCE: answers to a client that happens to have that port, other tunnels. */
import { opcodeInfo, u16, u24 } from '@node-roce/wire';

/** Detail of a refusal, and the kind under which such frames are counted. */
export const FOREIGN = 'UDP port of RoCE, another protocol';

/** The first of the opcodes that are left to manufacturers (IBTA vol 1 §9.2.1, table of the opcodes' service bits). */
const FIRST_VENDOR_OPCODE = 0xc0;
/** Ports of services whose answers go to any port of a client (IANA): DNS, DHCP, NTP, NetBIOS, SNMP, LDAP, QUIC, IKE, syslog. */
const SERVICES: ReadonlySet<number> = new Set([53, 67, 123, 137, 138, 161, 389, 443, 500, 514]);

export const isVendorOpcode = (opcode: number): boolean => opcode >= FIRST_VENDOR_OPCODE;

/**
 * Counts what no sender of RoCE does. One may be damage, two in a packet with a wrong ICRC are another protocol.
 * @param bth where a BTH would stand
 * @param length of the datagram's payload
 */
export function contradictions(b: Uint8Array, bth: number, length: number, sourcePort: number): number {
  const info = opcodeInfo(b[bth]);
  let found = 0;
  // Headers have multiples of four bytes, and the pad makes the payload one: damage does not change the length.
  if ((length & 3) !== 0) found += 2;
  if (info === undefined && !isVendorOpcode(b[bth])) found++;
  // Transport header version, reserved bits, P_Key of no partition, a queue pair that RoCE lacks (IBTA annex A16).
  if ((b[bth + 1] & 0x0f) !== 0) found++;
  if ((b[bth + 4] & 0x3f) !== 0) found++;
  if ((b[bth + 8] & 0x7f) !== 0) found++;
  if ((u16(b, bth + 2) & 0x7fff) === 0) found++;
  if (u24(b, bth + 5) === 0) found++;
  if (SERVICES.has(sourcePort)) found++;
  return found;
}
