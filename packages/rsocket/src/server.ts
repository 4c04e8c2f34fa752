/** A listener of rsockets. */
import type { AddressInfo } from 'node:net';
import { inspect } from 'node:util';
import type { CmId, IdOptions, StreamOptions } from '@node-roce/rdmacm';
import { Acceptor } from '@node-roce/rdmacm/parts';
import { RoceError } from '@node-roce/verbs-api';
import { RsocketChannel } from './channel.ts';
import type { BufferOptions } from './parts.ts';
import { RSocket } from './socket.ts';

/** Options that concern requests. */
interface ServerOptions extends Pick<IdOptions, 'timing'> {
  backlog?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Sockets as they come: `for await (const socket of server)`. Made by `listen`. */
export class RsocketServer implements AsyncDisposable {
  readonly #id: CmId;
  readonly #stream: StreamOptions;
  /** Of channels: a socket that nobody has taken could report its errors to nobody. */
  readonly #acceptor: Acceptor<RsocketChannel>;

  /** @internal */
  constructor(id: CmId, sizes: BufferOptions, stream: StreamOptions, limits: ServerOptions) {
    this.#id = id;
    this.#stream = stream;
    this.#acceptor = new Acceptor(id, limits, {
      open: (request) => RsocketChannel.open(request, sizes),
      accept: (channel) => channel.accept(),
      discard: (channel) => channel.discard(),
    });
  }

  /** The port. */
  get port(): number {
    return this.#id.localAddress!.port;
  }

  /** As `net.Server.address()`: where it listens. A wildcard stands for all addresses of this machine. */
  address(): AddressInfo {
    const { address, port } = this.#id.localAddress!;
    return { address, family: address.includes(':') ? 'IPv6' : 'IPv4', port };
  }

  /** The next socket. Rejects with ERR_ROCE_CLOSED once the server is closed, or with a signal's reason. */
  async accept(options: { signal?: AbortSignal | undefined } = {}): Promise<RSocket> {
    return new RSocket(await this.#acceptor.next(options.signal), this.#stream);
  }

  /** Sockets until the server is closed; rejects with the reason of its signal. */
  async *[Symbol.asyncIterator](): AsyncGenerator<RSocket, void> {
    for (;;) {
      let socket: RSocket;
      try {
        socket = await this.accept();
      } catch (error) {
        if ((error as RoceError).code === 'ERR_ROCE_CLOSED') return;
        throw error;
      }
      yield socket;
    }
  }

  /** Listens no more. Sockets that were taken go on; the others are disconnected. */
  close(): Promise<void> {
    return this.#acceptor.end(
      new RoceError('ERR_ROCE_CLOSED', 'the server is closed', { errno: 'ECANCELED' }),
    );
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal */
  [inspect.custom](): string {
    const { localAddress, state } = this.#id;
    return `RsocketServer { port: ${localAddress?.port}, state: ${state} }`;
  }
}
