/**
 * The result of the analysis of a capture. Plain values: `roce flows --json` prints them, and the report is drawn
 * from them. All times are nanoseconds since the first frame unless a name states another unit; frames are numbered
 * from 1, as tcpdump and Wireshark do. Sizes are bounded whatever the capture's length: messages and
 * packets go to callbacks while the file is read, series are thinned.
 */
import type { CaptureSummary } from '../read/summary.ts';
import type {
  Certainty,
  ChainEvent,
  ConnectionEnd,
  ConnectionFacts,
  FindingOf,
  RetransmitCause,
  Severity,
  TapSide,
} from './facts.ts';
import type { FindingKind } from './findings/index.ts';
import type { CmExchange } from './pair/cm-exchanges.ts';
import type { PauseSender } from './record/pauses.ts';

export type { CaptureSummary } from '../read/summary.ts';
export type * from './facts.ts';

/** The kind of a verdict: that of the finding which decides it; `healthy`: nothing stands out. */
export type VerdictKind = FindingKind | 'healthy' | 'not-known';

/** The cause of trouble, and the host to look at, in one line. */
export interface Verdict {
  kind: VerdictKind;
  certainty: Certainty;
  /** Undefined where nothing is wrong or known. */
  severity: Severity | undefined;
  /** At most 20 words, the culprit first. */
  text: string;
  /** The address of the host to look at; `network` for the path between; undefined: nobody, or not known. */
  culprit: string | undefined;
  /** The connection that decides it; undefined: the capture as a whole. */
  connection: number | undefined;
  /** The events that prove it, in order. */
  chain: ChainEvent[];
  /** Other causes of the same connection, the weightiest first. */
  also: { kind: FindingKind; certainty: Certainty; text: string }[];
  /** Advice: things to check or to do. */
  hint: string | undefined;
}

export interface Connection extends ConnectionFacts {
  verdict: Verdict;
  /** Undefined: the capture does not show its end. */
  ended: ConnectionEnd | undefined;
}

export type Finding = FindingOf<FindingKind>;

/** The capture at a glance. */
export interface Overview {
  hosts: number;
  connections: number;
  messages: number;
  /** Bytes of payload, with retransmissions. */
  bytes: number;
  /** Packets. */
  retransmitted: number;
  /** Go-back-N events: all, by cause, and by the side of the tap on which packets were lost or late (of those listed). */
  goBacks: number;
  causes: Record<RetransmitCause, number>;
  sides: Record<TapSide, number>;
  /** NAKs that came; requesters may go back once for several. */
  sequenceNaks: number;
  rnrNaks: number;
  /** Packets that were lost or late between a host and the capture point (of those listed): the hosts with most first. */
  lostNear: { host: string; packets: number }[];
  /** The two hosts with most retransmissions; undefined without any. */
  worstPath: { from: string; to: string; retransmitted: number } | undefined;
  /** The receiver with most senders, from three on, if packets to it were retransmitted or marked. */
  incast: { receiver: string; senders: number } | undefined;
}

export interface Analysis {
  /** Of the capture: that of its worst connection, or of what concerns all of them. */
  verdict: Verdict;
  summary: CaptureSummary;
  overview: Overview;
  /** Worst first. */
  findings: Finding[];
  connections: Connection[];
  /** Exchanges of the connection manager, in the order of their first messages. */
  exchanges: CmExchange[];
  /** Ports that sent pause frames, those with most first. */
  pauses: PauseSender[];
  /** Packets of RoCE that belong to no connection (CNPs without a flow, MADs). */
  unconnected: number;
}
