/** A connection that carries messages, with queues of its own. */
import { EventEmitter } from 'node:events';
import { inspect } from 'node:util';
import {
  type CompletionQueue,
  EventQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  RoceError,
} from '@node-roce/verbs-api';
import { agreed, type Sizes, takeSizes, withSizes } from './agreement.ts';
import { orAborted } from './attempt.ts';
import type { CmId } from './cm-id.ts';
import { ConnectionStream, type StreamOptions } from './connection-stream.ts';
import { Deadline } from './deadline.ts';
import { closedError, hostAndPort, isStreamError } from './errors.ts';
import { MessageChannel } from './message-channel.ts';
import { DEFAULTS, type MessageOptions } from './message-options.ts';
import { type Made, makeParts, releaseParts } from './message-parts.ts';
import { checkLength, checkMessage, checkStreamOptions, checkWait } from './options.ts';
import { type ConnectionParameters, PRIVATE_DATA } from './parameters.ts';
import { Slots } from './slots.ts';
import { Watch } from './watch.ts';
import { type StreamPair, webStreams } from './web-streams.ts';

/** Events of a connection. */
export interface ConnectionEvents {
  /** It has ended; with the cause, unless either side closed it. */
  close: [cause: Error | undefined];
  /** It failed. Where nobody listens, calls alone report it. */
  error: [cause: Error];
  /** A slot is free for the next message, where none was. */
  drain: [];
}

/**
 * Messages in order, each as it was sent. `send` resolves when the peer's adapter has the message, and waits while all
 * slots are in use; a peer that takes no messages holds its sender back. Made by `connect` and `listen`.
 */
export class MessageConnection extends EventEmitter<ConnectionEvents> implements AsyncDisposable {
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
  readonly #own: Sizes;
  /** As agreed with the peer. */
  #sizes: Sizes;
  readonly #outgoing: Slots;
  /** At most `slots`, and the end. */
  readonly #messages = new EventQueue<Arrived | undefined>(Number.POSITIVE_INFINITY);
  readonly #receiving = new Set<Promise<void>>();
  readonly #published = new Map<Uint8Array, Promise<MemoryRegion>>();
  readonly #watch: Watch;
  readonly #closeTimeout: number;
  /** A stream has the messages. */
  #isStream = false;
  #failure: unknown;
  #closing: Promise<void> | undefined;

  /** The objects of an id. Where it rejects, none is left; the id is the caller's. @internal */
  static async open(id: CmId, options: MessageOptions): Promise<MessageConnection> {
    const sizes = { ...DEFAULTS, ...options };
    const made: Made = {};
    try {
      await makeParts(id, sizes, made);
    } catch (error) {
      await made.qp?.close().catch(() => {});
      await releaseParts(made);
      throw error;
    }
    return new MessageConnection({ id, ...(made as Required<Made>) }, sizes);
  }

  private constructor(
    parts: { id: CmId } & Required<Made>,
    { maxMessage, slots, keepAlive, idleTimeout, closeTimeout }: Required<MessageOptions>,
  ) {
    super();
    this.id = parts.id;
    this.pd = parts.pd;
    this.qp = parts.qp;
    this.#cq = parts.cq;
    this.#inbox = parts.inbox;
    this.#outbox = parts.outbox;
    this.#own = { maxMessage, slots };
    this.#sizes = this.#own;
    this.#closeTimeout = closeTimeout;
    this.#watch = new Watch(
      { keepAlive, idleTimeout },
      { probe: () => this.#probe(), onIdle: () => void this.close() },
    );
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
    const privateData = withSizes(parameters.privateData, PRIVATE_DATA.connect, this.#own);
    await this.id.connect({ ...parameters, privateData }, { signal });
    this.#agree(this.id.replyData);
    return this.#begin();
  }

  /** @internal */
  async accept(parameters: ConnectionParameters, signal: AbortSignal | undefined): Promise<this> {
    // A peer that has not named its sizes is no message connection of ours: it gets the program's private data alone.
    const asks = this.#agree(this.id.request?.privateData);
    const { privateData: own } = parameters;
    const privateData = asks ? withSizes(own, PRIVATE_DATA.accept, this.#own) : own;
    await this.id.accept({ ...parameters, privateData }, { signal });
    return this.#begin();
  }

  /** Takes the smaller sizes of both sides; returns whether the peer has named any. */
  #agree(received = this.privateData): boolean {
    const { privateData, sizes } = takeSizes(received);
    this.privateData = privateData;
    this.#sizes = agreed(this.#own, sizes);
    this.#outgoing.withhold(this.#own.slots - this.#sizes.slots);
    return sizes !== undefined;
  }

  /** Delivers the messages that have arrived, then the end. */
  async #onEnd(): Promise<void> {
    this.#watch.stop();
    this.#outgoing.close();
    await Promise.all(this.#receiving);
    this.#messages.push(undefined);
    const failure = this.#failure as Error | undefined;
    if (failure !== undefined && this.listenerCount('error') > 0) this.emit('error', failure);
    this.emit('close', failure);
  }

  #begin(): this {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.id.state === 'CONNECTED') this.#watch.start();
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
  async send(
    message: Uint8Array | string,
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
    if (!(await this.offer(message, options))) throw this.#ended();
  }

  /** As `send`. Resolves with false where the connection ended before the message had a slot: nothing of it was sent. @internal */
  async offer(
    message: Uint8Array | string,
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<boolean> {
    checkMessage(message);
    checkWait(options);
    this.#checkNoStream();
    const bytes = typeof message === 'string' ? new TextEncoder().encode(message) : message;
    if (bytes.length > this.#sizes.maxMessage) throw this.#tooLong(bytes.length);
    const slot = await this.#slot(options.signal);
    if (slot === undefined) return false;
    await orAborted(this.#post(slot, [bytes], bytes.length), options.signal);
    return true;
  }

  /** Lets the peer READ memory, until `close`. @internal */
  publish(memory: Uint8Array): Promise<MemoryRegion> {
    let region = this.#published.get(memory);
    if (region === undefined) {
      if (this.#closing) return Promise.reject(this.#ended());
      region = this.pd.registerMr(memory, { access: { remoteRead: true } });
      this.#published.set(memory, region);
      region.catch(() => this.#published.delete(memory));
    }
    return region;
  }

  /** Bytes that `readRemote` has room for. @internal */
  get longestRead(): number {
    return this.#own.maxMessage;
  }

  /**
   * READs memory of the peer, `longestRead` bytes at most; resolves with a copy, or with undefined where the connection ended
   * before. It has a slot, as a message has, so requests that are under way never fill the queue. @internal
   */
  async readRemote(
    length: number,
    remote: { addr: bigint; rkey: number },
    signal: AbortSignal,
  ): Promise<Uint8Array | undefined> {
    checkLength(length, this.longestRead);
    this.#checkNoStream();
    const slot = await this.#slot(signal);
    if (slot === undefined) return undefined;
    const offset = slot * this.#own.maxMessage;
    return orAborted(
      this.#inSlot(slot, async () => {
        await this.qp.read({ mr: this.#outbox, offset, length }, remote);
        return Uint8Array.from(this.#outbox.bytes(offset, length));
      }),
      signal,
    );
  }

  /** Copies the parts into a slot, and sends it. */
  #post(slot: number, parts: readonly Uint8Array[], length: number): Promise<void> {
    return this.#inSlot(slot, async () => {
      const offset = slot * this.#own.maxMessage;
      const place = this.#outbox.bytes(offset, length);
      let at = 0;
      for (const part of parts) {
        place.set(part, at);
        at += part.length;
      }
      await this.qp.send({ mr: this.#outbox, offset, length });
    });
  }

  /** Does something with a slot, which is free again with the completion. */
  async #inSlot<T>(slot: number, work: () => Promise<T>): Promise<T> {
    try {
      const result = await work();
      this.#watch.moved();
      return result;
    } catch (error) {
      throw this.#ended(error);
    } finally {
      const wasFull = this.#outgoing.isEmpty;
      this.#outgoing.release(slot);
      if (wasFull && !this.#outgoing.isEmpty) this.emit('drain');
    }
  }

  #tooLong(bytes: number): RoceError {
    const [own, both] = [this.#own.maxMessage, this.#sizes.maxMessage];
    const whose = both < own ? `maxMessage of ${this.peer}, where this side has ${own}` : 'maxMessage';
    return new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `message: ${bytes} bytes`, {
      errno: 'EMSGSIZE',
      attribute: 'message',
      expected: `${both} bytes at most (${whose})`,
    });
  }

  /**
   * The next message, in bytes of the caller's own; undefined once the connection has ended, and all before is taken.
   *
   * Rejects then with ERR_ROCE_COMPLETION or ERR_ROCE_DEVICE_FATAL where a request or the device failed.
   */
  async receive(options: { signal?: AbortSignal | undefined } = {}): Promise<Uint8Array | undefined> {
    checkWait(options);
    this.#checkNoStream();
    return this.#take(options.signal);
  }

  async #take(signal?: AbortSignal): Promise<Uint8Array | undefined> {
    const arrived = await this.#messages.next(signal);
    if (arrived === undefined) {
      this.#messages.push(undefined);
      if (this.#failure !== undefined) throw this.#failure;
      return undefined;
    }
    const { slot, length } = arrived;
    const bytes = new Uint8Array(length);
    bytes.set(this.#inbox.bytes(slot * this.#own.maxMessage, length));
    this.#receive(slot);
    return bytes;
  }

  /**
   * The connection as a Node stream: bytes in order, sent in messages of up to `maxMessage`, `slots` of them under way. The stream has
   * all messages from then on, and closes the connection with its own end. The peer's side has to be a stream, too.
   */
  stream(options: StreamOptions = {}): ConnectionStream {
    checkStreamOptions(options);
    return new ConnectionStream(new MessageChannel(this.#port()), options);
  }

  /** The same as a pair of Web streams, each of which ends by itself. */
  streams(options: Omit<StreamOptions, 'allowHalfOpen'> = {}): StreamPair {
    checkStreamOptions(options);
    return webStreams(new MessageChannel(this.#port()), options);
  }

  /** This connection for its stream: there is one. */
  #port() {
    this.#checkNoStream();
    this.#isStream = true;
    const connection = this;
    return {
      localAddress: this.id.localAddress,
      remoteAddress: this.id.remoteAddress,
      maxMessage: this.maxMessage,
      peer: this.peer,
      closeTimeout: this.#closeTimeout,
      async post(parts: readonly Uint8Array[], length: number) {
        const slot = await connection.#slot(undefined);
        if (slot === undefined) throw connection.#ended();
        return { acknowledged: connection.#post(slot, parts, length) };
      },
      receive: () => connection.#take(),
      close: (patience: boolean) => (patience ? connection.close() : connection.discard()),
    };
  }

  #checkNoStream(): void {
    if (this.#isStream) throw isStreamError(this.peer);
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
   * A peer that is gone is waited for at most `closeTimeout`, and async events that the program has not acknowledged are not waited for. Regions
   * that the program registered in `pd` stay, and the domain with them.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close(this.#closeTimeout);
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
    this.#watch.stop();
    if (patience > 0 && this.id.state === 'CONNECTED') {
      const deadline = new Deadline(patience, undefined, () => closedError('the peer does not answer'));
      await orAborted(this.id.disconnect(), deadline.signal).catch(() => {});
      deadline.end();
    }
    // A program that logs async events need not know whose they are: none is waited for.
    this.qp.asyncEvents.waive();
    this.#cq.asyncEvents.waive();
    await this.qp.close().catch(() => {}); // `destroy` rejects with it, too.
    const published = this.#published.values();
    await releaseParts({ inbox: this.#inbox, outbox: this.#outbox, cq: this.#cq, pd: this.pd, published });
    await this.id.destroy();
  }

  /** A slot of the outbox, in the order of the calls; waits while all are in use. Undefined once the connection has ended. */
  async #slot(signal: AbortSignal | undefined): Promise<number | undefined> {
    signal?.throwIfAborted();
    if (this.#closing || this.id.state !== 'CONNECTED') return undefined;
    return this.#outgoing.take(signal);
  }

  #receive(slot: number): void {
    const range = { mr: this.#inbox, offset: slot * this.#own.maxMessage, length: this.#own.maxMessage };
    // Posted one after the other, and they complete in that order.
    const receiving = this.qp.receive(range).then(
      ({ byteLen }) => {
        this.#watch.moved();
        this.#messages.push({ slot, length: byteLen });
      },
      () => {}, // Flushed: the connection has ended.
    );
    this.#receiving.add(receiving);
    void receiving.then(() => this.#receiving.delete(receiving));
  }

  /** Asks whether the peer is there: a WRITE of nothing is acknowledged by its adapter (IBTA vol 1 §9.7.5.1.3). */
  async #probe(): Promise<void> {
    if (this.id.state === 'CONNECTED') await this.qp.write([], { addr: 0n, rkey: 0 });
  }

  #ended(cause?: unknown): unknown {
    if (this.#failure !== undefined) return this.#failure;
    return this.id.state === 'CONNECTED' && cause !== undefined
      ? cause
      : closedError(`the connection with ${this.peer} has ended`);
  }

  /** Address and port of the peer, as text. */
  get peer(): string {
    const { remoteAddress } = this.id;
    return remoteAddress === undefined ? 'the peer' : hostAndPort(remoteAddress);
  }

  /** Bytes of the largest message: the smaller `maxMessage` of both sides. */
  get maxMessage(): number {
    return this.#sizes.maxMessage;
  }

  /** Messages each way that can be under way: the smaller `slots` of both sides. */
  get slots(): number {
    return this.#sizes.slots;
  }

  /** @internal */
  [inspect.custom](): string {
    const { state } = this.id;
    return `MessageConnection { peer: ${this.peer}, state: ${state}, maxMessage: ${this.maxMessage}, slots: ${this.slots} }`;
  }
}

/** A request failed, and was not discarded because the connection ended. */
const isRefusal = ({ code, attribute }: RoceError): boolean =>
  code === 'ERR_ROCE_COMPLETION' && attribute !== 'WR_FLUSH_ERR';

/** A message in a slot of the inbox. */
interface Arrived {
  slot: number;
  length: number;
}
