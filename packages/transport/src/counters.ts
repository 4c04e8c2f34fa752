/**
 * Counters of an adapter, by queue pair and for itself. A count only grows; a modify to RESET leaves it. One file adds to
 * each, where that happens which it counts, and no count decides anything: they are public for that. The names that
 * rxe and mlx5 give to the same things are in docs/counters.md.
 */

/** Counts of one queue pair. */
export class QpCounters {
  /** Packets given to the link. */
  sentPackets = 0;
  /** Of them, those that the link could not send. */
  sendErrors = 0;
  /** Packets that passed the adapter's own checks: ICRC, header, P_Key, state, source. */
  receivedPackets = 0;
  /** Of them, those that came with Congestion Experienced (RFC 3168). */
  ecnMarked = 0;
  /** Congestion notification packets (IBTA vol 1 A17.9.3) for the queue pair, from its peer or not; those of them that its rate obeyed; and those that it sent. */
  cnpReceived = 0;
  cnpHandled = 0;
  cnpSent = 0;

  // Requester.
  /** Requests that completed with SUCCESS, signaled or not; and those of them that were SENDs. */
  sentMessages = 0;
  completedSends = 0;
  /** Requests that completed with an error of their own, and those that were flushed. */
  failedSends = 0;
  flushedSends = 0;
  /** Request packets that were retransmitted, for whatever reason. */
  retransmittedPackets = 0;
  /** The local ACK timer ran out. */
  timeouts = 0;
  /** NAKs 0x60 that asked for packets that were not being retransmitted already; and those that a retry was left for. */
  receivedSeqErr = 0;
  sequenceNakRetries = 0;
  /** Responses past one that is missing. */
  impliedNakSeqErr = 0;
  /** RNR NAKs. */
  receivedRnrErr = 0;
  /** Retries taken of `retry_cnt`: for timeouts, NAKs and implied NAKs. */
  retries = 0;
  /** Connections that ended because no retry was left of `retry_cnt`, and of `rnr_retry`. */
  retryExceededErr = 0;
  rnrRetryExceededErr = 0;
  /** A packet was retransmitted for an answer that was overdue by the usual round trip. */
  probes = 0;
  /** NAKs that ended the connection: 0x61, 0x62, 0x63. */
  receivedInvalidRequest = 0;
  receivedAccessErr = 0;
  receivedOperationalErr = 0;

  // Responder.
  /** Messages taken in; and those of them that were SENDs, or WRITEs with immediate data. */
  receivedMessages = 0;
  completedReceives = 0;
  /** Receives that completed with an error of their own, those of them that were too small; and flushed ones. */
  failedReceives = 0;
  shortReceives = 0;
  flushedReceives = 0;
  /** Requests that were executed, each once. */
  writeRequests = 0;
  readRequests = 0;
  atomicRequests = 0;
  flushRequests = 0;
  atomicWriteRequests = 0;
  /** RC: request packets from before the expected PSN, and from beyond it. */
  duplicateRequest = 0;
  outOfSeqRequest = 0;
  /** Of these, the packets that were kept until their turn came. */
  keptPackets = 0;
  /** NAKs sent: RNR, 0x61, 0x62, 0x63. */
  sentRnrErr = 0;
  sentInvalidRequest = 0;
  sentAccessErr = 0;
  sentOperationalErr = 0;
  /** UC: messages lost before their end. */
  droppedMessages = 0;
  /** UC, UD: packets that belong to no message, that break a rule, or that the receive has no room for. */
  droppedPackets = 0;
  /** UC, UD: messages for which no receive was posted. */
  outOfBuffer = 0;
  /** UD: datagrams with a wrong Q_Key. */
  qkeyViolations = 0;
}
export type QpCounterName = keyof QpCounters;
export const QP_COUNTER_NAMES = Object.keys(new QpCounters()) as readonly QpCounterName[];

/** Counts of packets that belonged to no queue pair, and totals over all queue pairs, including destroyed ones. */
export class AdapterCounters {
  /** Packets that the link brought, and that it was given. */
  receivedPackets = 0;
  sentPackets = 0;
  sendErrors = 0;
  /** ICRC wrong; or right only for an IPv4 Identification outside of its flow's window (docs/icrc.md). */
  icrcErrors = 0;
  icrcOutOfWindow = 0;
  /** No RoCE packet: too short, unknown opcode or version, lengths that do not add up. */
  malformed = 0;
  /** For no queue pair, or one of another transport service. */
  unknownQp = 0;
  /** For a queue pair whose state takes none. */
  wrongState = 0;
  /** From another address than the connection's. */
  wrongSource = 0;
  badPkey = 0;
  cnpReceived = 0;
  /** Responses to requests that are not outstanding: ghosts (IBTA vol 1 §9.7.6.1.1). */
  staleResponses = 0;
  /** Broken invariants of the engine itself; each ended a queue pair. Anything but 0 is worth a report. */
  bugs = 0;
}

/** An adapter's own counts, and its queue pairs' added up. */
export type AdapterCounts = AdapterCounters &
  Omit<QpCounters, keyof AdapterCounters> & {
    /** Packets that queue pairs took: their `receivedPackets`. A datagram to a group counts for each member. */
    acceptedPackets: number;
  };

/** Most are 0, and a member looked up by a name that varies is slow: only the others are. */
export function addCounters(to: QpCounters, from: Readonly<QpCounters>): void {
  const counts: number[] = Object.values(from);
  for (let i = 0; i < counts.length; i++) if (counts[i] !== 0) to[QP_COUNTER_NAMES[i]] += counts[i];
}
