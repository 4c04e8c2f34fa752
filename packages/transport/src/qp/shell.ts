/** The shell of a queue pair of any type: its rings, their sizes, and the state that they show to the threads that post. */
import { QP_STATES, type QpState, QpStateCode, type QpType } from '../constants.ts';
import type { Context } from '../context.ts';
import type { QpAttr, QpCap, QpCreated, QpQuery, QpResized } from '../control.ts';
import { QpCounters } from '../counters.ts';
import type { Own } from '../own.ts';
import type { NewRing, Ring } from '../rings.ts';
import type { Paths } from './paths.ts';
import { checkResize, grantedCap, NextRings, type Queues } from './resize.ts';

export interface ShellInit {
  readonly qpn: number;
  readonly pd: number;
  readonly cap: QpCap;
  readonly rings: readonly [sends: Ring, receives: Ring];
  /** Receives are posted to it: not with an SRQ, nor to either side of XRC. */
  readonly hasReceives: boolean;
  /** Sends are posted to it: not where it answers rendezvous. */
  readonly hasSends: boolean;
  /** Makes the rings of a resize. */
  readonly newRing: NewRing;
}

/** The queues that a queue pair is made with. */
export type OwnQueues = Pick<ShellInit, 'rings' | 'hasReceives' | 'hasSends' | 'newRing'>;

/** Promise: the rings show the queue pair's state, those of a resize as well. */
export abstract class QueueShell {
  abstract readonly type: QpType;
  readonly qpn: number;
  readonly pd: number;
  readonly hasReceives: boolean;
  readonly hasSends: boolean;
  readonly counters = new QpCounters();
  /** `QpStateCode`. */
  readonly state: number = QpStateCode.RESET;
  /** It may have packets in flight: in RTS, and in SQD, which lets end what was started. */
  readonly sends: boolean = false;
  /** The sizes; those of a resize once the program posts by them. */
  readonly cap: QpCap;
  /** There are rings of a resize that the program has not been seen to post to. */
  readonly isResizing: boolean = false;
  readonly #context: Context;
  readonly #newRing: NewRing;
  #sq: Ring;
  #rq: Ring;
  #next: NextRings | undefined;

  constructor(context: Context, { qpn, pd, cap, rings, hasReceives, hasSends, newRing }: ShellInit) {
    this.#context = context;
    this.qpn = qpn;
    this.pd = pd;
    this.hasReceives = hasReceives;
    this.hasSends = hasSends;
    this.#newRing = newRing;
    [this.#sq, this.#rq] = rings;
    this.cap = grantedCap(cap, hasSends ? this.#sq : undefined, hasReceives ? this.#rq : undefined);
  }

  /** The sizes as a query shows them. */
  get capAsked(): QpCap {
    return this.#next?.cap ?? this.cap;
  }

  get sq(): Ring {
    return this.#sq;
  }

  /** With an SRQ: the entry in use, if there is one; else what is posted. */
  get rq(): Ring {
    return this.#rq;
  }

  get stateName(): QpState {
    return QP_STATES[this.state];
  }

  /** Number, sizes and rings of a new one: they go to the program. */
  get created(): QpCreated {
    return { qpn: this.qpn, cap: { ...this.cap }, sendQueue: this.#sq.shape, recvQueue: this.#rq.shape };
  }

  // ------------------------------------------------------------------ control

  /**
   * ibv_modify_qp(3): all of it is checked, and happens or nothing.
   *
   * @param to the state to go to
   * @param cap sizes of the rings of a resize
   * @param paths makes the paths of a connection
   * @returns those rings
   */
  abstract modify(attr: QpAttr, to: QpState, cap: QpCap | undefined, paths: Paths): QpResized | undefined;

  /** ibv_query_qp(3). */
  abstract query(): QpQuery;

  /** ibv_destroy_qp(3): what is outstanding is dropped without completions. */
  abstract destroy(): void;

  /** Bytes of the device's receive budget that its READs hold. */
  get readsHeld(): number {
    return 0;
  }

  // ------------------------------------------------------------------- resize

  /**
   * Throws EINVAL where the posted requests do not fit into queues of other sizes (IBV_QP_CAP), EBUSY before the last resize is done.
   */
  checkResize(cap: QpCap): void {
    this.takeUp();
    checkResize({ sq: this.#sq, rq: this.hasReceives ? this.#rq : undefined }, this.#next, cap);
  }

  /**
   * Makes rings of other sizes, which were checked. The program posts to them when it hears of them, and rings the doorbell; then
   * they take over what was posted before.
   */
  resize(cap: QpCap): QpResized {
    const next = new NextRings(this.#context, this.#newRing, cap, this.hasReceives);
    this.#next = next;
    (this as Own<QueueShell>).isResizing = true;
    next.show(this.state);
    return next.result(this.#rq);
  }

  /**
   * Answers doorbells that are on their way, before a change: the program may have moved to the rings of a resize; what it posted in SQE is
   * flushed (IBTA vol 1 §10.3.1.6), and if that overruns the completion queue, the change finds the queue pair in ERR.
   */
  followProgram(): void {
    if (this.isResizing || this.state === QpStateCode.SQE) this.posted();
  }

  /** Goes over to the rings of a resize, once the program posts there. */
  protected takeUp(): void {
    const next = this.#next;
    if (!next?.isTakenUp({ sq: this.#sq, rq: this.#rq }) || !this.fits(next)) return;
    this.#next = undefined;
    (this as Own<QueueShell>).isResizing = false;
    const before = { sq: this.#sq, rq: this.#rq };
    this.#sq = next.sq;
    this.#rq = next.rq ?? this.#rq;
    (this as Own<QueueShell>).cap = next.cap;
    this.moved(next, before);
  }

  /** The rings of a resize that the program has not taken up. */
  protected get next(): Queues | undefined {
    return this.#next;
  }

  /** Whether what is under way fits into the rings of a resize; else they are taken up later. */
  protected fits(_next: NextRings): boolean {
    return true;
  }

  /** The queues go over to other rings, which are the shell's by now. */
  protected abstract moved(next: NextRings, before: Queues): void;

  /** Answers a doorbell. */
  abstract posted(): void;

  // -------------------------------------------------------------------- state

  /** Every change of a state but the first and the last goes through here. */
  protected setState(state: number): void {
    if (this.state === state) return;
    const from = this.stateName;
    this.show(state);
    this.#context.stateChanged(this.qpn, from, this.stateName);
  }

  /** Changes the state and shows it to the threads that post. */
  protected show(state: number): void {
    (this as Own<QueueShell>).state = state;
    (this as Own<QueueShell>).sends = state === QpStateCode.RTS || state === QpStateCode.SQD;
    this.#sq.state = state;
    this.#rq.state = state;
    this.#next?.show(state);
  }

  abstract toError(): void;

  /** No queue pair whose completion has no place can go on (IBTA vol 1 §11.6.3.1). */
  completionLost(): void {
    if (this.state === QpStateCode.ERR) return;
    this.#context.event({ type: 'QP_FATAL', qpn: this.qpn });
    this.toError();
  }

  /** Ends the queue pair because of a fault of the engine itself. One that is destroyed is in RESET. */
  failed(): void {
    if (this.state === QpStateCode.ERR || this.state === QpStateCode.RESET) return;
    this.#context.event({ type: 'QP_FATAL', qpn: this.qpn });
    this.toError();
  }

  abstract bug(text: string): void;

  /** Reports broken promises: those of the parts, and its own. */
  checkInvariants(): void {
    const broken = this.broken();
    if (broken !== undefined) this.bug(broken);
    if (this.isResizing !== (this.#next !== undefined))
      this.bug('whether the queues are resized is shown wrong');
    if (this.#sq.state !== this.state || this.#rq.state !== this.state)
      this.bug('the rings show another state');
  }

  /** The broken promise of a part, if there is one. */
  protected abstract broken(): string | undefined;
}
