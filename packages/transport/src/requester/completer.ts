/**
 * The completer of a reliable connection: takes responses, completes send entries, and decides what
 * has to be sent again (IBTA vol 1 §9.7.5, §9.7.6; the rules' tests are listed in docs/rules.md).
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
  OperationBits,
  psnAdd,
  psnDiff,
  rnrTimerMicroseconds,
} from '@node-roce/wire';
import { Loss } from '../congestion/controller.ts';
import { QpStateCode, type RetransmitCause, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import type { InboundPacket } from '../inbound.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { SendWqe } from '../rings.ts';
import { Scattered } from '../scatter.ts';
import { scatterResponse } from '../sge.ts';
import { Wire } from '../wr-opcodes.ts';
import type { Requester } from './requester.ts';
import { Timer } from './timers.ts';

/** Promise: an implied NAK is taken once for each PSN that a response is missing at. */
export class Completer {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #queue: SendQueue;
  readonly #requester: Requester;
  /** `unackedPsn` at which the last implied NAK was taken; −1: none since then. */
  #impliedNakPsn = -1;
  /** Timeouts that there had been then: after another one, the response is missing anew. */
  #impliedNakTimeouts = 0;

  constructor(context: Context, owner: Owner, queue: SendQueue, requester: Requester) {
    this.#context = context;
    this.#owner = owner;
    this.#queue = queue;
    this.#requester = requester;
  }

  /** RESET: as just created. */
  reset(): void {
    this.#impliedNakPsn = -1;
  }

  /** Takes one response. */
  receive(packet: InboundPacket): void {
    const { info, slab, at, psn } = packet;
    const requester = this.#requester;
    const isAck = info.operation === OperationBits.ACKNOWLEDGE;
    // For a PSN that is not out: a ghost, of a request answered before or never sent (§9.7.5.1.1).
    if (psnDiff(psn, requester.sendPsn) >= 0 || psnDiff(psn, requester.unackedPsn) < 0) {
      if (isAck && psnDiff(psn, requester.sendPsn) < 0) this.#takeCredits(slab, at + BTH_BYTES);
      this.#context.counters.staleResponses++;
      return;
    }
    if (isAck) this.#receiveAck(packet);
    else if (info.operation === OperationBits.ATOMIC_ACKNOWLEDGE) this.#receiveAtomic(packet);
    else this.#receiveRead(packet);
  }

  #receiveAck({ slab, at, psn }: InboundPacket): void {
    const requester = this.#requester;
    const syndrome = aethSyndrome(slab, at + BTH_BYTES);
    const kind = aethKind(syndrome);
    const before = requester.unackedPsn;
    if (kind === AethKind.ACK) {
      const reached = this.#acknowledge(psn);
      this.#takeCredits(slab, at + BTH_BYTES);
      if (!reached) this.#impliedNak();
      this.#settle(before);
      return;
    }
    // A NAK acknowledges everything before the PSN it names (§9.7.5.2.8).
    const reached = this.#acknowledge(psnAdd(psn, -1));
    // The completion queue overran with what was acknowledged: all is flushed, nothing is left to fail.
    if (this.#owner.state === QpStateCode.ERR) return;
    if (!reached) {
      // READ or atomic results are missing before it; they come first.
      this.#impliedNak();
      this.#settle(before);
      return;
    }
    // What is acknowledged may end at an entry that could not be sent: it fails for that.
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
      if (requester.retries.anyLeft) counters.sequenceNakRetries++;
      if (!this.#retry('sequence-nak')) return;
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
    if (!requester.retries.spendRnr()) {
      counters.rnrRetryExceededErr++;
      requester.failed.completeOldest(WcStatus.RNR_RETRY_EXC_ERR);
      return;
    }
    requester.waitForReceiver(rnrTimerMicroseconds(code));
  }

  /** A READ response: the next one that is missing, or evidence that it was lost. */
  #receiveRead({ info, slab, at, psn, payload }: InboundPacket): void {
    const queue = this.#queue;
    const requester = this.#requester;
    const before = requester.unackedPsn;
    if (!this.#reachResponse(psn, before)) return;
    if (queue.rowOf(queue.head)?.wire !== Wire.READ) {
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
    const wrongEnd = reads.requests > 0 && reads.endsAt(psn) !== info.last;
    if (payload !== Math.min(pathMtu, length - offset) || wrongEnd) {
      requester.failed.completeOldest(WcStatus.BAD_RESP_ERR);
      return;
    }
    const source = at + info.headerLength;
    if (scatterResponse(this.#context, this.#owner.pd, queue, offset, source, payload) !== Scattered.OK) {
      requester.failed.completeOldest(WcStatus.LOC_PROT_ERR);
      return;
    }
    reads.received();
    requester.acknowledged(psnAdd(psn, 1));
    if (index === queue.packetsOf(queue.head) - 1) queue.completeOldest();
    this.#settle(before);
  }

  #receiveAtomic({ info, slab, at, psn }: InboundPacket): void {
    const queue = this.#queue;
    const requester = this.#requester;
    const before = requester.unackedPsn;
    if (!this.#reachResponse(psn, before)) return;
    const isAck = aethKind(aethSyndrome(slab, at + BTH_BYTES)) === AethKind.ACK;
    if (queue.rowOf(queue.head)?.wire !== Wire.ATOMIC || !isAck) {
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
    if (scatterResponse(this.#context, this.#owner.pd, queue, 0, offset, 8) !== Scattered.OK) {
      requester.failed.completeOldest(WcStatus.LOC_PROT_ERR);
      return;
    }
    requester.acknowledged(psnAdd(psn, 1));
    queue.completeOldest();
    this.#settle(before);
  }

  /**
   * Brings the oldest entry to the READ or atomic that a response with this PSN belongs to. A response
   * acknowledges what was sent before its request; but responses that are missing before it were lost.
   */
  #reachResponse(psn: number, before: number): boolean {
    const requester = this.#requester;
    if (psn === requester.unackedPsn) return true;
    const reached = this.#acknowledge(psnAdd(psn, -1));
    if (this.#owner.state === QpStateCode.ERR) return false;
    if (reached && psn === requester.unackedPsn) return true;
    this.#impliedNak();
    this.#settle(before);
    return false;
  }

  /**
   * Acknowledges everything up to `psn`. False if it reaches past a READ or atomic that was not answered:
   * its response is lost (implied NAK, §9.7.5.1.5 and §9.7.6.2).
   */
  #acknowledge(psn: number): boolean {
    const queue = this.#queue;
    const requester = this.#requester;
    while (queue.head !== queue.started) {
      if (psnDiff(psn, requester.unackedPsn) < 0) return true;
      if (queue.rowOf(queue.head)?.readOrAtomic) return false;
      const last = queue.lastPsn(queue.head);
      if (psnDiff(psn, last) < 0) {
        requester.acknowledged(psnAdd(psn, 1));
        return true;
      }
      requester.acknowledged(psnAdd(last, 1));
      queue.completeOldest();
    }
    return true;
  }

  /** After a response: if it acknowledged something, the requester goes on from there. */
  #settle(before: number): void {
    if (this.#owner.state === QpStateCode.ERR || this.#requester.unackedPsn === before) return;
    if (this.#impliedNakPsn !== this.#requester.unackedPsn) this.#impliedNakPsn = -1;
    this.#requester.settle();
  }

  /** A response was lost: ask again, once for each place where it is missing. */
  #impliedNak(): void {
    const requester = this.#requester;
    const { unackedPsn, timeouts } = requester;
    if (this.#impliedNakPsn === unackedPsn && this.#impliedNakTimeouts === timeouts) return;
    if (psnDiff(requester.cursorPsn, unackedPsn) <= 0) return;
    this.#owner.counters.impliedNakSeqErr++;
    if (!this.#retry('implied-nak')) return;
    this.#impliedNakPsn = unackedPsn;
    this.#impliedNakTimeouts = timeouts;
  }

  /** Goes back for a NAK, explicit or implied: it counts against `retry_cnt` as a timeout does. */
  #retry(cause: RetransmitCause): boolean {
    const requester = this.#requester;
    if (!requester.spendRetry()) return false;
    requester.onLoss(Loss.GAP);
    requester.rewind(cause);
    return true;
  }

  #takeCredits(slab: Uint8Array, aeth: number): void {
    if (this.#requester.credits.take(aethSyndrome(slab, aeth), aethMsn(slab, aeth))) this.#owner.wantsTurn();
  }
}

function writeHost64(bytes: Uint8Array, at: number, high: number, low: number): void {
  for (let i = 0; i < 4; i++) {
    bytes[at + i] = low >>> (8 * i);
    bytes[at + 4 + i] = high >>> (8 * i);
  }
}
