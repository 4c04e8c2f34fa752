/** The responder of a reliable connection (IBTA vol 1 §9.7.4, §9.7.5). */
import { bthAckReq, NakCode, psnAdd, rethLength } from '@node-roce/wire';
import type { TxBatch } from '../batch.ts';
import { Access, QpStateCode } from '../constants.ts';
import type { Context } from '../context.ts';
import type { InboundPacket } from '../inbound.ts';
import type { Owner } from '../qp/owner.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import {
  checkPsn,
  checkReliable,
  findRange,
  nakOf,
  type ReliableParts,
  statusOf,
  Verdict,
} from './checks.ts';
import { AtomicResult, executeSend, executeWrite } from './execute.ts';
import { InboundMessage } from './message.ts';
import { RemoteTarget } from './remote-target.ts';
import { ReplyQueue } from './replies.ts';
import { ReplyPackets } from './reply-packets.ts';
import { ResponderResources } from './resources.ts';
import type { Responder } from './responder.ts';

/** RNR NAK syndrome: 001 and the timer code. */
const RNR_NAK = 0x20;

/**
 * Owns the expected PSN, the MSN, and whether a NAK is out; and through its parts the message that arrives,
 * the replies owed, and the READs and atomics remembered.
 *
 * Invariants: those of its parts; PSN and MSN have 24 bits; a message is under way only in a state that
 * receives; a SEND is under way exactly while it has a receive in use.
 */
export class RcResponder implements Responder {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #receives: ReceiveQueue;
  readonly #parts: ReliableParts;
  readonly #message = new InboundMessage();
  readonly #target = new RemoteTarget();
  readonly #replies = new ReplyQueue();
  readonly #resources = new ResponderResources();
  readonly #atomic = new AtomicResult();
  readonly #packets: ReplyPackets;
  #expectedPsn = 0;
  #msn = 0;
  /** A NAK for the expected PSN was sent: silence until that packet comes (§9.7.5.2.8). */
  #nakSent = false;
  /** Most resources since RESET: what waits was accepted with them. */
  #mostResources = 0;

  constructor(context: Context, owner: Owner, receives: ReceiveQueue) {
    this.#context = context;
    this.#owner = owner;
    this.#receives = receives;
    this.#packets = new ReplyPackets(owner, this.#replies, receives);
    this.#parts = {
      context,
      owner,
      message: this.#message,
      receives,
      target: this.#target,
      replies: this.#replies,
    };
  }

  get expectedPsn(): number {
    return this.#expectedPsn;
  }

  get resources(): number {
    return this.#resources.capacity;
  }

  get owed(): number {
    return this.#replies.count;
  }

  start(psn: number): void {
    this.#expectedPsn = psn;
  }

  setResources(resources: number): void {
    this.#resources.resize(resources);
    this.#mostResources = Math.max(this.#mostResources, resources);
  }

  receive(packet: InboundPacket): void {
    const { psn } = packet;
    const order = checkPsn(psn, this.#expectedPsn);
    if (order === Verdict.DUPLICATE) {
      this.#answerDuplicate(packet);
      return;
    }
    if (order === Verdict.EARLY) {
      this.#owner.counters.outOfSeqRequest++;
      if (!this.#nakSent) this.#nak(this.#expectedPsn, NakCode.PSN_SEQUENCE_ERROR);
      return;
    }
    if (this.#nakSent) {
      this.#nakSent = false;
      this.#replies.dropNak();
    }
    const verdict = checkReliable(this.#parts, packet) || this.#execute(packet);
    if (verdict === Verdict.PASS) return;
    if (verdict === Verdict.NO_RECEIVE) {
      this.#nak(psn, RNR_NAK | this.#owner.attributes.minRnrTimer);
    } else this.#fail(psn, verdict);
  }

  transmit(batch: TxBatch, budget: number, reads: boolean): number {
    let sent = this.#packets.transmit(batch, budget, reads);
    if (this.#packets.readGone) {
      this.#failRead();
      sent += this.#packets.transmit(batch, budget - sent, reads);
    }
    return sent;
  }

  stop(): void {
    this.#message.end();
    if (!this.#replies.dying) this.#replies.dropFromFirstRead();
    if (this.owed > 0) this.#owner.wantsReplyTurn();
  }

  reset(): void {
    this.#message.end();
    this.#replies.clear();
    this.#resources.resize(0);
    this.#mostResources = 0;
    this.#expectedPsn = 0;
    this.#msn = 0;
    this.#nakSent = false;
  }

  check(): string | undefined {
    const { state } = this.#owner;
    const receives = this.#receives;
    const receiving = state !== QpStateCode.RESET && state !== QpStateCode.INIT && state !== QpStateCode.ERR;
    return (
      this.#message.fault ??
      this.#replies.fault(this.#mostResources) ??
      this.#resources.fault(this.#expectedPsn) ??
      (this.#expectedPsn >>> 24 !== 0 || this.#msn >>> 24 !== 0
        ? 'a PSN or MSN of more than 24 bits'
        : undefined) ??
      (this.#message.underWay && !receiving ? 'a message is under way' : undefined) ??
      (receives.inUse !== this.#message.sending
        ? 'the receive in use and the SEND under way do not agree'
        : undefined)
    );
  }

  /** A request that passed its checks. */
  #execute(packet: InboundPacket): number {
    const { info } = packet;
    if (info.isReadRequest) return this.#executeRead(packet);
    if (info.isAtomic) return this.#executeAtomic(packet);
    const fault = info.isSend ? executeSend(this.#parts, packet) : executeWrite(this.#parts, packet);
    if (fault !== Verdict.PASS) return fault;
    // The completion queue had no room: the message is not delivered, and the queue pair is at its end.
    if (this.#owner.state === QpStateCode.ERR) return Verdict.PASS;
    this.#advance(1);
    if (info.last) this.#countMessage();
    if (bthAckReq(packet.slab, packet.at) !== 0) {
      this.#replies.acknowledge(packet.psn, this.#msn);
      this.#owner.wantsReplyTurn();
    }
    return Verdict.PASS;
  }

  #executeRead(packet: InboundPacket): number {
    const { info, slab, at, psn } = packet;
    const length = rethLength(slab, at + info.offsets.reth);
    const packets = this.#responses(length);
    this.#advance(packets);
    this.#resources.rememberRead(packet, packets);
    this.#countMessage();
    this.#owner.counters.readRequests++;
    this.#replies.pushRead(psn, this.#msn, this.#target, length, packets, false);
    this.#owner.wantsReplyTurn();
    return Verdict.PASS;
  }

  #executeAtomic(packet: InboundPacket): number {
    const result = this.#atomic;
    result.execute(this.#context, this.#target, packet);
    this.#advance(1);
    this.#resources.rememberAtomic(packet, result.high, result.low);
    this.#countMessage();
    this.#owner.counters.atomicRequests++;
    this.#replies.pushAtomic(packet.psn, this.#msn, result.high, result.low, false);
    this.#owner.wantsReplyTurn();
    return Verdict.PASS;
  }

  /** The expected PSN moves on. */
  #advance(packets: number): void {
    const from = this.#expectedPsn;
    const to = psnAdd(from, packets);
    if (packets === 1) this.#resources.moves(from, to);
    else this.#resources.expire(from, packets);
    this.#expectedPsn = to;
  }

  /** MSN: one more for each message; for a READ or atomic when it is accepted (§9.7.7.1). */
  #countMessage(): void {
    this.#msn = psnAdd(this.#msn, 1);
    this.#owner.counters.receivedMessages++;
  }

  /**
   * A request that was executed before (§9.7.5.1.2): SEND and WRITE are acknowledged again, a READ is
   * read again, an atomic is answered with the result it had. What is not remembered is dropped.
   */
  #answerDuplicate(packet: InboundPacket): void {
    const { info, psn } = packet;
    this.#owner.counters.duplicateRequest++;
    if (info.isSend || info.isWrite) {
      const last = this.#resources.acknowledgeable(psn, psnAdd(this.#expectedPsn, -1));
      this.#replies.acknowledge(last, this.#msn);
    } else {
      const found = this.#resources.find(psn, this.#expectedPsn);
      if (found < 0) return;
      if (info.isReadRequest) this.#repeatRead(packet, found);
      else if (info.isAtomic) this.#repeatAtomic(packet, found);
    }
    if (this.owed > 0) this.#owner.wantsReplyTurn();
  }

  #repeatAtomic({ info, psn }: InboundPacket, found: number): void {
    if (!this.#resources.had(found, info.opcode) || this.#replies.answersAtomic(psn)) return;
    if (this.#replies.duplicates >= this.resources) return;
    const high = this.#resources.valueHigh(found);
    this.#replies.pushAtomic(psn, this.#msn, high, this.#resources.valueLow(found), true);
  }

  /** A duplicate READ asks for the original, or for its rest from some response on. */
  #repeatRead(packet: InboundPacket, found: number): void {
    const { info, slab, at, psn } = packet;
    const { pathMtu } = this.#owner.attributes;
    if (!this.#resources.had(found, info.opcode) || !this.#resources.covers(found, packet, pathMtu)) return;
    const length = rethLength(slab, at + info.offsets.reth);
    const packets = this.#responses(length);
    if (this.#replies.resumesRead(psn, packets, pathMtu)) return;
    if (this.#replies.duplicates >= this.resources) return;
    if (!findRange(this.#parts, packet, Access.REMOTE_READ)) {
      // A receive in use belongs to another message, which has no fault of its own: it is flushed (§11.6.2).
      this.#replies.pushNak(psn, this.#msn, NakCode.REMOTE_ACCESS_ERROR);
      this.#end(NakCode.REMOTE_ACCESS_ERROR);
      return;
    }
    this.#replies.pushRead(psn, this.#msn, this.#target, length, packets, true);
  }

  #responses(length: number): number {
    return Math.max(1, Math.ceil(length / this.#owner.attributes.pathMtu));
  }

  /** A NAK that leaves the connection up: sequence error or receiver not ready. */
  #nak(psn: number, syndrome: number): void {
    this.#nakSent = true;
    this.#replies.pushNak(psn, this.#msn, syndrome);
    this.#owner.wantsReplyTurn();
  }

  /**
   * A NAK that ends the connection: the receive in use completes with the fault's status, the queue pair goes
   * to ERR, and an event says why (IBTA vol 1 §9.9.3, table 61).
   */
  #fail(psn: number, verdict: number): void {
    this.#replies.pushNak(psn, this.#msn, nakOf(verdict));
    if (this.#receives.inUse) this.#receives.fail(statusOf(verdict));
    this.#end(nakOf(verdict));
  }

  /**
   * The memory that the READ at the head reads is gone: a NAK takes its place, and that of all behind it. That ends the
   * connection, unless it has ended already and these are its last replies.
   */
  #failRead(): void {
    const psn = psnAdd(this.#replies.psn, this.#replies.sent);
    this.#replies.clear();
    this.#replies.pushNak(psn, this.#msn, NakCode.REMOTE_ACCESS_ERROR);
    const { state } = this.#owner;
    if (state !== QpStateCode.ERR && state !== QpStateCode.RESET) this.#end(NakCode.REMOTE_ACCESS_ERROR);
  }

  #end(code: number): void {
    const { qpn, counters } = this.#owner;
    this.#owner.toError();
    if (code === NakCode.REMOTE_ACCESS_ERROR) {
      counters.sentAccessErr++;
      this.#context.event({ type: 'QP_ACCESS_ERR', qpn });
    } else if (code === NakCode.INVALID_REQUEST) {
      counters.sentInvalidRequest++;
      this.#context.event({ type: 'QP_REQ_ERR', qpn });
    } else counters.sentOperationalErr++;
  }
}
