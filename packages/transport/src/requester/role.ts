/** The interface of a requester for its queue pair, whichever service it belongs to. */
import type { TxBatch } from '../batch.ts';
import type { QpAttributes } from '../qp/attributes.ts';

export interface RequesterRole {
  /** The next request's PSN (`sq_psn`). */
  readonly sendPsn: number;
  /** SQD: everything that was started is done. */
  readonly drained: boolean;
  /** Whether a turn would send nothing, until the next post rings. */
  readonly sleeps: boolean;
  /** RTS: requests begin at this PSN. */
  start(psn: number): void;
  /** Entering RTS from SQD or SQE. */
  resume(): void;
  /** SQD: nothing more is started. */
  drain(): void;
  /** ERR, SQE: nothing more is sent, nothing is waited for. */
  stop(): void;
  /** All that was posted is flushed. */
  flushed(): void;
  /** RESET: as just created, with the attributes that the queue pair has now. */
  reset(): void;
  /** The queue pair is gone. */
  close(): void;
  /** Takes over changed attributes. */
  configure(from: QpAttributes, to: QpAttributes): void;
  /** The connection has taken another path. */
  migrated(): void;
  /** Adds up to `budget` request packets to the batch; returns how many. */
  transmit(batch: TxBatch, budget: number): number;
  /** The link refused a packet of `entry` at `psn` for good. */
  refused(entry: number, psn: number, status: number): void;
  /** The broken promise, if there is one. */
  check(): string | undefined;
}
