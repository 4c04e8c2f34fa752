/** The interface of a requester for its queue pair, whichever service it belongs to. */
import type { TxBatch } from '../batch.ts';
import type { QpAttributes } from '../qp/attributes.ts';

export interface RequesterRole {
  /** PSN of the next request (`sq_psn`). */
  readonly sendPsn: number;
  /** SQD: everything that was started is done, and the queue pair was told. */
  readonly drained: boolean;
  /** Whether turns send nothing until the next post rings the doorbell. */
  readonly sleeps: boolean;
  /** RTS: a fresh send side, whose requests begin at `psn`. Drops what was posted before by a program that did not see the last RESET. */
  start(psn: number): void;
  /** Entering RTS from SQD or SQE. */
  resume(): void;
  /** SQD: nothing more is started, and an entry of which nothing was sent is not started after all (IBTA vol 1 §10.3.1.5). */
  drain(): void;
  /** ERR, SQE: nothing more is sent, nothing is waited for. */
  stop(): void;
  /** The send queue was flushed: the next packet is that of the next entry. */
  flushed(): void;
  /** RESET: as just created, with the attributes that the queue pair has now. */
  reset(): void;
  /** The queue pair is gone. */
  close(): void;
  /** Takes over changed attributes; timers with an old value are restarted. */
  configure(from: QpAttributes, to: QpAttributes): void;
  /** The connection has taken another path. */
  migrated(): void;
  /** Adds up to `budget` request packets to the batch; returns how many. */
  transmit(batch: TxBatch, budget: number): number;
  /** The link refused a packet of `entry` at `psn` for good: the entry fails with `status` (`WcStatus`) in its turn. */
  refused(entry: number, psn: number, status: number): void;
  /** The broken promise, if there is one. */
  check(): string | undefined;
}
