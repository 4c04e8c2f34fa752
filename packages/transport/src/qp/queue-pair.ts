/** A queue pair: its attributes and its state, and the parts that send and receive. */
import { Transport } from '@node-roce/wire';
import { PathMigration } from '../apm/migration.ts';
import type { TxBatch } from '../batch.ts';
import type { CompletionQueue } from '../completion-queue.ts';
import { NotificationPoint } from '../congestion/notification-point.ts';
import type { Congestion } from '../congestion/options.ts';
import { type QpState, QpStateCode, type QpType } from '../constants.ts';
import type { Context } from '../context.ts';
import type { KeepEarly, QpAttr, QpCap, QpCreated, QpQuery, QpResized, Recovery } from '../control.ts';
import { plainAttributes, queryAttributes } from '../modify.ts';
import { Completer } from '../requester/completer.ts';
import { Requester } from '../requester/requester.ts';
import type { RequesterRole } from '../requester/role.ts';
import { UnreliableRequester } from '../requester/unreliable.ts';
import { createResponder } from '../responder/create.ts';
import type { Responder } from '../responder/responder.ts';
import { type Sender, SenderTurns } from '../scheduler.ts';
import type { SharedReceiveQueue } from '../srq.ts';
import { Rendezvous } from '../tags/rendezvous.ts';
import { TaggedReceives } from '../tags/tagged-receives.ts';
import { withdraw } from '../withdraw.ts';
import { Service } from '../wr-opcodes.ts';
import { changedAttributes, type PathAttributes, type QpAttributes, RESET_ATTRIBUTES } from './attributes.ts';
import { isOfXrc, type QueuePairInit } from './init.ts';
import type { Owner } from './owner.ts';
import type { Paths } from './paths.ts';
import { ReceiveQueue } from './receive-queue.ts';
import type { NextRings, Queues } from './resize.ts';
import { SendQueue } from './send-queue.ts';
import { type OwnQueues, QueueShell } from './shell.ts';

/** Lives that the mark in the slots of a batch distinguishes. */
const LIVES = 256;

/** Owns the attributes and the state machine; the shell and the parts own the rest. */
export class QueuePair extends QueueShell implements Owner, Sender {
  readonly type: QpType;
  readonly service: number;
  /** As the program gave them. With a tag matching SRQ, receives and rendezvous complete in that one's queue. */
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  readonly congestion: Congestion;
  /** Its rate obeys CNPs, so that its data may be marked. */
  readonly reacts: boolean;
  readonly sqSigAll: boolean;
  readonly srq: SharedReceiveQueue | undefined;
  readonly reliable: boolean;
  readonly datagram: boolean;
  readonly transport: number;
  #sqRegion: number;
  readonly sendQueue: SendQueue;
  readonly requester: RequesterRole;
  /** Its requester, and what takes the answers to that, where it is reliable. */
  readonly #reliable: Requester | undefined;
  readonly completer: Completer | undefined;
  readonly receives: ReceiveQueue;
  readonly responder: Responder;
  /** Where its paths may migrate. */
  readonly migration: PathMigration | undefined;
  /** Answers marks, once one came: most connections never see one. */
  #notification: NotificationPoint | undefined;
  readonly #turns = new SenderTurns(this);
  readonly #context: Context;
  #attributes: QpAttributes;
  #destroyed = false;
  /** A packet came from the peer since RTR. */
  #established = false;
  /** Counts connections, modulo `LIVES`. */
  #life = 0;
  #credits: boolean;
  /** Replies may be owed: the responder has asked for a turn, and was not seen to owe none since. */
  #mayOwe = false;
  readonly recovery: Recovery;
  #keepEarly: KeepEarly;

  constructor(context: Context, init: QueuePairInit, queues: OwnQueues) {
    const { qpn, type, pd, sendCq, recvCq, srq, cap, sqSigAll, activeMtu } = init;
    const isXrc = isOfXrc(type);
    super(context, { qpn, pd, cap, ...queues });
    this.#context = context;
    this.#credits = context.credits;
    this.type = type;
    this.service = Service[type];
    this.sendCq = sendCq;
    this.recvCq = recvCq;
    this.srq = srq;
    this.sqSigAll = sqSigAll;
    this.congestion = init.congestion;
    this.recovery = init.recovery;
    this.#keepEarly = this.recovery.keepEarly;
    this.reliable = type === 'RC' || isXrc;
    this.reacts = this.reliable && init.congestion.controller === 'dcqcn';
    this.datagram = type === 'UD' || type === 'GSI';
    this.transport = this.datagram ? Transport.UD : isXrc ? Transport.XRC : Transport[type as 'RC' | 'UC'];
    this.#attributes = changedAttributes(RESET_ATTRIBUTES, this.datagram ? { pathMtu: activeMtu } : {});
    this.#sqRegion = context.regionOf(this.sq);
    const tags = srq?.tags;
    const readCq = this.hasSends ? undefined : tags?.cq;
    this.sendQueue = new SendQueue(context, this, readCq ?? sendCq, this.sq, sqSigAll);
    if (this.reliable) {
      this.#reliable = new Requester(context, this, this.sendQueue);
      this.completer = new Completer(context, this, this.sendQueue, this.#reliable);
    }
    this.requester = this.#reliable ?? new UnreliableRequester(context, this, this.sendQueue);
    const rendezvous = this.hasSends ? undefined : new Rendezvous(this, this.sq);
    const tagged = tags && new TaggedReceives(tags, this.rq, rendezvous);
    this.receives = new ReceiveQueue(context, this, tags?.cq ?? recvCq, this.rq, srq, tagged);
    this.responder = createResponder(context, this, this.receives, init.domain);
    if (!this.datagram && init.migrates) this.migration = this.#newMigration();
    sendCq.use(1);
    recvCq.use(1);
    srq?.use(1);
  }

  #newMigration(): PathMigration {
    const { qpn, responder, completer } = this;
    const attributes = () => this.#attributes;
    return new PathMigration({
      qpn,
      get attributes() {
        return attributes();
      },
      get expectedPsn() {
        return responder.expectedPsn;
      },
      awaits: (packet) => (packet.info.isRequest ? responder : completer)?.awaits(packet) ?? false,
      takePath: (path) => this.#takePath(path),
      setMigReq: (migReq) => {
        this.#attributes = changedAttributes(this.#attributes, { migReq });
      },
      event: (event) => this.#context.event(event),
    });
  }

  get sqRegion(): number {
    return this.#sqRegion;
  }

  get attributes(): QpAttributes {
    return this.#attributes;
  }

  get destroyed(): boolean {
    return this.#destroyed;
  }

  get credits(): boolean {
    return this.#credits;
  }

  /** As the adapter has it, unless both sides of a connection agreed; until RESET. */
  setCredits(credits: boolean): void {
    this.#credits = credits;
  }

  get keepEarly(): KeepEarly {
    return this.#keepEarly;
  }

  /** The peer's requester knows the meaning of ACKs ahead; until RESET. */
  acknowledgeAhead(): void {
    if (this.#keepEarly === 'auto') this.#keepEarly = 'ahead';
  }

  get slotTag(): number {
    return ((this.#life << 24) | this.qpn) >>> 0;
  }

  override get created(): QpCreated {
    return { ...super.created, selective: this.recovery.selective };
  }

  override get readsHeld(): number {
    return this.#reliable?.reads.held ?? 0;
  }

  query(): QpQuery {
    return queryAttributes(this);
  }

  // ------------------------------------------------------------------- modify

  modify(attr: QpAttr, to: QpState, cap: QpCap | undefined, paths: Paths): QpResized | undefined {
    const { peer, alternate } = this.#attributes;
    const { pathMigState } = attr;
    if (pathMigState) this.migration?.check(pathMigState, attr.altAhAttr ?? alternate?.ah);
    const path = paths.of(this, attr);
    let resized: QpResized | undefined;
    try {
      resized = cap && this.resize(cap);
    } catch (error) {
      paths.drop(path);
      throw error;
    }
    this.setAttributes({ ...plainAttributes(attr), ...path });
    paths.drop({ ...(attr.ahAttr && { peer }), ...(attr.altAhAttr && { alternate }) });
    if (pathMigState) this.migration?.enter(pathMigState);
    if (attr.maxDestRdAtomic !== undefined) this.responder.setResources(attr.maxDestRdAtomic);
    if (attr.rqPsn !== undefined) this.responder.start(attr.rqPsn);
    if (attr.sqPsn !== undefined) this.requester.start(attr.sqPsn);
    if (attr.qpState !== undefined) this.enter(QpStateCode[to]);
    return resized;
  }

  /** Replaces attributes, all checked, and lets the parts take them over. */
  setAttributes(changes: Partial<QpAttributes>): void {
    const from = this.#attributes;
    this.#attributes = changedAttributes(from, changes);
    this.requester.configure(from, this.#attributes);
  }

  /** The alternate path is the only one from now on. Packets that wait for the link still take the path that they were made for. */
  #takePath(path: PathAttributes): void {
    const { peer } = this.#attributes;
    this.setAttributes({ ...path, alternate: undefined });
    this.#context.addresses.removePeer(peer);
    this.requester.migrated();
  }

  migrates(): boolean {
    return this.migration?.giveUp() ?? false;
  }

  protected override fits({ sq }: NextRings): boolean {
    return this.sendQueue.fits(sq);
  }

  protected moved(next: NextRings, before: Queues): void {
    this.sendQueue.moveTo(next.sq);
    if (next.rq) {
      this.receives.moveTo(next.rq, next.cap.maxRecvSge);
      if (before.rq) this.#context.freeRing(before.rq);
    }
    this.#context.freeSends(before.sq, this.#sqRegion, true);
    this.#sqRegion = this.#context.regionOf(next.sq);
  }

  /** Goes to another state, by ibv_modify_qp(3). */
  enter(state: number): void {
    this.takeUp();
    if (state === QpStateCode.ERR) {
      this.toError();
    } else if (state === QpStateCode.RESET) {
      this.setState(QpStateCode.RESET);
      this.#reset();
    } else {
      if (this.state === QpStateCode.RESET) {
        // A thread that posts may have looked at the state before RESET, and published after it.
        this.sendQueue.reset();
        this.receives.reset();
      }
      this.setState(state);
      if (state === QpStateCode.RTS) {
        // It is asked for with each SQD.
        this.#attributes = changedAttributes(this.#attributes, { notifyDrained: false });
        this.requester.resume();
        this.wantsTurn();
      } else if (state === QpStateCode.SQD) this.requester.drain();
    }
  }

  /** ERR: nothing is taken or sent any more; all that is posted is flushed in order, signaled or not (IBTA vol 1 §10.3.1.7). */
  toError(): void {
    this.takeUp();
    const before = this.state;
    this.setState(QpStateCode.ERR);
    this.requester.stop();
    this.responder.stop();
    this.#notification?.reset();
    withdraw(this.#context.batches.list, this.slotTag, false);
    this.flush();
    // It takes no more from the SRQ, whose entries are not flushed (IBTA vol 1 §10.2.9.1).
    if (this.srq && before !== QpStateCode.ERR) {
      this.#context.event({ type: 'QP_LAST_WQE_REACHED', qpn: this.qpn });
    }
  }

  /** Answers a doorbell: completes what was posted in ERR or SQE, else asks for a turn. */
  posted(): void {
    if (this.isResizing) this.takeUp();
    if (this.state === QpStateCode.ERR) this.flush();
    else if (this.state === QpStateCode.SQE) this.#flushSends();
    else this.wantsTurn();
  }

  /** Flushes the posted requests, and asks for doorbells for later ones. */
  flush(): void {
    this.#flushSends();
    if (this.receives.flush()) this.wantsTurn();
  }

  /** A thread that goes on posting meanwhile holds nobody up: the next turn flushes its requests. */
  #flushSends(): void {
    if (this.sendQueue.flush()) this.wantsTurn();
    this.requester.flushed();
  }

  /** RESET: as just created; what is posted is dropped (IBTA vol 1 §10.3.1.2). */
  #reset(): void {
    const { peer, pathMtu, alternate } = this.#attributes;
    withdraw(this.#context.batches.list, this.slotTag, true);
    if (alternate) this.#context.addresses.removePeer(alternate.peer);
    this.migration?.reset();
    // Before the attributes go: its last replies are still the peer's.
    if (peer >= 0) this.#context.farewells.take(this.responder, peer);
    this.#attributes = changedAttributes(RESET_ATTRIBUTES, this.datagram ? { pathMtu } : {});
    this.#established = false;
    this.#credits = this.#context.credits;
    this.#life = (this.#life + 1) % LIVES;
    this.sendQueue.reset();
    this.requester.reset();
    this.receives.reset();
    this.responder.reset();
    this.#notification?.reset();
    this.#keepEarly = this.recovery.keepEarly;
  }

  /** The queue pair is gone: what is outstanding is dropped without completions. */
  destroy(): void {
    const from = this.stateName;
    this.show(QpStateCode.RESET);
    this.#reset();
    this.#destroyed = true;
    this.requester.close();
    this.responder.close();
    this.#notification?.close();
    this.#context.freeSends(this.sq, this.#sqRegion, false);
    this.#context.freeRing(this.rq);
    const { next } = this;
    if (next) this.#context.freeRing(next.sq);
    if (next?.rq) this.#context.freeRing(next.rq);
    this.sendCq.use(-1);
    this.recvCq.use(-1);
    this.srq?.use(-1);
    this.#context.stateChanged(this.qpn, from, undefined);
  }

  /** A congestion notification packet came, right and from the peer or not. */
  notified(isValid: boolean): void {
    this.counters.cnpReceived++;
    if (!isValid || !this.reacts) return;
    this.counters.cnpHandled++;
    this.#reliable?.congestion.onCnp();
  }

  /** A packet of the peer came marked "congestion experienced". */
  marked(): void {
    if (this.datagram || !this.congestion.notify) return;
    this.#notification ??= new NotificationPoint(this.#context, this);
    this.#notification.marked();
  }

  /** A packet came from the peer. In RTR that raises COMM_EST (IBTA vol 1 §11.6.3.2). */
  heard(): void {
    if (this.#established) return;
    this.#established = true;
    if (this.state === QpStateCode.RTR) this.#context.event({ type: 'COMM_EST', qpn: this.qpn });
  }

  // -------------------------------------------------------------------- turns

  get owesReplies(): boolean {
    return (this.#mayOwe && this.responder.owed > 0) || this.#notification?.wanted === true;
  }

  get sleeps(): boolean {
    return this.requester.sleeps;
  }

  get answersFirst(): boolean {
    return !this.recvCq.wakes;
  }

  sendRequests(batch: TxBatch, budget: number): number {
    if (this.state === QpStateCode.ERR || this.state === QpStateCode.SQE) this.posted();
    return this.requester.transmit(batch, budget);
  }

  sendReplies(batch: TxBatch, budget: number, reads: boolean): number {
    const notified = this.#notification?.transmit(batch) ?? 0;
    if (!this.#mayOwe) return notified;
    const { responder } = this;
    const pacing = this.reacts ? this.#reliable?.pacing : undefined;
    const left = budget - notified;
    const sent =
      pacing && reads ? pacing.respond(responder, batch, left) : responder.transmit(batch, left, reads);
    this.#mayOwe = responder.owed > 0;
    if (!this.#mayOwe) pacing?.noReplies();
    return notified + sent;
  }

  // ---------------------------------------------------------- what parts ask

  wantsTurn(): void {
    this.#context.scheduler.wantsTurn(this.#turns);
  }

  wantsReplyTurn(): void {
    this.#mayOwe = true;
    this.#context.scheduler.wantsReplyTurn(this.#turns);
  }

  sendQueueDrained(): void {
    if (this.#attributes.notifyDrained) this.#context.event({ type: 'SQ_DRAINED', qpn: this.qpn });
  }

  sendFailed(): void {
    if (this.reliable) {
      this.toError();
      return;
    }
    // SQE: the rest is flushed, the receive queue works on (IBTA vol 1 §10.3.1.6). The failed send's
    // completion may have had no place, which ends the queue pair as a whole.
    if (this.state === QpStateCode.ERR) return;
    this.setState(QpStateCode.SQE);
    this.requester.stop();
    withdraw(this.#context.batches.list, this.slotTag, false);
    this.#flushSends();
  }

  bug(text: string): void {
    this.#context.bug(this, text);
  }

  protected broken(): string | undefined {
    return (
      this.sendQueue.check() ??
      this.requester.check() ??
      this.receives.check() ??
      this.responder.check() ??
      this.migration?.fault() ??
      (this.responder.owed > 0 && !this.#mayOwe ? 'no turn will send the replies' : undefined)
    );
  }
}
