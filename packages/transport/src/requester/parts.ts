/** Parts of a requester, as they know one another. Each owns its state. */
import type { CongestionController } from '../congestion/controller.ts';
import type { Context } from '../context.ts';
import type { Pacing } from '../pacing/pacing.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import type { Credits } from './credits.ts';
import type { FailedEntry } from './failed-entry.ts';
import type { Flight } from './flight.ts';
import type { OutOfOrder } from './out-of-order.ts';
import type { RequestPackets } from './packets.ts';
import type { OutstandingReads } from './reads.ts';
import type { LossBursts } from './recovery/loss-bursts.ts';
import type { Probe } from './recovery/probe.ts';
import type { Repair } from './recovery/repair.ts';
import type { SelectiveRepeat } from './recovery/selective-repeat.ts';
import type { RoundTrip } from './round-trip.ts';
import type { Timers } from './timers.ts';

export interface RequesterParts {
  readonly context: Context;
  readonly owner: Owner;
  readonly queue: SendQueue;
  readonly packets: RequestPackets;
  readonly flight: Flight;
  readonly failed: FailedEntry;
  readonly timers: Timers;
  readonly credits: Credits;
  readonly reads: OutstandingReads;
  readonly roundTrip: RoundTrip;
  readonly congestion: CongestionController;
  readonly pacer: Pacing;
  readonly probe: Probe;
  readonly early: OutOfOrder;
  readonly repair: Repair;
  readonly peerKeeps: SelectiveRepeat;
  readonly losses: LossBursts;
}
