/**
 * An exchange of values over TCP for programs that have no channel of their own: connection data, addresses and keys of
 * regions, and whatever else they have to agree on.
 */
import { once } from 'node:events';
import { type AddressInfo, connect as connectTcp, createServer, type Server, type Socket } from 'node:net';
import { invalid, RoceError } from '@node-roce/transport';
import { EventQueue } from './event-queue.ts';
import { checkCall, checkWaitOptions } from './option-types.ts';
import { described, INTEGER, SIGNAL, STRING } from './options.ts';

/** Longest line that a peer may send. */
const MAX_LINE = 65_536;

/** JSON of a value in which bigints and bytes have forms of their own: `{"$bigint":"7"}`, `{"$bytes":"base64"}`. */
function encode(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value, (_key, member: unknown) => {
      if (typeof member === 'bigint') return { $bigint: `${member}` };
      if (member instanceof Uint8Array) return { $bytes: Buffer.from(member).toString('base64') };
      return member;
    });
  } catch (error) {
    throw invalid('value', (error as Error).message, 'JSON, with bigints and Uint8Arrays');
  }
  if (text === undefined) throw invalid('value', described(value), 'JSON, with bigints and Uint8Arrays');
  return text;
}

/** @throws SyntaxError for anything that `encode` does not make */
const decode = (line: string): unknown =>
  JSON.parse(line, (_key, member: unknown) => {
    if (typeof member !== 'object' || member === null) return member;
    const [[name, text] = ['', ''], ...more] = Object.entries(member);
    if (more.length > 0 || typeof text !== 'string') return member;
    // BigInt throws a SyntaxError, too.
    if (name === '$bigint') return BigInt(text);
    return name === '$bytes' ? new Uint8Array(Buffer.from(text, 'base64')) : member;
  });

/** A TCP connection of two programs that exchange values, one JSON text per line; bigints and Uint8Arrays included. */
export class Exchange implements AsyncDisposable {
  readonly #socket: Socket;
  readonly #lines: AsyncGenerator<string, void>;
  readonly #signal: AbortSignal | undefined;

  constructor(socket: Socket, signal?: AbortSignal) {
    this.#socket = socket;
    this.#signal = signal;
    socket.setNoDelay(true);
    socket.on('error', () => {}); // Read and write report it.
    this.#lines = linesOf(socket);
  }

  /** Sends one value. Throws EINVAL for what is not JSON, a bigint or bytes. */
  send(value: unknown): void {
    this.#socket.write(`${encode(value)}\n`);
  }

  /** The peer's next value. Rejects if it closes, sends no JSON, or the signal aborts. */
  async receive<T = unknown>(): Promise<T> {
    this.#signal?.throwIfAborted();
    const abort = () => this.#socket.destroy();
    this.#signal?.addEventListener('abort', abort, { once: true });
    try {
      const { value, done } = await this.#lines.next();
      if (done || value === undefined) throw broken('the peer closed the exchange');
      return decode(value) as T;
    } catch (error) {
      this.#signal?.throwIfAborted();
      if (error instanceof RoceError) throw error;
      if (error instanceof SyntaxError) throw broken('the peer sent something that is not JSON');
      throw broken(`the exchange broke: ${(error as Error).message}`, error);
    } finally {
      this.#signal?.removeEventListener('abort', abort);
    }
  }

  /** Sends one value and takes one: both sides call it at the same point. */
  async swap<T>(value: T): Promise<T> {
    this.send(value);
    return this.receive<T>();
  }

  /** Ends the connection, after all sent messages have left. */
  async close(): Promise<void> {
    if (this.#socket.destroyed) return;
    const closed = once(this.#socket, 'close');
    this.#socket.end();
    this.#socket.resume();
    const timer = setTimeout(() => this.#socket.destroy(), 1000);
    await closed.catch(() => {});
    clearTimeout(timer);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

async function* linesOf(socket: Socket): AsyncGenerator<string, void> {
  let text = '';
  socket.setEncoding('utf8');
  for await (const chunk of socket) {
    text += chunk;
    for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n')) {
      const line = text.slice(0, at);
      text = text.slice(at + 1);
      yield line;
    }
    if (text.length > MAX_LINE) throw broken('the peer sent a line without end');
  }
}

function broken(message: string, cause?: unknown): RoceError {
  return new RoceError('ERR_ROCE_EXCHANGE', message, { errno: 'EIO', cause });
}

/** Where two programs meet. */
export interface ExchangeAddress {
  /** Address or name: to listen at, or to connect to. */
  host: string;
  /** TCP port; a server that listens at 0 gets a free one. */
  port: number;
  /** Gives up: the promise, and calls that wait, reject with its reason. */
  signal?: AbortSignal;
}

const checkAddress = (address: ExchangeAddress): void => {
  checkCall(address, { host: STRING, port: INTEGER, signal: SIGNAL });
  const { host, port } = address;
  if (host === undefined) throw invalid('host', 'none', 'an address or a name');
  if (port === undefined || port > 65_535) throw invalid('port', described(port), '0 … 65535');
};

/** Clients of a server that nobody has accepted. */
const MAX_WAITING = 1024;

/**
 * A server of exchanges: `for await (const exchange of server)`, or `await server.accept()`. Of more than 1024 clients that wait, it closes
 * the oldest.
 */
export class ExchangeServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #signal: AbortSignal | undefined;
  readonly #clients = new EventQueue<Exchange>(MAX_WAITING, (client) => void client.close());
  readonly #onAbort = () => void this.#end(this.#signal?.reason);

  constructor(server: Server, signal: AbortSignal | undefined) {
    this.#server = server;
    this.#signal = signal;
    server.on('connection', (socket: Socket) => this.#clients.push(new Exchange(socket, signal)));
    signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  /** The TCP port that it listens at. */
  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The next client. Rejects with ERR_ROCE_CLOSED once the server is closed, or with a signal's reason. */
  accept(options: { signal?: AbortSignal } = {}): Promise<Exchange> {
    checkWaitOptions(options);
    return this.#clients.next(options.signal);
  }

  /** Clients as they come, until the server is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Exchange, void> {
    for (;;) {
      try {
        yield await this.accept();
      } catch (error) {
        if ((error as RoceError).code === 'ERR_ROCE_CLOSED') return;
        throw error;
      }
    }
  }

  async #end(reason: unknown): Promise<void> {
    this.#signal?.removeEventListener('abort', this.#onAbort);
    this.#server.close();
    this.#clients.fail(reason);
    const closing: Promise<void>[] = [];
    for (let one = this.#clients.poll(); one; one = this.#clients.poll()) closing.push(one.close());
    await Promise.all(closing);
  }

  /** Listens no more. Exchanges that were accepted go on; clients that were not are closed. */
  close(): Promise<void> {
    return this.#end(new RoceError('ERR_ROCE_CLOSED', 'the server is closed', { errno: 'ECANCELED' }));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Listens for programs that call `exchangeAsClient`. Rejects with EADDRINUSE where the port is taken. */
export async function exchangeServer(address: ExchangeAddress): Promise<ExchangeServer> {
  checkAddress(address);
  const { host, port, signal } = address;
  signal?.throwIfAborted();
  const server = createServer();
  server.listen({ host, port });
  try {
    await once(server, 'listening', { signal });
  } catch (error) {
    server.close();
    throw explained(error, address);
  }
  return new ExchangeServer(server, signal);
}

/** Connects to a program that waits in `exchangeAsServer` or `exchangeServer`. */
export async function exchangeAsClient(address: ExchangeAddress): Promise<Exchange> {
  checkAddress(address);
  const { host, port, signal } = address;
  signal?.throwIfAborted();
  const socket = connectTcp({ host, port });
  try {
    await once(socket, 'connect', { signal });
  } catch (error) {
    socket.destroy();
    throw explained(error, address);
  }
  return new Exchange(socket, signal);
}

/** Waits for one program to connect. Resolves once it has; for several, `exchangeServer`. */
export async function exchangeAsServer(address: ExchangeAddress): Promise<Exchange> {
  await using server = await exchangeServer(address);
  return await server.accept(address.signal ? { signal: address.signal } : {});
}

/** A system error in words; an abort rejects with the signal's reason. */
function explained(error: unknown, { host, port, signal }: ExchangeAddress): unknown {
  if (signal?.aborted) return signal.reason;
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'ECONNREFUSED')
    return broken(`no program listens at TCP port ${port} of ${host}: start the server first`, error);
  if (code === 'EADDRINUSE') {
    return new RoceError('ERR_ROCE_PORT_IN_USE', `TCP port ${port} of ${host} is in use`, {
      errno: 'EADDRINUSE',
      attribute: 'port',
      cause: error,
    });
  }
  return broken(`the exchange with TCP port ${port} of ${host} failed: ${message}`, error);
}
