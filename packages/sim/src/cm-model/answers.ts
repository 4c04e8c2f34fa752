/** Messages of a connection that need only its kept state. */
import type { CmConnection } from './connection.ts';
import type { CmFields } from './layouts.ts';
import { encodeCm } from './mad.ts';

/** Reject reasons that this side gives by itself (IBTA vol 1 §12.6.7.2). */
export const REASON = {
  TIMEOUT: 4,
  INVALID_SERVICE_ID: 8,
  STALE: 10,
  INVALID_GID: 12,
  CONSUMER: 28,
} as const;
/** MRA and REJ: the message they are about. */
export const ABOUT = { REQ: 0, REP: 1, OTHER: 2 } as const;

export const mraOf = ({ localId, remoteId, mra, tid }: CmConnection, mraed: number): Uint8Array =>
  encodeCm('MRA', tid, { localId, remoteId, mraed, serviceTimeout: mra });

export const drepOf = ({ localId, remoteId, dreqTid }: CmConnection): Uint8Array =>
  encodeCm('DREP', dreqTid, { localId, remoteId });

/** A REJ for a timeout names the connection by the CA GUID of its sender. */
export function rejOf(
  { localId, remoteId, tid }: CmConnection,
  caGuid: bigint,
  { rejected, reason, privateData }: { rejected: number; reason: number; privateData?: Uint8Array },
): Uint8Array {
  const fields: Partial<CmFields<'REJ'>> = { localId, remoteId, rejected, reason };
  if (privateData) fields.privateData = privateData;
  if (reason === REASON.TIMEOUT) {
    fields.ari = new Uint8Array(8);
    new DataView(fields.ari.buffer).setBigUint64(0, caGuid);
    fields.ariLength = 8;
  }
  return encodeCm('REJ', tid, fields);
}
