/** Parts of a requester, as they know one another. Each owns its state. */
import type { CongestionController } from '../congestion/controller.ts';
import type { Context } from '../context.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import type { Credits } from './credits.ts';
import type { EarlyResponses } from './early-responses.ts';
import type { FailedEntry } from './failed-entry.ts';
import type { Flight } from './flight.ts';
import type { LossDistance } from './loss-distance.ts';
import type { Pace } from './pace.ts';
import type { RequestPackets } from './packets.ts';
import type { PeerKeeps } from './peer-keeps.ts';
import type { Probe } from './probe.ts';
import type { OutstandingReads } from './reads.ts';
import type { Repair } from './repair.ts';
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
  readonly pacer: Pace;
  readonly probe: Probe;
  readonly early: EarlyResponses;
  readonly repair: Repair;
  readonly peerKeeps: PeerKeeps;
  readonly losses: LossDistance;
}
