/** Connections in one call. */
import { type Device, EventQueue, RoceError } from '@node-roce/verbs-api';
import { CmRejReason } from '@node-roce/wire';
import { CmId } from './cm-id.ts';
import { closedError } from './errors.ts';
import { MessageConnection, type MessageOptions } from './message-connection.ts';
import {
  checkConnectOptions,
  checkDestination,
  checkListenOptions,
  checkTarget,
  checkWait,
} from './options.ts';
import type { ConnectionParameters, IdOptions } from './parameters.ts';

/** Options of `connect`. */
export interface ConnectOptions extends IdOptions, MessageOptions, ConnectionParameters {
  /** Our address; by route unless given. */
  source?: string;
  /** Gives up. */
  signal?: AbortSignal;
}

/** Options of `listen`. */
export interface ListenOptions extends IdOptions, MessageOptions, ConnectionParameters {
  /** Port of port space TCP; 0 chooses one. */
  port: number;
  /** Our address; with a `device` not needed. */
  address?: string;
  /** Requests that may wait; more are not answered, and repeated by their senders. Default 128. */
  backlog?: number;
  /** Ends the listener. */
  signal?: AbortSignal;
}

/** Host and port of `host:port`, `[ipv6]:port`. */
function parseTarget(target: string): { host: string; port: number } {
  checkTarget(target);
  const match = /^(?:\[(.+)\]|([^:]+)):(\d+)$/.exec(target);
  if (!match)
    throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `target: ${JSON.stringify(target)}`, {
      errno: 'EINVAL',
      attribute: 'target',
      expected: 'host:port, or [IPv6 address]:port',
    });
  const destination = { host: (match[1] ?? match[2])!, port: Number(match[3]) };
  checkDestination(destination);
  return destination;
}

const parametersOf = ({
  privateData,
  responderResources,
  initiatorDepth,
  retryCount,
  rnrRetryCount,
  flowControl,
}: ConnectionParameters): ConnectionParameters => ({
  privateData,
  responderResources,
  initiatorDepth,
  retryCount,
  rnrRetryCount,
  flowControl,
});

const idOptionsOf = ({
  device,
  deviceOptions,
  portSpace,
  channel,
  trafficClass,
  ackTimeout,
  minRnrTimer,
  timing,
  context,
}: IdOptions): IdOptions => ({
  device,
  deviceOptions,
  portSpace,
  channel,
  trafficClass,
  ackTimeout,
  minRnrTimer,
  timing,
  context,
});

const messagesOf = ({ maxMessage, slots, keepAlive }: MessageOptions): MessageOptions =>
  Object.fromEntries(
    Object.entries({ maxMessage, slots, keepAlive }).filter(([, value]) => value !== undefined),
  );

/**
 * Connects to `host:port` and returns a connection that carries messages.
 *
 * Rejects as `CmId.resolveAddr` and `CmId.connect`, or with the signal's reason.
 */
export async function connect(target: string, options: ConnectOptions = {}): Promise<MessageConnection> {
  const { host, port } = parseTarget(target);
  checkConnectOptions(options);
  const { source, signal } = options;
  signal?.throwIfAborted();
  const id = new CmId(idOptionsOf(options));
  try {
    await id.resolveAddr({ host, port, ...(source === undefined ? {} : { source }) });
    await id.resolveRoute();
    const connection = await MessageConnection.open(id, messagesOf(options));
    try {
      return await connection.connect(parametersOf(options), signal);
    } catch (error) {
      await connection.close();
      throw error;
    }
  } catch (error) {
    await id.destroy();
    throw error;
  }
}

/** Connections as they come: `for await (const connection of listener)`. Made by `listen`. */
export class Listener implements AsyncDisposable {
  readonly #id: CmId;
  readonly #options: ListenOptions;
  readonly #connections = new EventQueue<MessageConnection>();
  readonly #onAbort = () => void this.#end(this.#options.signal?.reason);
  #ended = false;

  /** @internal */
  constructor(id: CmId, options: ListenOptions) {
    this.#id = id;
    this.#options = options;
    options.signal?.addEventListener('abort', this.#onAbort, { once: true });
    void this.#serve();
  }

  /** The port. */
  get port(): number {
    return this.#id.localAddress!.port;
  }

  /** The device. */
  get device(): Device {
    return this.#id.device;
  }

  /** The next connection. Rejects with ERR_ROCE_CLOSED once the listener is closed, or with a signal's reason. */
  async accept(options: { signal?: AbortSignal } = {}): Promise<MessageConnection> {
    checkWait(options);
    return this.#connections.next(options.signal);
  }

  /** Connections until the listener is closed; rejects with the reason of its signal. */
  async *[Symbol.asyncIterator](): AsyncGenerator<MessageConnection, void> {
    for (;;) {
      let connection: MessageConnection;
      try {
        connection = await this.accept();
      } catch (error) {
        if ((error as RoceError).code === 'ERR_ROCE_CLOSED') return;
        throw error;
      }
      yield connection;
    }
  }

  async #serve(): Promise<void> {
    for await (const request of this.#id) void this.#accept(request);
    await this.#end(closedError('the device is closed'));
  }

  /** A client that goes away meanwhile ends its own attempt, and no other. */
  async #accept(request: CmId): Promise<void> {
    try {
      if (request.request!.translated) {
        await request.reject(undefined, CmRejReason.INVALID_GID);
        await request.destroy();
        return;
      }
      const connection = await MessageConnection.open(request, messagesOf(this.#options));
      try {
        this.#connections.push(await connection.accept(parametersOf(this.#options), undefined));
      } catch {
        await connection.close();
      }
    } catch {
      await request.destroy().catch(() => {});
    }
  }

  async #end(reason: unknown): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    await this.#id.destroy();
    for (let left = this.#connections.poll(); left; left = this.#connections.poll()) await left.close();
    this.#connections.fail(reason);
  }

  /** Listens no more. Connections that were accepted go on. */
  close(): Promise<void> {
    return this.#end(closedError('the listener is closed'));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Listens at a port. Rejects as `CmId.listen`. */
export async function listen(options: ListenOptions): Promise<Listener> {
  checkListenOptions(options);
  options.signal?.throwIfAborted();
  const { port, address, backlog } = options;
  const id = new CmId(idOptionsOf(options));
  try {
    await id.listen({
      port,
      ...(address === undefined ? {} : { address }),
      ...(backlog === undefined ? {} : { backlog }),
    });
  } catch (error) {
    await id.destroy();
    throw error;
  }
  return new Listener(id, options);
}
