/** The dialogue over TCP. */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { broken, silent } from '../errors.ts';
import type { Channel, Patience } from './channel.ts';
import { after, Changes } from './waiting.ts';

/** No peer has more on the way: a list of keys comes one by one. */
const MAX_BYTES = 4096;
/** ms in which the rest of a message comes that its sender wrote in one go. */
const REST_WITHIN = 50;

/** One end of a TCP connection, read by exact numbers of bytes. */
export class TcpChannel implements Channel {
  readonly isClient: boolean;
  readonly #socket: Socket;
  readonly #patience: Patience;
  readonly #changes = new Changes();
  #received = Buffer.alloc(0);
  #ended = false;

  constructor(socket: Socket, isClient: boolean, patience: Patience) {
    this.isClient = isClient;
    this.#socket = socket;
    this.#patience = patience;
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      if (this.#received.length > MAX_BYTES) socket.pause();
      this.#changes.notify();
    });
    for (const event of ['end', 'close', 'error']) {
      socket.on(event, () => {
        this.#ended = true;
        this.#changes.notify();
      });
    }
  }

  /** The address that the peer reached. */
  get localAddress(): string {
    return plainAddress(this.#socket.localAddress);
  }

  get remoteAddress(): string {
    return plainAddress(this.#socket.remoteAddress);
  }

  get ended(): boolean {
    return this.#ended;
  }

  async write(message: Uint8Array): Promise<void> {
    this.#socket.write(message);
  }

  async read(bytes: number): Promise<Buffer> {
    await this.#arrived(bytes, this.#patience);
    const message = this.#received.subarray(0, bytes);
    this.#received = this.#received.subarray(bytes);
    if (this.#received.length <= MAX_BYTES) this.#socket.resume();
    return message;
  }

  async readOneOf(sizes: readonly number[]): Promise<Buffer> {
    const [least] = sizes;
    await this.#arrived(least, this.#patience);
    const most = sizes[sizes.length - 1];
    const { signal } = this.#patience;
    await this.#arrived(most, { timeout: REST_WITHIN / 1000, signal }).catch(() => {});
    const found = sizes.findLast((size) => size <= this.#received.length);
    return this.read(found ?? least);
  }

  #arrived(bytes: number, patience: Patience): Promise<true> {
    return this.#changes.until(() => {
      if (this.#received.length >= bytes) return true;
      if (!this.#ended) return undefined;
      const sent = this.#received.length;
      throw broken(
        sent === 0
          ? 'the peer closed the connection of the dialogue'
          : `the peer closed the connection of the dialogue in the middle of a message: ${sent} of ${bytes} bytes`,
      );
    }, patience);
  }

  async untilEnded(milliseconds: number): Promise<void> {
    const { signal } = this.#patience;
    const patience = { timeout: milliseconds / 1000, signal };
    this.#socket.resume();
    await this.#changes.until(() => this.#ended || undefined, patience).catch(() => {});
  }

  async close(): Promise<void> {
    this.#socket.end();
    // perftest 4.5 ends with five bytes that nobody reads; closed with them unread, the socket would be reset.
    await this.untilEnded(1000);
    this.#socket.destroy();
  }

  async destroy(): Promise<void> {
    this.#socket.destroy();
  }
}

const plainAddress = (address = ''): string => address.replace(/^::ffff:/i, '').split('%')[0];

/** Connects to a server's dialogue. */
export async function callTcp(host: string, port: number, patience: Patience): Promise<TcpChannel> {
  const { timeout, signal } = patience;
  const within = AbortSignal.any([signal, after(timeout)]);
  const socket = connect({ host, port });
  try {
    await once(socket, 'connect', { signal: within });
  } catch (error) {
    socket.destroy();
    signal.throwIfAborted();
    const { code } = error as NodeJS.ErrnoException;
    if (within.aborted) throw silent(`no answer from TCP port ${port} of ${host} within ${timeout} s`);
    if (code === 'ECONNREFUSED')
      throw broken(
        `no server listens at TCP port ${port} of ${host}: start the same test there first`,
        error,
      );
    throw broken(`no connection to TCP port ${port} of ${host}: ${(error as Error).message}`, error);
  }
  return new TcpChannel(socket, true, patience);
}

/** A server's TCP port. */
export class TcpListener {
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** Rejects as `net.Server` does: EADDRINUSE, EADDRNOTAVAIL. */
  static async open(port: number, host: string | undefined, signal: AbortSignal): Promise<TcpListener> {
    signal.throwIfAborted();
    const server = createServer({ allowHalfOpen: true });
    server.maxConnections = 1;
    server.listen({ port, ...(host === undefined ? {} : { host }) });
    await once(server, 'listening');
    // Before that moment, closing it would not keep it from listening.
    if (signal.aborted) server.close();
    signal.throwIfAborted();
    return new TcpListener(server);
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** The first client; waits without limit. */
  async accept(patience: Patience): Promise<TcpChannel> {
    const [socket] = (await once(this.#server, 'connection', { signal: patience.signal })) as [Socket];
    return new TcpChannel(socket, false, patience);
  }

  close(): void {
    this.#server.close();
  }
}
