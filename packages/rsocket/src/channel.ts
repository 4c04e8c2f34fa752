/** One rsocket connection: bytes both ways as WRITEs into each other's memory. */
import type { CmId, SocketAddress, StreamChannel } from '@node-roce/rdmacm';
import {
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  RoceError,
} from '@node-roce/verbs-api';
import { Inbound } from './inbound.ts';
import { Outbound, type Piece } from './outbound.ts';
import {
  type ConnectionData,
  Ctrl,
  dataOf,
  decodeConnectionData,
  encodeConnectionData,
  encodeTarget,
  immediate,
  Op,
  opOf,
  SGE_BYTES,
  SGL_ENTRIES,
  VERSION,
} from './wire.ts';

/** Sizes of a socket, as `SO_RCVBUF` and `SO_SNDBUF` set them in C. */
export interface BufferOptions {
  /** Bytes that the peer may send before they are read. Default 128 KiB. */
  receiveBuffer?: number | undefined;
  /** Bytes that may be under way to the peer. Default 128 KiB. */
  sendBuffer?: number | undefined;
  /** Messages under way, each way, 8 … 32,767. Default 384. */
  queue?: number | undefined;
  /** Milliseconds that a close waits for the peer. Default 5000. */
  closeTimeout?: number | undefined;
  /** Milliseconds between WRITEs of nothing, which find out that a silent peer is gone; 0: none. Default 2000. */
  keepAlive?: number | undefined;
}

const DEFAULTS = {
  receiveBuffer: 131_072,
  sendBuffer: 131_072,
  queue: 384,
  closeTimeout: 5000,
  keepAlive: 2000,
};
/** Control messages under way: the peer keeps as many receives back (rsocket.c `RS_QP_CTRL_SIZE`). */
const MAX_CONTROLS = 4;
/** Bytes of one read. */
const READ_BYTES = 65_536;
/** As librdmacm connects: no READs, retries for ever where receives are missing; one retry less, so that a dead peer is found within 10 s. */
const PARAMETERS = { responderResources: 0, initiatorDepth: 0, retryCount: 6, rnrRetryCount: 7 } as const;

interface Parts {
  id: CmId;
  pd: ProtectionDomain;
  cq: CompletionQueue;
  qp: QueuePair;
  ring: MemoryRegion;
  sgl: MemoryRegion;
  outbox: MemoryRegion;
}

/** The peer speaks another protocol, or breaks this one. */
const protocolError = (peer: string, what: string): RoceError =>
  new RoceError('ERR_ROCE_PROTOCOL', `${peer} is no rsocket: ${what}`, {
    errno: 'EIO',
    expected: `version ${VERSION} of rsockets`,
  });

/** The channel of a stream. */
export class RsocketChannel implements StreamChannel {
  readonly #parts: Parts;
  readonly #sizes: Required<BufferOptions>;
  readonly #inbound: Inbound;
  #outbound: Outbound | undefined;
  #peer: ConnectionData | undefined;
  /** Entry of the peer's list that our next announcement goes to. */
  #announcement = 1;
  #controls = 0;
  /** The place of the next announcement behind the bytes of `outbox`. */
  #slot = 0;
  /** DATA messages under way. */
  #pending = 0;
  /** A grant that came while the peer's reply was under way. */
  #early: number | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isProbing = false;
  /** The peer sends no more; it takes no more either. */
  #isReadEnded = false;
  #isPeerGone = false;
  #ending: Promise<void> | undefined;
  #failure: unknown;
  #isClosed = false;
  /** Those who wait for bytes, credits, buffers or completions. */
  #waiters: (() => void)[] = [];
  readonly #receiving = new Set<Promise<void>>();
  onProgress = () => {};
  onFailure: (error: unknown) => void = () => {};

  /** Creates the objects of an id that has an address. Where it rejects, none is left; the id is the caller's. */
  static async open(id: CmId, options: BufferOptions): Promise<RsocketChannel> {
    const sizes = { ...DEFAULTS, ...options };
    const { device } = id;
    const pd = await device.allocPd();
    const undo = [() => pd.dealloc()];
    try {
      const cq = await device.createCq(4 * sizes.queue);
      undo.unshift(() => cq.destroy());
      const qp = await id.createQp(pd, {
        sendCq: cq,
        cap: {
          maxSendWr: sizes.queue + MAX_CONTROLS + 1,
          maxRecvWr: sizes.queue + MAX_CONTROLS,
          maxSendSge: 2,
        },
      });
      undo.unshift(() => qp.close());
      const register = async (bytes: number, access = {}) => {
        const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(bytes)), { access });
        undo.unshift(() => mr.deregister());
        return mr;
      };
      const ring = await register(sizes.receiveBuffer, { remoteWrite: true });
      const sgl = await register(SGL_ENTRIES * SGE_BYTES, { remoteWrite: true });
      // Behind the bytes, an announcement for each control message under way.
      const outbox = await register(sizes.sendBuffer + MAX_CONTROLS * SGE_BYTES);
      return new RsocketChannel({ id, pd, cq, qp, ring, sgl, outbox }, sizes);
    } catch (error) {
      for (const step of undo) await step().catch(() => {});
      throw error;
    }
  }

  private constructor(parts: Parts, sizes: Required<BufferOptions>) {
    this.#parts = parts;
    this.#sizes = sizes;
    const { ring, qp, id } = parts;
    const bytes = ring.bytes(0, sizes.receiveBuffer);
    this.#inbound = new Inbound({ bytes, addr: ring.addr, rkey: ring.rkey }, sizes.queue);
    for (let i = 0; i < sizes.queue + MAX_CONTROLS; i++) this.#receive();
    void id.disconnected.then(async () => {
      await Promise.all(this.#receiving);
      this.#isPeerGone = true;
      this.#wake();
    });
    qp.onClose((cause) => {
      if (cause === undefined || this.#isClosed || id.state !== 'CONNECTED') return;
      this.#fail(cause);
    });
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
    const { sgl } = this.#parts;
    return encodeConnectionData({
      isBigEndian: false,
      credits: this.#sizes.queue,
      sgl: { addr: sgl.addr, key: sgl.rkey, length: SGL_ENTRIES },
      buffer: this.#inbound.first,
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
    const { sgl, outbox } = this.#parts;
    return new Outbound(sgl.bytes(0, SGL_ENTRIES * SGE_BYTES), outbox.bytes(0, this.#sizes.sendBuffer), data);
  }

  #begin(privateData: Uint8Array | undefined): void {
    const data = decodeConnectionData(privateData ?? new Uint8Array(0));
    if (data?.version !== VERSION || data.sgl.length === 0)
      throw protocolError(this.#name, `its answer has version ${data?.version}`);
    this.#peer = data;
    this.#outbound ??= this.#outboundOf(data);
    if (this.#early !== undefined) this.#outbound.granted(this.#early);
    this.#announcement = 1 % data.sgl.length;
    this.#grant();
    this.#wake();
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
        if (data === Ctrl.DISCONNECT) this.#isPeerGone = true;
        break;
      case Op.IOMAP:
        break; // Buffers that its program offers for direct WRITEs: streams make none.
      default:
        if (!this.#inbound.arrived(data))
          this.#fail(protocolError(this.#name, `it has written ${data} bytes without room or credit`));
    }
    this.#wake();
  }

  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      if (!this.#inbound.isEmpty) {
        const bytes = this.#inbound.take(READ_BYTES);
        this.#grant();
        return bytes;
      }
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#isReadEnded) return undefined;
      if (this.#isPeerGone)
        throw new RoceError(
          'ERR_ROCE_CLOSED',
          `the connection with ${this.#name} ended before the peer ended its stream`,
          {
            errno: 'ENOTCONN',
          },
        );
      await this.#event();
    }
  }

  async write(chunks: readonly Uint8Array[]): Promise<void> {
    for (const chunk of chunks) {
      for (let at = 0; at < chunk.length; ) {
        const most = this.#outbound === undefined ? 0 : this.#outbound.room;
        this.#checkOpen();
        if (most === 0 || this.#pending >= this.#sizes.queue) {
          await this.#event();
          continue;
        }
        const part = chunk.subarray(at, at + most);
        at += part.length;
        this.#send(this.#outbound!.place(part));
        this.onProgress();
      }
    }
  }

  #send({ ranges, length, addr, rkey }: Piece): void {
    const { qp, outbox } = this.#parts;
    const list = ranges.map((range) => ({ mr: outbox, ...range }));
    this.#pending++;
    const sending = qp.write(list, { addr, rkey }, { immData: immediate(Op.DATA, length) });
    sending.then(
      () => {
        this.#pending--;
        this.#outbound!.completed(length);
        this.#wake();
      },
      (error) => this.#fail(error),
    );
  }

  /** Announces room, where the peer is owed that and a control message may go. */
  #grant(): void {
    const peer = this.#peer;
    if (!peer || this.#isReadEnded || this.#isPeerGone || this.#controls >= MAX_CONTROLS) return;
    if (!this.#inbound.owesGrant) return;
    const { limit, buffer } = this.#inbound.grant();
    if (buffer === undefined) {
      this.#control(Op.SGL, limit);
      return;
    }
    const { outbox } = this.#parts;
    const offset = this.#sizes.sendBuffer + this.#slot * SGE_BYTES;
    this.#slot = (this.#slot + 1) % MAX_CONTROLS;
    const bytes = outbox.bytes(offset, SGE_BYTES);
    const view = new DataView(bytes.buffer, bytes.byteOffset, SGE_BYTES);
    encodeTarget(view, 0, buffer, !peer.isBigEndian);
    const addr = peer.sgl.addr + BigInt(this.#announcement * SGE_BYTES);
    this.#announcement = (this.#announcement + 1) % peer.sgl.length;
    this.#control(Op.SGL, limit, {
      list: [{ mr: outbox, offset, length: SGE_BYTES }],
      addr,
      rkey: peer.sgl.key,
    });
  }

  #control(
    op: number,
    data: number,
    {
      list,
      addr,
      rkey,
    }: { list: { mr: MemoryRegion; offset: number; length: number }[]; addr: bigint; rkey: number } = {
      list: [],
      addr: 0n,
      rkey: 0,
    },
  ): Promise<void> {
    this.#controls++;
    const sending = this.#parts.qp.write(list, { addr, rkey }, { immData: immediate(op, data) }).then(
      () => {
        this.#controls--;
        this.#grant();
        this.#wake();
      },
      (error) => {
        this.#fail(error);
        throw error;
      },
    );
    sending.catch(() => {}); // `#fail` has it.
    return sending;
  }

  end(): Promise<void> {
    this.#ending ??= this.#end();
    return this.#ending;
  }

  async #end(): Promise<void> {
    if (this.#isReadEnded && this.#isPeerGone) return; // The peer takes nothing more, in order.
    this.#checkOpen();
    // All bytes have been posted: the queue keeps the order.
    while (this.#controls >= MAX_CONTROLS || !this.#peer) {
      await this.#event();
      this.#checkOpen();
    }
    await this.#control(Op.CTRL, this.#isReadEnded ? Ctrl.DISCONNECT : Ctrl.SHUTDOWN);
  }

  #checkOpen(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#isPeerGone || this.#isClosed)
      throw new RoceError('ERR_ROCE_CLOSED', `the connection with ${this.#name} has ended`, {
        errno: 'ENOTCONN',
      });
  }

  async close(isComplete: boolean): Promise<void> {
    const { id } = this.#parts;
    const ignore = () => {};
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, this.#sizes.closeTimeout);
    });
    if (id.state === 'CONNECTED') {
      if (isComplete) await Promise.race([this.end().catch(ignore), patience]);
      if (id.state === 'CONNECTED') await Promise.race([id.disconnect().catch(ignore), patience]);
    }
    clearTimeout(timer);
    await this.discard();
  }

  /** Ends it without a wait for the peer, which hears of it all the same. */
  async discard(): Promise<void> {
    const { id, qp, cq, pd, ring, sgl, outbox } = this.#parts;
    const ignore = () => {};
    clearInterval(this.#timer);
    this.#isClosed = true;
    this.#wake();
    qp.asyncEvents.waive();
    cq.asyncEvents.waive();
    await qp.close().catch(ignore);
    for (const each of [ring, sgl, outbox]) await each.deregister().catch(ignore);
    await cq.destroy().catch(ignore);
    await pd.dealloc().catch(ignore);
    await id.destroy().catch(ignore);
  }

  #fail(error: unknown): void {
    if (this.#failure !== undefined || this.#isClosed) return;
    // Discarded, because the peer has left: what it has announced before counts. After a request that failed, the failure has come first.
    if ((error as RoceError).attribute === 'WR_FLUSH_ERR') this.#isPeerGone = true;
    else this.#failure = error;
    this.#wake();
    if (this.#failure !== undefined) this.onFailure(this.#failure);
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  #event(): Promise<void> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }
}
