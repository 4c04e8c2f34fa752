/** Queue pairs of UC and UD: the two halves, and what they share (IBTA vol 1 §9.8, §10.3.1). */
import type { ModelMemory } from './memory.ts';
import type { ModelPacket } from './packet.ts';
import { noteLastWqe, type QpEvent } from './rc-qp.ts';
import { flushReceives, postReceive } from './rc-responder-state.ts';
import { createReceiveQueue } from './receive-queue.ts';
import { createUcResponder, receiveUc, type UcResponder } from './uc-responder.ts';
import { createUdResponder, flushUd, receiveUd, type UdResponder } from './ud-responder.ts';
import type { Received } from './unreliable-receive.ts';
import {
  createUnreliableRequester,
  flushUnreliable,
  postUnreliable,
  resumeSending,
  stepUnreliable,
  type UnreliableRequester,
  type UnreliableRequesterConfig,
} from './unreliable-requester.ts';
import type { Destination, ModelCompletion, ModelReceiveRequest, ModelSendRequest } from './work.ts';

export interface UnreliableQpConfig extends UnreliableRequesterConfig {
  /** UC: `Access` bits of the queue pair. */
  accessFlags: number;
  sqPsn: number;
  /** UC: PSN of the peer's first packet. UD looks at none. */
  rqPsn: number;
}

/** A packet with where it goes: for UD each has a destination of its own. */
export interface AddressedPacket {
  packet: ModelPacket;
  destination?: Destination;
}

/** A queue pair in RTS, in SQE after an error of its own sending, or in ERR. */
export class ModelUnreliableQp {
  readonly requester: UnreliableRequester;
  readonly responder: UcResponder | UdResponder;
  readonly sendCompletions: ModelCompletion[] = [];
  readonly receiveCompletions: ModelCompletion[] = [];
  /** Asynchronous events raised so far. */
  readonly events: QpEvent[] = [];
  readonly #service: 'UC' | 'UD';

  /** @param receives an SRQ, or a queue of its own */
  constructor(config: UnreliableQpConfig, memory: ModelMemory, receives = createReceiveQueue()) {
    this.#service = config.service;
    this.requester = createUnreliableRequester(config, memory, config.sqPsn);
    this.responder =
      config.service === 'UC'
        ? createUcResponder(config, memory, config.rqPsn, receives)
        : createUdResponder(config, receives);
  }

  get state(): 'RTS' | 'SQE' | 'ERR' {
    return this.requester.state === 'READY' ? 'RTS' : this.requester.state;
  }

  postSend(request: ModelSendRequest): void {
    this.sendCompletions.push(...postUnreliable(this.requester, request));
  }

  postReceive(request: ModelReceiveRequest): void {
    this.receiveCompletions.push(...postReceive(this.responder, request));
  }

  /** A packet that arrived. @param grh UD: 40 bytes for the head of the receive */
  receive(packet: ModelPacket, grh: Uint8Array): Received {
    const received =
      this.#service === 'UC'
        ? receiveUc(this.responder as UcResponder, packet)
        : receiveUd(this.responder as UdResponder, packet, grh);
    this.receiveCompletions.push(...received.completions);
    if (this.responder.state === 'ERR') this.#failSends();
    return received;
  }

  /** The next packet to send; `undefined` when there is none. */
  transmit(): AddressedPacket | undefined {
    for (;;) {
      const [request] = this.requester.queue;
      const step = stepUnreliable(this.requester);
      if (step === undefined) return undefined;
      this.sendCompletions.push(...step.completions);
      if (step.packet !== undefined) return { packet: step.packet, destination: request.destination };
    }
  }

  /** From SQE back to RTS. */
  resume(): void {
    resumeSending(this.requester);
  }

  /** To the error state, as `ibv_modify_qp` does it: everything posted is flushed. */
  fail(): void {
    this.receiveCompletions.push(
      ...(this.#service === 'UC'
        ? flushReceives(this.responder as UcResponder)
        : flushUd(this.responder as UdResponder)),
    );
    this.#failSends();
  }

  #failSends(): void {
    if (this.requester.state !== 'ERR') this.sendCompletions.push(...flushUnreliable(this.requester));
    this.requester.state = 'ERR';
    noteLastWqe(this.events, this.responder.receives);
  }
}
