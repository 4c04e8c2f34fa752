/** Connections in one call. */
import { inspect } from 'node:util';
import { type Device, RoceError } from '@node-roce/verbs-api';
import { Acceptor } from './acceptor.ts';
import type { SocketAddress } from './addresses.ts';
import { CmId } from './cm-id.ts';
import { closedError, hostAndPort } from './errors.ts';
import { MessageConnection } from './message-connection.ts';
import type { MessageOptions } from './message-options.ts';
import {
  checkConnectOptions,
  checkDestination,
  checkListenOptions,
  checkTarget,
  checkWait,
} from './options.ts';
import {
  type ConnectionParameters,
  checkDepths,
  checkPrivateData,
  type IdOptions,
  PRIVATE_DATA,
} from './parameters.ts';
import { reach } from './reach.ts';

/** The options of an id whose connections carry messages. */
interface MessageIdOptions extends Omit<IdOptions, 'portSpace' | 'transport'> {
  /** TCP, the default, or IB: connections. */
  portSpace?: 'TCP' | 'IB';
  /** RC: XRC carries no messages. */
  transport?: 'RC';
}

/** Options of `connect`. */
export interface ConnectOptions extends MessageIdOptions, MessageOptions, ConnectionParameters {
  /** Milliseconds for all of it: the name, the device, and the peer's answer; 0 for no limit. Default 10,000. */
  connectTimeout?: number;
  /** Our address; by route unless given. */
  source?: string;
  /** Gives up. */
  signal?: AbortSignal | undefined;
}

/** Options of `listen`. */
export interface ListenOptions extends MessageIdOptions, MessageOptions, ConnectionParameters {
  /** Port of port space TCP; 0 chooses one. */
  port: number;
  /** Our address. A wildcard (0.0.0.0, ::), and no address without a `device`, stand for all of this machine. */
  address?: string;
  /**
   * Connections that are being made or wait for `accept`, and as many requests that wait for a place among them; more are not
   * answered, and repeated by their senders. While requests wait, a client has two response timeouts (`timing`; 8 s) to confirm.
   * Default 128.
   */
  backlog?: number;
  /** Ends the listener. */
  signal?: AbortSignal | undefined;
}

/** With it, `keepAlive` and the ACK timeout find a dead peer within 10 s: 2 s, and 7 times 1.07 s. */
const RETRY_COUNT = 6;
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

/** The options that were given, of those with these names. */
const given = <Options extends object, const Name extends keyof Options>(
  options: Options,
  names: readonly Name[],
): Partial<Pick<Options, Name>> =>
  Object.fromEntries(
    names.map((name) => [name, options[name]]).filter(([, value]) => value !== undefined),
  ) as Partial<Pick<Options, Name>>;

const parametersOf = (options: ConnectionParameters): ConnectionParameters => ({
  retryCount: RETRY_COUNT,
  ...given(options, [
    'privateData',
    'responderResources',
    'initiatorDepth',
    'retryCount',
    'rnrRetryCount',
    'flowControl',
  ]),
});

const idOptionsOf = (options: IdOptions): IdOptions =>
  given(options, [
    'device',
    'deviceOptions',
    'portSpace',
    'channel',
    'trafficClass',
    'ackTimeout',
    'ackTimeoutMs',
    'minRnrTimer',
    'rnrTimerMs',
    'timing',
    'context',
  ]);

const messagesOf = (options: MessageOptions): MessageOptions =>
  given(options, ['maxMessage', 'slots', 'keepAlive', 'idleTimeout', 'closeTimeout']);

/**
 * Connects to `host:port` and returns a connection that carries messages. Of a name with several addresses, each is tried (RFC 8305).
 *
 * Rejects as `CmId.resolveAddr` and `CmId.connect`, with ERR_ROCE_CM_UNREACHABLE after `connectTimeout`, or with the signal's reason.
 */
export async function connect(target: string, options: ConnectOptions = {}): Promise<MessageConnection> {
  const { host, port } = parseTarget(target);
  checkConnectOptions(options);
  checkPrivateData(options.privateData, PRIVATE_DATA.connect);
  return reach(
    { address: host, port },
    options,
    (place, signal) => connectTo(place, options, signal),
    (connection) => connection.discard(),
  );
}

async function connectTo(
  { address, port }: SocketAddress,
  options: ConnectOptions,
  signal: AbortSignal,
): Promise<MessageConnection> {
  const { source } = options;
  const id = new CmId(idOptionsOf(options));
  try {
    await id.resolveAddr({ host: address, port, ...(source === undefined ? {} : { source }) }, { signal });
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
  readonly #acceptor: Acceptor<MessageConnection>;

  /** @internal */
  constructor(id: CmId, options: ListenOptions) {
    this.#id = id;
    this.#acceptor = new Acceptor(id, options, {
      open: (request) => MessageConnection.open(request, messagesOf(options)),
      accept: async (connection) => {
        await connection.accept(parametersOf(options), undefined);
      },
      discard: (connection) => connection.discard(),
    });
  }

  /** The port. */
  get port(): number {
    return this.#id.localAddress!.port;
  }

  /** The device. Throws ERR_ROCE_CM_STATE where the listener has several (a wildcard): each connection has one of these. */
  get device(): Device {
    return this.#id.device;
  }

  /** The next connection. Rejects with ERR_ROCE_CLOSED once the listener is closed, or with a signal's reason. */
  async accept(options: { signal?: AbortSignal | undefined } = {}): Promise<MessageConnection> {
    checkWait(options);
    return this.#acceptor.next(options.signal);
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

  /** Listens no more. Connections that were accepted go on. */
  close(): Promise<void> {
    return this.#acceptor.end(closedError('the listener is closed'));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal */
  [inspect.custom](): string {
    const { localAddress: at, state } = this.#id;
    return `Listener { ${at ? `at: ${hostAndPort(at)}, ` : ''}state: ${state} }`;
  }
}

/** Listens at a port. Rejects as `CmId.listen`. */
export async function listen(options: ListenOptions): Promise<Listener> {
  checkListenOptions(options);
  checkPrivateData(options.privateData, PRIVATE_DATA.accept);
  const { signal } = options;
  signal?.throwIfAborted();
  const { port, address, backlog } = options;
  const id = new CmId(idOptionsOf(options));
  try {
    await id.listen({
      port,
      ...(address === undefined ? {} : { address }),
      ...(backlog === undefined ? {} : { backlog }),
    });
    signal?.throwIfAborted();
    for (const device of id.devices) checkDepths(options, device.facts.limits);
  } catch (error) {
    await id.destroy();
    throw error;
  }
  return new Listener(id, options);
}
