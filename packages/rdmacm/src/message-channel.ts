/**
 * A stream's bytes as messages. Each message has as many bytes as are there, `maxMessage` at most. An empty message is the end of a
 * direction; a second one reports that the peer's end has come, and our own is acknowledged: from then on nothing is lost if the
 * connection ends.
 */
import { RoceError } from '@node-roce/verbs-api';
import type { SocketAddress } from './addresses.ts';
import type { StreamChannel } from './stream-channel.ts';

/** The connection, as its stream uses it. @internal */
export interface MessagePort {
  readonly localAddress: SocketAddress | undefined;
  readonly remoteAddress: SocketAddress | undefined;
  readonly maxMessage: number;
  /** Host and port of the peer, for errors. */
  readonly peer: string;
  /** Copies the parts into one message, which is on its way then. `acknowledged` may be left alone. */
  post(parts: readonly Uint8Array[], length: number): Promise<{ acknowledged: Promise<void> }>;
  /** The next message, in bytes of the caller's own; undefined at the end of the connection. */
  receive(): Promise<Uint8Array | undefined>;
  /** Ends the connection; with `patience`, waits for the peer's answer. */
  close(patience: boolean): Promise<void>;
  /** Milliseconds that the peer has to report that it is done. */
  readonly closeTimeout: number;
}

/** A stream's bytes in messages. */
export class MessageChannel implements StreamChannel {
  readonly #port: MessagePort;
  onProgress = () => {};
  onFailure: (error: unknown) => void = () => {};
  /** The peer's direction has ended. */
  #hasPeerEnded = false;
  /** Our own direction ends, or has ended. */
  #ending: Promise<void> | undefined;

  constructor(port: MessagePort) {
    this.#port = port;
  }

  get localAddress(): SocketAddress | undefined {
    return this.#port.localAddress;
  }

  get remoteAddress(): SocketAddress | undefined {
    return this.#port.remoteAddress;
  }

  async write(chunks: readonly Uint8Array[]): Promise<void> {
    const { maxMessage } = this.#port;
    let parts: Uint8Array[] = [];
    let length = 0;
    for (let chunk of chunks) {
      while (chunk.length > 0) {
        const part = chunk.length > maxMessage - length ? chunk.subarray(0, maxMessage - length) : chunk;
        parts.push(part);
        length += part.length;
        chunk = chunk.subarray(part.length);
        if (length < maxMessage) continue;
        await this.#post(parts, length);
        parts = [];
        length = 0;
      }
    }
    if (length > 0) await this.#post(parts, length);
  }

  async #post(parts: readonly Uint8Array[], length: number): Promise<void> {
    const { acknowledged } = await this.#port.post(parts, length);
    this.onProgress();
    acknowledged.catch((error) => this.onFailure(error));
  }

  end(): Promise<void> {
    this.#ending ??= this.#end();
    return this.#ending;
  }

  async #end(): Promise<void> {
    // Acknowledged in order: what was sent before has arrived, too.
    const { acknowledged } = await this.#port.post([], 0);
    await acknowledged;
  }

  async read(): Promise<Uint8Array | undefined> {
    const message = await this.#port.receive();
    if (message === undefined)
      throw new RoceError(
        'ERR_ROCE_CLOSED',
        `the connection with ${this.#port.peer} ended before the peer ended its stream`,
        { errno: 'ENOTCONN' },
      );
    if (message.length > 0) return message;
    this.#hasPeerEnded = true;
    return undefined;
  }

  async close(isComplete: boolean): Promise<void> {
    const isOrderly = isComplete && this.#hasPeerEnded;
    if (isOrderly) await this.#waitAtMost(this.#port.closeTimeout, this.#farewell());
    await this.#port.close(isOrderly).catch(() => {}); // Of a device that failed.
  }

  /** Ends our direction, and waits until the peer, too, knows that it is acknowledged. */
  async #farewell(): Promise<void> {
    try {
      await this.end();
      const { acknowledged } = await this.#port.post([], 0);
      acknowledged.catch(() => {}); // The peer has left: it had heard all.
      await this.#port.receive();
    } catch {
      // The peer has left.
    }
  }

  async #waitAtMost(milliseconds: number, work: Promise<void>): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const over = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, milliseconds);
    });
    await Promise.race([work, over]);
    clearTimeout(timer);
  }
}
