/** Parts of a requester, as they know one another. Each owns its state. */
import type { Context } from '../context.ts';
import type { Pacing } from '../pacing/pacing.ts';
import type { Owner } from '../qp/owner.ts';
import type { FailedEntry } from './failed-entry.ts';
import type { Flight } from './flight.ts';
import type { OutstandingReads } from './reads.ts';
import type { Timers } from './timers.ts';

export interface RequesterParts {
  readonly context: Context;
  readonly owner: Owner;
  /** With the send queue. */
  readonly flight: Flight;
  readonly failed: FailedEntry;
  readonly timers: Timers;
  readonly reads: OutstandingReads;
  /** With the congestion controller. */
  readonly pacing: Pacing;
}
