/** The socket of both sides. */
import { ConnectionStream, type StreamOptions } from '@node-roce/rdmacm';
import { invalid } from '@node-roce/rdmacm/parts';
import { BYTES, checkArgument } from '@node-roce/verbs-api/options';
import type { RsocketCalls } from './calls.ts';
import type { IoMapping } from './mappings.ts';

/** Of the offsets of riomap(3): 64 bits. */
const OFFSETS = 2n ** 64n;
/** Lengths on the wire have 32 bits. */
const MAX_BYTES = 2 ** 32 - 1;

/** A socket of librdmacm's rsockets: as a socket of `node:net`, over RDMA. */
export class RSocket extends ConnectionStream {
  readonly #calls: RsocketCalls;

  /** @internal */
  constructor(calls: RsocketCalls, options: StreamOptions) {
    super(calls, options);
    this.#calls = calls;
  }

  /** Whether the connection is still being made. As in `net.Socket`, 'connect' and 'ready' come then; a socket of `connect` or of a listener has neither. */
  get connecting(): boolean {
    return !this.#calls.isOpen && !this.destroyed;
  }

  /** Whether no connection has been made. */
  get pending(): boolean {
    return !this.#calls.isOpen;
  }

  /** As that of `net.Socket`. */
  get readyState(): 'opening' | 'open' | 'readOnly' | 'writeOnly' | 'closed' {
    if (this.connecting) return 'opening';
    const { readable, writable } = this;
    if (readable && writable) return 'open';
    return readable ? 'readOnly' : writable ? 'writeOnly' : 'closed';
  }

  /**
   * As riomap(3): offers memory to the peer, which writes into it with `iowrite` (riowrite(3) in C). Resolves when the peer's adapter has
   * the offer. Later bytes of the stream arrive after it. Ends with the socket, or with `unmap`.
   *
   * @param bytes the memory; with `engine: 'worker'`, shared
   * @param options `offset`: what the peer names its first byte by. Default 0
   */
  async iomap(bytes: Uint8Array, options: { offset?: number | bigint } = {}): Promise<IoMapping> {
    checkArgument('bytes', bytes, BYTES);
    if (bytes.length < 1 || bytes.length > MAX_BYTES)
      throw invalid('bytes', `${bytes.length} bytes`, `1 … ${MAX_BYTES} bytes`);
    return this.#calls.iomap(bytes, offsetOf(options.offset ?? 0, bytes.length));
  }

  /**
   * As riowrite(3): writes into memory that the peer has mapped, by RDMA WRITE. The peer's program is not notified: send it bytes of the stream
   * afterwards. Resolves when the peer's adapter has all bytes. Calls are carried out in order.
   *
   * Rejects with EINVAL where the peer has mapped nothing; bytes before that offset are written.
   */
  async iowrite(bytes: Uint8Array, offset: number | bigint): Promise<void> {
    checkArgument('bytes', bytes, BYTES);
    await this.#calls.iowrite(bytes, offsetOf(offset, bytes.length));
  }
}

function offsetOf(offset: number | bigint, length: number): bigint {
  const isWhole = typeof offset === 'bigint' || (Number.isSafeInteger(offset) && typeof offset === 'number');
  if (!isWhole || offset < 0 || BigInt(offset) + BigInt(length) > OFFSETS)
    throw invalid('offset', String(offset), 'a whole number of 0 or more, of at most 64 bits');
  return BigInt(offset);
}
