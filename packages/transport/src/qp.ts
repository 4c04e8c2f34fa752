/**
 * A queue pair: its attributes, its two rings and the state of its requester.
 * Fields only; what is done with them is in requester.ts and completer.ts. The responder owns its own.
 */
import { Transport } from '@node-roce/wire';
import type { CompletionQueue } from './completion-queue.ts';
import { QP_STATES, type QpState, QpStateCode, type QpType, type RetransmitCause } from './constants.ts';
import type { AhAttr, QpCap } from './control.ts';
import { QpCounters } from './counters.ts';
import type { ReceiveQueue } from './qp/receive-queue.ts';
import type { Responder } from './responder/responder.ts';
import { createRing, Ring, recvStride, sendStride } from './rings.ts';
import type { SharedReceiveQueue } from './srq.ts';

/** The parts of a queue pair that own their state. */
export interface QueuePairParts {
  readonly receives: ReceiveQueue;
  readonly responder: Responder;
}

export class QueuePair {
  readonly qpn: number;
  readonly type: QpType;
  readonly pd: number;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  readonly cap: QpCap;
  readonly sqSigAll: boolean;
  readonly srq: SharedReceiveQueue | undefined;
  /** RC: acknowledged, retried, closed by a NAK. UC and UD are none of this. */
  readonly reliable: boolean;
  /** UD and GSI: each message is one packet to an address of its own. */
  readonly datagram: boolean;
  /** The high bits of the opcodes it sends and takes: a `Transport`. */
  readonly transport: number;
  readonly sq: Ring;
  /** With an SRQ: the entry in use, if there is one; else what is posted. */
  readonly rq: Ring;
  readonly receives: ReceiveQueue;
  readonly responder: Responder;
  /** Index of the send ring's memory in the region table: where inline data is sent from. */
  readonly sqRegion: number;
  readonly counters = new QpCounters();

  /** `QpStateCode`. */
  state: number = QpStateCode.RESET;
  destroyed = false;

  // Attributes, as modify set them.
  pkeyIndex = 0;
  portNum = 1;
  access = 0;
  qkey = 0;
  ah: AhAttr | undefined;
  destQpn = 0;
  pathMtu = 256;
  timeout = 0;
  retryCnt = 0;
  rnrRetry = 0;
  minRnrTimer = 0;
  maxRdAtomic = 0;
  maxDestRdAtomic = 0;
  rateLimit = 0;
  notifyDrained = false;

  // What the address vector comes to.
  peer = -1;
  /** The peer's GID as words in the machine's byte order. */
  readonly source = new Uint32Array(4);
  local = 0;
  trafficClass = 0;
  sourcePort = 0;

  // Requester. Indices are free-running counts of the send ring's entries.
  /** First PSN of each entry that was started, and how many PSNs it takes; by ring position. */
  readonly wqePsn: Int32Array;
  readonly wqePackets: Int32Array;
  /** Oldest entry that is not complete. */
  sqHead = 0;
  /** Entry that the next packet belongs to, and that packet's number in it. */
  sqCursor = 0;
  cursorPacket = 0;
  /** One past the last entry that has PSNs. */
  sqStarted = 0;
  /** Next PSN never sent (`sq_psn`). */
  sendPsn = 0;
  /** Oldest PSN not acknowledged. */
  unackedPsn = 0;
  /** PSN that the cursor stands at. */
  cursorPsn = 0;
  /** Why the cursor was last put back. */
  retransmitCause: RetransmitCause = 'timeout';
  /** Where the cursor stands in the gather list. */
  gatherSge = 0;
  gatherOffset = 0;
  /** The last started entry that is a READ or atomic: a fence waits until it is done. */
  lastResponded = -1;
  /** READ and atomic requests out, by the last PSN that each will be answered with; a ring. */
  readonly rdEnds = new Int32Array(128);
  rdHead = 0;
  rdCount = 0;
  /** READ responses out; what each takes of the device's receive budget; responses that a request asks for. */
  readPackets = 0;
  readCharge = 0;
  readChunk = 1;
  /** Entry that can't be sent, and the status to complete it with once all before it are done. */
  failedIndex = 0;
  failedStatus = 0;
  retriesLeft = 0;
  rnrRetriesLeft = 0;
  /** Virtual times in µs; Infinity: not running. */
  retryDeadline = Number.POSITIVE_INFINITY;
  probeDeadline = Number.POSITIVE_INFINITY;
  rnrDeadline = Number.POSITIVE_INFINITY;
  paceDeadline = Number.POSITIVE_INFINITY;
  /** The oldest packet is to go once more, for an answer; the PSN that went so last; −1: none. */
  probing = false;
  probePsn = -1;
  /** The response in hand acknowledged something. */
  progressed = false;
  /** Doublings of the probe interval since the last progress. */
  probeBackoff = 0;
  /** Smoothed round trip and its deviation, µs; 0 before the first sample. */
  roundTrip = 0;
  roundTripDeviation = 0;
  /** The packet that is timed, and when it left; −1: none. */
  timedPsn = -1;
  timedAt = 0;
  /** Packets that may be out, and where growth turns from doubling to linear. */
  window = 0;
  windowThreshold = 0;
  windowCredit = 0;
  /** PSN up to which a loss has been reacted to: one reaction per window. */
  recoveryPsn = -1;
  /** `unackedPsn` at which the last implied NAK was taken; −1: none. */
  impliedNakPsn = -1;
  /** Packets since the last AckReq. */
  sinceAckReq = 0;
  /** Message sequence numbers of requests: last given, and the last that credits allow (§9.7.7.2). */
  sendSsn = 0;
  creditLimit = 0;
  creditLimited = true;
  /** SQD: everything that was started is done. */
  drained = false;

  established = false;

  /** Scheduler: in the queue of those that have something to send. */
  active = false;
  /** UC, UD: packets are in a batch that the link has not taken. */
  unconfirmed = false;
  /** rate_limit: when the next packet may leave, µs. */
  paceNext = 0;
  /** Position in the deadline heap, −1: not there; and the deadline it was put there with. */
  heapIndex = -1;
  heapDeadline = Number.POSITIVE_INFINITY;

  constructor(
    qpn: number,
    type: QpType,
    pd: number,
    sendCq: CompletionQueue,
    recvCq: CompletionQueue,
    cap: QpCap,
    sqSigAll: boolean,
    srq: SharedReceiveQueue | undefined,
    addRegion: (view: Uint8Array) => number,
    createParts: (qp: QueuePair) => QueuePairParts,
  ) {
    this.qpn = qpn;
    this.type = type;
    this.pd = pd;
    this.sendCq = sendCq;
    this.recvCq = recvCq;
    this.sqSigAll = sqSigAll;
    const sendShape = createRing(cap.maxSendWr, sendStride(cap.maxSendSge, cap.maxInlineData));
    this.srq = srq;
    this.reliable = type === 'RC';
    this.datagram = type === 'UD' || type === 'GSI';
    this.transport = this.datagram ? Transport.UD : Transport[type as 'RC' | 'UC'];
    const recvShape = createRing(srq ? 1 : cap.maxRecvWr, recvStride(srq?.maxSge ?? cap.maxRecvSge));
    this.sq = new Ring(sendShape);
    this.rq = new Ring(recvShape);
    this.sqRegion = addRegion(this.sq.bytes);
    this.cap = {
      ...cap,
      maxSendWr: sendShape.capacity,
      maxRecvWr: srq ? 0 : recvShape.capacity,
    };
    this.wqePsn = new Int32Array(sendShape.capacity);
    this.wqePackets = new Int32Array(sendShape.capacity);
    ({ receives: this.receives, responder: this.responder } = createParts(this));
  }

  get stateName(): QpState {
    return QP_STATES[this.state];
  }

  /** The earliest of the timers that run. */
  get deadline(): number {
    return Math.min(this.retryDeadline, this.probeDeadline, this.rnrDeadline, this.paceDeadline);
  }

  /** Changes the state and shows it to the threads that post. */
  setState(state: number): void {
    this.state = state;
    this.sq.state = state;
    this.rq.state = state;
  }
}
