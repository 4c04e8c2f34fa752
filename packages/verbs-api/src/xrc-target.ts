/** XRC target queue pairs: states and connection; what they receive comes in through the SRQs of their domain. */
import {
  QP_STATES,
  type QpAttr,
  type QpState,
  Ring,
  type RoceError,
  type XrcTargetOpened,
} from '@node-roce/transport';
import { type CloseListener, Closing, failedError } from './closing.ts';
import type { ConnectionData, ConnectOptions } from './connection.ts';
import { type QueuePairCounters, queuePairCounters } from './counters.ts';
import { Ending } from './ending.ts';
import type { Engine } from './engine/engine.ts';
import { AffiliatedEvents } from './event-queue.ts';
import { custom, hex, line } from './inspect.ts';
import { checkCall, checkQpAttr } from './option-types.ts';
import { checkArgument, FUNCTION, INTEGER } from './options.ts';
import { Ends } from './queue-pair-ends.ts';
import { initStep } from './queue-pair-steps.ts';
import type { Registry } from './registry.ts';

export interface XrcTargetParts {
  engine: Engine;
  opened: XrcTargetOpened;
  context: unknown;
  random: () => number;
  registry: Registry<XrcTarget>;
}

/**
 * An opening of an XRC target queue pair (`struct ibv_qp` of type IBV_QPT_XRC_RECV). Nothing is posted to it. `modify` holds for the openings of all
 * contexts. It raises no async event: Linux gives each opening the events of the queue pair (`__ib_shared_qp_event_handler`), and a modify is none.
 */
export class XrcTarget implements AsyncDisposable {
  /** QPN, 24 bits; the same for every opening. */
  readonly qpNum: number;
  /** XRC_TGT. */
  readonly type = 'XRC_TGT';
  /** The program's value, given when it was opened (`qp_context`). */
  readonly context: unknown;
  /** Async events that concern it, handed out and not acknowledged: `close` waits for them. */
  readonly asyncEvents = new AffiliatedEvents();
  readonly #ending = new Ending();
  readonly #engine: Engine;
  readonly #handle: number;
  readonly #registry: Registry<XrcTarget>;
  /** The engine's own send queue, which shows the state. */
  readonly #ring: Ring;
  readonly #ends: Ends;
  #closing = new Closing();
  #gone = false;

  constructor({ engine, opened, context, random, registry }: XrcTargetParts) {
    this.#engine = engine;
    this.qpNum = opened.qpn;
    this.#handle = opened.handle;
    this.#ring = Ring.of(opened.sendQueue);
    this.context = context;
    this.#ends = new Ends(random);
    this.#registry = registry;
    registry.add(opened.handle, this);
  }

  /** ibv_modify_qp(3), with the steps of an XRC target; rejects as that of other queue pairs. RTR is enough to receive. */
  async modify(attr: QpAttr): Promise<void> {
    checkQpAttr(attr);
    await this.#engine.call('modifyQp', this.qpNum, attr);
  }

  /** A program has modified the queue pair, by this opening or by another one: state and peer are those of all openings. @internal */
  modified(attr: QpAttr): void {
    this.#ends.modified(attr);
    if (attr.qpState === 'ERR') this.fail(`QP ${this.qpNum} was taken to the error state`);
    else if (attr.qpState === 'RESET' && this.#closing.ended) this.#closing = new Closing();
  }

  /** ibv_query_qp(3): what is valid in its state. */
  async query(): Promise<{ attr: QpAttr }> {
    const { attr } = await this.#engine.call('queryQp', this.qpNum);
    return { attr };
  }

  /** The state, as the engine last published it. */
  get state(): QpState {
    return QP_STATES[this.#ring.state];
  }

  /** The data that the initiator needs. `gidIndex`: the first GID that is not link-local unless given. */
  connectionData(options: { gidIndex?: number } = {}): ConnectionData {
    checkCall(options, { gidIndex: INTEGER });
    // Of ours: it serves any part of a READ again, and acknowledges ahead.
    return { ...this.#ends.offer(this.#engine.facts, this.qpNum, options.gidIndex), selective: true };
  }

  /** From RESET (or INIT) to RTS, connected to that initiator. Rejects as `modify`. */
  connect(remote: ConnectionData, options: ConnectOptions = {}): Promise<void> {
    return this.#ends.connect(this, this.#engine, remote, options);
  }

  /** RESET to INIT. `access`: `Access` bits of the operations that initiators get; all unless given. */
  toInit(options: { access?: number } = {}): Promise<void> {
    checkCall(options, { access: INTEGER });
    return this.modify(initStep(this.type, options));
  }

  /** The PSN that its initiator begins with, random for each opening: for a connection manager. @internal */
  get initialPsn(): number {
    return this.#ends.initialPsn;
  }

  /** Counts of the queue pair, over all openings. */
  async counters(): Promise<QueuePairCounters> {
    return queuePairCounters(await this.#engine.call('qpCounters', this.qpNum));
  }

  /** Resolves when the program closes this opening; rejects with the cause when the queue pair comes to the error state. */
  get closed(): Promise<void> {
    return this.#closing.promise;
  }

  /** Calls back once at the end, with the cause unless the program closed it; returns a function that removes the callback. */
  onClose(listener: CloseListener): () => void {
    checkArgument('listener', listener, FUNCTION);
    return this.#closing.listen(listener);
  }

  /** The queue pair is in the error state. @internal */
  fail(message: string): void {
    this.end(failedError(message));
  }

  /** The end, with its cause if the program has not closed it. @internal */
  end(cause?: RoceError): void {
    this.#closing.end(cause);
  }

  /** ibv_destroy_qp(3): the queue pair goes with its last opening. Resolves once its async events are acknowledged, or the device ends. */
  close(): Promise<void> {
    return this.#ending.once(this.#engine, () => this.#close());
  }

  async #close(): Promise<void> {
    await this.#engine.call('closeXrcTarget', this.#handle);
    this.#gone = true;
    this.end();
    await this.#registry.leave(this.#handle, [this.asyncEvents]);
  }

  /** @internal */
  [custom](): string {
    return line('XrcTarget', {
      qpNum: hex(this.qpNum),
      state: this.#gone ? 'closed' : this.state,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
