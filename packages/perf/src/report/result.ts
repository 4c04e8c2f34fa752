/** The result of a test. */
import type { BandwidthFigures } from '../dialogue/fields.ts';
import type { Plan } from '../plan.ts';
import type { Bucket, LatencyFigures } from './latency.ts';

/** Which side took the times: this one, the peer, whose report this side passes on, or both. */
export type MeasuredBy = 'this side' | 'the peer' | 'both sides';

export interface BandwidthResult {
  measure: 'bw';
  measuredBy: MeasuredBy;
  /** One for each size: of both directions together where both sides send. */
  runs: BandwidthFigures[];
  /** Reports of both sides on the last run, where they exchanged them. */
  local?: BandwidthFigures;
  remote?: BandwidthFigures;
}

export interface LatencyResult {
  measure: 'lat';
  /** A server of READ and atomics measures nothing: it has no runs. */
  measuredBy: MeasuredBy;
  runs: (LatencyFigures & { histogram?: Bucket[] })[];
}

/** The circumstances of a test. */
interface Circumstances {
  role: 'client' | 'server';
  plan: Plan;
  /** Path MTU, bytes. */
  mtu: number;
  /** Of the peer's dialogue. */
  peerVersion: string;
  rdmaCm: boolean;
  gigabits: boolean;
  localAddress: string;
  remoteAddress: string;
  /** By this side's queue pairs. */
  retransmittedPackets: number;
  /** At the device, during the test: a packet with a wrong ICRC belongs to no queue pair. */
  icrcErrors: number;
  /** At the device, during the test: packets with a right ICRC that were dropped for an unexpected IPv4 Identification (docs/icrc.md). */
  icrcOutOfWindow: number;
}

export type PerfResult = Circumstances & (BandwidthResult | LatencyResult);
