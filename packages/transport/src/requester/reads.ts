/** READs and atomics in flight: how many requests, and how many READ responses they were asked for. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import type { Own } from '../own.ts';
import { Turn, TurnQueue } from '../scheduler.ts';
import { OutOfOrder } from './out-of-order.ts';
import { ReadRequests } from './read-requests.ts';

/**
 * Responses that one READ request asks for, at most: a small one, and a large one. The first and the last response of a request have longer headers than the
 * others, so GSO sends them in datagrams of their own: fewer requests take less time. But one gap of each request is asked for at a
 * time: where packets are lost, more requests are quicker.
 */
const SMALL_MAX = 64;
const LARGE = 256;
const NONE = -1;

/**
 * The charge of a datagram with this much payload against a socket's receive buffer: the kernel's
 * buffer for it is the next power of two, plus its bookkeeping (measured: 4112 B → 8520, 1040 → 2315).
 */
function receiveCharge(pathMtu: number): number {
  return 2 * pathMtu + 512;
}

/**
 * Bytes of the device's receive buffer that READ responses may take, over all queue pairs. Promise: what is
 * left, taken and granted adds up to the total; who waits first is granted first.
 */
export class ReadBudget {
  readonly total: number;
  #left: number;
  /** Times that some was given back, modulo 2^32. */
  #moves = 0;
  readonly #waiting = new TurnQueue<OutstandingReads>();

  constructor(total: number) {
    this.total = this.#left = total;
  }

  /** Whether so much is there, and nobody waits for it. One request is allowed whatever its size. */
  has(bytes: number): boolean {
    return this.#waiting.length === 0 && (bytes <= this.#left || this.#left === this.total);
  }

  take(bytes: number): void {
    this.#left -= bytes;
  }

  /** Grants what `turn`'s owner wants as soon as it is there. */
  await(turn: Turn<OutstandingReads>): void {
    this.#waiting.push(turn);
  }

  get left(): number {
    return this.#left;
  }

  get moves(): number {
    return this.#moves;
  }

  give(bytes: number): void {
    this.#left += bytes;
    this.#moves = (this.#moves + 1) | 0;
    for (let next = this.#waiting.first; next !== undefined; next = this.#waiting.first) {
      if (next.wanted > this.#left && this.#left !== this.total) return;
      this.#waiting.shift().owner.grant();
    }
  }
}

/** Promise: the device's budget is short of what the responses in flight are charged, and of what is granted. */
export class OutstandingReads {
  /** No READ and no atomic is in flight: then nothing here changes with what is acknowledged. */
  readonly idle: boolean = true;
  readonly #budget: ReadBudget;
  readonly #owner: { wantsTurn(): void };
  readonly #turn = new Turn<OutstandingReads>(this);
  readonly list = new ReadRequests();
  /** Responses that came before one that is missing. */
  readonly early = new OutOfOrder();
  /** READ responses that were asked for and not received. */
  #responses = 0;
  /** The share of each in the budget. */
  #charge = 0;
  /** Responses that a small request asks for, and a large one; equal where the receive buffer does not hold two large ones. */
  #small = 1;
  #large = 1;
  /** Budget that is waited for, and that was granted and is not used. */
  #wanted = 0;
  #granted = 0;
  /** Requests were repeated for a part of their responses, which may be LAST or ONLY, before this PSN; −1: none was. */
  #repeatedEnd = NONE;
  /** The first response of a request, which a probe asked for by itself; −1: there is none. */
  #alone = NONE;
  /** The budget did not move while it was waited for: the next request leaves whatever is left. */
  #forced = false;
  /** Its moves when that was last looked at. */
  #moves = 0;
  /** The ACK timer ran out: one request at a time, until one is answered. */
  #isCareful = false;

  /** @param owner has a turn when budget is granted that was waited for */
  constructor(budget: ReadBudget, owner: { wantsTurn(): void }) {
    this.#budget = budget;
    this.#owner = owner;
  }

  /** READs are split so that the device's receive buffer holds the responses of two requests. */
  setPathMtu(pathMtu: number): void {
    this.release();
    this.#repeatedEnd = this.#alone = NONE;
    this.#isCareful = false;
    (this as Own<OutstandingReads>).idle = true;
    this.#charge = receiveCharge(pathMtu);
    const most = Math.max(1, Math.floor(this.#budget.total / 2 / this.#charge));
    this.#small = Math.min(SMALL_MAX, most);
    this.#large = most < LARGE ? this.#small : LARGE;
  }

  /** Bytes of the device's budget that it has. */
  get held(): number {
    return this.#responses * this.#charge + this.#granted;
  }

  /** READ responses in flight. */
  get responses(): number {
    return this.#responses;
  }

  /**
   * Whether a READ with this many responses, which is started while nothing is recovered from, is split into large requests: where the window has room for two of
   * them, which is as wide as it grows, and no READ waits for the receive buffer. The answer holds as long as the READ does, so that its requests always end at the same places.
   */
  startsLarge(responses: number, window: number): boolean {
    return responses > this.#small && this.#large > this.#small && window >= 2 * LARGE && this.#budget.has(0);
  }

  /** Requests that a READ with this many responses is split into. */
  requestsFor(responses: number, isLarge: boolean): number {
    return Math.ceil(responses / (isLarge ? this.#large : this.#small));
  }

  /**
   * Responses that the request at `psn`, for response number `packet` of a READ with so many, asks for: requests end at multiples of their
   * size, so that a resumed READ ends where the first request ended; and behind the response that a probe asked for.
   */
  next(psn: number, packet: number, packets: number, isLarge: boolean): number {
    return psn === this.#alone ? 1 : this.#endOf(packet, packets, isLarge) - packet;
  }

  /** One past the last response of the request that asks for response number `packet`, of a READ with so many. */
  #endOf(packet: number, packets: number, isLarge: boolean): number {
    const size = isLarge ? this.#large : this.#small;
    return Math.min((Math.floor(packet / size) + 1) * size, packets);
  }

  /**
   * A probe asks for the response at `psn` alone, the first of its request. If the request was lost, this is one of its own to the responder,
   * which serves no more than that from there on.
   */
  asksAlone(psn: number): void {
    this.repeated(psn, psnAdd(psn, 1));
    this.#alone = psn;
  }

  /** Whether one more request may leave. */
  mayRequest(maxRdAtomic: number): boolean {
    // A limit that was lowered to 0 in SQD still lets what was started end.
    return this.list.count < Math.max(1, maxRdAtomic);
  }

  /**
   * Looks whether so many more responses may be asked for. They count against the window as packets do, for after
   * a loss all that is out is asked for again; but of a large request no more than of a small one: it leaves as early as that, or the responder of a long
   * path would wait for it. And two small requests may always be out, so that the peer has one
   * to answer while the other's answer travels; after a timeout one, for a slow responder answers whatever it is asked, and is
   * slower for it. Without budget, who has nothing in flight waits for some.
   * @returns whether they may
   */
  awaitRoom(responses: number, window: number): boolean {
    const bytes = responses * this.#charge;
    if (this.#responses > 0) {
      const counted = this.#responses + Math.min(responses, this.#small);
      if (counted > Math.max(window, this.#isCareful ? this.#small : 2 * this.#small)) return false;
      return this.#budget.has(bytes);
    }
    if (this.#granted >= bytes || this.#forced || this.#budget.has(bytes)) return true;
    if (this.#wanted === 0) this.#moves = this.#budget.moves;
    this.#wanted = bytes;
    this.#budget.await(this.#turn);
    return false;
  }

  /** The ACK timer ran out. */
  timedOut(): void {
    this.#isCareful = true;
  }

  /** Whether budget is waited for. */
  get isWaiting(): boolean {
    return this.#wanted > 0;
  }

  get wanted(): number {
    return this.#wanted;
  }

  /** The budget that is waited for, if it still is. */
  grant(): void {
    if (this.#wanted === 0) return;
    this.#granted += this.#wanted;
    this.#budget.take(this.#wanted);
    this.#wanted = 0;
    this.#owner.wantsTurn();
  }

  /**
   * Some time of waiting has passed. If the budget did not move meanwhile, what holds it may never be answered,
   * and the next request leaves all the same. @returns whether the wait is over
   */
  waited(): boolean {
    if (this.#wanted === 0) return true;
    const { moves } = this.#budget;
    const stuck = moves === this.#moves;
    this.#moves = moves;
    if (!stuck) return false;
    this.#wanted = 0;
    this.#forced = true;
    return true;
  }

  /** A READ request leaves, to be answered by the PSNs from `first` to `last`, of which so many responses are missing. */
  ask(first: number, last: number, responses: number = psnDiff(last, first) + 1): void {
    this.#budget.take(responses * this.#charge);
    this.#giveGrant();
    this.#forced = false;
    this.#responses += responses;
    this.add(first, last);
  }

  /** A request leaves that is answered with the PSNs from `first` to `last`, which take none of the budget. */
  add(first: number, last: number): void {
    (this as Own<OutstandingReads>).idle = false;
    this.list.add(first, last);
  }

  /** The PSNs from `psn` up to `end`, all of one request, are asked for again. */
  repeated(psn: number, end: number): void {
    (this as Own<OutstandingReads>).idle = false;
    this.list.repeated(psn, end);
    if (this.#repeatedEnd === NONE || psnDiff(end, this.#repeatedEnd) > 0) this.#repeatedEnd = end;
  }

  /** Whether response number `packet` at `psn`, of a READ with so many, is LAST or ONLY where it has to be: at the end of a request. */
  endsRight(psn: number, packet: number, packets: number, isLarge: boolean, last: boolean): boolean {
    if (this.list.count === 0) return true;
    const isEnd = packet + 1 === this.#endOf(packet, packets, isLarge);
    return isEnd ? last : !last || (this.#repeatedEnd !== NONE && psnDiff(psn, this.#repeatedEnd) < 0);
  }

  /** Of up to `most` responses from number `packet` on, of a READ with so many, those before the end of their request; 0 where some may end before. */
  middles(packet: number, packets: number, isLarge: boolean, most: number): number {
    if (this.list.count === 0 || this.#repeatedEnd !== NONE) return 0;
    return Math.min(most, this.#endOf(packet, packets, isLarge) - 1 - packet);
  }

  /** The next READ responses were received: as `received`, for each of them. */
  receivedRun(count: number): void {
    const counted = Math.min(count, this.#responses);
    if (counted === 0) return;
    this.#responses -= counted;
    this.#budget.give(counted * this.#charge);
  }

  /** The next READ response was received. */
  received(): void {
    if (this.#responses === 0) return;
    this.#responses--;
    this.#budget.give(this.#charge);
  }

  /** Everything before `psn` is answered. */
  retire(psn: number): void {
    if (this.list.retire(psn)) this.#isCareful = false;
    // An entry that the program rewrote was acknowledged as what it is not: nobody sends these.
    if (this.list.count === 0 && this.#responses > 0) this.#giveResponses();
    if (this.#repeatedEnd !== NONE && psnDiff(psn, this.#repeatedEnd) >= 0) this.#repeatedEnd = NONE;
    if (this.#alone !== NONE && psnDiff(psn, this.#alone) > 0) this.#alone = NONE;
    if (this.list.count === 0 && this.#repeatedEnd === NONE && this.#alone === NONE)
      (this as Own<OutstandingReads>).idle = true;
  }

  /** Forgets the requests in flight: it is asked for again, or never. */
  release(): void {
    this.list.clear();
    if (this.#responses > 0) this.#giveResponses();
    this.stopWaiting();
  }

  /** None of the responses is waited for. */
  #giveResponses(): void {
    this.#budget.give(this.#responses * this.#charge);
    this.#responses = 0;
  }

  /** The READ that waits for budget, or has been granted some, does not leave after all. */
  stopWaiting(): void {
    this.#wanted = 0;
    this.#forced = false;
    this.#giveGrant();
  }

  #giveGrant(): void {
    const granted = this.#granted;
    if (granted === 0) return;
    this.#granted = 0;
    this.#budget.give(granted);
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    if (this.idle && this.list.count > 0)
      return `${this.list.count} requests are in flight, and none is known`;
    if (this.#responses < 0 || (this.#responses > 0 && this.list.count === 0)) {
      return `${this.#responses} READ responses of ${this.list.count} requests are in flight`;
    }
    return undefined;
  }
}
