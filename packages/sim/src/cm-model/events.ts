/** Options and events of the model. */
import type { CmMessage } from './mad.ts';
import type { CmEventKind, CmState } from './states.ts';

export interface CmModelOptions {
  caGuid: bigint;
  /** 32 random bits: communication ids. */
  random: () => number;
  /** The transaction id of a message that begins a transaction. */
  tid?: (localId: number) => bigint;
}

export interface CmEvent {
  kind: CmEventKind;
  handle: number;
  /** µs. */
  at: number;
  /** The message that brought it about. */
  message?: CmMessage;
  /** Of `rejected` and `disconnected`: reason for rejection; of a connection found stale: 10. */
  reason?: number;
  /** The retries were used up. */
  timedOut?: boolean;
}

export interface CmComplaint {
  state: CmState | 'NONE';
  input: string;
  why: string;
}
