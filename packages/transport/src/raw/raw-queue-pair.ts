/**
 * A queue pair of type RAW_PACKET: whole Ethernet frames, as the program writes them, out of an interface and in from it
 * (ibv_create_qp(3), ibv_modify_qp(3)).
 */
import type { CompletionQueue } from '../completion-queue.ts';
import { CONGESTION_DEFAULTS } from '../congestion/options.ts';
import { type QpState, QpStateCode, WcOpcode, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import type { QpAttr, QpCap, QpQuery, QpResized, Recovery } from '../control.ts';
import { changedAttributes, type QpAttributes, RESET_ATTRIBUTES } from '../qp/attributes.ts';
import { ReceiveQueue } from '../qp/receive-queue.ts';
import type { NextRings } from '../qp/resize.ts';
import { SendQueue } from '../qp/send-queue.ts';
import { QueueShell } from '../qp/shell.ts';
import type { NewRing } from '../rings.ts';
import { recvStride, sendStride } from '../rings.ts';
import type { SharedReceiveQueue } from '../srq.ts';
import { VALID_IN_STATE } from '../transitions.ts';
import { Service } from '../wr-opcodes.ts';
import { FrameCounts } from './frame-counts.ts';
import { BATCHES_MAX, type FrameOwner, FrameSender } from './frame-sender.ts';
import {
  FRAME_SLOT_WORDS,
  Frame,
  type FrameBatch,
  type FrameCount,
  type FramePort,
  type FrameRule,
} from './frames.ts';

/** Frames taken from the port at once. */
const BATCH = 64;
/** µs after which what is left has its turn: the other queue pairs have theirs first. */
const SOON = 1;

/** All that passes: the rules of a queue pair that was given none. */
const EVERYTHING: readonly FrameRule[] = [[]];
const NOTHING: readonly FrameRule[] = [];

export interface RawQueuePairInit {
  qpn: number;
  pd: number;
  sendCq: CompletionQueue;
  recvCq: CompletionQueue;
  srq: SharedReceiveQueue | undefined;
  cap: QpCap;
  sqSigAll: boolean;
  port: FramePort;
  frames: FrameBatch;
  /** Where its rings are made; the adapter's own memory unless given. */
  newRing?: NewRing | undefined;
}

/** Owns its state and its filter. Promise: a frame waits in the port until a receive is posted for it. */
export class RawQueuePair extends QueueShell implements FrameOwner {
  readonly type = 'RAW_PACKET';
  readonly service = Service.RAW_PACKET;
  readonly reliable = false;
  readonly datagram = false;
  readonly transport = 0;
  readonly credits = false;
  readonly recovery: Recovery;
  readonly keepEarly = 'off';
  /** Frames know neither marks nor CNPs. */
  readonly congestion = CONGESTION_DEFAULTS;
  readonly reacts = false;
  #sqRegion: number;
  readonly #context: Context;
  readonly #init: RawQueuePairInit;
  readonly #port: FramePort;
  readonly #frames: FrameBatch;
  readonly #sendQueue: SendQueue;
  readonly #receives: ReceiveQueue;
  readonly #sender: FrameSender;
  readonly #timers = new Float64Array([Number.POSITIVE_INFINITY]);
  readonly #timer: number;
  #attributes: QpAttributes = RESET_ATTRIBUTES;
  #rules = EVERYTHING;
  /** By rule, where that was asked for. */
  #counts: FrameCounts | undefined;
  #listening = false;

  constructor(context: Context, init: RawQueuePairInit) {
    const { qpn, pd, sendCq, recvCq, srq, cap, sqSigAll, port, frames } = init;
    const { newRing = context.newRing } = init;
    const rings = [
      newRing(cap.maxSendWr, sendStride(cap.maxSendSge, cap.maxInlineData)),
      srq ? context.newRing(1, recvStride(srq.maxSge)) : newRing(cap.maxRecvWr, recvStride(cap.maxRecvSge)),
    ] as const;
    super(context, { qpn, pd, cap, rings, hasReceives: srq === undefined, hasSends: true, newRing });
    this.#context = context;
    this.#init = init;
    this.recovery = context.recovery;
    this.#port = port;
    this.#frames = frames;
    this.#sqRegion = context.regions.add(this.sq.bytes);
    this.#sendQueue = new SendQueue(context, this, sendCq, this.sq, sqSigAll);
    this.#receives = new ReceiveQueue(context, this, recvCq, this.rq, srq);
    this.#sender = new FrameSender(context, this, this.#sendQueue, port);
    this.#timer = context.deadlines.enroll(this, this.#timers);
    sendCq.use(1);
    recvCq.use(1);
    srq?.use(1);
  }

  get sqRegion(): number {
    return this.#sqRegion;
  }

  get attributes(): QpAttributes {
    return this.#attributes;
  }

  get slotTag(): number {
    return this.qpn;
  }

  // ------------------------------------------------------------------ control

  /** ibv_modify_qp(3); all of it is checked. */
  modify(attr: QpAttr, to: QpState, cap: QpCap | undefined): QpResized | undefined {
    const resized = cap && this.resize(cap);
    const { portNum, rateLimit } = attr;
    if (portNum !== undefined) this.#attributes = changedAttributes(this.#attributes, { portNum });
    if (rateLimit !== undefined) {
      this.#attributes = changedAttributes(this.#attributes, { rateLimit });
      this.#sender.setRate(rateLimit);
    }
    if (attr.qpState !== undefined) this.#enter(QpStateCode[to]);
    this.run();
    return resized;
  }

  protected moved(next: NextRings): void {
    this.#sendQueue.moveTo(next.sq);
    if (next.rq) this.#receives.moveTo(next.rq, next.cap.maxRecvSge);
    // Frames with inline data may wait for the port.
    this.#context.regions.retire(this.#sqRegion);
    this.#sqRegion = this.#context.regions.add(next.sq.bytes);
  }

  /**
   * ibv_create_flow(3), in the product's style: what it takes in from now on; `undefined` for all that the interface does.
   *
   * @param counts whether frames are counted by the rules that let them pass
   * @returns the counts of the rules before; none where they were not counted
   */
  setFilter(rules: readonly FrameRule[] | undefined, counts: boolean): FrameCount[] {
    const next = rules ?? EVERYTHING;
    if (this.#listening) this.#port.setFilter(next);
    else this.#port.checkFilter(next);
    const before = this.frameCounts();
    this.#rules = next;
    this.#counts = counts ? new FrameCounts(next) : undefined;
    return before;
  }

  /** Frames by the rules that let them pass, in their order; none where they are not counted. */
  frameCounts(): FrameCount[] {
    return this.#counts?.list() ?? [];
  }

  query(): QpQuery {
    const { attributes } = this;
    const cap = this.capAsked;
    const all: QpAttr = { portNum: attributes.portNum, rateLimit: attributes.rateLimit, sqDraining: false };
    const attr: QpAttr = { qpState: this.stateName, curQpState: this.stateName, cap: { ...cap } };
    for (const name of VALID_IN_STATE.RAW_PACKET[this.stateName])
      (attr as Record<string, unknown>)[name] = all[name];
    const { sqSigAll, sendCq, recvCq, srq } = this.#init;
    const init = {
      type: this.type,
      cap: { ...cap },
      sqSigAll,
      sendCq: sendCq.handle,
      recvCq: recvCq.handle,
    } as const;
    return { attr, init: { ...init, ...(srq ? { srq: srq.handle } : {}) } };
  }

  #enter(state: number): void {
    this.takeUp();
    if (state === QpStateCode.ERR) this.toError();
    else if (state === QpStateCode.RESET) this.#reset();
    else {
      if (this.state === QpStateCode.RESET) {
        this.#sendQueue.reset();
        this.#receives.reset();
      }
      this.setState(state);
      this.#listen(state >= QpStateCode.RTR);
    }
  }

  #reset(): void {
    this.#listen(false);
    this.#sender.drop();
    this.setState(QpStateCode.RESET);
    this.#sendQueue.reset();
    this.#receives.reset();
    this.#attributes = RESET_ATTRIBUTES;
    this.#sender.setRate(0);
  }

  /** Frames come in, or no longer; those that wait in the port then are lost. */
  #listen(on: boolean): void {
    if (on === this.#listening) return;
    this.#listening = on;
    this.#port.setFilter(on ? this.#rules : NOTHING);
    if (on) return;
    this.#port.wantRead(false);
    // They come into the slab that frames which were delivered are still to be copied from.
    this.#context.flushCopies();
    while (this.#port.receive(this.#frames, BATCH) > 0);
  }

  destroy(): void {
    const from = this.stateName;
    this.#reset();
    this.#port.close();
    this.#context.deadlines.leave(this.#timer);
    this.#context.regions.remove(this.sqRegion);
    const { sendCq, recvCq, srq } = this.#init;
    sendCq.use(-1);
    recvCq.use(-1);
    srq?.use(-1);
    this.#context.stateChanged(this.qpn, from, undefined);
  }

  /** The adapter is at its end: no frame comes or goes any more. */
  close(): void {
    this.#listening = false;
    this.#sender.drop();
    this.setState(QpStateCode.ERR);
    this.#port.close();
  }

  // --------------------------------------------------------------- data path

  /** Sends the posted frames, and takes in frames while there are receives. Completions show when the caller publishes. */
  run(): void {
    this.#sender.send();
    this.#receive();
  }

  /** Answers a doorbell. */
  posted(): void {
    this.takeUp();
    if (this.state === QpStateCode.ERR) this.#flush();
    else if (this.state === QpStateCode.SQE) this.#flushSends();
    else this.run();
  }

  wakeAt(time: number): void {
    this.#timers[0] = time;
    this.#context.deadlines.armed(this.#timer, 0);
  }

  wakeSoon(): void {
    this.wakeAt(this.#context.clock[0] + SOON);
  }

  timersDue(): void {
    this.#timers[0] = Number.POSITIVE_INFINITY;
    this.posted();
  }

  #receive(): void {
    const receives = this.#receives;
    let batches = 0;
    while (this.#listening) {
      if (batches++ === BATCHES_MAX) {
        this.wakeSoon();
        return;
      }
      // Without a receive frames wait in the port, until a doorbell reports one. An SRQ has no doorbells.
      const posted = receives.shared ? BATCH : receives.posted;
      this.#port.wantRead(posted > 0);
      if (posted === 0) {
        if (!this.rq.sleep(this.rq.consumer)) return;
        continue;
      }
      const count = this.#port.receive(this.#frames, Math.min(posted, BATCH));
      if (count === 0) return;
      this.#context.beginBatch(this.#frames.slab);
      for (let i = 0; i < count && this.#listening; i++) {
        const s = i * FRAME_SLOT_WORDS;
        this.#take(this.#frames.slots[s + Frame.OFFSET], this.#frames.slots[s + Frame.LENGTH]);
      }
      // The next frames come into the same slab.
      this.#context.flushCopies();
    }
  }

  /** A frame, for which a receive is posted. */
  #take(offset: number, length: number): void {
    const { counters } = this;
    const receives = this.#receives;
    counters.receivedPackets++;
    if (length === 0) {
      counters.droppedPackets++;
      return;
    }
    this.#counts?.add(this.#frames.slab, offset, length);
    if (!receives.available()) {
      counters.outOfBuffer++;
      return;
    }
    const status = receives.begin();
    if (status !== WcStatus.SUCCESS) {
      receives.fail(status);
      this.toError();
      return;
    }
    if (!receives.fits(length)) {
      // As a datagram: the receive waits for a frame that it has room for.
      receives.giveBack();
      counters.droppedPackets++;
      return;
    }
    if (!receives.fill(offset, length)) {
      receives.fail(WcStatus.LOC_PROT_ERR);
      this.toError();
      return;
    }
    counters.receivedMessages++;
    receives.deliverBytes(WcOpcode.RECV, length, false);
  }

  #flush(): void {
    this.#flushSends();
    if (this.#receives.flush()) this.wakeSoon();
  }

  /** A thread that goes on posting meanwhile holds nobody up: its requests are flushed when timers have their turn. */
  #flushSends(): void {
    if (this.#sendQueue.flush()) this.wakeSoon();
  }

  // ---------------------------------------------------------- what parts ask

  wantsTurn(): void {}

  wantsReplyTurn(): void {}

  migrates(): boolean {
    return false;
  }

  sendQueueDrained(): void {}

  toError(): void {
    this.takeUp();
    this.#listen(false);
    this.#sender.drop();
    this.setState(QpStateCode.ERR);
    this.#flush();
  }

  sendFailed(): void {
    if (this.state === QpStateCode.ERR) return;
    this.#sender.drop();
    this.setState(QpStateCode.SQE);
    this.#flushSends();
  }

  bug(text: string): void {
    this.#context.bug(this, text);
  }

  protected broken(): string | undefined {
    return this.#sendQueue.check() ?? this.#receives.check();
  }
}
