/** Connections in one call. */
import { codeMicroseconds, DEFAULT_TIMING } from '@node-roce/cm';
import { type Device, EventQueue, RoceError } from '@node-roce/verbs-api';
import { CmRejReason, isIpv4Mapped } from '@node-roce/wire';
import { gidOf, isAnyAddress, resolveAll, type SocketAddress } from './addresses.ts';
import { orAborted } from './attempt.ts';
import { CmId } from './cm-id.ts';
import { Deadline } from './deadline.ts';
import { closedError, connectTimeoutError } from './errors.ts';
import { firstOf, inTurns } from './eyeballs.ts';
import { MessageConnection, type MessageOptions } from './message-connection.ts';
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
import { Slots } from './slots.ts';

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
  signal?: AbortSignal;
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
  signal?: AbortSignal;
}

const DEFAULT_BACKLOG = 128;
const CONNECT_TIMEOUT = 10_000;
/** With it, `keepAlive` and the ACK timeout find a dead peer within 10 s: 2 s, and 7 times 1.07 s. */
const RETRY_COUNT = 6;
/** Our response timeouts that a peer may take to confirm while others wait: time for a repetition of REP. */
const PATIENCE = 2;

/** A request that is being accepted, and since when (`performance.now`). */
interface Accepting {
  done: Promise<void>;
  since: number;
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
  retryCount = RETRY_COUNT,
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
  ackTimeoutMs,
  minRnrTimer,
  rnrTimerMs,
  timing,
  context,
}: IdOptions): IdOptions => ({
  device,
  deviceOptions,
  portSpace,
  channel,
  trafficClass,
  ackTimeout,
  ackTimeoutMs,
  minRnrTimer,
  rnrTimerMs,
  timing,
  context,
});

const messagesOf = ({
  maxMessage,
  slots,
  keepAlive,
  idleTimeout,
  closeTimeout,
}: MessageOptions): MessageOptions =>
  Object.fromEntries(
    Object.entries({ maxMessage, slots, keepAlive, idleTimeout, closeTimeout }).filter(
      ([, value]) => value !== undefined,
    ),
  );

/**
 * Connects to `host:port` and returns a connection that carries messages. Of a name with several addresses, each is tried (RFC 8305).
 *
 * Rejects as `CmId.resolveAddr` and `CmId.connect`, with ERR_ROCE_CM_UNREACHABLE after `connectTimeout`, or with the signal's reason.
 */
export async function connect(target: string, options: ConnectOptions = {}): Promise<MessageConnection> {
  const { host, port } = parseTarget(target);
  checkConnectOptions(options);
  checkPrivateData(options.privateData, PRIVATE_DATA.connect);
  options.signal?.throwIfAborted();
  const { connectTimeout = CONNECT_TIMEOUT, source, device } = options;
  const late = () => connectTimeoutError({ address: host, port }, connectTimeout);
  const deadline = new Deadline(connectTimeout, options.signal, late);
  const { signal } = deadline;
  try {
    const addresses = await orAborted(addressesOf(host, source, device), signal);
    return await firstOf(
      host,
      addresses,
      (address, ownSignal) => connectTo({ address, port }, options, ownSignal),
      (connection) => void connection.discard(),
      signal,
    );
  } finally {
    deadline.end();
  }
}

/** Addresses of a host that ours can reach; all, where none can. */
async function addressesOf(host: string, source: string | undefined, device: Device | undefined) {
  const all = await resolveAll(host);
  const own =
    source !== undefined && !isAnyAddress(source) ? [gidOf(source)] : device?.gids.map(({ gid }) => gid);
  const reachable =
    own && all.filter((each) => own.some((gid) => isIpv4Mapped(gid) === isIpv4Mapped(gidOf(each))));
  return inTurns(reachable?.length ? reachable : all);
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
  readonly #options: ListenOptions;
  /** Those that nobody has taken: at most `backlog`, with those that are being made. */
  readonly #connections = new EventQueue<MessageConnection>(Number.POSITIVE_INFINITY);
  /** Requests that are being accepted, the oldest first. */
  readonly #accepting = new Map<CmId, Accepting>();
  /** The request that waits for a place among them. */
  #next: CmId | undefined;
  /** A process warning has named the reason why no connection can be made. */
  #warned = false;
  readonly #room: Slots;
  /** Milliseconds after which a peer that has not confirmed gives its place to another one. */
  readonly #patience: number;
  readonly #onAbort = () => void this.#end(this.#options.signal?.reason).catch(() => {}); // `close` rejects with it.
  #ending: Promise<void> | undefined;

  /** @internal */
  constructor(id: CmId, options: ListenOptions) {
    this.#id = id;
    this.#options = options;
    this.#room = new Slots(Math.max(1, options.backlog ?? DEFAULT_BACKLOG));
    const { responseTimeout } = { ...DEFAULT_TIMING, ...options.timing };
    this.#patience = (PATIENCE * codeMicroseconds(responseTimeout)) / 1000;
    options.signal?.addEventListener('abort', this.#onAbort, { once: true });
    void this.#serve();
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
  async accept(options: { signal?: AbortSignal } = {}): Promise<MessageConnection> {
    checkWait(options);
    const connection = await this.#connections.next(options.signal);
    this.#room.release(0);
    return connection;
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

  /** Accepts requests as long as there is room for their connections; the others wait in the backlog. */
  async #serve(): Promise<void> {
    let reason: unknown = closedError('the device is closed');
    try {
      for (;;) {
        const request = await this.#id.getRequest();
        this.#next = request;
        if (!(await this.#place())) {
          await request.destroy();
          break;
        }
        this.#next = undefined;
        const done = this.#accept(request).finally(() => this.#accepting.delete(request));
        this.#accepting.set(request, { done, since: performance.now() });
      }
    } catch (error) {
      reason = error;
    }
    await this.#end(reason).catch(() => {}); // `close` rejects with it.
  }

  /**
   * Waits for a place; false once the listener is closed. A peer that does not confirm chooses how long it is waited for, and
   * strangers could hold all places: the oldest such one is given up when another request needs its place.
   */
  async #place(): Promise<boolean> {
    const giveUp = () => {
      const [oldest] = this.#accepting;
      if (!oldest || performance.now() - oldest[1].since < this.#patience) return;
      oldest[0].destroy().catch(() => {}); // `#accept` ends, and releases the place.
    };
    if (this.#room.isEmpty) giveUp();
    const looking = this.#room.isEmpty ? setInterval(giveUp, this.#patience / 8).unref() : undefined;
    try {
      return (await this.#room.take()) !== undefined;
    } finally {
      clearInterval(looking);
    }
  }

  /** A client that goes away meanwhile ends its own attempt, and no other. */
  async #accept(request: CmId): Promise<void> {
    try {
      if (request.request!.translated) {
        await request.reject(undefined, CmRejReason.INVALID_GID);
        throw closedError('the address is translated');
      }
      const opening = MessageConnection.open(request, messagesOf(this.#options));
      opening.catch((error: RoceError) => this.#warn(error));
      const connection = await opening;
      try {
        await connection.accept(parametersOf(this.#options), undefined);
        if (this.#ending) throw closedError('the listener is closed');
        this.#connections.push(connection);
      } catch {
        await connection.discard();
        this.#room.release(0);
      }
    } catch {
      await request.destroy().catch(() => {});
      this.#room.release(0);
    }
  }

  /** Warns once where the device has no room for a connection: its client is refused, and `accept` waits for the next one. */
  #warn({ code, message }: RoceError): void {
    if (this.#warned || this.#ending || code === 'ERR_ROCE_CLOSED' || code === 'ERR_ROCE_DEVICE_FATAL')
      return;
    this.#warned = true;
    process.emitWarning(`the listener at port ${this.port} refuses clients: ${message}`, {
      type: 'RoceWarning',
      code: 'ROCE_ACCEPT_FAILED',
    });
  }

  #end(reason: unknown): Promise<void> {
    this.#ending ??= this.#stop(reason);
    return this.#ending;
  }

  async #stop(reason: unknown): Promise<void> {
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    this.#room.close();
    const leaving = [this.#id.destroy()];
    if (this.#next) leaving.push(this.#next.destroy());
    for (const [request, { done }] of this.#accepting) leaving.push(request.destroy(), done);
    for (let left = this.#connections.poll(); left; left = this.#connections.poll())
      leaving.push(left.discard());
    try {
      await Promise.all(leaving);
    } finally {
      this.#connections.fail(reason);
    }
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
