/** READs and atomics in flight: how many requests, and how many READ responses they were asked for. */
import { psnDiff } from '@node-roce/wire';

/** Responses that one READ request asks for, at most. */
const READ_CHUNK_MAX = 64;
/** Requests in flight, at most; the device's limit of `max_rd_atomic`. */
const REQUESTS_MAX = 128;

/**
 * What a datagram with this much payload is charged against a socket's receive buffer: the kernel's
 * buffer for it is the next power of two, plus its bookkeeping (measured: 4112 B → 8520, 1040 → 2315).
 */
function receiveCharge(pathMtu: number): number {
  return 2 * pathMtu + 512;
}

/** Bytes of the device's receive buffer that READ responses may take, over all queue pairs. */
export class ReadBudget {
  readonly total: number;
  #left: number;

  constructor(total: number) {
    this.total = this.#left = total;
  }

  get left(): number {
    return this.#left;
  }

  take(bytes: number): void {
    this.#left -= bytes;
  }

  give(bytes: number): void {
    this.#left += bytes;
  }
}

/** Promise: the device's budget is short of exactly what the responses in flight are charged. */
export class OutstandingReads {
  readonly #budget: ReadBudget;
  /** The last PSN that each request is answered with, oldest first; a ring. */
  readonly #ends = new Int32Array(REQUESTS_MAX);
  #oldest = 0;
  #requests = 0;
  /** READ responses that were asked for and not received. */
  #responses = 0;
  /** What each takes of the budget. */
  #charge = 0;
  /** Responses that one request asks for. */
  #chunk = 1;

  constructor(budget: ReadBudget) {
    this.#budget = budget;
  }

  /** Splits READs so that the device's receive buffer holds the responses of two requests. */
  setPathMtu(pathMtu: number): void {
    this.release();
    this.#charge = receiveCharge(pathMtu);
    this.#chunk = Math.min(READ_CHUNK_MAX, Math.max(1, Math.floor(this.#budget.total / 2 / this.#charge)));
  }

  /** READ responses in flight. */
  get responses(): number {
    return this.#responses;
  }

  /** Requests that a READ with this many responses is split into. */
  requestsFor(responses: number): number {
    return Math.ceil(responses / this.#chunk);
  }

  /**
   * Responses that the next request of a READ asks for: requests end at multiples of the chunk, so that a
   * resumed READ ends where the first request ended.
   */
  next(packet: number, packets: number): number {
    const end = (Math.floor(packet / this.#chunk) + 1) * this.#chunk;
    return Math.min(end, packets) - packet;
  }

  /** Whether one more request may leave. */
  mayRequest(maxRdAtomic: number): boolean {
    // A limit that was lowered to 0 in SQD still lets what was started end.
    return this.#requests < Math.max(1, maxRdAtomic);
  }

  /**
   * Whether so many more responses may be asked for. They count against the window as packets do, for after
   * a loss all that is out is asked for again; but two requests may always be out, so that the peer has one
   * to answer while the other's answer travels, and one whatever the budget.
   */
  mayAsk(responses: number, window: number): boolean {
    if (this.#responses === 0) return true;
    if (responses * this.#charge > this.#budget.left) return false;
    return this.#responses + responses <= Math.max(window, 2 * this.#chunk);
  }

  /** A READ request leaves, to be answered by so many responses up to `lastPsn`. */
  ask(responses: number, lastPsn: number): void {
    this.#budget.take(responses * this.#charge);
    this.#responses += responses;
    this.askAtomic(lastPsn);
  }

  /** An atomic request leaves. */
  askAtomic(psn: number): void {
    this.#ends[(this.#oldest + this.#requests++) & (REQUESTS_MAX - 1)] = psn;
  }

  /** Whether a request is in flight, and the oldest of them is answered with this PSN at last. */
  endsAt(psn: number): boolean {
    return this.#requests > 0 && this.#ends[this.#oldest] === psn;
  }

  get requests(): number {
    return this.#requests;
  }

  /** The next READ response was received. */
  received(): void {
    if (this.#responses === 0) return;
    this.#responses--;
    this.#budget.give(this.#charge);
  }

  /** Everything before `psn` is answered. */
  retire(psn: number): void {
    while (this.#requests > 0 && psnDiff(psn, this.#ends[this.#oldest]) > 0) {
      this.#oldest = (this.#oldest + 1) & (REQUESTS_MAX - 1);
      this.#requests--;
    }
  }

  /** Forgets what is in flight: it is asked for again, or never. */
  release(): void {
    this.#budget.give(this.#responses * this.#charge);
    this.#responses = 0;
    this.#requests = 0;
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    if (this.#responses < 0 || (this.#responses > 0 && this.#requests === 0)) {
      return `${this.#responses} READ responses of ${this.#requests} requests are in flight`;
    }
    return undefined;
  }
}
