/** Sockets: connecting and listening, as `node:net` has them. */
import { CmId, type IdOptions, type SocketAddress, type StreamOptions } from '@node-roce/rdmacm';
import { RoceError } from '@node-roce/verbs-api';
import { type RsocketCalls, RsocketChannel } from './channel.ts';
import type { IoMapping } from './mappings.ts';
import { checkConnect, checkListen } from './options.ts';
import type { BufferOptions } from './parts.ts';
import { RsocketServer } from './server.ts';
import { RSocket } from './socket.ts';

/** Options of both sides. */
type CommonOptions = BufferOptions &
  StreamOptions &
  Pick<IdOptions, 'device' | 'deviceOptions' | 'ackTimeoutMs' | 'timing'>;

/** Options of `connect`. */
export interface ConnectOptions extends CommonOptions {
  /** Name or numeric address. */
  host: string;
  port: number;
  /** Our address; by route unless given. */
  source?: string;
  /** Milliseconds for all of it; 0 for no limit. Default 10,000. */
  connectTimeout?: number;
}

/** Options of `listen`. */
export interface ListenOptions extends CommonOptions {
  /** 0 chooses one. */
  port: number;
  /** Our address; all of this machine unless given. */
  address?: string;
  /** Connections that are being made or wait for `accept`, and as many requests behind them. Default 128. */
  backlog?: number;
  /** Ends the listener: as `server.close`. Sockets that were taken go on. */
  signal?: AbortSignal;
}

const idOptions = ({ device, deviceOptions, ackTimeoutMs, timing }: CommonOptions): IdOptions => ({
  device,
  deviceOptions,
  ackTimeoutMs,
  timing,
});

const bufferOptions = (options: BufferOptions): BufferOptions => {
  const { receiveBuffer, sendBuffer, queue, ioMappings, closeTimeout, keepAlive } = options;
  const all = { receiveBuffer, sendBuffer, queue, ioMappings, closeTimeout, keepAlive };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
};

const streamOptions = (options: StreamOptions): StreamOptions => {
  const { allowHalfOpen, readableHighWaterMark, writableHighWaterMark, signal } = options;
  const all = { allowHalfOpen, readableHighWaterMark, writableHighWaterMark, signal };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
};

/** Connects; resolves with the socket. The signal ends the attempt, and later the socket. */
export async function connect(options: ConnectOptions): Promise<RSocket> {
  checkConnect(options);
  return new RSocket(await open(options, options.signal), streamOptions(options));
}

/** The channel of a new connection. */
async function open(options: ConnectOptions, signal: AbortSignal | undefined): Promise<RsocketChannel> {
  const { host, port, source, connectTimeout = 10_000 } = options;
  const limit = connectTimeout > 0 ? AbortSignal.timeout(connectTimeout) : undefined;
  const either = AbortSignal.any([signal, limit].filter((each) => each !== undefined));
  const id = new CmId(idOptions(options));
  let channel: RsocketChannel | undefined;
  try {
    await id.resolveAddr({ host, port, ...(source === undefined ? {} : { source }) }, { signal: either });
    await id.resolveRoute();
    channel = await RsocketChannel.open(id, bufferOptions(options));
    await channel.connect(either);
    return channel;
  } catch (error) {
    await (channel ? channel.close(false) : id.destroy());
    if (limit?.aborted && !signal?.aborted) throw timeoutError(host, port, connectTimeout);
    throw error;
  }
}

const timeoutError = (host: string, port: number, milliseconds: number): RoceError =>
  new RoceError(
    'ERR_ROCE_CM_UNREACHABLE',
    `no answer from port ${port} of ${host} within ${milliseconds} ms`,
    {
      errno: 'ETIMEDOUT',
      attribute: 'connectTimeout',
    },
  );

/** A connection that is being made: its calls wait for it. */
class Connecting implements RsocketCalls {
  readonly #opening: Promise<RsocketChannel>;
  readonly #attempt: AbortController;
  #channel: RsocketChannel | undefined;
  onProgress = () => {};
  onFailure: (error: unknown) => void = () => {};

  constructor(opening: Promise<RsocketChannel>, attempt: AbortController, onOpen: () => void) {
    this.#opening = opening;
    this.#attempt = attempt;
    opening.then(
      (channel) => {
        this.#channel = channel;
        channel.onProgress = () => this.onProgress();
        channel.onFailure = (error) => this.onFailure(error);
        onOpen();
      },
      (error) => this.onFailure(error),
    );
  }

  get localAddress(): SocketAddress | undefined {
    return this.#channel?.localAddress;
  }

  get remoteAddress(): SocketAddress | undefined {
    return this.#channel?.remoteAddress;
  }

  async write(chunks: readonly Uint8Array[]): Promise<void> {
    await (await this.#opening).write(chunks);
  }

  async end(): Promise<void> {
    await (await this.#opening).end();
  }

  async read(): Promise<Uint8Array | undefined> {
    return (await this.#opening).read();
  }

  async iomap(bytes: Uint8Array, offset: bigint): Promise<IoMapping> {
    return (await this.#opening).iomap(bytes, offset);
  }

  async iowrite(bytes: Uint8Array, offset: bigint): Promise<void> {
    await (await this.#opening).iowrite(bytes, offset);
  }

  async close(isComplete: boolean): Promise<void> {
    this.#attempt.abort();
    const channel = await this.#opening.catch(() => undefined);
    await channel?.close(isComplete);
  }
}

/**
 * As `net.createConnection`: returns the socket at once, which raises 'connect' or 'error'. For `http.request({ createConnection })`, and
 * for an agent, whose options it takes.
 *
 * @example http.get({ host, port, createConnection })
 */
export function createConnection(
  options: Omit<ConnectOptions, 'host' | 'port' | 'keepAlive'> & {
    host?: string | null;
    port?: number | string | null;
    keepAlive?: number | boolean;
    /** As that of `net.connect`: for `socket.setTimeout`. */
    timeout?: number;
  },
  onConnect?: () => void,
): RSocket {
  const { host, port, source, device, deviceOptions, connectTimeout, signal, keepAlive } = options;
  const { ackTimeoutMs, timing, timeout } = options;
  const attempt = new AbortController();
  // Of an agent's options only those that are ours; its `keepAlive` is that of TCP sockets.
  const own = {
    ...{ host: host ?? 'localhost', port: Number(port ?? 80), source, device, deviceOptions },
    ...{
      connectTimeout,
      signal,
      ackTimeoutMs,
      timing,
      ...bufferOptions({ ...options, keepAlive: undefined }),
    },
    ...(typeof keepAlive === 'number' ? { keepAlive } : {}),
  };
  checkConnect(own);
  const opening = open(own, attempt.signal);
  const connecting = new Connecting(opening, attempt, () => {
    if (!socket.destroyed) socket.emit('connect');
  });
  const socket = new RSocket(connecting, streamOptions(options));
  if (timeout) socket.setTimeout(timeout);
  // The callback of an agent is for sockets that are not returned.
  if (onConnect && onConnect.length === 0) socket.once('connect', onConnect);
  return socket;
}

/** Listens at a port. */
export async function listen(options: ListenOptions): Promise<RsocketServer> {
  checkListen(options);
  const { port, address, backlog, signal } = options;
  signal?.throwIfAborted();
  const id = new CmId(idOptions(options));
  try {
    await id.listen({
      port,
      ...(address === undefined ? {} : { address }),
      ...(backlog === undefined ? {} : { backlog }),
    });
    signal?.throwIfAborted();
  } catch (error) {
    await id.destroy();
    throw error;
  }
  const { signal: _, ...stream } = streamOptions(options);
  return new RsocketServer(id, bufferOptions(options), stream, options);
}

/**
 * Listens, and hands each socket to a function: that of a web server is `(socket) => server.emit('connection', socket)`.
 */
export async function createServer(
  options: ListenOptions,
  onSocket: (socket: RSocket) => void,
): Promise<RsocketServer> {
  const server = await listen(options);
  void (async () => {
    for await (const socket of server) {
      try {
        onSocket(socket);
      } catch (error) {
        // As of a listener of 'connection': an uncaught exception, and where the program handles that, the next socket comes.
        process.nextTick(() => {
          throw error;
        });
      }
    }
  })().catch((error) => {
    // Its signal ends a server as `close` does; a device that failed is the program's to see.
    if (!options.signal?.aborted) throw error;
  });
  return server;
}
