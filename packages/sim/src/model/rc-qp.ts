/**
 * A queue pair of a reliable connection: a requester and a responder that fail together
 * (IBTA vol 1 §10.3.1.7). Packets in, packets and completions out, time as an argument.
 */
import { Transport } from '@node-roce/wire/rules';
import type { ModelMemory } from './memory.ts';
import { type ModelPacket, rowOf } from './packet.ts';
import { advanceTime, completeLocal, failBroken, flushSends, receiveResponse } from './rc-requester.ts';
import {
  createRequester,
  isBegun,
  nextDeadline,
  postSend,
  type Requester,
  type RequesterConfig,
} from './rc-requester-state.ts';
import { executeNextLocal, planPacket, sendPacket } from './rc-requester-transmit.ts';
import { respond } from './rc-responder.ts';
import {
  createResponder,
  flushReceives,
  postReceive,
  type Responder,
  type ResponderConfig,
} from './rc-responder-state.ts';
import { createReceiveQueue, type ReceiveQueue } from './receive-queue.ts';
import type { ModelCompletion, ModelReceiveRequest, ModelSendRequest } from './work.ts';

export interface QpConfig extends RequesterConfig, ResponderConfig {
  /** PSN of our first request, 24 bits. */
  sqPsn: number;
  /** PSN of the peer's first request, 24 bits. */
  rqPsn: number;
}

/** The events of a queue pair other than its completions (§11.6.3). */
export type QpEvent = 'QP_LAST_WQE_REACHED' | 'SQ_DRAINED';

/** §11.6.3.1: in the error state, a queue pair with an SRQ reports once that it takes no receive any more. */
export function noteLastWqe(events: QpEvent[], { shared }: ReceiveQueue): void {
  if (shared && !events.includes('QP_LAST_WQE_REACHED')) events.push('QP_LAST_WQE_REACHED');
}

/** Attributes that may change while the connection lives (ibv_modify_qp(3), from RTS and from SQD). */
export type QpChange = Partial<
  Pick<QpConfig, 'timeout' | 'retryCnt' | 'rnrRetry' | 'minRnrTimer' | 'maxRdAtomic' | 'maxDestRdAtomic'>
>;

/** A queue pair in RTS, in SQD, or in ERR once something ended it. */
export class ModelQp {
  readonly requester: Requester;
  readonly responder: Responder;
  /** Completions of the send queue that were not fetched yet, in order. */
  readonly sendCompletions: ModelCompletion[] = [];
  /** Same of the receive queue. */
  readonly receiveCompletions: ModelCompletion[] = [];
  /** Asynchronous events raised so far. */
  readonly events: QpEvent[] = [];
  readonly #replies: ModelPacket[] = [];
  #drainNoted = false;

  /** @param receives an SRQ, or a queue of its own */
  constructor(config: QpConfig, memory: ModelMemory, receives = createReceiveQueue()) {
    this.requester = createRequester(config, config.sqPsn);
    this.responder = createResponder(config, memory, config.rqPsn, receives);
  }

  get state(): 'RTS' | 'SQD' | 'ERR' {
    if (this.requester.state === 'ERR') return 'ERR';
    return this.requester.draining ? 'SQD' : 'RTS';
  }

  /** §10.3.1.5: to SQD. Requests that were begun are finished, no others are begun. */
  drain(): void {
    this.requester.draining = true;
    this.#drainNoted = false;
    this.#noteDrained();
  }

  /** In SQD: something that was begun is not finished. */
  get draining(): boolean {
    return this.requester.queue.some((work) => isBegun(this.requester, work));
  }

  /** From SQD back to RTS. */
  resume(): void {
    this.requester.draining = false;
  }

  /** Takes over attributes; those of the retries count from now on. */
  change(attributes: QpChange): void {
    Object.assign(this.requester.config, attributes);
    Object.assign(this.responder.config, attributes);
    const { retryCnt, rnrRetry } = attributes;
    if (retryCnt !== undefined) this.requester.retriesLeft = retryCnt;
    if (rnrRetry !== undefined) this.requester.rnrRetriesLeft = rnrRetry;
  }

  /** §11.6.3.1: SQ_DRAINED comes once for each time that SQD was entered. */
  #noteDrained(): void {
    if (this.state !== 'SQD' || this.#drainNoted || this.draining) return;
    this.#drainNoted = true;
    this.events.push('SQ_DRAINED');
  }

  postSend(request: ModelSendRequest): void {
    this.sendCompletions.push(...postSend(this.requester, request));
  }

  postReceive(request: ModelReceiveRequest): void {
    this.receiveCompletions.push(...postReceive(this.responder, request));
  }

  /** A packet that arrived. @param now µs */
  receive(packet: ModelPacket, now: number): void {
    const { transport, isResponse } = rowOf(packet);
    if (transport !== Transport.RC) return; // §9.6.1
    if (isResponse) {
      this.sendCompletions.push(...receiveResponse(this.requester, packet, now));
    } else {
      const { replies, completions } = respond(this.responder, packet);
      this.#replies.push(...replies);
      this.receiveCompletions.push(...completions);
    }
    this.#failTogether();
  }

  /** Timers that are due. @param now µs */
  advance(now: number): void {
    this.sendCompletions.push(...advanceTime(this.requester, now));
    this.#failTogether();
  }

  /** The next packet to send, replies first; `undefined` when there is none now. @param now µs */
  transmit(now: number): ModelPacket | undefined {
    const reply = this.#replies.shift();
    if (reply !== undefined) return reply;
    while (executeNextLocal(this.requester, this.responder.memory, this.responder.config.qpn)) {
      this.sendCompletions.push(...completeLocal(this.requester));
    }
    this.#failTogether();
    this.sendCompletions.push(...failBroken(this.requester));
    this.#failTogether();
    const plan = planPacket(this.requester);
    return typeof plan === 'string' ? undefined : sendPacket(this.requester, plan, now);
  }

  /** Takes the replies that were not sent: all but the data of READs, whose memory may go at once. */
  owed(): ModelPacket[] {
    return this.#replies.splice(0).filter((reply) => !rowOf(reply).isReadResponse);
  }

  /** When `advance` wants to be called, µs; `Infinity` for never. */
  nextDeadline(): number {
    return nextDeadline(this.requester);
  }

  /** To the error state, as `ibv_modify_qp` does it: everything posted is flushed. */
  fail(): void {
    this.sendCompletions.push(...flushSends(this.requester));
    this.receiveCompletions.push(...flushReceives(this.responder));
    this.#failTogether();
  }

  #failTogether(): void {
    this.#noteDrained();
    if (this.requester.state !== 'ERR' && this.responder.state !== 'ERR') return;
    if (this.requester.state !== 'ERR') this.sendCompletions.push(...flushSends(this.requester));
    if (this.responder.state !== 'ERR') this.receiveCompletions.push(...flushReceives(this.responder));
    noteLastWqe(this.events, this.responder.receives);
  }
}
