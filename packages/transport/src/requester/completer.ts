/**
 * The completer of a reliable connection: takes responses, completes send entries, and decides what
 * has to be retransmitted (IBTA vol 1 §9.7.5, §9.7.6; the rules' tests are listed in docs/rules.md).
 */
import {
  AethKind,
  aethKind,
  aethMsn,
  aethSyndrome,
  aethValue,
  atomicAckHigh,
  atomicAckLow,
  BTH_BYTES,
  NakCode,
  Opcode,
  OperationBits,
  psnAdd,
  psnDiff,
  rnrTimerMicroseconds,
} from '@node-roce/wire';
import { Access, QpStateCode, WcStatus } from '../constants.ts';
import { type Context, RUN_MAX } from '../context.ts';
import { SendWqe, Sge } from '../entry-words.ts';
import type { InboundPacket } from '../inbound.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { indexAfter, indexLess } from '../rings.ts';
import { Scattered, scatterResponse } from '../sge.ts';
import { Wire } from '../wr-opcodes.ts';
import type { Requester } from './requester.ts';
import { ANY_ACK } from './round-trip.ts';
import { Timer } from './timers.ts';

/** Keeps nothing of its own. */
export class Completer {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #queue: SendQueue;
  readonly #requester: Requester;

  constructor(context: Context, owner: Owner, queue: SendQueue, requester: Requester) {
    this.#context = context;
    this.#owner = owner;
    this.#queue = queue;
    this.#requester = requester;
  }

  /** Whether a response is to a packet that is out. */
  awaits({ psn }: InboundPacket): boolean {
    const { sendPsn, unackedPsn } = this.#requester;
    return psnDiff(psn, sendPsn) < 0 && psnDiff(psn, unackedPsn) >= 0;
  }

  /** Takes one response. */
  receive(packet: InboundPacket): void {
    const { info, slab, at, psn } = packet;
    const requester = this.#requester;
    const isAck = info.operation === OperationBits.ACKNOWLEDGE;
    // For a PSN that is not out: a ghost, of a request answered before or never sent (§9.7.5.1.1).
    if (!this.awaits(packet)) {
      if (psnDiff(psn, requester.sendPsn) < 0) {
        if (isAck) this.#takeCredits(slab, at + BTH_BYTES);
        if (isAck && aethSyndrome(slab, at + BTH_BYTES) === NakCode.PSN_SEQUENCE_ERROR)
          requester.recovery.nakOvertaken();
        requester.answeredTwice(isAck ? ANY_ACK : psn);
      }
      this.#context.counters.staleResponses++;
      return;
    }
    if (isAck) this.#receiveAck(packet);
    else if (info.operation === OperationBits.ATOMIC_ACKNOWLEDGE) this.#receiveAtomic(packet);
    else this.#receiveRead(packet);
  }

  /**
   * A run of up to `most` responses from the middle of a READ, `step` bytes apart in the slab, of which this is the one that is waited for; into
   * one element, while nothing is recovered from. @returns how many were taken; 0, without any effect: not by this way
   */
  receiveRun(packet: InboundPacket, most: number, step: number): number {
    const { info, at, psn, payload } = packet;
    const requester = this.#requester;
    const queue = this.#queue;
    const { head } = queue;
    if (info.opcode !== Opcode.RC_RDMA_READ_RESPONSE_MIDDLE || psn !== requester.unackedPsn) return 0;
    if (!this.awaits(packet) || !requester.recovery.idle || requester.reads.early.count > 0) return 0;
    if (queue.startedRow(head)?.wire !== Wire.READ || payload !== this.#owner.attributes.pathMtu) return 0;
    const index = psnDiff(psn, queue.firstPsn(head));
    const inFlight = psnDiff(requester.sendPsn, psn);
    const wanted = Math.min(most, RUN_MAX, inFlight);
    const count = requester.reads.middles(index, queue.packetsOf(head), queue.asksLarge(head), wanted);
    if (count < 1) return 0;
    const { words } = queue;
    const w = queue.wordOf(head);
    const element = w + SendWqe.SGE;
    const size = words[element + Sge.LENGTH];
    if (
      words[w + SendWqe.SGE_COUNT] !== 1 ||
      (index + count) * payload > Math.min(size, words[w + SendWqe.LENGTH])
    )
      return 0;
    const context = this.#context;
    const mr = context.memory.byLkey(words[element + Sge.LKEY] | 0);
    if (!mr?.takesRuns || mr.pd !== this.#owner.pd || (mr.access & Access.LOCAL_WRITE) === 0) return 0;
    const base = mr.locate(words[element + Sge.ADDRESS_HIGH] | 0, words[element + Sge.ADDRESS_LOW] | 0, size);
    if (base < 0) return 0;
    const to = base + index * payload;
    context.copiesFor(count).addRun(at + info.headerLength, step, mr.region, to, payload, count);
    requester.reads.receivedRun(count);
    requester.acknowledged(psnAdd(psn, count));
    this.#settle(psn);
    return count;
  }

  #receiveAck({ slab, at, psn }: InboundPacket): void {
    const requester = this.#requester;
    const syndrome = aethSyndrome(slab, at + BTH_BYTES);
    const kind = aethKind(syndrome);
    const before = requester.unackedPsn;
    if (kind === AethKind.ACK) {
      const reached = this.#acknowledge(psn);
      this.#takeCredits(slab, at + BTH_BYTES);
      if (!reached) requester.recovery.impliedNak();
      this.#settle(before);
      return;
    }
    // A NAK acknowledges everything before the PSN it names (§9.7.5.2.8).
    const reached = this.#acknowledge(psnAdd(psn, -1));
    // The completion queue overran with what was acknowledged: all is flushed, nothing is left to fail.
    if (this.#owner.state === QpStateCode.ERR) return;
    if (!reached) {
      // READ or atomic results are missing before it; they come first.
      requester.recovery.impliedNak();
      this.#settle(before);
      return;
    }
    // The acknowledged entries may end at one that could not be sent: it fails with its own error.
    if (requester.failed.completeIfOldest()) return;
    if (kind === AethKind.RNR_NAK) this.#receiveRnrNak(aethValue(syndrome), requester.unackedPsn !== before);
    else if (syndrome === NakCode.PSN_SEQUENCE_ERROR) this.#receiveSequenceNak(before);
    else this.#fail(syndrome);
  }

  #receiveSequenceNak(before: number): void {
    const requester = this.#requester;
    // The cursor may stand there already, when the NAK came twice or the timer was quicker.
    if (requester.cursorPsn !== requester.unackedPsn && !requester.timers.isRunning(Timer.RNR)) {
      const { counters } = this.#owner;
      counters.receivedSeqErr++;
      if (requester.recovery.retries.anyLeft) counters.sequenceNakRetries++;
      // Without a retry left the queue pair has ended, or has migrated and goes on.
      requester.recovery.nak();
    }
    this.#settle(before);
  }

  /** A NAK that ends the connection. */
  #fail(syndrome: number): void {
    const { counters } = this.#owner;
    // A reserved code (§9.7.5.2.8) is an answer that can't be understood.
    let status: number = WcStatus.BAD_RESP_ERR;
    if (syndrome === NakCode.INVALID_REQUEST) {
      counters.receivedInvalidRequest++;
      status = WcStatus.REM_INV_REQ_ERR;
    } else if (syndrome === NakCode.REMOTE_ACCESS_ERROR) {
      counters.receivedAccessErr++;
      status = WcStatus.REM_ACCESS_ERR;
    } else if (syndrome === NakCode.REMOTE_OPERATIONAL_ERROR) {
      counters.receivedOperationalErr++;
      status = WcStatus.REM_OP_ERR;
    } else if (syndrome === NakCode.INVALID_RD_REQUEST) status = WcStatus.REM_INV_RD_REQ_ERR;
    this.#requester.failed.completeOldest(status);
  }

  #receiveRnrNak(code: number, progressed: boolean): void {
    const requester = this.#requester;
    const { counters } = this.#owner;
    counters.receivedRnrErr++;
    // A copy of the one that is being waited for.
    if (!progressed && requester.timers.isRunning(Timer.RNR)) return;
    if (!requester.recovery.retries.spendRnr()) {
      counters.rnrRetryExceededErr++;
      requester.failed.completeOldest(WcStatus.RNR_RETRY_EXC_ERR);
      return;
    }
    requester.waitForReceiver(rnrTimerMicroseconds(code));
  }

  /** A READ response: the next one that is missing, or evidence that it was lost. */
  #receiveRead(packet: InboundPacket): void {
    const { info, slab, at, psn, payload } = packet;
    const queue = this.#queue;
    const requester = this.#requester;
    const before = requester.unackedPsn;
    if (!this.#reachResponse(packet, before)) return;
    const wire = queue.startedRow(queue.head)?.wire;
    if (wire === Wire.PLACEMENT) {
      this.#receivePlaced(packet, before);
      return;
    }
    if (wire !== Wire.READ) {
      requester.failed.completeOldest(WcStatus.BAD_RESP_ERR);
      return;
    }
    const { aeth } = info.offsets;
    if (aeth >= 0) {
      if (aethKind(aethSyndrome(slab, at + aeth)) !== AethKind.ACK) {
        requester.failed.completeOldest(WcStatus.BAD_RESP_ERR);
        return;
      }
      this.#takeCredits(slab, at + aeth);
    }
    const { pathMtu } = this.#owner.attributes;
    const length = queue.words[queue.wordOf(queue.head) + SendWqe.LENGTH];
    const index = psnDiff(psn, queue.firstPsn(queue.head));
    const offset = index * pathMtu;
    // FIRST or MIDDLE, LAST or ONLY: rxe resumes a READ with MIDDLE (docs/quirks.md). Where a response
    // ends a request is known by its PSN.
    const { reads } = requester;
    const isLarge = queue.asksLarge(queue.head);
    const wrongEnd = !reads.endsRight(psn, index, queue.packetsOf(queue.head), isLarge, info.last);
    if (payload !== Math.min(pathMtu, length - offset) || wrongEnd) {
      requester.failed.completeOldest(WcStatus.BAD_RESP_ERR);
      return;
    }
    const source = at + info.headerLength;
    const { head } = queue;
    if (
      scatterResponse(this.#context, this.#owner.pd, queue, head, offset, source, payload) !== Scattered.OK
    ) {
      requester.failed.completeOldest(WcStatus.LOC_PROT_ERR);
      return;
    }
    reads.received();
    const isEnd = index === queue.packetsOf(queue.head) - 1;
    this.#accept(psn, isEnd, before);
    const { recovery } = requester;
    if (info.last && !isEnd && !recovery.idle && this.#owner.state !== QpStateCode.ERR)
      recovery.answeredAlone(psn);
  }

  /** The response that was awaited is in place; the last one completes its entry. */
  #accept(psn: number, isLast: boolean, before: number): void {
    const requester = this.#requester;
    const { reads, recovery } = requester;
    const { early } = reads;
    const hasEarly = !recovery.idle && early.count > 0;
    // Asked for once more, a part of a request is over with its last response: then a gap behind it is nobody's any more.
    if (!recovery.idle) reads.list.answered(psn, early);
    requester.acknowledged(psnAdd(psn, 1));
    if (isLast) this.#queue.completeOldest();
    if (hasEarly) this.#takeEarly();
    this.#settle(before);
    if (hasEarly) this.#askForGaps();
  }

  /** The answer to a FLUSH or an ATOMIC_WRITE, which the oldest entry is: a READ response of no bytes. */
  #receivePlaced({ info, slab, at, psn, payload }: InboundPacket, before: number): void {
    const requester = this.#requester;
    const { aeth } = info.offsets;
    const isOnly = info.first && info.last && payload === 0;
    if (!isOnly || aethKind(aethSyndrome(slab, at + aeth)) !== AethKind.ACK) {
      requester.failed.completeOldest(WcStatus.BAD_RESP_ERR);
      return;
    }
    this.#takeCredits(slab, at + aeth);
    this.#accept(psn, true, before);
  }

  #receiveAtomic(packet: InboundPacket): void {
    const { info, slab, at, psn } = packet;
    const queue = this.#queue;
    const requester = this.#requester;
    const before = requester.unackedPsn;
    if (!this.#reachResponse(packet, before)) return;
    const isAck = aethKind(aethSyndrome(slab, at + BTH_BYTES)) === AethKind.ACK;
    if (queue.startedRow(queue.head)?.wire !== Wire.ATOMIC || !isAck) {
      requester.failed.completeOldest(WcStatus.BAD_RESP_ERR);
      return;
    }
    this.#takeCredits(slab, at + BTH_BYTES);
    // The result is a number in the program's memory, so it goes there in the machine's byte order:
    // turned around in the slab, then copied like any payload.
    const offset = at + info.offsets.atomicAckEth;
    const high = atomicAckHigh(slab, offset);
    const low = atomicAckLow(slab, offset);
    writeHost64(slab, offset, high, low);
    const { head } = queue;
    if (scatterResponse(this.#context, this.#owner.pd, queue, head, 0, offset, 8) !== Scattered.OK) {
      requester.failed.completeOldest(WcStatus.LOC_PROT_ERR);
      return;
    }
    this.#accept(psn, true, before);
  }

  /**
   * Brings the oldest entry to the READ or atomic that a response with this PSN belongs to. A response
   * acknowledges what was sent before its request; but responses that are missing before it were lost.
   */
  #reachResponse(packet: InboundPacket, before: number): boolean {
    const { psn } = packet;
    const requester = this.#requester;
    if (psn === requester.unackedPsn) return true;
    const reached = this.#acknowledge(psnAdd(psn, -1));
    if (this.#owner.state === QpStateCode.ERR) return false;
    if (reached && psn === requester.unackedPsn) return true;
    if (packet.info.operation === OperationBits.ATOMIC_ACKNOWLEDGE || !this.#keep(packet))
      requester.recovery.impliedNak();
    this.#settle(before);
    return false;
  }

  /**
   * A READ response that came before one that is missing: its data goes to its place, and the missing ones are asked for. False
   * for one that is not as it should be, or has no place any more: that is found out when its turn comes.
   */
  #keep({ info, at, psn, payload }: InboundPacket): boolean {
    const queue = this.#queue;
    const { reads, recovery, unackedPsn } = this.#requester;
    const { early } = reads;
    if (!this.#owner.recovery.selective) return false;
    if (early.has(psn)) {
      // It lies between two that were asked for again in one request.
      reads.list.answered(psn, early);
      this.#askForGaps();
      return true;
    }
    let entry = queue.head;
    while (queue.packetsOf(entry) === 0 || psnDiff(psn, queue.lastPsn(entry)) > 0) entry = indexAfter(entry);
    if (queue.startedRow(entry)?.wire !== Wire.READ || !early.fits(psn, unackedPsn)) return false;
    const index = psnDiff(psn, queue.firstPsn(entry));
    const { pathMtu } = this.#owner.attributes;
    const offset = index * pathMtu;
    const length = queue.words[queue.wordOf(entry) + SendWqe.LENGTH];
    if (payload !== Math.min(pathMtu, length - offset)) return false;
    if (!reads.endsRight(psn, index, queue.packetsOf(entry), queue.asksLarge(entry), info.last)) return false;
    const source = at + info.headerLength;
    if (
      scatterResponse(this.#context, this.#owner.pd, queue, entry, offset, source, payload) !== Scattered.OK
    )
      return false;
    recovery.keptResponse();
    early.add(psn);
    reads.received();
    // There is room for another response.
    this.#owner.wantsTurn();
    this.#requester.answered(psn);
    reads.list.answered(psn, early);
    this.#askForGaps();
    return true;
  }

  /** Responses are missing, and later ones are here: the next turn asks for them alone. A retry for each place. */
  #askForGaps(): void {
    const requester = this.#requester;
    const { unackedPsn, reads, recovery } = requester;
    if (this.#owner.state === QpStateCode.ERR || !reads.list.findGap(reads.early, unackedPsn)) return;
    if (!recovery.responsesMissing()) return;
    this.#owner.wantsTurn();
  }

  /** The oldest response has come: what came before it, in its turn. */
  #takeEarly(): void {
    const queue = this.#queue;
    const requester = this.#requester;
    const { early } = requester.reads;
    while (early.count > 0 && queue.head !== queue.started) {
      const { head } = queue;
      const { unackedPsn } = requester;
      const last = queue.lastPsn(head);
      if (!queue.isReadOrAtomic(head)) {
        // A response acknowledges what was sent before its request.
        requester.acknowledged(psnAdd(last, 1));
        queue.completeOldest();
      } else if (early.take(unackedPsn)) {
        requester.acknowledged(psnAdd(unackedPsn, 1));
        if (unackedPsn === last) queue.completeOldest();
      } else return;
    }
  }

  /**
   * Acknowledges everything up to `psn`, at once: what the requester learns from an ACK, it learns from the ACK and not from each entry.
   * False if it reaches past a READ or atomic that was not answered: its response is lost (implied NAK, §9.7.5.1.5 and §9.7.6.2).
   */
  #acknowledge(psn: number): boolean {
    const queue = this.#queue;
    const requester = this.#requester;
    const { unackedPsn } = requester;
    const count = psnDiff(psn, unackedPsn) >= 0 ? queue.reachedBy(psn) : -1;
    if (count > 0) {
      requester.acknowledged(psnAdd(psn, 1));
      queue.completeRun(count);
      return true;
    }
    let end = unackedPsn;
    let entry = queue.head;
    let reached = true;
    while (entry !== queue.started && psnDiff(psn, end) >= 0) {
      if (queue.isReadOrAtomic(entry)) {
        reached = false;
        break;
      }
      const last = queue.lastPsn(entry);
      if (psnDiff(psn, last) < 0) {
        end = psnAdd(psn, 1);
        break;
      }
      end = psnAdd(last, 1);
      entry = indexAfter(entry);
    }
    if (end !== unackedPsn) requester.acknowledged(end);
    // A completion queue that overruns ends that: all is flushed then.
    while (indexLess(queue.head, entry)) queue.completeOldest();
    return reached;
  }

  /** After a response: if it acknowledged something, the requester goes on from there. */
  #settle(before: number): void {
    if (this.#owner.state === QpStateCode.ERR || this.#requester.unackedPsn === before) return;
    this.#requester.settle();
  }

  #takeCredits(slab: Uint8Array, aeth: number): void {
    const { credits } = this.#requester;
    if (credits.limited && credits.take(aethSyndrome(slab, aeth), aethMsn(slab, aeth)))
      this.#owner.wantsTurn();
  }
}

function writeHost64(bytes: Uint8Array, at: number, high: number, low: number): void {
  for (let i = 0; i < 4; i++) {
    bytes[at + i] = low >>> (8 * i);
    bytes[at + 4 + i] = high >>> (8 * i);
  }
}
