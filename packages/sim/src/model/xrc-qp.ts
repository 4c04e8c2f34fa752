/**
 * Extended reliable connections (IBTA vol 1 annex A14): a reliable connection of one direction. Its requests name the
 * shared receive queue of the peer that they are for; everything else is as with RC, so the RC model does it.
 */
import { psnDiff, Transport } from '@node-roce/wire/rules';
import type { ModelMemory } from './memory.ts';
import { type ModelPacket, rowOf } from './packet.ts';
import { ModelQp, type QpConfig } from './rc-qp.ts';
import { createReceiveQueue, type ReceiveQueue } from './receive-queue.ts';
import type { ModelCompletion } from './work.ts';

/** A completed receive of an XRC SRQ: its completion queue is the SRQ's own and names the target queue pair. */
export interface XrcReceipt {
  qpn: number;
  completion: ModelCompletion;
}

/** A shared receive queue with a number, in a protection domain of its own. */
export interface ModelXrcSrq {
  /** 24 bits. */
  number: number;
  queue: ReceiveQueue;
  /** The memory that keys in requests for it may name. */
  memory: ModelMemory;
  receipts: XrcReceipt[];
}

/** The SRQs that the target queue pairs of a domain receive for. */
export class ModelXrcDomain {
  readonly #srqs: ModelXrcSrq[] = [];

  create(number: number, memory: ModelMemory): ModelXrcSrq {
    const srq = { number, queue: createReceiveQueue(true), memory, receipts: [] };
    this.#srqs.push(srq);
    return srq;
  }

  find(number: number | undefined): ModelXrcSrq | undefined {
    return this.#srqs.find((srq) => srq.number === number);
  }
}

/** An RC packet as XRC has it: the same five bits of operation (table 38), and for a request the XRCETH. */
function withXrc(packet: ModelPacket, srqn?: number): ModelPacket {
  return { ...packet, opcode: packet.opcode | Transport.XRC, ...(srqn === undefined ? {} : { srqn }) };
}

/** The other way round. */
function withoutXrc({ srqn: _, ...packet }: ModelPacket): ModelPacket {
  return { ...packet, opcode: packet.opcode & ~Transport.XRC };
}

/** The initiator, which requests only. */
export class ModelXrcInitiator {
  readonly rc: ModelQp;

  constructor(config: QpConfig, memory: ModelMemory) {
    this.rc = new ModelQp(config, memory);
  }

  receive(packet: ModelPacket, now: number): void {
    const row = rowOf(packet);
    if (row.transport === Transport.XRC && row.isResponse) this.rc.receive(withoutXrc(packet), now);
  }

  /** Each packet of a message, sent first or again, names the SRQ that its work request names. */
  transmit(now: number): ModelPacket | undefined {
    const packet = this.rc.transmit(now);
    if (packet === undefined) return undefined;
    const work = this.rc.requester.queue.find(
      ({ firstPsn, lastPsn }) => psnDiff(packet.psn, firstPsn) >= 0 && psnDiff(packet.psn, lastPsn) <= 0,
    );
    return withXrc(packet, work?.request.remoteSrqn);
  }

  fail(): void {
    this.rc.fail();
  }

  /** It answers nothing. */
  owed(): ModelPacket[] {
    return [];
  }
}

/** The target, which responds only: without a receive queue, without a completion queue. */
export class ModelXrcTarget {
  readonly rc: ModelQp;
  readonly #qpn: number;
  readonly #domain: ModelXrcDomain;
  /** That of the message at hand. */
  #srq: ModelXrcSrq | undefined;

  constructor(config: QpConfig, domain: ModelXrcDomain) {
    this.#qpn = config.qpn;
    this.#domain = domain;
    this.rc = new ModelQp(config, { regions: [] }, createReceiveQueue(true));
  }

  receive(packet: ModelPacket, now: number): void {
    const row = rowOf(packet);
    if (row.transport !== Transport.XRC || !row.isRequest) return;
    const { responder } = this.rc;
    const srq = this.#domain.find(packet.srqn);
    const isNext = packet.psn === responder.ePsn;
    const begun = isNext && responder.inProgress !== undefined;
    // A request out of its turn, a repetition for instance, is for its own SRQ and leaves the message at hand alone.
    const before = { receives: responder.receives, memory: responder.memory };
    responder.srqIsWrong = srq === undefined || (begun && srq !== this.#srq);
    if (isNext && !responder.srqIsWrong) this.#srq = srq;
    responder.receives = srq?.queue ?? createReceiveQueue(true);
    responder.memory = srq?.memory ?? { regions: [] };
    this.rc.receive(withoutXrc(packet), now);
    if (!isNext) Object.assign(responder, before);
    this.#complete();
  }

  /** To the error state: a receive that a message had begun to fill is flushed to the SRQ that it was taken from. */
  fail(): void {
    this.rc.fail();
    this.#complete();
  }

  #complete(): void {
    for (const completion of this.rc.receiveCompletions.splice(0)) {
      this.#srq?.receipts.push({ qpn: this.#qpn, completion });
    }
  }

  transmit(now: number): ModelPacket | undefined {
    const packet = this.rc.transmit(now);
    return packet && withXrc(packet);
  }

  owed(): ModelPacket[] {
    return this.rc.owed().map((packet) => withXrc(packet));
  }
}
