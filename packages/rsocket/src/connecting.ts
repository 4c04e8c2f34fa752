/** Sockets that are returned before they are connected, as those of `net.connect`. */
import type { Duplex } from 'node:stream';
import { inspect } from 'node:util';
import type { SocketAddress } from '@node-roce/rdmacm';
import { invalid } from '@node-roce/rdmacm/parts';
import type { RsocketCalls } from './calls.ts';
import type { RsocketChannel } from './channel.ts';
import type { IoMapping } from './mappings.ts';
import { checkConnect, MAX_PORT } from './options.ts';
import { RSocket } from './socket.ts';
import { bufferOptions, type ConnectOptions, open, streamOptions } from './sockets.ts';

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

  get isOpen(): boolean {
    return this.#channel !== undefined;
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

/** Options of `createConnection`: those of `connect`, with the defaults and the names of `net.connect`, so that an agent can give them. */
export interface CreateConnectionOptions extends Omit<ConnectOptions, 'host' | 'port' | 'keepAlive'> {
  /** Default localhost. */
  host?: string | null | undefined;
  /** Default 80. */
  port?: number | string | null | undefined;
  /** As in `net.connect`: `source`. */
  localAddress?: string | undefined;
  /** A number, as in `connect`. What `net.connect` has by this name, true or false, changes nothing. */
  keepAlive?: number | boolean | undefined;
  /** As in `net.connect`: for `socket.setTimeout`. */
  timeout?: number | undefined;
}

/**
 * As `net.createConnection`: returns the socket at once, which raises 'connect' and 'ready', or 'error'. For `http.request({ createConnection })`,
 * and for an agent, whose options it takes.
 *
 * @example http.get({ host, port, createConnection })
 */
export function createConnection(options: CreateConnectionOptions, onConnect?: () => void): RSocket;
/** As an agent calls it. Its callback ignores the call that comes with 'connect', as node:net calls it, too: the socket was returned. */
export function createConnection(
  options: CreateConnectionOptions,
  callback?: (error: Error | null, socket: Duplex) => void,
): RSocket;
/** As `net.createConnection(port, host)`. */
export function createConnection(port: number | string, onConnect?: () => void): RSocket;
export function createConnection(port: number | string, host?: string, onConnect?: () => void): RSocket;
export function createConnection(
  first: CreateConnectionOptions | number | string,
  ...rest: (string | ((...args: never[]) => void) | undefined)[]
): RSocket {
  const onConnect = rest.find((each) => typeof each === 'function');
  const host = rest.find((each) => typeof each === 'string');
  const options = typeof first === 'object' && first !== null ? first : { port: firstPort(first), host };
  const { path } = options as { path?: unknown };
  if (path) throw invalid('path', `${path}`, 'host and port: there are no Unix sockets over RDMA');
  const own = ownOptions(options);
  checkConnect(own);
  const attempt = new AbortController();
  const connecting = new Connecting(open(own, attempt.signal), attempt, () => {
    if (socket.destroyed) return;
    socket.emit('connect');
    socket.emit('ready');
  });
  const socket = new RSocket(connecting, streamOptions(options));
  if (options.timeout) socket.setTimeout(options.timeout);
  if (onConnect) socket.once('connect', onConnect as () => void);
  return socket;
}

/** As the first argument, text that is no port names a Unix socket in `node:net`. */
function firstPort(port: unknown): number | string {
  if (
    typeof port === 'number' ||
    (typeof port === 'string' && !(Number(port) < 0) && !Number.isNaN(Number(port)))
  )
    return port;
  throw invalid('options', `${port}`, 'an object, or a port');
}

/** What `node:net` takes for a port: a number, or text of one. `Number` also makes numbers of blank text and of lists. */
function toPort(port: unknown): number {
  const number =
    typeof port === 'number' || (typeof port === 'string' && port.trim() !== '') ? Number(port) : -1;
  if (!Number.isInteger(number) || number < 0 || number > MAX_PORT)
    throw invalid('port', inspect(port), `0 … ${MAX_PORT}`);
  return number;
}

/** Of an agent's options only those that are ours. */
function ownOptions(options: CreateConnectionOptions): ConnectOptions {
  const { host, port, localAddress, source = localAddress, keepAlive, ...others } = options;
  const { device, deviceOptions, connectTimeout, signal, ackTimeoutMs, timing } = others;
  return {
    ...{ host: host ?? 'localhost', port: toPort(port ?? 80), source, device, deviceOptions },
    ...{ connectTimeout, signal, ackTimeoutMs, timing, ...bufferOptions(others) },
    // An agent's is that of TCP sockets.
    ...(typeof keepAlive === 'number' ? { keepAlive } : {}),
  };
}
