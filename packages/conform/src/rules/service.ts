/** Answers of a service behind the connection manager. */
import { AethKind, aethKind } from '@node-roce/wire';
import type { Entry } from '../line.ts';

/** An ACK; or an RNR NAK of a service that has no receive. */
export const isTaken = ({ packet }: Entry): boolean => {
  const syndrome = packet?.info.key === 'RC_ACKNOWLEDGE' ? packet.extensions.aeth?.syndrome : undefined;
  return syndrome !== undefined && aethKind(syndrome) !== AethKind.NAK;
};
