/** The responder of a reliable connection, and of an XRC target queue pair (IBTA vol 1 §9.7.4, §9.7.5, annex A14). */
import { bthAckReq, NakCode, Opcode, psnAdd, psnDiff, rethLength } from '@node-roce/wire';
import type { TxBatch } from '../batch.ts';
import { Access, QpStateCode } from '../constants.ts';
import type { Context } from '../context.ts';
import type { InboundPacket } from '../inbound.ts';
import type { Owner } from '../qp/owner.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import type { XrcDomain } from '../xrc/domain.ts';
import { XrcTarget } from '../xrc/target.ts';
import { checkPsn, checkReliable, nakOf, type ReliableParts, statusOf, Verdict } from './checks.ts';
import { Answered, Duplicates, responsesOf } from './duplicates.ts';
import { EarlyPackets } from './early-packets.ts';
import { EarlyPages } from './early-pages.ts';
import { endConnection } from './ends.ts';
import { AtomicResult, executeAtomicWrite, executeSend, executeWrite } from './execute.ts';
import { InboundMessage } from './message.ts';
import { NO_TARGET, RemoteTarget } from './remote-target.ts';
import { ReplyQueue } from './replies.ts';
import { ReplyPackets } from './reply-packets.ts';
import { ResponderResources, resourcesFor } from './resources.ts';
import type { Responder } from './responder.ts';

/** That of the request at hand. */
const ATOMIC_RESULT = new AtomicResult();
/** No packet came early. */
const NO_EARLY = new EarlyPackets(new EarlyPages(0));
/** SENDs and WRITEs that a requester has in flight, packets: twice the widest window of ours. */
const IN_FLIGHT_MAX = 1024;
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
  readonly #target: RemoteTarget;
  readonly #replies = new ReplyQueue();
  readonly #resources = new ResponderResources();
  readonly #packets: ReplyPackets;
  readonly #duplicates: Duplicates;
  /** Its own with the first packet that comes early. */
  #early = NO_EARLY;
  /** XRC: which SRQ requests are for. */
  readonly #xrc: XrcTarget | undefined;
  #expectedPsn = 0;
  #msn = 0;
  /** A NAK for the expected PSN was sent: silence until that packet comes (§9.7.5.2.8). */
  #nakSent = false;
  /** It was an RNR NAK. */
  #rnrSent = false;
  /** The packet that the last NAK asked for has come; and another one since, of those kept: the requester sends again. */
  #gapFilled = false;
  #sentAgain = false;
  /** Most resources since RESET: what waits was accepted with them. */
  #mostResources = 0;

  /** @param domain of an XRC target queue pair */
  constructor(context: Context, owner: Owner, receives: ReceiveQueue, domain?: XrcDomain) {
    this.#context = context;
    this.#target = new RemoteTarget(owner.pd);
    this.#owner = owner;
    this.#receives = receives;
    this.#packets = new ReplyPackets(owner, this.#replies, receives, context.regions);
    this.#parts = {
      context,
      owner,
      message: this.#message,
      receives,
      target: this.#target,
      replies: this.#replies,
    };
    this.#duplicates = new Duplicates(this.#parts, this.#resources);
    this.#xrc = domain && new XrcTarget(domain, this.#parts);
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

  /** Of READs and atomics that were executed it is known which ones the peer may repeat; of others, they are at most as many as it has in flight. */
  awaits({ info, psn }: InboundPacket): boolean {
    const behind = psnDiff(this.#expectedPsn, psn);
    if (behind <= 0) return behind === 0;
    return info.isSend || info.isWrite
      ? behind <= IN_FLIGHT_MAX
      : this.#resources.find(psn, this.#expectedPsn) >= 0;
  }

  start(psn: number): void {
    this.#early.clear();
    this.#expectedPsn = psn;
  }

  setResources(depth: number): void {
    const resources = resourcesFor(depth);
    this.#resources.resize(resources);
    this.#mostResources = Math.max(this.#mostResources, resources);
  }

  receive(packet: InboundPacket): void {
    const { psn } = packet;
    if (psn === this.#expectedPsn && this.#acceptWhole(packet)) return;
    const order = checkPsn(psn, this.#expectedPsn);
    if (order === Verdict.DUPLICATE) {
      this.#answerDuplicate(packet);
      return;
    }
    if (order === Verdict.EARLY) {
      this.#receiveEarly(packet);
      return;
    }
    this.#accept(packet);
    if (this.#early.count === 0) return;
    // A kept packet came again: the missing ones are being retransmitted.
    if (this.#early.has(psn)) this.#sentAgain = true;
    this.#early.forget(psn);
    this.#gapFilled = true;
    if (this.#owner.keepEarly === 'ahead') this.#catchUp(this.#early.highest);
  }

  /**
   * Does all that `#accept` does for the expected packet, in one step, where that is a SEND of one packet and nothing is unusual.
   * Otherwise it returns false without any effect, and `#accept` finds the reason. Excluded: immediate data, an invalidation and XRC
   * (other opcodes), a NAK that is out, early packets, a message under way, a payload beyond the path MTU; and the receives that
   * `takeWhole` excludes.
   */
  #acceptWhole(packet: InboundPacket): boolean {
    if (packet.info.opcode !== Opcode.RC_SEND_ONLY || this.#nakSent) return false;
    if (this.#message.underWay || this.#early.count > 0) return false;
    if (packet.payload > this.#owner.attributes.pathMtu || !this.#receives.takeWhole(packet)) return false;
    this.#executed(packet);
    return true;
  }

  /**
   * SENDs of one packet, as `#acceptWhole`, and the middle of a WRITE, where `writeMiddles` looks at what differs: the place in memory.
   */
  receiveRun(packet: InboundPacket, most: number, step: number): number {
    const { info, payload, psn, slab, at } = packet;
    if (psn !== this.#expectedPsn || this.#nakSent || this.#early.count > 0) return 0;
    const { pathMtu, access } = this.#owner.attributes;
    let count = 0;
    if (info.opcode === Opcode.RC_SEND_ONLY) {
      if (this.#message.underWay || payload > pathMtu) return 0;
      count = this.#receives.takeWholes(packet, most, step);
      this.#msn = psnAdd(this.#msn, count);
      this.#owner.counters.receivedMessages += count;
    } else if (info.opcode === Opcode.RC_RDMA_WRITE_MIDDLE) {
      if (!this.#message.continues(info) || payload !== pathMtu || (access & Access.REMOTE_WRITE) === 0)
        return 0;
      count = this.#message.writeMiddles(this.#context, at + info.headerLength, payload, most, step);
    }
    if (count === 0) return 0;
    this.#expectedPsn = psnAdd(psn, count);
    if (this.#resources.count > 0) this.#resources.moves(psn, this.#expectedPsn);
    if (bthAckReq(slab, at) === 0) return count;
    this.#replies.acknowledge(psnAdd(psn, count - 1), this.#msn);
    this.#owner.wantsReplyTurn();
    return count;
  }

  /** The expected packet: checks, then its effect, then its answer. */
  #accept(packet: InboundPacket): void {
    if (this.#nakSent) {
      this.#nakSent = false;
      this.#replies.dropNak();
    }
    const { psn } = packet;
    const wrong = this.#xrc === undefined ? checkReliable(this.#parts, packet) : this.#xrc.check(packet);
    const verdict = wrong || this.#execute(packet);
    if (verdict === Verdict.PASS) return;
    if (verdict === Verdict.NO_RECEIVE) {
      this.#nak(psn, RNR_NAK | this.#owner.attributes.minRnrTimer);
    } else this.#fail(psn, verdict);
  }

  /** Something before it is missing: one NAK asks for that (§9.7.5.2.8). The packet is kept, if so wanted. */
  #receiveEarly(packet: InboundPacket): void {
    const { psn } = packet;
    const { counters, keepEarly } = this.#owner;
    counters.outOfSeqRequest++;
    if (keepEarly !== 'off') {
      if (this.#early === NO_EARLY) this.#early = new EarlyPackets(this.#context.earlyPages);
      const early = this.#early;
      const again = early.count > 0 && psnDiff(psn, early.highest) <= 0;
      if (!early.has(psn) && early.keep(packet, this.#expectedPsn)) counters.keptPackets++;
      // After an RNR NAK there is silence, as long as there is no receive.
      const isSilent = this.#nakSent && !this.#receives.available();
      if (keepEarly !== 'ahead' && this.#gapFilled && !isSilent) {
        // The packets before a retransmitted one were retransmitted as well: those that did not come are lost.
        if (again) this.#sentAgain = true;
        if (this.#sentAgain) this.#catchUp(psn);
        // A kept packet ended the connection.
        if (this.#owner.state === QpStateCode.ERR) return;
      }
    }
    if (psnDiff(psn, this.#expectedPsn) < 0) {
      // The copy that was executed in its place may have asked for no ACK.
      if (bthAckReq(packet.slab, packet.at) !== 0 && (packet.info.isSend || packet.info.isWrite)) {
        this.#replies.acknowledge(psnAdd(this.#expectedPsn, -1), this.#msn);
        this.#owner.wantsReplyTurn();
      }
      return;
    }
    if (this.#nakSent) {
      // A requester that knows that it is kept hears again what is missing, while packets come: the NAK may be lost.
      // After an RNR NAK it waits as it was asked to.
      const repeats = keepEarly === 'ahead' && !this.#rnrSent && bthAckReq(packet.slab, packet.at) !== 0;
      if (repeats && this.owed === 0) this.#nak(this.#expectedPsn, NakCode.PSN_SEQUENCE_ERROR);
      return;
    }
    this.#gapFilled = this.#sentAgain = false;
    this.#nak(this.#expectedPsn, NakCode.PSN_SEQUENCE_ERROR);
  }

  /** Executes the kept packets, up to `last` or to the next gap. */
  #catchUp(last: number): void {
    const early = this.#early;
    const context = this.#context;
    let message = false;
    let slab: Uint8Array | undefined;
    while (psnDiff(this.#expectedPsn, last) <= 0 && early.has(this.#expectedPsn)) {
      const psn = this.#expectedPsn;
      const packet = early.packet(psn);
      const before = context.switchSlab(packet.slab);
      slab ??= before;
      message = packet.info.isSend || packet.info.isWrite;
      this.#accept(packet);
      // RNR, or the end of the connection.
      if (this.#expectedPsn === psn) break;
      early.forget(psn);
    }
    if (slab !== undefined) context.switchSlab(slab);
    if (early.count === 0) this.#gapFilled = this.#sentAgain = false;
    if (this.#nakSent || this.#owner.state === QpStateCode.ERR || slab === undefined) return;
    if (this.#owner.keepEarly !== 'ahead') return;
    if (early.count > 0) this.#nak(this.#expectedPsn, NakCode.PSN_SEQUENCE_ERROR);
    else if (message) {
      this.#replies.acknowledge(psnAdd(this.#expectedPsn, -1), this.#msn);
      this.#owner.wantsReplyTurn();
    }
  }

  transmit(batch: TxBatch, budget: number, reads: boolean): number {
    let sent = this.#packets.transmit(batch, budget, reads);
    while (this.#packets.readGone) {
      // A requester that has the first answer may have had the memory closed. One that has not asks again, and is refused at last.
      if (this.#replies.duplicate) this.#replies.shift();
      else this.#failRead();
      sent += this.#packets.transmit(batch, budget - sent, reads);
    }
    return sent;
  }

  stop(): void {
    this.#message.end();
    this.#early.clear();
    if (!this.#replies.dying) this.#replies.dropReads();
    if (this.owed > 0) this.#owner.wantsReplyTurn();
  }

  refuseReads(): void {
    this.#replies.refuseReads(NakCode.REMOTE_OPERATIONAL_ERROR);
  }

  reset(): void {
    this.#message.end();
    this.#early.clear();
    this.#gapFilled = this.#sentAgain = false;
    this.#replies.clear();
    this.#resources.resize(0);
    this.#mostResources = 0;
    this.#expectedPsn = 0;
    this.#msn = 0;
    this.#nakSent = false;
  }

  close(): void {
    this.#xrc?.close();
  }

  check(): string | undefined {
    const { state } = this.#owner;
    const { inUse } = this.#receives;
    const receiving = state !== QpStateCode.RESET && state !== QpStateCode.INIT && state !== QpStateCode.ERR;
    return (
      this.#message.fault ??
      this.#replies.fault(this.#mostResources) ??
      this.#resources.fault(this.#expectedPsn) ??
      this.#early.fault(this.#expectedPsn) ??
      ((this.#expectedPsn | this.#msn) >>> 24 !== 0 ? 'a PSN or MSN of more than 24 bits' : undefined) ??
      (this.#message.underWay && !receiving ? 'a message is under way' : undefined) ??
      (inUse !== this.#message.sending ? 'the receive in use and the SEND under way do not agree' : undefined)
    );
  }

  /** A request that passed its checks. */
  #execute(packet: InboundPacket): number {
    const { info } = packet;
    if (info.isReadRequest) return this.#executeRead(packet);
    if (info.isAtomic) return this.#executeAtomic(packet);
    if (info.isFlush || info.isAtomicWrite) return this.#executePlacement(packet);
    const fault = info.isSend ? executeSend(this.#parts, packet) : executeWrite(this.#parts, packet);
    if (fault === Verdict.PASS) this.#executed(packet);
    return fault;
  }

  /** The SEND or WRITE in the packet had its effect. */
  #executed({ info, slab, at, psn }: InboundPacket): void {
    // The completion queue had no room: the message is not delivered, and the queue pair is at its end.
    if (this.#owner.state === QpStateCode.ERR) return;
    this.#advance(1);
    if (info.last) this.#countMessage();
    if (bthAckReq(slab, at) === 0) return;
    this.#replies.acknowledge(psn, this.#msn);
    this.#owner.wantsReplyTurn();
  }

  #executeRead(packet: InboundPacket): number {
    const { info, slab, at, psn } = packet;
    const length = rethLength(slab, at + info.offsets.reth);
    const packets = responsesOf(length, this.#owner.attributes.pathMtu);
    this.#advance(packets);
    this.#resources.rememberRead(packet, packets);
    this.#countMessage();
    this.#owner.counters.readRequests++;
    this.#replies.pushRead(psn, this.#msn, this.#target, length, packets, false);
    this.#owner.wantsReplyTurn();
    return Verdict.PASS;
  }

  #executeAtomic(packet: InboundPacket): number {
    const result = ATOMIC_RESULT;
    if (!result.execute(this.#context, this.#target, packet)) return Verdict.REMOTE_ACCESS;
    this.#advance(1);
    this.#resources.rememberAtomic(packet, result.high, result.low);
    this.#countMessage();
    this.#owner.counters.atomicRequests++;
    this.#replies.pushAtomic(packet.psn, this.#msn, result.high, result.low, false);
    this.#owner.wantsReplyTurn();
    return Verdict.PASS;
  }

  /**
   * FLUSH and ATOMIC_WRITE (annex A19). Earlier writes are in memory when either is answered: the copies of this batch
   * are done.
   */
  #executePlacement(packet: InboundPacket): number {
    const { owner } = this.#parts;
    this.#context.flushCopies();
    if (packet.info.isAtomicWrite) {
      if (!executeAtomicWrite(this.#context, this.#target, packet)) return Verdict.REMOTE_ACCESS;
      owner.counters.atomicWriteRequests++;
    } else owner.counters.flushRequests++;
    this.#advance(1);
    this.#resources.rememberPlacement(packet);
    this.#countMessage();
    this.#replies.pushRead(packet.psn, this.#msn, NO_TARGET, 0, 1, false);
    owner.wantsReplyTurn();
    return Verdict.PASS;
  }

  /** The expected PSN moves on. */
  #advance(packets: number): void {
    const from = this.#expectedPsn;
    const to = psnAdd(from, packets);
    if (packets > 1) {
      this.#resources.expire(from, packets);
      this.#early.forgetBefore(to, packets - 1);
    } else if (this.#resources.count > 0) this.#resources.moves(from, to);
    this.#expectedPsn = to;
  }

  /** MSN: one more for each message; for a READ or atomic when it is accepted (§9.7.7.1). */
  #countMessage(): void {
    this.#msn = psnAdd(this.#msn, 1);
    this.#owner.counters.receivedMessages++;
  }

  /** A request that was executed before (§9.7.5.1.2). */
  #answerDuplicate(packet: InboundPacket): void {
    this.#owner.counters.duplicateRequest++;
    this.#xrc?.repeat(packet);
    const answered = this.#duplicates.answer(packet, this.#expectedPsn, this.#msn);
    if (answered === Answered.NOT) return;
    if (answered !== Answered.OWED) endConnection(this.#context, this.#owner, answered);
    if (this.owed > 0) this.#owner.wantsReplyTurn();
  }

  /** A NAK that leaves the connection up: sequence error or receiver not ready. */
  #nak(psn: number, syndrome: number): void {
    this.#nakSent = true;
    this.#rnrSent = syndrome !== NakCode.PSN_SEQUENCE_ERROR;
    this.#replies.pushNak(psn, this.#msn, syndrome);
    this.#owner.wantsReplyTurn();
  }

  /**
   * A NAK that ends the connection: the receive in use completes with the fault's status, the queue pair goes
   * to ERR, and an event names the reason (IBTA vol 1 §9.9.3, table 61).
   */
  #fail(psn: number, verdict: number): void {
    this.#replies.pushNak(psn, this.#msn, nakOf(verdict));
    if (this.#receives.inUse) this.#receives.fail(statusOf(verdict));
    endConnection(this.#context, this.#owner, nakOf(verdict), verdict === Verdict.INVALID_XRCETH);
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
    if (state !== QpStateCode.ERR && state !== QpStateCode.RESET)
      endConnection(this.#context, this.#owner, NakCode.REMOTE_ACCESS_ERROR);
  }
}
