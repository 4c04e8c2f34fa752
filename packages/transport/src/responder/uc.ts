/** The responder of an unreliable connection: silently drops a message that is not whole (IBTA vol 1 §9.8.2). */
import { NakCode, psnAdd, psnDiff } from '@node-roce/wire';
import { QpStateCode } from '../constants.ts';
import type { Context } from '../context.ts';
import type { InboundPacket } from '../inbound.ts';
import type { Owner } from '../qp/owner.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import { type ConnectedParts, checkUnreliable, nakOf, statusOf, Verdict } from './checks.ts';
import { executeSend, executeWrite } from './execute.ts';
import { InboundMessage } from './message.ts';
import { RemoteTarget } from './remote-target.ts';
import type { Responder } from './responder.ts';

/**
 * Owns the expected PSN, and through its parts the message that arrives.
 *
 * Invariants: a message is under way only in a state that receives; a SEND is under way exactly while it
 * has a receive in use.
 */
export class UcResponder implements Responder {
  readonly #owner: Owner;
  readonly #receives: ReceiveQueue;
  readonly #message = new InboundMessage();
  readonly #parts: ConnectedParts;
  #expectedPsn = 0;

  constructor(context: Context, owner: Owner, receives: ReceiveQueue) {
    this.#owner = owner;
    this.#receives = receives;
    const target = new RemoteTarget(owner.pd);
    this.#parts = { context, owner, message: this.#message, receives, target };
  }

  get expectedPsn(): number {
    return this.#expectedPsn;
  }

  get resources(): number {
    return 0;
  }

  get owed(): number {
    return 0;
  }

  /** Nothing is retransmitted, and what is missing before a packet is lost. */
  awaits({ psn }: InboundPacket): boolean {
    return psnDiff(psn, this.#expectedPsn) >= 0;
  }

  start(psn: number): void {
    this.#expectedPsn = psn;
  }

  setResources(): void {}

  /**
   * A packet that does not follow the one before ends the message that was coming in, and only a FIRST or
   * ONLY begins another, whatever its PSN (§9.8.2.2.1).
   */
  receive(packet: InboundPacket): void {
    const { info, psn } = packet;
    const { counters } = this.#owner;
    const follows = psn === this.#expectedPsn && this.#message.continues(info);
    if (info.first ? this.#message.underWay : !follows) this.#abandon();
    // The completion queue had no room for the receive that was given up: the queue pair is at its end.
    if (this.#owner.state === QpStateCode.ERR) return;
    if (!info.first && !follows) {
      counters.droppedPackets++;
      return;
    }
    this.#expectedPsn = psnAdd(psn, 1);
    const verdict = checkUnreliable(this.#parts, packet) || this.#execute(packet);
    if (verdict === Verdict.PASS) return;
    if (verdict === Verdict.NO_RECEIVE) {
      counters.outOfBuffer++;
      this.#abandon();
    } else if (nakOf(verdict) === NakCode.REMOTE_OPERATIONAL_ERROR) {
      // A fault of our receive ends the queue pair. Its completion reports that; there is no event (§11.6.3).
      this.#receives.fail(statusOf(verdict));
      this.#owner.toError();
    } else {
      counters.droppedPackets++;
      this.#abandon();
    }
  }

  transmit(): number {
    return 0;
  }

  stop(): void {
    this.#message.end();
  }

  reset(): void {
    this.#message.end();
    this.#expectedPsn = 0;
  }

  close(): void {}

  check(): string | undefined {
    const { state } = this.#owner;
    const receives = this.#receives;
    const receiving = state !== QpStateCode.RESET && state !== QpStateCode.INIT && state !== QpStateCode.ERR;
    return (
      this.#message.fault ??
      (this.#message.underWay && !receiving ? 'a message is under way' : undefined) ??
      (receives.inUse !== this.#message.sending
        ? 'the receive in use and the SEND under way do not agree'
        : undefined)
    );
  }

  #execute(packet: InboundPacket): number {
    const { info } = packet;
    const fault = info.isSend ? executeSend(this.#parts, packet) : executeWrite(this.#parts, packet);
    if (fault !== Verdict.PASS) return fault;
    if (info.last && this.#owner.state !== QpStateCode.ERR) this.#owner.counters.receivedMessages++;
    return Verdict.PASS;
  }

  /** Drops the message that is coming in, and gives its receive back. */
  #abandon(): void {
    const { counters } = this.#owner;
    const receives = this.#receives;
    if (this.#message.underWay || receives.inUse) counters.droppedMessages++;
    this.#message.end();
    if (receives.inUse) receives.giveBack();
  }
}
