/** One rsocket connection: bytes both ways as WRITEs into each other's memory. */
import type { CmId, SocketAddress } from '@node-roce/rdmacm';
import { invalid } from '@node-roce/rdmacm/parts';
import { RoceError } from '@node-roce/verbs-api';
import type { RsocketCalls } from './calls.ts';
import { Direct } from './direct.ts';
import { Inbound } from './inbound.ts';
import { type IoMapping, Mappings } from './mappings.ts';
import { Outbound } from './outbound.ts';
import { type BufferOptions, DEFAULTS, destroyParts, MAX_CONTROLS, makeParts, type Parts } from './parts.ts';
import { Sending } from './sending.ts';
import {
  type ConnectionData,
  Ctrl,
  dataOf,
  decodeConnectionData,
  encodeConnectionData,
  MAPPING_BYTES,
  Op,
  opOf,
  SGE_BYTES,
  SGL_ENTRIES,
  VERSION,
} from './wire.ts';

/** Bytes of one read. */
const READ_BYTES = 65_536;
/** As librdmacm connects: no READs, retries for ever where receives are missing; one retry less, so that a dead peer is found within 10 s. */
const PARAMETERS = { responderResources: 0, initiatorDepth: 0, retryCount: 6, rnrRetryCount: 7 } as const;

/** How a connection ended whose peer may not have all that was sent. */
const UNACKNOWLEDGED = 'ended before it had acknowledged all bytes';

/** The peer speaks another protocol, or breaks this one. */
const protocolError = (peer: string, what: string): RoceError =>
  new RoceError('ERR_ROCE_PROTOCOL', `${peer} is no rsocket: ${what}`, {
    errno: 'EIO',
    expected: `version ${VERSION} of rsockets`,
  });

/** A request was discarded, which does not say why. */
const isFlush = (error: unknown): boolean => (error as RoceError).attribute === 'WR_FLUSH_ERR';

/** The channel of a stream. */
export class RsocketChannel implements RsocketCalls {
  readonly #parts: Parts;
  readonly #sizes: Required<BufferOptions>;
  readonly #inbound: Inbound;
  readonly #mappings: Mappings;
  readonly #sending: Sending;
  readonly #direct: Direct;
  #outbound: Outbound | undefined;
  #peer: ConnectionData | undefined;
  /** A grant that came while the peer's reply was under way. */
  #early: number | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isProbing = false;
  /** The peer sends no more; it takes no more either. */
  #isReadEnded = false;
  #isPeerGone = false;
  /** Requests were discarded, because the connection has ended. */
  #isDiscarded = false;
  /** Resolves with the outcome of the message that ends this side's stream. */
  #lastControl: Promise<void> | undefined;
  /** The peer has that message: its adapter has acknowledged it, or the peer has sent DISCONNECT. */
  #isEndTaken = false;
  /** DISCONNECT was sent. */
  #hasConfirmed = false;
  #ending: Promise<void> | undefined;
  #failure: unknown;
  #isClosed = false;
  readonly #receiving = new Set<Promise<void>>();
  onProgress = () => {};
  onFailure: (error: unknown) => void = () => {};

  /** Creates the objects of an id that has an address. Where it rejects, none is left; the id is the caller's. */
  static async open(id: CmId, options: BufferOptions): Promise<RsocketChannel> {
    const sizes = { ...DEFAULTS, ...options };
    return new RsocketChannel(await makeParts(id, sizes), sizes);
  }

  private constructor(parts: Parts, sizes: Required<BufferOptions>) {
    this.#parts = parts;
    this.#sizes = sizes;
    const { ring, lists, qp, id, pd } = parts;
    const bytes = ring.bytes(0, sizes.receiveBuffer);
    this.#inbound = new Inbound({ bytes, addr: ring.addr, rkey: ring.rkey }, sizes.queue);
    this.#mappings = new Mappings(pd, lists.bytes(SGL_ENTRIES * SGE_BYTES));
    this.#sending = new Sending(parts, sizes, {
      onControl: () => this.#grant(),
      onFailure: (error) => {
        this.#fail(error);
        return this.#failure ?? (isFlush(error) ? this.#closedError(UNACKNOWLEDGED) : error);
      },
    });
    this.#direct = new Direct(this.#mappings, this.#sending, () => this.#checkOpen());
    for (let i = 0; i < sizes.queue + MAX_CONTROLS; i++) this.#receive();
    void id.disconnected.then(async () => {
      await Promise.all([...this.#receiving, this.#lastControl]);
      this.#isPeerGone = true;
      this.#sending.wake();
    });
    qp.onClose((cause) => {
      if (cause === undefined || this.#isClosed || id.state !== 'CONNECTED') return;
      this.#fail(cause);
    });
  }

  get isOpen(): boolean {
    return this.#peer !== undefined;
  }

  get localAddress(): SocketAddress | undefined {
    return this.#parts.id.localAddress;
  }

  get remoteAddress(): SocketAddress | undefined {
    return this.#parts.id.remoteAddress;
  }

  get #name(): string {
    const remote = this.remoteAddress;
    return remote ? `${remote.address} port ${remote.port}` : 'the peer';
  }

  get #ownData(): Uint8Array {
    const { lists } = this.#parts;
    return encodeConnectionData({
      isBigEndian: false,
      credits: this.#sizes.queue,
      sgl: { addr: lists.addr, key: lists.rkey, length: SGL_ENTRIES },
      buffer: this.#inbound.first,
      mappings: this.#sizes.ioMappings,
      announcesEnds: true,
    });
  }

  async connect(signal: AbortSignal | undefined): Promise<void> {
    const { id } = this.#parts;
    await id.connect({ ...PARAMETERS, privateData: this.#ownData }, { signal });
    this.#begin(id.replyData);
  }

  /** Accepts, or refuses a client that is no rsocket. */
  async accept(): Promise<void> {
    const { id } = this.#parts;
    const data = decodeConnectionData(id.request!.privateData);
    if (data?.version !== VERSION) {
      await id.reject();
      throw protocolError(this.#name, `its data has version ${data?.version}`);
    }
    this.#outbound = this.#outboundOf(data);
    await id.accept({ ...PARAMETERS, privateData: this.#ownData });
    this.#begin(id.request!.privateData);
  }

  #outboundOf(data: ConnectionData): Outbound {
    const { lists, outbox } = this.#parts;
    return new Outbound(
      lists.bytes(0, SGL_ENTRIES * SGE_BYTES),
      outbox.bytes(0, this.#sizes.sendBuffer),
      data,
    );
  }

  #begin(privateData: Uint8Array | undefined): void {
    const data = decodeConnectionData(privateData ?? new Uint8Array(0));
    if (data?.version !== VERSION || data.sgl.length === 0)
      throw protocolError(this.#name, `its answer has version ${data?.version}`);
    this.#peer = data;
    this.#outbound ??= this.#outboundOf(data);
    if (this.#early !== undefined) this.#outbound.granted(this.#early);
    this.#sending.begin(data, this.#outbound);
    this.#grant();
    this.#sending.wake();
    const { keepAlive } = this.#sizes;
    if (keepAlive > 0) this.#timer = setInterval(() => this.#probe(), keepAlive).unref();
  }

  /** As rsockets do with SO_KEEPALIVE: the peer's adapter answers. */
  #probe(): void {
    if (this.#isProbing || this.#parts.id.state !== 'CONNECTED') return;
    this.#isProbing = true;
    const answered = () => {
      this.#isProbing = false;
    };
    this.#parts.qp.write([], { addr: 0n, rkey: 0 }).then(answered, answered); // A failure ends the queue pair.
  }

  #receive(): void {
    const receiving = this.#parts.qp.receive([]).then(
      ({ immData }) => {
        // Before the messages of the next one: a receive for each that the peer may send.
        if (!this.#isClosed && this.#parts.id.state !== 'DISCONNECTED') this.#receive();
        this.#arrived((immData ?? 0) >>> 0);
      },
      () => {}, // Flushed: the connection has ended.
    );
    this.#receiving.add(receiving);
    void receiving.then(() => this.#receiving.delete(receiving));
  }

  #arrived(imm: number): void {
    const data = dataOf(imm);
    switch (opOf(imm)) {
      case Op.SGL:
        if (this.#outbound) this.#outbound.granted(data);
        else this.#early = data;
        break;
      case Op.CTRL:
        if (data === Ctrl.SHUTDOWN || data === Ctrl.DISCONNECT) this.#isReadEnded = true;
        if (data === Ctrl.DISCONNECT) {
          this.#isPeerGone = true;
          if (this.#peer?.announcesEnds && this.#lastControl) this.#isEndTaken = true;
        }
        break;
      case Op.IOMAP:
        this.#inbound.passed(); // The entry is in memory: `iowrite` finds it there.
        this.#grant(true); // The peer may map memory after it has ended its stream.
        break;
      default:
        if (!this.#inbound.arrived(data))
          this.#fail(protocolError(this.#name, `it has written ${data} bytes without room or credit`));
    }
    this.#sending.wake();
  }

  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      if (!this.#inbound.isEmpty) {
        const bytes = this.#inbound.take(READ_BYTES);
        this.#grant();
        return bytes;
      }
      if (this.#failure !== undefined) throw this.#failure;
      // librdmacm that shuts down both directions while our SHUTDOWN arrives only disconnects (its DISCONNECT waits for a control message).
      const mayEndSilently = this.#isEndTaken && !this.#peer?.announcesEnds;
      if (this.#isReadEnded || (this.#isPeerGone && mayEndSilently)) return undefined;
      if (this.#isPeerGone) throw this.#leftError();
      await this.#sending.event();
    }
  }

  async write(chunks: readonly Uint8Array[]): Promise<void> {
    for (const chunk of chunks) {
      for (let at = 0; at < chunk.length; ) {
        const { room } = this.#sending;
        this.#checkOpen();
        if (room === 0) {
          await this.#sending.event();
          continue;
        }
        const part = chunk.subarray(at, at + room);
        at += part.length;
        this.#sending.stream(part);
        this.onProgress();
      }
    }
  }

  async iomap(bytes: Uint8Array, offset: bigint): Promise<IoMapping> {
    this.#checkOpen();
    if (this.#sizes.sendBuffer < MAPPING_BYTES)
      throw invalid('sendBuffer', `${this.#sizes.sendBuffer}`, `${MAPPING_BYTES} or more, for iomap`);
    return this.#direct.map(bytes, offset, this.#peer!);
  }

  iowrite(bytes: Uint8Array, offset: bigint): Promise<void> {
    return this.#direct.write(bytes, offset, this.onProgress);
  }

  /** Announces room, where the peer is owed that and a control message may go. */
  #grant(afterEnd = false): void {
    if (!this.#peer || (this.#isReadEnded && !afterEnd) || this.#isPeerGone || !this.#sending.mayControl)
      return;
    if (!this.#inbound.owesGrant) return;
    const { limit, buffer } = this.#inbound.grant();
    this.#sending.announce(limit, buffer);
  }

  end(): Promise<void> {
    this.#ending ??= this.#end();
    return this.#ending;
  }

  /** The peer, which has ended its stream, has left as well: it takes nothing more. */
  get #hasLeft(): boolean {
    return this.#isReadEnded && this.#isPeerGone;
  }

  async #end(): Promise<void> {
    while (!this.#hasLeft) {
      this.#checkOpen();
      if (this.#peer && this.#sending.mayControl) return this.#sendEnd();
      await this.#sending.event();
    }
    await this.#taken();
  }

  async #sendEnd(): Promise<void> {
    // All bytes have been posted: the queue keeps the order.
    this.#hasConfirmed = this.#isReadEnded;
    const taking = this.#sending.control(Op.CTRL, this.#isReadEnded ? Ctrl.DISCONNECT : Ctrl.SHUTDOWN);
    let failure: unknown;
    this.#lastControl = taking
      .then(
        () => {
          this.#isEndTaken = true;
        },
        (error) => {
          failure = error;
        },
      )
      .then(() => this.#sending.wake());
    while (!this.#isEndTaken && failure === undefined) await this.#sending.event();
    if (this.#isEndTaken) return;
    if (!this.#hasLeft) throw this.#isDiscarded ? this.#leftError() : failure;
    await this.#taken();
  }

  /** Resolves when a peer that has left has all bytes. Rejects if the connection ends before. */
  async #taken(): Promise<void> {
    while (this.#sending.isUnderWay && !this.#isEndTaken) {
      if (this.#isDiscarded || this.#isClosed) throw this.#closedError(UNACKNOWLEDGED);
      await this.#sending.event();
    }
  }

  /**
   * Ends our direction, and lets a node-roce peer know that its end has come, by DISCONNECT: our acknowledgement may have been lost, and is not sent
   * again once the queue pair is closed.
   */
  async #farewell(): Promise<void> {
    await this.end();
    const { id } = this.#parts;
    while (
      this.#peer?.announcesEnds &&
      !this.#hasConfirmed &&
      !this.#isDiscarded &&
      id.state === 'CONNECTED'
    ) {
      if (this.#sending.mayControl) {
        this.#hasConfirmed = true;
        await Promise.race([id.disconnected, this.#sending.control(Op.CTRL, Ctrl.DISCONNECT)]);
      } else await this.#sending.event();
    }
  }

  #checkOpen(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#isPeerGone || this.#isClosed) throw this.#closedError('has ended');
  }

  /** The peer has left in the middle of its stream. */
  #leftError(): RoceError {
    return this.#closedError('ended before the peer ended its stream');
  }

  #closedError(how: string): RoceError {
    return new RoceError('ERR_ROCE_CLOSED', `the connection with ${this.#name} ${how}`, {
      errno: 'ENOTCONN',
    });
  }

  async close(isComplete: boolean): Promise<void> {
    const { id } = this.#parts;
    // A failed connection ends at once: its socket reports the failure behind this, and a dead peer does not answer.
    if (id.state === 'CONNECTED' && this.#failure === undefined && !this.#isDiscarded) {
      let timer: NodeJS.Timeout | undefined;
      const patience = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, this.#sizes.closeTimeout);
      });
      await Promise.race([this.#leave(isComplete), patience]);
      clearTimeout(timer);
    }
    await this.discard();
  }

  async #leave(isComplete: boolean): Promise<void> {
    const ignore = () => {};
    if (isComplete) await this.#farewell().catch(ignore);
    const { id } = this.#parts;
    if (id.state === 'CONNECTED') await id.disconnect().catch(ignore);
  }

  /** Ends it without a wait for the peer, which hears of it all the same. */
  async discard(): Promise<void> {
    clearInterval(this.#timer);
    this.#isClosed = true;
    this.#sending.wake();
    // The peer may write no more before its memory is the program's again.
    this.#parts.qp.asyncEvents.waive(); // Else it waits for a program that holds one of its events.
    await this.#parts.qp.close().catch(() => {});
    await this.#mappings.close();
    await destroyParts(this.#parts);
  }

  #fail(error: unknown): void {
    if (this.#failure !== undefined || this.#isClosed) return;
    // Discarded, because the peer has left: what it has announced before counts. After a request that failed, the failure has come first.
    // Where both directions are complete, a failure loses nothing.
    const isComplete = this.#isReadEnded && this.#isEndTaken;
    if (isComplete || isFlush(error)) {
      this.#isPeerGone = true;
      this.#isDiscarded = true;
    } else this.#failure = error;
    this.#sending.wake();
    if (this.#failure !== undefined) this.onFailure(this.#failure);
  }
}
