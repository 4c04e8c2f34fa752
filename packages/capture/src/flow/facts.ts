/**
 * Facts of a capture as plain values, before they are judged: connections with their counts, messages, packets and series.
 * All times are nanoseconds since the first frame unless a name states another unit; frames are numbered from 1, as tcpdump
 * and Wireshark do.
 */
import type { Tunnel } from '../read/tunnel.ts';
import type { EcnCounts, TrafficClass } from './record/traffic-classes.ts';

export type Transport = 'RC' | 'UC' | 'UD' | 'RD' | 'XRC' | 'CNP';

/** NAK codes by name (IBTA vol 1 table 59). */
export type NakName =
  | 'psn-sequence-error'
  | 'invalid-request'
  | 'remote-access-error'
  | 'remote-operational-error'
  | 'invalid-rd-request'
  | 'reserved-nak';

/** A NAK that ends the queue pair: any but the sequence NAK. */
export type FatalNakName = Exclude<NakName, 'psn-sequence-error'>;

/** How a message failed; `flushed`: one before it failed. */
export type MessageFailure = FatalNakName | 'rnr-retries-exceeded' | 'retries-exceeded' | 'flushed';

/** The cause of a retransmission (docs/capture-causes.md, "How causes are found"); `unknown` has the grade `not-shown`. */
export type RetransmitCause = 'timeout' | 'sequence-nak' | 'implied-nak' | 'rnr' | 'probe' | 'unknown';

/** How sure a cause is. */
export type Grade =
  /** The evidence in the capture excludes every other cause. */
  | 'certain'
  /** The evidence speaks for it. */
  | 'likely'
  /** The capture does not show the cause. */
  | 'not-shown';

/** The packet that did not arrive, or not in order; `either`: a request or its answer; `none`: the receiver was not ready. */
export type MissingPacket = 'request' | 'response' | 'either' | 'none' | 'unknown';

/** On whose side of the tap it was lost or late. */
export type TapSide = 'requester' | 'responder' | 'unknown';

/** One recovery: the requester went back, and retransmitted some packets. */
export interface Recovery {
  /** The requester's end. */
  from: 'a' | 'b';
  cause: RetransmitCause;
  grade: Grade;
  /** Of the first retransmitted packet. */
  frame: number;
  time: number;
  psn: number;
  lastFrame: number;
  /** Packets retransmitted. */
  packets: number;
  /**
   * The frame that shows the cause: the NAK, the response behind the missing one, or of a timeout the packet that was not
   * answered; undefined where there is none.
   */
  evidence: number | undefined;
  /** The packet with a wrong ICRC that made the recovery necessary. */
  damaged: number | undefined;
  /** From the evidence to the first retransmitted packet; of a timeout, since the retry timer began to run, 0 if that is not known. */
  wait: number;
  /** The ACK timeout (its code, 1 … 31) that `wait` fits, of a timeout. */
  timeout: number | undefined;
  missing: MissingPacket;
  side: TapSide;
  /** The fate of the packet that made it necessary, as far as the whole capture shows. */
  reason: EpisodeReason;
}

/** The fate of a packet that was retransmitted. */
export type EpisodeReason =
  /** It came with a wrong ICRC, or its answer did: receivers drop such packets. */
  | 'damaged'
  /** It, or its answer, was lost. */
  | 'lost'
  /** Packets that were sent after it overtook it. */
  | 'reordered'
  /** It arrived, and was answered: the requester sent it again before it had the answer. */
  | 'spurious'
  /** The responder answered nothing for long, and then every copy. */
  | 'stood-still'
  /** The receiver had no receive posted (RNR). */
  | 'not-ready'
  /** No copy was ever answered. */
  | 'unanswered'
  | 'not-known';

/** How the two directions of a connection were put together. */
export type Pairing =
  /** Both QPNs stand in the CM messages of the capture. */
  | 'cm'
  /** PSNs of requests and responses agree, and no other pair of QPs fits. */
  | 'certain'
  /** The best of several. */
  | 'likely'
  /** One direction only, or nothing to go by. */
  | 'unpaired';

/** One end of a connection. */
export interface Endpoint {
  address: string;
  /** −1: never seen (one direction only). */
  qpn: number;
}

/** Packets in one direction of a connection. */
export interface DirectionCounts {
  /** Without `repeatedFrames`. */
  packets: number;
  /** Bytes of payload, and those of them that were sent more than once. */
  bytes: number;
  requests: number;
  responses: number;
  acks: number;
  /** By NAK code; codes that did not come are absent. */
  naks: Partial<Record<NakName, number>>;
  rnrNaks: number;
  retransmitted: number;
  retransmittedBytes: number;
  retransmitCauses: Record<RetransmitCause, number>;
  retransmitGrades: Record<Grade, number>;
  /** Go-back-N events: times at which the sender went back. */
  goBacks: number;
  /** Go-back-N events by cause and grade. */
  goBackCauses: Record<RetransmitCause, Record<Grade, number>>;
  /** Responses to READs and atomics that came again, because their request did. */
  repeatedResponses: number;
  /** Duplicate frames: of a mirror or of a network that duplicates, not packets sent twice. */
  repeatedFrames: number;
  /** Request packets that were overtaken by packets sent after them; and the most PSNs that one was overtaken by. */
  late: number;
  mostOvertaken: number;
  /** Packets with a wrong ICRC that were acknowledged and never retransmitted: damaged at the tap or behind it. */
  damagedAccepted: number;
  /** PSNs that were skipped in the order seen, and came later or were lost before the tap. */
  gaps: number;
  /** PSNs that were acknowledged but never seen: lost by the capture, not by the network. */
  missedByCapture: number;
  /** ACKs of PSNs that were acknowledged already (ghost ACKs). */
  ghostAcks: number;
  icrcBad: number;
  /** Of these, packets that count as requests and responses all the same: no ICRC of their sender was right until then. */
  icrcTaken: number;
  icrcUnchecked: number;
  ecnCapable: number;
  ecnMarked: number;
  cnps: number;
}

export interface Distribution {
  count: number;
  min: number;
  max: number;
  mean: number;
  p50: number;
  p90: number;
  p99: number;
  p999: number;
}

/** Latencies of the messages of one operation and size class, from the first packet to the completion. */
export interface LatencyClass extends Distribution {
  /** The requester's end. */
  from: 'a' | 'b';
  operation: string;
  /** The class: messages of up to so many bytes; undefined: longer than all others. */
  mostBytes: number | undefined;
}

/** The end of a stall: a retransmission, by its cause; an answer; or a request that is not known to be a retransmission. */
export type StallEnd = RetransmitCause | 'answer' | 'request';

/** A time in which requests were outstanding and nothing happened. */
export interface Stall {
  /** The requester's end. */
  from: 'a' | 'b';
  start: number;
  duration: number;
  /** The frame before it, and the one that ended it. */
  after: number;
  frame: number;
  end: StallEnd;
}

/** A point of the PSN plot. `psn` is unwrapped: it goes on past 2^24. */
export interface PlotPoint {
  time: number;
  psn: number;
  /** The end whose PSNs these are: each end counts its own requests, and the answers to them carry its numbers. */
  requester: 'a' | 'b';
  kind: 'request' | 'retransmission' | 'response' | 'ack' | 'nak' | 'rnr' | 'cnp' | 'marked';
  frame: number;
  /** Of a retransmission. */
  cause?: RetransmitCause;
}

/** A point of the latency plot: a message, at the time of its completion. */
export interface LatencyPoint {
  time: number;
  /** Of the message: `Message.latency` and `Message.ackRoundTrip`. */
  nanoseconds: number;
  ackRoundTrip: number | undefined;
  message: number;
  operation: string;
}

/** Where the packets of a direction were seen, and how they were marked for the network. */
export interface DirectionPath {
  /** Of the innermost tag; −1: no tag. */
  vlan: number;
  tunnel: Tunnel;
  /** VNI of VXLAN and Geneve, key of GRE, session of ERSPAN, innermost label of MPLS; −1: none. */
  vni: number;
  /** `RocePacket.network`. */
  network: number;
  /** Packets by DSCP, priority and TTL; 16 combinations at most, of more the last has the rest. */
  classes: TrafficClass[];
  ecn: EcnCounts;
}

/** A connection as the capture shows it, before it is judged. */
export interface ConnectionFacts {
  /** From 1, in the order in which connections became known: when paired, or at the end if they never were. */
  id: number;
  transport: Transport;
  /** `a` sent the first request seen (or is the receiver of the first response). */
  a: Endpoint;
  b: Endpoint;
  pairing: Pairing;
  /** The evidence of the pairing, as a sentence. */
  pairingReason: string;
  /** Inferred from the packets; undefined if no packet was long enough. */
  pathMtu: number | undefined;
  start: number;
  end: number;
  firstFrame: number;
  lastFrame: number;
  aToB: DirectionCounts;
  bToA: DirectionCounts;
  /** Where the packets of each direction were seen; undefined if there were none. */
  paths: { aToB: DirectionPath | undefined; bToA: DirectionPath | undefined };
  /** Messages whose requester is `a`, and `b`. */
  messagesFromA: MessageCounts;
  messagesFromB: MessageCounts;
  /** Time from the first packet of a message to its completion: the ACK that covers it, or its last response. */
  completion: Distribution | undefined;
  /** The same by operation and size. */
  latencyClasses: LatencyClass[];
  /** Time from the last packet of a message to the ACK that covers it. */
  ackRoundTrip: Distribution | undefined;
  /** Time from a READ or atomic request to its last response. */
  readRoundTrip: Distribution | undefined;
  /** Time from the first CE mark to the first CNP after it. */
  cnpDelay: Distribution | undefined;
  /** Waits after RNR NAKs until the request came again. */
  rnrWait: Distribution | undefined;
  /** Thinned to a few thousand points; first and last, NAKs and retransmissions are kept first. */
  plot: PlotPoint[];
  /**
   * Payload bytes in each of at most some hundred equal spans of `span` nanoseconds, from `start` on; and those of retransmitted
   * requests alone, empty without any: the difference is the goodput.
   */
  throughput: {
    start: number;
    span: number;
    aToB: number[];
    bToA: number[];
    againAToB: number[];
    againBToA: number[];
  };
  /** Latency of messages over time, thinned. */
  latency: LatencyPoint[];
  /** The first of the message list, and those around findings; the rest goes to the callback only. */
  messages: Message[];
  /** Go-back-N events: the first some hundred. */
  recoveries: Recovery[];
  /** The longest stalls, longest first. */
  stalls: Stall[];
  /** Packets for the ladder: the first some hundred and those around findings. */
  ladder: LadderPacket[];
}

export interface MessageCounts {
  total: number;
  completed: number;
  /** Of UC and UD. */
  seenWhole: number;
  failed: number;
  incomplete: number;
  /** Of messages that were completed, or seen whole. */
  bytes: number;
  byOperation: Record<string, number>;
}

export type MessageOutcome =
  /** Acknowledged or answered. */
  | 'completed'
  /** UC and UD: all of it was captured. No packet shows whether the receiver took it. */
  | 'seen-whole'
  /** Ended by a NAK that ends a queue pair, or by retries that stopped. */
  | 'failed'
  /** The capture begins or ends inside, packets are missing, or it does not show the answers. */
  | 'incomplete';

export interface Message {
  /** From 1 in its connection. */
  id: number;
  connection: number;
  /** The requester's end. */
  from: 'a' | 'b';
  /** `SEND`, `SEND_WITH_IMM`, `SEND_WITH_INV`, `RDMA_WRITE`, `RDMA_WRITE_WITH_IMM`, `RDMA_READ`, `CMP_SWAP`, `FETCH_ADD`. */
  operation: string;
  /** Bytes of payload; of a READ, as asked. Undefined if the capture does not show it. */
  bytes: number | undefined;
  firstPsn: number;
  lastPsn: number;
  packets: number;
  retransmitted: number;
  firstFrame: number;
  lastFrame: number;
  start: number;
  /** Last request packet. */
  end: number;
  /** From `start` to the completion: the ACK or the last response; undefined if there was none. */
  latency: number | undefined;
  /** From `end` to the ACK or last response; undefined if there was none. */
  ackRoundTrip: number | undefined;
  outcome: MessageOutcome;
  failure: MessageFailure | undefined;
}

export interface LadderPacket {
  frame: number;
  part: number;
  time: number;
  /** Which end it came from. */
  from: 'a' | 'b';
  opcode: number;
  opcodeName: string;
  psn: number;
  destQp: number;
  payloadLength: number;
  ackReq: boolean;
  /** `ACK`, `NAK PSN sequence error`, `RNR NAK 0.01 ms` …; with MSN and credits. */
  aeth: { text: string; syndrome: number; msn: number; credits: number | undefined } | undefined;
  reth: { va: string; rkey: number; length: number } | undefined;
  immediate: number | undefined;
  retransmission: RetransmitCause | undefined;
  /** How sure that cause is; undefined if it is no retransmission. */
  grade: Grade | undefined;
  /** The frame that shows the cause. */
  evidence: number | undefined;
  repeatedFrame: boolean;
  icrc: 'ok' | 'bad' | 'none';
  ecnMarked: boolean;
  /** Message it belongs to, if known. */
  message: number | undefined;
  /** Up to some hundred bytes of the packet from the BTH on, for a look at the fields. */
  bytes: string;
}

export type Severity = 'error' | 'warning' | 'note';

/** How sure a verdict is: the capture excludes everything else, the evidence speaks for it, or it does not carry a verdict. */
export type Certainty = 'certain' | 'likely' | 'not-known';

/** One event of the chain that proves a verdict. */
export interface ChainEvent {
  /** Undefined: no packet stands behind it. */
  frame: number | undefined;
  text: string;
}

/** How a connection came to its end, as far as the capture shows. */
export interface ConnectionEnd {
  /** The end that ended it; undefined: not shown. */
  by: 'a' | 'b' | undefined;
  how: 'disconnected' | 'refused' | 'gave-up';
  frame: number;
}

/** A finding of a kind. */
export interface FindingOf<Kind extends string> {
  kind: Kind;
  severity: Severity;
  /** Undefined: of the capture as a whole. */
  connection: number | undefined;
  /** The end whose packets it is about; undefined: of neither, or of both. */
  from: 'a' | 'b' | undefined;
  /** The connection and its direction, with addresses: `#1 10.0.0.1 QP 0x12 → 10.0.0.2 QP 0x11`. */
  subject: string | undefined;
  /** One sentence with numbers and a time, without addresses. */
  statement: string;
  /** The subject, if any, and the statement. */
  text: string;
  /** A hint what to check. */
  hint: string;
  /** Time of the first, and of the last thing it speaks of. */
  start: number;
  end: number;
  /** The packets behind it; at most some hundred, `frameCount` is all. */
  frames: number[];
  frameCount: number;
  /** The verdict of the connection, or of the capture, covers it. */
  isExplained?: true;
  /** Of a group: the findings of the same kind about single connections, worst first. */
  members?: FindingOf<Kind>[];
}
