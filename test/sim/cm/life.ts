import type { SideName } from './sides.ts';

/** The life of one id, as its program has seen it. */
export interface Life {
  side: SideName;
  id: number;
  role: 'active' | 'passive';
  communicationId: number;
  /** The peer's communication id; 0 until it is known. */
  remoteId: number;
  qpn: number;
  established: number;
  /** Events that ended it, with their reasons. */
  ends: string[];
  /** Calls of its program, each with the state that it was made in. */
  calls: string[];
  destroyed: boolean;
  /** Its side has restarted since. */
  forgotten: boolean;
  gone: boolean;
  serviceId: bigint;
  /** Of those with its queue pair, one after the other. */
  attempt: number;
}
