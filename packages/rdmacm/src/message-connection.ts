/** A connection that carries messages, with queues of its own. */
import {
  type CompletionQueue,
  EventQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  RoceError,
} from '@node-roce/verbs-api';
import { CmRejReason } from '@node-roce/wire';
import { orAborted } from './attempt.ts';
import type { CmId } from './cm-id.ts';
import { closedError } from './errors.ts';
import { checkMessage, checkWait } from './options.ts';
import type { ConnectionParameters } from './parameters.ts';
import { Slots } from './slots.ts';

/** Sizes of a connection's queues, and how it watches its peer. */
export interface MessageOptions {
  /** Bytes of the largest message, in both directions; both sides need the same. Default 64 KiB. */
  maxMessage?: number;
  /** Messages that are on their way at a time, each way. Default 16. */
  slots?: number;
  /** Milliseconds between zero-length WRITEs, which find out that a silent peer is gone. Default 0: none. */
  keepAlive?: number;
}

/** How long `close` waits for the peer: one repetition of the disconnect with Linux's intervals. */
const PEER_MS = 5000;
const DEFAULTS = { maxMessage: 65_536, slots: 16, keepAlive: 0 } as const;

/**
 * Messages in order, each as it was sent. `send` resolves when the peer's adapter has the message, and waits while all
 * slots are in use; a peer that takes no messages holds its sender back. Made by `connect` and `listen`.
 */
export class MessageConnection implements AsyncDisposable {
  /** The id below, with its addresses and its state. */
  readonly id: CmId;
  /** The queue pair, for WRITE, READ and atomics. */
  readonly qp: QueuePair;
  /** For regions of the program's own. */
  readonly pd: ProtectionDomain;
  /** Private data of the peer's program, from its connect or accept, padded with zeros. */
  privateData: Uint8Array = new Uint8Array(0);
  readonly #cq: CompletionQueue;
  readonly #inbox: MemoryRegion;
  readonly #outbox: MemoryRegion;
  readonly #maxMessage: number;
  readonly #slots: number;
  readonly #outgoing: Slots;
  /** At most `slots`, and the end. */
  readonly #messages = new EventQueue<Arrived | undefined>(Number.POSITIVE_INFINITY);
  readonly #receiving = new Set<Promise<void>>();
  readonly #keepAlive: number;
  #timer: NodeJS.Timeout | undefined;
  /** A probe is not answered yet. */
  #probing = false;
  #failure: unknown;
  #closing: Promise<void> | undefined;

  /** @internal */
  static async open(id: CmId, options: MessageOptions): Promise<MessageConnection> {
    const sizes = { ...DEFAULTS, ...options };
    const made: Made = {};
    try {
      await makeParts(id, sizes, made);
    } catch (error) {
      if (id.state === 'CONNECT_REQUEST')
        await id.reject(undefined, CmRejReason.NO_RESOURCES).catch(() => {});
      await id.destroy();
      await releaseParts(made);
      throw error;
    }
    return new MessageConnection({ id, ...(made as Required<Made>) }, sizes);
  }

  private constructor(
    parts: { id: CmId } & Required<Made>,
    { maxMessage, slots, keepAlive }: Required<MessageOptions>,
  ) {
    this.id = parts.id;
    this.pd = parts.pd;
    this.qp = parts.qp;
    this.#cq = parts.cq;
    this.#inbox = parts.inbox;
    this.#outbox = parts.outbox;
    this.#maxMessage = maxMessage;
    this.#slots = slots;
    this.#keepAlive = keepAlive;
    this.#outgoing = new Slots(slots);
    for (let slot = 0; slot < slots; slot++) this.#receive(slot);
    void this.id.disconnected.then(() => this.#onEnd());
    // A request that failed has ended the queue pair; the connection manager does not know.
    this.qp.onClose((cause) => {
      const { state } = this.id;
      const isOpen = state === 'CONNECTING' || state === 'CONNECTED';
      // A peer that refused a request disconnects at once: its DREQ may have come first. A device that failed ends the id first.
      if (cause === undefined || !(isOpen || isRefusal(cause) || cause.code === 'ERR_ROCE_DEVICE_FATAL'))
        return;
      this.#failure = cause;
      // While it connects, `#begin` finds out.
      if (state === 'CONNECTED') this.id.destroy().catch(() => {}); // `close` rejects with it, too.
    });
  }

  /** @internal */
  async connect(parameters: ConnectionParameters, signal: AbortSignal | undefined): Promise<this> {
    await this.id.connect(parameters, { signal });
    this.privateData = this.id.replyData ?? this.privateData;
    return this.#begin();
  }

  /** @internal */
  async accept(parameters: ConnectionParameters, signal: AbortSignal | undefined): Promise<this> {
    this.privateData = this.id.request?.privateData ?? this.privateData;
    await this.id.accept(parameters, { signal });
    return this.#begin();
  }

  /** Delivers the messages that have arrived, then the end. */
  async #onEnd(): Promise<void> {
    clearInterval(this.#timer);
    this.#outgoing.close();
    await Promise.all(this.#receiving);
    this.#messages.push(undefined);
  }

  #begin(): this {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#keepAlive > 0 && this.id.state === 'CONNECTED')
      this.#timer = setInterval(() => this.#probe(), this.#keepAlive).unref();
    return this;
  }

  /** Resolves when the connection has ended, in order or by the peer's death. */
  get closed(): Promise<void> {
    return this.id.disconnected;
  }

  /**
   * Sends a message: bytes, or text as UTF-8. Resolves when the peer's adapter has acknowledged it.
   *
   * A signal ends the wait. A message that had a slot is on its way: it arrives all the same, unless the connection ends.
   *
   * Rejects with EMSGSIZE beyond `maxMessage`; with ERR_ROCE_CLOSED or ERR_ROCE_COMPLETION if the connection ends before.
   */
  async send(message: Uint8Array | string, options: { signal?: AbortSignal } = {}): Promise<void> {
    checkMessage(message);
    checkWait(options);
    const bytes = typeof message === 'string' ? new TextEncoder().encode(message) : message;
    if (bytes.length > this.#maxMessage)
      throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `message: ${bytes.length} bytes`, {
        errno: 'EMSGSIZE',
        attribute: 'message',
        expected: `${this.#maxMessage} bytes at most (maxMessage)`,
      });
    const slot = await this.#slot(options.signal);
    await orAborted(this.#post(slot, bytes), options.signal);
  }

  /** Sends it from a slot, which is free again with the completion. */
  async #post(slot: number, bytes: Uint8Array): Promise<void> {
    try {
      const offset = slot * this.#maxMessage;
      this.#outbox.bytes(offset, bytes.length).set(bytes);
      await this.qp.send({ mr: this.#outbox, offset, length: bytes.length });
    } catch (error) {
      throw this.#ended(error);
    } finally {
      this.#outgoing.release(slot);
    }
  }

  /**
   * The next message, in bytes of the caller's own; undefined once the connection has ended, and all before is taken.
   *
   * Rejects then with ERR_ROCE_COMPLETION or ERR_ROCE_DEVICE_FATAL where a request or the device failed.
   */
  async receive(options: { signal?: AbortSignal } = {}): Promise<Uint8Array | undefined> {
    checkWait(options);
    const arrived = await this.#messages.next(options.signal);
    if (arrived === undefined) {
      this.#messages.push(undefined);
      if (this.#failure !== undefined) throw this.#failure;
      return undefined;
    }
    const { slot, length } = arrived;
    const bytes = this.#inbox.bytes(slot * this.#maxMessage, length).slice();
    this.#receive(slot);
    return bytes;
  }

  /** Messages until the connection ends. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void> {
    for (;;) {
      const message = await this.receive();
      if (message === undefined) return;
      yield message;
    }
  }

  /**
   * Disconnects, and destroys the objects of the connection; messages whose `send` resolved have arrived, others are discarded.
   * A peer that is gone is waited for at most 5 s, and async events that the program has not acknowledged are not waited for. Regions
   * that the program registered in `pd` stay, and the domain with them.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close(PEER_MS);
    return this.#closing;
  }

  /** Closes it without a wait for the peer, which hears of it all the same. @internal */
  discard(): Promise<void> {
    this.#closing ??= this.#close(0);
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @param patience milliseconds for the peer's answer: the peer chooses the intervals and the repetitions */
  async #close(patience: number): Promise<void> {
    clearInterval(this.#timer);
    if (patience > 0 && this.id.state === 'CONNECTED')
      await orAborted(this.id.disconnect(), AbortSignal.timeout(patience)).catch(() => {});
    // A program that logs async events need not know whose they are: none is waited for.
    this.qp.asyncEvents.waive();
    this.#cq.asyncEvents.waive();
    await this.qp.close().catch(() => {}); // `destroy` rejects with it, too.
    await releaseParts({ inbox: this.#inbox, outbox: this.#outbox, cq: this.#cq, pd: this.pd });
    await this.id.destroy();
  }

  /** A slot of the outbox, in the order of the calls; waits while all are in use. */
  async #slot(signal: AbortSignal | undefined): Promise<number> {
    signal?.throwIfAborted();
    if (this.#closing || this.id.state !== 'CONNECTED') throw this.#ended();
    const slot = await this.#outgoing.take(signal);
    if (slot === undefined) throw this.#ended();
    return slot;
  }

  #receive(slot: number): void {
    const range = { mr: this.#inbox, offset: slot * this.#maxMessage, length: this.#maxMessage };
    // Posted one after the other, and they complete in that order.
    const receiving = this.qp.receive(range).then(
      ({ byteLen }) => this.#messages.push({ slot, length: byteLen }),
      () => {}, // Flushed: the connection has ended.
    );
    this.#receiving.add(receiving);
    void receiving.then(() => this.#receiving.delete(receiving));
  }

  /** Asks whether the peer is there: a WRITE of nothing is acknowledged by its adapter (IBTA vol 1 §9.7.5.1.3). */
  #probe(): void {
    if (this.id.state !== 'CONNECTED' || this.#probing) return;
    this.#probing = true;
    this.qp
      .write([], { addr: 0n, rkey: 0 })
      .catch(() => {}) // A failure ends the queue pair.
      .finally(() => {
        this.#probing = false;
      });
  }

  #ended(cause?: unknown): unknown {
    if (this.#failure !== undefined) return this.#failure;
    return this.id.state === 'CONNECTED' && cause !== undefined
      ? cause
      : closedError('the connection has ended');
  }

  /** Messages each way that can be under way. */
  get slots(): number {
    return this.#slots;
  }
}

/** A request failed, and was not discarded because the connection ended. */
const isRefusal = ({ code, attribute }: RoceError): boolean =>
  code === 'ERR_ROCE_COMPLETION' && attribute !== 'WR_FLUSH_ERR';

/** The verbs objects of a connection. */
interface Made {
  pd?: ProtectionDomain;
  cq?: CompletionQueue;
  qp?: QueuePair;
  inbox?: MemoryRegion;
  outbox?: MemoryRegion;
}

/** Creates them one after the other; those that there are when it rejects are in `made`. */
async function makeParts(
  id: CmId,
  { slots, maxMessage }: Required<MessageOptions>,
  made: Made,
): Promise<void> {
  const pd = await id.device.allocPd();
  made.pd = pd;
  const cq = await id.device.createCq(4 * slots + 4);
  made.cq = cq;
  // A probe is not one of the messages.
  made.qp = await id.createQp(pd, { sendCq: cq, cap: { maxSendWr: slots + 2, maxRecvWr: slots } });
  made.inbox = await pd.registerMr(memoryOf(slots * maxMessage));
  made.outbox = await pd.registerMr(memoryOf(slots * maxMessage));
}

function memoryOf(bytes: number): Uint8Array {
  try {
    return new Uint8Array(new SharedArrayBuffer(bytes));
  } catch (cause) {
    throw new RoceError('ERR_ROCE_LIMIT', `slots × maxMessage: no room for twice ${bytes} bytes`, {
      errno: 'ENOMEM',
      attribute: 'maxMessage',
      expected: 'fewer slots, or smaller messages',
      cause,
    });
  }
}

/** Destroys all but the queue pair, which is its id's. Parts that the program still uses stay. */
async function releaseParts({ inbox, outbox, cq, pd }: Made): Promise<void> {
  const ignore = () => {}; // EBUSY: windows on the regions, or regions in the domain.
  await inbox?.deregister().catch(ignore);
  await outbox?.deregister().catch(ignore);
  await cq?.destroy().catch(ignore);
  await pd?.dealloc().catch(ignore);
}

/** A message in a slot of the inbox. */
interface Arrived {
  slot: number;
  length: number;
}
