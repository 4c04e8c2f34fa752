/** The parameters of calls that open, accept or refuse connections, and their events. All of it is plain data. */
import type { ResidueClass } from '@node-roce/transport';
import type { CmFields } from '@node-roce/wire';
import type { Timing } from './intervals.ts';

/** Where a MAD goes to, or came from. */
export interface Route {
  /** Index of the local GID. */
  sgidIndex: number;
  /** The peer's GID, 16 bytes. */
  gid: Uint8Array;
  trafficClass: number;
  hopLimit: number;
  /** 20 bits. */
  flowLabel: number;
}

/** The queue pair that a side offers. */
export interface Offer {
  qpn: number;
  /** The PSN that it expects to receive first. */
  startingPsn: number;
  /** READs and atomics that it serves at a time, 0 … 255. */
  responderResources: number;
  /** READs and atomics that it wants outstanding, 0 … 255. */
  initiatorDepth: number;
  /** Default 7: for ever. */
  rnrRetryCount?: number;
  srq?: boolean;
  /** Whether ACKs carry credits. */
  endToEndFlowControl?: boolean;
  privateData?: Uint8Array;
}

export interface ConnectInit extends Offer, Timing {
  serviceId: bigint;
  route: Route;
  /** XRC: the queue pair is an initiator; the other side offers a target. */
  transport?: 'RC' | 'UC' | 'XRC';
  /** Default 7. */
  retryCount?: number;
  /** Bytes: 256, 512, 1024, 2048 or 4096. */
  pathMtu: number;
  serviceLevel?: number;
  /** This side's ACK delay, code: with the packet lifetime, it makes the ACK timeout in REQ. */
  ackDelay?: number;
}

export interface AcceptInit extends Offer {
  /** Code; Linux's rxe sends 15. Default 15. */
  targetAckDelay?: number;
}

export interface RejectInit {
  /** One of `CmRejReason`. Default CONSUMER_DEFINED. */
  reason?: number;
  additionalInfo?: Uint8Array;
  privateData?: Uint8Array;
}

/** A path that a connection can go over to. */
export interface AlternatePath {
  route: Route;
  /** Local ACK timeout on it, code. */
  ackTimeout: number;
}

/** A question for the queue pair of a datagram service. */
export interface ResolveInit extends Timing {
  serviceId: bigint;
  route: Route;
  privateData?: Uint8Array;
}

/** The answer to it. */
export interface ResolveAnswer {
  /** One of `CmSidrStatus`. Default SUCCESS. */
  status?: number;
  qpn?: number;
  qkey?: number;
  privateData?: Uint8Array;
}

/** Why a connection or an attempt ended without the peer's word. */
export type EndCause = 'timeout' | 'stale' | 'peer-closed';

/** A REQ came: `accept` or `reject` it. */
export interface RequestEvent {
  type: 'request';
  id: number;
  /** Number of the listener. */
  listener: number;
  route: Route;
  request: CmFields<'REQ'>;
  /** The address in REQ is not the one that REQ came from. */
  translated: boolean;
}

/** A SIDR_REQ came: `answer` it. */
export interface DatagramRequestEvent {
  type: 'datagram-request';
  id: number;
  /** Number of the listener. */
  listener: number;
  route: Route;
  request: CmFields<'SIDR_REQ'>;
}

/** An event of a connection; `id` is the number that the calls take. */
export type CmEvent =
  | RequestEvent
  /** A REP came: bring the queue pair to RTS, then `ready`; or `reject` it. */
  | { type: 'response'; id: number; reply: CmFields<'REP'> }
  /** Both sides are ready: after RTU, or the peer's first packet. */
  | { type: 'established'; id: number }
  | { type: 'rejected'; id: number; reject: CmFields<'REJ'> }
  /** No answer to REQ, REP or SIDR_REQ. */
  | { type: 'unreachable'; id: number }
  /** The connection ends: by the peer (`disconnect` answers it), or because the peer does not answer or forgot it. */
  | { type: 'disconnected'; id: number; cause: EndCause }
  /** Nothing of the connection can arrive any more: `id` and the QPN may be used again. */
  | { type: 'timewait-exit'; id: number }
  /** A LAP came: load the path, and `answerPath`. */
  | { type: 'path-offered'; id: number; path: AlternatePath }
  /** The answer to `loadPath`, one of `CmAprStatus`; without one, the peer did not answer. */
  | { type: 'path-response'; id: number; status: number | undefined }
  | DatagramRequestEvent
  /** The answer to `resolve`. */
  | { type: 'datagram-response'; id: number; route: Route; reply: CmFields<'SIDR_REP'> };

export interface CmHost {
  /** Uniform unsigned 32-bit numbers that nobody can predict. */
  random: () => number;
  /** Names this adapter: no other may have it. */
  caGuid: bigint;
  /** Local addresses by GID index. */
  gids: readonly { gid: Uint8Array }[];
  /** Whether requests for XRC are taken; otherwise they are refused with INVALID_TRANSPORT_TYPE. */
  xrc?: boolean;
  /** Whether alternate paths are shown to the program; otherwise they are refused as UNSUPPORTED. */
  apm?: boolean;
  /** Connections at a time, those in TIMEWAIT not counted: of these, there are as many more. Default 65,536. */
  maxConnections?: number;
  /** The communication ids that it draws; other adapters at its addresses draw the others. */
  numbers?: ResidueClass | undefined;
  /** A service gets a listener: throws EADDRINUSE where another adapter at the address listens to it. */
  claim?(service: bigint): void;
  /** It has none any more. */
  release?(service: bigint): void;
  /** Sends a MAD of 256 bytes; may lose it. The bytes stay as they are. Must not call back. */
  send(mad: Uint8Array, route: Route): void;
  /** Must not call back. */
  event(event: CmEvent): void;
}

/** Numbers of connections and requests that an adapter's connection manager holds at the moment. */
export interface CmSize {
  /** Those in TIMEWAIT included. */
  connections: number;
  /** Requests that wait for the program. */
  pending: number;
  /** Entries of the tables that find connections. */
  keys: number;
  /** Deadlines, and datagram requests under way. */
  timers: number;
}

/** Counts since the start. */
export class CmCounters {
  sent = 0;
  received = 0;
  /** Messages that were retransmitted. */
  retried = 0;
  /** MADs that do not parse, by reason: too short, another class, version or attribute. */
  malformed = 0;
  /** Messages for which the connection, or its state, has no use: late ones and copies. */
  unexpected = 0;
  /** Requests dropped because the listener's backlog, or the table of connections, was full. */
  overflowed = 0;
  /** Answers to messages of nobody's that were left out for their rate. */
  suppressed = 0;
}
