/** The device that a MAD is for, where several share queue pair 1 (IBTA vol 1 §12.6: which side's numbers a message has). */
import {
  BTH_BYTES,
  bthOpcode,
  CM_LAYOUTS,
  cmNameAt,
  DETH_BYTES,
  MAD_BYTES,
  MAD_HEADER_BYTES,
  Opcode,
} from '@node-roce/wire';

/**
 * A device by the service that it listens to, or by a number that it drew; or all devices, for a message that names its
 * connection by the sender's number alone.
 */
export type MadTarget = { service: bigint } | { number: number } | 'all';

/**
 * The target of the packet to queue pair 1 at `at`; undefined for one that the device which has it answers.
 *
 * @param length bytes from the BTH, without the ICRC
 */
export function madTarget(bytes: Uint8Array, at: number, length: number): MadTarget | undefined {
  const mad = at + BTH_BYTES + DETH_BYTES;
  if (bthOpcode(bytes, at) !== Opcode.UD_SEND_ONLY || length < BTH_BYTES + DETH_BYTES + MAD_BYTES)
    return undefined;
  const name = cmNameAt(bytes, mad);
  if (name === undefined) return undefined;
  const fields = mad + MAD_HEADER_BYTES;
  if (name === 'REQ' || name === 'SIDR_REQ')
    return { service: CM_LAYOUTS[name].serviceId.get(bytes, fields) };
  if (name === 'SIDR_REP') return { number: CM_LAYOUTS.SIDR_REP.requestId.get(bytes, fields) };
  const number = CM_LAYOUTS[name].remoteCommId.get(bytes, fields);
  return name === 'REJ' && number === 0 ? 'all' : { number };
}
