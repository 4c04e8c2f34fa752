/** A listener of rsockets. */
import type { CmId, StreamOptions } from '@node-roce/rdmacm';
import { EventQueue, type RoceError } from '@node-roce/verbs-api';
import { type BufferOptions, RsocketChannel } from './channel.ts';
import { RSocket } from './socket.ts';

/** Sockets as they come: `for await (const socket of server)`. Made by `listen`. */
export class RsocketServer implements AsyncDisposable {
  readonly #id: CmId;
  readonly #options: BufferOptions & StreamOptions;
  readonly #sockets = new EventQueue<RSocket>(Number.POSITIVE_INFINITY);
  readonly #opening = new Set<Promise<void>>();
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(id: CmId, options: BufferOptions & StreamOptions) {
    this.#id = id;
    this.#options = options;
    void this.#serve();
  }

  /** The port. */
  get port(): number {
    return this.#id.localAddress!.port;
  }

  async #serve(): Promise<void> {
    let reason: unknown;
    try {
      for await (const request of this.#id) {
        const opening = this.#accept(request).finally(() => this.#opening.delete(opening));
        this.#opening.add(opening);
      }
    } catch (error) {
      reason = error;
    }
    await Promise.all(this.#opening);
    this.#sockets.fail(reason ?? new Error('the server is closed'));
  }

  /** A client that is no rsocket, or goes away meanwhile, ends its own attempt. */
  async #accept(request: CmId): Promise<void> {
    let channel: RsocketChannel | undefined;
    try {
      channel = await RsocketChannel.open(request, this.#options);
      await channel.accept();
      if (this.#closing) await channel.close(false);
      else this.#sockets.push(new RSocket(channel, this.#options));
    } catch {
      await (channel ? channel.close(false) : request.destroy().catch(() => {}));
    }
  }

  /** The next socket; rejects once the server is closed. */
  accept(options: { signal?: AbortSignal } = {}): Promise<RSocket> {
    return this.#sockets.next(options.signal);
  }

  /** Sockets until the server is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<RSocket, void> {
    for (;;) {
      let socket: RSocket;
      try {
        socket = await this.accept();
      } catch (error) {
        if (this.#closing) return;
        throw error as RoceError;
      }
      yield socket;
    }
  }

  /** Listens no more. Sockets that were taken go on; the others are destroyed. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#id.destroy();
    await Promise.all(this.#opening);
    for (let socket = this.#sockets.poll(); socket; socket = this.#sockets.poll()) socket.destroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
