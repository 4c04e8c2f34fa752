/** Service ID resolution: which queue pair a datagram service has (IBTA vol 1 §12.11). */
import { RoceError } from '@node-roce/transport';
import { type CmMessage, CmSidrStatus, encodeCm } from '@node-roce/wire';
import { withDefaults } from './connection.ts';
import { codeMicroseconds } from './intervals.ts';
import type { Listeners } from './listeners.ts';
import { DEFAULT_PKEY } from './messages.ts';
import type {
  CmCounters,
  CmEvent,
  DatagramRequestEvent,
  ResolveAnswer,
  ResolveInit,
  Route,
} from './parameters.ts';
import { type Timed, Timers } from './timers.ts';

/** A question of ours. */
interface Question extends Timed {
  id: number;
  mad: Uint8Array;
  route: Route;
  retries: number;
  interval: number;
}

/** A question of a peer's that waits for the program. */
interface Waiting {
  id: number;
  key: string;
  listener: number;
  route: Route;
  message: CmMessage<'SIDR_REQ'>;
}

export interface DatagramSurroundings {
  /** An id that is not in use. */
  draw(now: number): number;
  transactionId(id: number): bigint;
  counters: CmCounters;
  listeners: Listeners;
  send(mad: Uint8Array, route: Route): void;
  event(event: CmEvent): void;
  /** Whether one more answer without the program may go. */
  stray(now: number): boolean;
}

/** Service ID resolution for datagrams: SIDR requests sent and answered (IBTA vol 1 §12.11). */
export class DatagramServices {
  readonly #around: DatagramSurroundings;
  readonly #questions = new Map<number, Question>();
  readonly #timers = new Timers<Question>();
  readonly #waiting = new Map<number, Waiting>();
  readonly #waitingByKey = new Map<string, Waiting>();

  constructor(around: DatagramSurroundings) {
    this.#around = around;
  }

  get size(): number {
    return this.#questions.size + this.#waiting.size;
  }

  has(id: number): boolean {
    return this.#questions.has(id) || this.#waiting.has(id);
  }

  nextDeadline(): number {
    return this.#timers.next;
  }

  /** Sends SIDR_REQ, again and again until it is answered. */
  resolve(init: ResolveInit, now: number): number {
    const { serviceId, route, privateData } = init;
    const timing = withDefaults(init);
    const id = this.#around.draw(now);
    const question: Question = {
      id,
      mad: encodeCm({
        name: 'SIDR_REQ',
        transactionId: this.#around.transactionId(id),
        requestId: id,
        pkey: DEFAULT_PKEY,
        serviceId,
        ...(privateData ? { privateData } : {}),
      }),
      route,
      retries: timing.maxRetries,
      interval: codeMicroseconds(timing.responseTimeout),
      deadline: Number.POSITIVE_INFINITY,
      place: -1,
    };
    this.#questions.set(id, question);
    this.#timers.set(question, now + question.interval);
    this.#around.send(question.mad, route);
    return id;
  }

  answer(id: number, init: ResolveAnswer): void {
    const waiting = this.#waiting.get(id);
    if (!waiting) {
      throw new RoceError('ERR_ROCE_CM_STATE', 'the request has been answered', { errno: 'ENOENT' });
    }
    const { status = CmSidrStatus.SUCCESS, qpn = 0, qkey = 0, privateData } = init;
    const { requestId, transactionId, serviceId } = waiting.message;
    const reply = { transactionId, requestId, status, qpn, serviceId, qkey };
    const mad = encodeCm({ name: 'SIDR_REP', ...reply, ...(privateData ? { privateData } : {}) });
    this.#remove(waiting);
    this.#around.send(mad, waiting.route);
  }

  /** Forgets a question, or refuses a peer's. False for another id. */
  destroy(id: number): boolean {
    const question = this.#questions.get(id);
    if (question) {
      this.#questions.delete(id);
      this.#timers.set(question, Number.POSITIVE_INFINITY);
      return true;
    }
    if (!this.#waiting.has(id)) return false;
    this.answer(id, { status: CmSidrStatus.REJECT });
    return true;
  }

  /** The event of a peer's question that waits. */
  requestOf(id: number): DatagramRequestEvent | undefined {
    const waiting = this.#waiting.get(id);
    return waiting && eventOf(waiting);
  }

  /** Lets go of all: peers that wait are refused. */
  close(): void {
    for (const id of [...this.#questions.keys(), ...this.#waiting.keys()]) this.destroy(id);
  }

  unlisten(listener: number): void {
    for (const { id, listener: of } of [...this.#waiting.values()]) if (of === listener) this.destroy(id);
  }

  request(message: CmMessage<'SIDR_REQ'>, route: Route, now: number): void {
    const { counters, listeners } = this.#around;
    const key = `${route.gid.join()}/${message.requestId}`;
    if (this.#waitingByKey.has(key)) {
      counters.unexpected++; // The program has still to answer.
      return;
    }
    const listener = listeners.find(message.serviceId);
    if (listener === undefined) {
      if (!this.#around.stray(now)) return;
      const { requestId, transactionId, serviceId } = message;
      const status = CmSidrStatus.UNSUPPORTED;
      this.#around.send(encodeCm({ name: 'SIDR_REP', transactionId, requestId, status, serviceId }), route);
      return;
    }
    if (listener.full) {
      counters.overflowed++;
      return;
    }
    const waiting: Waiting = { id: this.#around.draw(now), key, listener: listener.number, route, message };
    this.#waiting.set(waiting.id, waiting);
    this.#waitingByKey.set(key, waiting);
    listener.hold(waiting.id);
    this.#around.event(eventOf(waiting));
  }

  reply(message: CmMessage<'SIDR_REP'>, route: Route): void {
    const question = this.#questions.get(message.requestId);
    if (!question) {
      this.#around.counters.unexpected++;
      return;
    }
    this.destroy(question.id);
    const { name: _name, transactionId: _tid, attributeModifier: _modifier, ...reply } = message;
    this.#around.event({ type: 'datagram-response', id: question.id, route, reply });
  }

  advance(now: number): void {
    for (let due = this.#timers.due(now); due; due = this.#timers.due(now)) {
      if (due.retries === 0) {
        this.#questions.delete(due.id);
        this.#around.event({ type: 'unreachable', id: due.id });
        continue;
      }
      due.retries--;
      this.#around.counters.retried++;
      this.#timers.set(due, now + due.interval);
      this.#around.send(due.mad, due.route);
    }
  }

  #remove(waiting: Waiting): void {
    this.#waiting.delete(waiting.id);
    this.#waitingByKey.delete(waiting.key);
    this.#around.listeners.release(waiting);
  }
}

function eventOf({ id, listener, route, message }: Waiting): DatagramRequestEvent {
  const { name: _name, transactionId: _tid, attributeModifier: _modifier, ...request } = message;
  return { type: 'datagram-request', id, listener, route, request };
}
