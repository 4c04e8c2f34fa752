/** Parts of a requester, as they know one another. Each owns its state. */
import type { Context } from '../context.ts';
import type { Pacing } from '../pacing/pacing.ts';
import type { Owner } from '../qp/owner.ts';
import type { FailedEntry } from './failed-entry.ts';
import type { Flight } from './flight.ts';
import type { OutstandingReads } from './reads.ts';
import type { Timers } from './timers.ts';

/** Of every requester. */
export interface SenderParts {
  readonly context: Context;
  readonly owner: Owner;
  /** With the send queue. */
  readonly flight: Flight;
  readonly failed: FailedEntry;
}

/** Of a reliable one. */
export interface RequesterParts extends SenderParts {
  readonly timers: Timers;
  readonly reads: OutstandingReads;
  /** With the congestion controller. */
  readonly pacing: Pacing;
}
