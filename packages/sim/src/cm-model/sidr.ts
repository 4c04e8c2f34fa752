/** Service ID resolution (IBTA vol 1 §12.11): one request, one answer, no connection. */
import { exponentUs } from './connection.ts';
import type { CmFields } from './layouts.ts';
import { type CmMessageOf, encodeCm } from './mad.ts';

/** No listener on the service id. */
const STATUS_UNSUPPORTED = 1;

interface Resolution {
  to: Uint8Array;
  bytes: Uint8Array;
  interval: number;
  retriesLeft: number;
  at: number;
}

export interface SidrRequest {
  handle: number;
  message: CmMessageOf<'SIDR_REQ'>;
  source: Uint8Array;
}

/** Questions of this side and of others. */
export class SidrModel {
  /** Questions of ours on their way, by request id. */
  readonly asked = new Map<number, Resolution>();
  /** Questions of others that the program has not answered, by handle. */
  readonly pending = new Map<number, SidrRequest>();
  /** Questions that are new, in order. */
  requests: SidrRequest[] = [];
  /** Answers; without a message: nobody answered. */
  answers: { requestId: number; message?: CmMessageOf<'SIDR_REP'> }[] = [];
  readonly #random: () => number;
  readonly #send: (to: Uint8Array, bytes: Uint8Array) => void;
  readonly #listens: ReadonlySet<bigint>;
  #handles = 0;

  constructor(
    random: () => number,
    send: (to: Uint8Array, bytes: Uint8Array) => void,
    listens: ReadonlySet<bigint>,
  ) {
    this.#random = random;
    this.#send = send;
    this.#listens = listens;
  }

  /** @param timeout exponent, of one try @returns the request id */
  ask(
    to: Uint8Array,
    fields: Partial<CmFields<'SIDR_REQ'>>,
    { timeout, retries }: { timeout: number; retries: number },
    now: number,
  ): number {
    let requestId = 0;
    while (requestId === 0 || this.asked.has(requestId)) requestId = this.#random() >>> 0;
    const bytes = encodeCm('SIDR_REQ', BigInt(requestId), { ...fields, requestId });
    const interval = exponentUs(timeout);
    this.asked.set(requestId, { to, bytes, interval, retriesLeft: retries, at: now + interval });
    this.#send(to, bytes);
    return requestId;
  }

  answer(handle: number, fields: Partial<CmFields<'SIDR_REP'>>): boolean {
    const request = this.pending.get(handle);
    if (!request) return false;
    this.pending.delete(handle);
    const { requestId, serviceId, tid } = request.message;
    this.#send(request.source, encodeCm('SIDR_REP', tid, { serviceId, ...fields, requestId }));
    return true;
  }

  cancel(requestId: number): void {
    this.asked.delete(requestId);
  }

  receive(
    message: CmMessageOf<'SIDR_REQ'> | CmMessageOf<'SIDR_REP'>,
    source: Uint8Array,
    _now: number,
  ): void {
    if (message.name === 'SIDR_REP') {
      if (this.asked.delete(message.requestId)) this.answers.push({ requestId: message.requestId, message });
      return;
    }
    const { requestId, serviceId, tid } = message;
    const isCopy = [...this.pending.values()].some(
      (one) => one.message.requestId === requestId && one.source.every((byte, at) => byte === source[at]),
    );
    if (isCopy) return;
    if (!this.#listens.has(serviceId)) {
      this.#send(source, encodeCm('SIDR_REP', tid, { requestId, serviceId, status: STATUS_UNSUPPORTED }));
      return;
    }
    const request = { handle: ++this.#handles, message, source };
    this.pending.set(request.handle, request);
    this.requests.push(request);
  }

  nextDeadline(): number {
    return Math.min(Infinity, ...[...this.asked.values()].map(({ at }) => at));
  }

  advance(now: number): void {
    for (const [requestId, one] of this.asked) {
      if (now < one.at) continue;
      if (one.retriesLeft === 0) {
        this.asked.delete(requestId);
        this.answers.push({ requestId });
      } else {
        one.retriesLeft--;
        one.at = now + one.interval;
        this.#send(one.to, one.bytes);
      }
    }
  }
}
