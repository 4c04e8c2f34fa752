/** Sockets: connecting and listening, as `node:net` has them. */
import { CmId, type IdOptions, type SocketAddress, type StreamOptions } from '@node-roce/rdmacm';
import { reach } from '@node-roce/rdmacm/parts';
import { RsocketChannel } from './channel.ts';
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
  /** Name or numeric address. Of a name with several addresses, each is tried (RFC 8305). */
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
  signal?: AbortSignal | undefined;
}

const idOptions = ({ device, deviceOptions, ackTimeoutMs, timing }: CommonOptions): IdOptions => ({
  device,
  deviceOptions,
  ackTimeoutMs,
  timing,
});

export const bufferOptions = (options: BufferOptions): BufferOptions => {
  const { receiveBuffer, sendBuffer, queue, ioMappings, closeTimeout, keepAlive } = options;
  const all = { receiveBuffer, sendBuffer, queue, ioMappings, closeTimeout, keepAlive };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
};

export const streamOptions = (options: StreamOptions): StreamOptions => {
  const { allowHalfOpen, readableHighWaterMark, writableHighWaterMark, signal } = options;
  const all = { allowHalfOpen, readableHighWaterMark, writableHighWaterMark, signal };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
};

/** Connects; resolves with the socket. The signal ends the attempt, and later the socket. */
export async function connect(options: ConnectOptions): Promise<RSocket> {
  checkConnect(options);
  return new RSocket(await open(options, options.signal), streamOptions(options));
}

/** The channel of a new connection, to the first address of the host that answers. */
export function open(options: ConnectOptions, signal: AbortSignal | undefined): Promise<RsocketChannel> {
  const { host: address, port } = options;
  return reach(
    { address, port },
    { ...options, signal },
    (place, ownSignal) => openAt(place, options, ownSignal),
    (channel) => channel.discard(),
  );
}

async function openAt(
  { address: host, port }: SocketAddress,
  options: ConnectOptions,
  signal: AbortSignal,
): Promise<RsocketChannel> {
  const { source } = options;
  const id = new CmId(idOptions(options));
  let channel: RsocketChannel | undefined;
  try {
    await id.resolveAddr({ host, port, ...(source === undefined ? {} : { source }) }, { signal });
    await id.resolveRoute();
    channel = await RsocketChannel.open(id, bufferOptions(options));
    await channel.connect(signal);
    return channel;
  } catch (error) {
    await (channel ? channel.close(false) : id.destroy());
    throw error;
  }
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
