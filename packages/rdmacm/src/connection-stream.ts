/** A connection as a Node stream. */
import type { AddressInfo } from 'node:net';
import { addAbortSignal, Duplex } from 'node:stream';
import { inspect } from 'node:util';
import { hostAndPort } from './errors.ts';
import type { StreamChannel } from './stream-channel.ts';

/** Options of a stream. */
export interface StreamOptions {
  /** Keep our direction open when the peer's ends. Default false, as `node:net`: `end()` is called then. */
  allowHalfOpen?: boolean;
  /** Bytes that wait to be read before the peer is held back. Default 64 KiB. */
  readableHighWaterMark?: number;
  /** Bytes that wait to be sent before `write` returns false. Default 256 KiB. */
  writableHighWaterMark?: number;
  /** Destroys the stream, and ends the connection. */
  signal?: AbortSignal | undefined;
}

function familyOf(address: string): 'IPv4' | 'IPv6';
function familyOf(address: string | undefined): 'IPv4' | 'IPv6' | undefined;
function familyOf(address: string | undefined): 'IPv4' | 'IPv6' | undefined {
  if (address === undefined) return undefined;
  return address.includes(':') ? 'IPv6' : 'IPv4';
}

export const READABLE_BYTES = 65_536;
export const WRITABLE_BYTES = 262_144;

/**
 * Bytes in order and in both directions, as a socket of `node:net`. 'finish' comes when the peer's adapter has all that was written;
 * 'end' when the peer has ended its direction; 'close' when the connection is gone and nothing of it is left. An end of the connection
 * before that is an error.
 */
export class ConnectionStream extends Duplex {
  readonly #channel: StreamChannel;
  #isReading = false;
  #bytesRead = 0;
  #bytesWritten = 0;
  #idle: NodeJS.Timeout | undefined;
  /** Milliseconds without bytes after which 'timeout' comes; 0: never. */
  timeout = 0;

  /** @internal */
  constructor(channel: StreamChannel, options: StreamOptions = {}) {
    const {
      allowHalfOpen = false,
      readableHighWaterMark = READABLE_BYTES,
      writableHighWaterMark = WRITABLE_BYTES,
      signal,
    } = options;
    super({ allowHalfOpen, readableHighWaterMark, writableHighWaterMark, decodeStrings: true });
    this.#channel = channel;
    channel.onProgress = () => this.#moved();
    channel.onFailure = (error) => this.destroy(error as Error);
    // As `node:net`: the end of a peer that sends nothing is noticed without a reader.
    this.read(0);
    // Not an option of Duplex: a signal that has aborted destroys the stream, which needs its channel for that.
    if (signal) addAbortSignal(signal, this);
  }

  /** Our address. */
  get localAddress(): string | undefined {
    return this.#channel.localAddress?.address;
  }

  /** Our port. */
  get localPort(): number | undefined {
    return this.#channel.localAddress?.port;
  }

  /** The peer's address. */
  get remoteAddress(): string | undefined {
    return this.#channel.remoteAddress?.address;
  }

  /** The peer's port. */
  get remotePort(): number | undefined {
    return this.#channel.remoteAddress?.port;
  }

  /** The peer's IP version, as `net.Socket` has it. */
  get remoteFamily(): 'IPv4' | 'IPv6' | undefined {
    return familyOf(this.remoteAddress);
  }

  /** Our IP version. */
  get localFamily(): 'IPv4' | 'IPv6' | undefined {
    return familyOf(this.localAddress);
  }

  /** As `net.Socket.address()`: our end. */
  address(): AddressInfo | Record<string, never> {
    const { localAddress: at } = this.#channel;
    return at ? { address: at.address, family: familyOf(at.address), port: at.port } : {};
  }

  /** Bytes that came. */
  get bytesRead(): number {
    return this.#bytesRead;
  }

  /** Bytes that were handed over, those that still wait among them. */
  get bytesWritten(): number {
    return this.#bytesWritten + this.writableLength;
  }

  /** 'timeout' comes after so many ms without bytes in either direction; 0 ends that. The program decides what to do. */
  setTimeout(timeout: number, callback?: () => void): this {
    this.timeout = timeout;
    if (callback) {
      if (timeout === 0) this.off('timeout', callback);
      else this.once('timeout', callback);
    }
    clearTimeout(this.#idle);
    this.#idle =
      timeout > 0 && !this.destroyed ? setTimeout(() => this.emit('timeout'), timeout).unref() : undefined;
    return this;
  }

  /** For `node:http`: messages leave at once. */
  setNoDelay(_noDelay?: boolean): this {
    return this;
  }

  /** For `node:http`: `keepAlive` is an option of the connection. */
  setKeepAlive(_enable?: boolean, _initialDelay?: number): this {
    return this;
  }

  /** For `node:http`: a connection keeps its process alive until it is closed. */
  ref(): this {
    return this;
  }

  /** As `ref`. */
  unref(): this {
    return this;
  }

  /** Bytes came or left. */
  #moved(): void {
    if (this.#idle && !this.destroyed) this.#idle.refresh();
  }

  /** @internal */
  [inspect.custom](): string {
    const { remoteAddress: address, remotePort: port, destroyed, bytesRead, bytesWritten } = this;
    const peer = address === undefined ? '' : `peer: ${hostAndPort({ address, port: port! })}, `;
    return `${this.constructor.name} { ${peer}bytesRead: ${bytesRead}, bytesWritten: ${bytesWritten}, destroyed: ${destroyed} }`;
  }

  /** @internal */
  override _write(chunk: Uint8Array, _encoding: BufferEncoding, callback: (error?: Error | null) => void) {
    this.#write([chunk], callback);
  }

  /** @internal */
  override _writev(chunks: { chunk: Uint8Array }[], callback: (error?: Error | null) => void) {
    this.#write(
      chunks.map(({ chunk }) => chunk),
      callback,
    );
  }

  #write(chunks: readonly Uint8Array[], callback: (error?: Error | null) => void): void {
    this.#moved();
    // Until the callback, they are a part of `writableLength`.
    const done = (error?: Error) => {
      for (const { length } of chunks) this.#bytesWritten += length;
      callback(error);
    };
    this.#channel.write(chunks).then(() => done(), done);
  }

  /** @internal */
  override _final(callback: (error?: Error | null) => void) {
    this.#channel.end().then(() => callback(), callback);
  }

  /** @internal */
  override _read() {
    if (!this.#isReading) void this.#pull();
  }

  async #pull(): Promise<void> {
    this.#isReading = true;
    try {
      for (;;) {
        const bytes = await this.#channel.read();
        if (this.destroyed) return;
        if (bytes === undefined) {
          this.push(null);
          this.read(0); // Where nothing waits to be read, that ends it without a reader.
          return; // It stays "reading": nothing more comes.
        }
        this.#bytesRead += bytes.length;
        this.#moved();
        if (!this.push(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length))) break;
      }
      this.#isReading = false;
    } catch (error) {
      this.destroy(error as Error);
    }
  }

  /** @internal */
  override _destroy(error: Error | null, callback: (error?: Error | null) => void) {
    clearTimeout(this.#idle);
    // A reader of all bytes (`for await`) destroys the stream, perhaps before our own end is on its way.
    // Half open, only `end()` says that what was written is all.
    const isComplete =
      error === null &&
      this.readableEnded &&
      this.writableLength === 0 &&
      (this.writableEnded || !this.allowHalfOpen);
    this.#channel.close(isComplete).then(() => callback(error), callback);
  }
}
