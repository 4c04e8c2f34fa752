/**
 * The result of the analysis of a capture. Plain values: what `roce flows --json` prints and the report is drawn
 * from. All times are nanoseconds since the first frame unless a name says otherwise; frames are numbered
 * from 1, as tcpdump and Wireshark do. Sizes are bounded whatever the capture's length: messages and
 * packets go to callbacks while the file is read, series are thinned.
 */
import type { FindingKind, MessageFailure, NakName } from './finding-kinds.ts';

export type Transport = 'RC' | 'UC' | 'UD' | 'RD' | 'XRC' | 'CNP';

/** The cause of a retransmission (docs/capture.md, "How causes are found"). Never guessed: then `unknown`. */
export type RetransmitCause = 'timeout' | 'sequence-nak' | 'implied-nak' | 'rnr' | 'probe' | 'unknown';

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
  packets: number;
  /** Bytes of payload, and of it what was sent more than once. */
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
  /** Go-back-N events: times at which the sender went back. */
  goBacks: number;
  /** Responses to READs and atomics that came again, because their request did. */
  repeatedResponses: number;
  /** Frames that a mirror showed twice: the same packet, not sent twice. */
  repeatedFrames: number;
  /** PSNs that were skipped in the order seen, and came later or were lost before the tap. */
  gaps: number;
  /** PSNs that were acknowledged but never seen: lost by the capture, not by the network. */
  missedByCapture: number;
  /** ACKs of PSNs that were acknowledged already (ghost ACKs). */
  ghostAcks: number;
  icrcBad: number;
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
  p99: number;
}

/** A point of the PSN plot. `psn` is unwrapped: it goes on past 2^24. */
export interface PlotPoint {
  time: number;
  psn: number;
  /** The end whose PSNs these are: each end counts its own requests, and the answers to them carry its numbers. */
  requester: 'a' | 'b';
  kind: 'request' | 'retransmission' | 'response' | 'ack' | 'nak' | 'rnr' | 'cnp' | 'marked';
  frame: number;
}

export interface Connection {
  /** From 1, in the order in which connections became known: when paired, or at the end if they never were. */
  id: number;
  transport: Transport;
  /** `a` sent the first request seen (or is the receiver of the first response). */
  a: Endpoint;
  b: Endpoint;
  pairing: Pairing;
  /** The evidence of the pairing, as a sentence. */
  pairingReason: string;
  /** Inferred from the packets; undefined if nothing was long enough to say. */
  pathMtu: number | undefined;
  start: number;
  end: number;
  firstFrame: number;
  lastFrame: number;
  aToB: DirectionCounts;
  bToA: DirectionCounts;
  /** Messages whose requester is `a`, and `b`. */
  messagesFromA: MessageCounts;
  messagesFromB: MessageCounts;
  /** Time from the last packet of a message to the ACK that covers it. */
  ackLatency: Distribution | undefined;
  /** Time from a READ or atomic request to its last response. */
  readRoundTrip: Distribution | undefined;
  /** Time from the first CE mark to the first CNP after it. */
  cnpDelay: Distribution | undefined;
  /** Waits after RNR NAKs until the request came again. */
  rnrWait: Distribution | undefined;
  /** Thinned to a few thousand points; first and last, NAKs and retransmissions are kept first. */
  plot: PlotPoint[];
  /** Payload bytes in each of at most some hundred equal spans of `span` nanoseconds, from `start` on. */
  throughput: { start: number; span: number; aToB: number[]; bToA: number[] };
  /** Latency of messages over time, thinned. */
  latency: { time: number; nanoseconds: number; message: number }[];
  /** The first of the message list, and those around findings; the rest goes to the callback only. */
  messages: Message[];
  /** Packets for the ladder: the first some hundred and those around findings. */
  ladder: LadderPacket[];
}

export interface MessageCounts {
  total: number;
  completed: number;
  failed: number;
  incomplete: number;
  bytes: number;
  byOperation: Record<string, number>;
}

export type MessageOutcome =
  /** Acknowledged, answered, or (UC, UD) seen whole. */
  | 'completed'
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
  /** From `end` to the ACK or last response; undefined if there was none. */
  latency: number | undefined;
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
  repeatedFrame: boolean;
  icrc: 'ok' | 'bad' | 'none';
  ecnMarked: boolean;
  /** Message it belongs to, if known. */
  message: number | undefined;
  /** Up to some hundred bytes of the packet from the BTH on, for a look at the fields. */
  bytes: string;
}

export type Severity = 'error' | 'warning' | 'note';

export interface Finding {
  kind: FindingKind;
  severity: Severity;
  /** Undefined: of the capture as a whole. */
  connection: number | undefined;
  /** One sentence with numbers and a time. */
  text: string;
  /** A hint what to check. */
  hint: string;
  /** Time of the first, and of the last thing it speaks of. */
  start: number;
  end: number;
  /** The packets behind it; at most some hundred, `frameCount` is all. */
  frames: number[];
  frameCount: number;
}

export interface CaptureSummary {
  /** Absent for a stream without a name. */
  file: string | undefined;
  format: string;
  linkTypes: string[];
  /** UTC of the first frame, ISO 8601 with nanoseconds. */
  startTime: string | undefined;
  duration: number;
  frames: number;
  rocePackets: number;
  otherFrames: number;
  /** RoCE that could not be parsed, by reason. */
  damaged: Record<string, number>;
  /** Frames cut by the snap length. */
  cutFrames: number;
  /** Super-packets that were split, and their packets. */
  superPackets: number;
  icrc: { ok: number; bad: number; none: number };
  /** Drops that the capturing system admits (pcapng interface statistics). */
  droppedByCapture: number | undefined;
  /** The damage that ended the reading before the file's end, if any. */
  damage: string | undefined;
}

export interface Analysis {
  summary: CaptureSummary;
  /** Worst first. */
  findings: Finding[];
  connections: Connection[];
  /** Packets of RoCE that belong to no connection (CNPs without a flow, MADs). */
  unconnected: number;
}
