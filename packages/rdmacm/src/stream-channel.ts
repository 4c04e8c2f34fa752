/** Bytes in both directions over a connection: what its streams are made of, whatever the protocol below. */
import type { SocketAddress } from './addresses.ts';

/** One connection, as a stream uses it. Calls of `write`, and of `read`, are made one at a time. */
export interface StreamChannel {
  /** Our end. */
  readonly localAddress: SocketAddress | undefined;
  /** The peer's end. */
  readonly remoteAddress: SocketAddress | undefined;
  /** Resolves once the bytes are copied, and the program may write into its own again. Waits while the window is full. */
  write(chunks: readonly Uint8Array[]): Promise<void>;
  /** Sends the end of this direction. Resolves when the peer's adapter has all bytes and the end. */
  end(): Promise<void>;
  /** The next bytes, the caller's own; undefined at the end of the peer's direction. */
  read(): Promise<Uint8Array | undefined>;
  /**
   * Ends the connection and gives back what it holds; never rejects.
   *
   * @param isComplete the peer's direction has ended, and ours holds no bytes back: it is ended, and the peer given time to hear of it.
   * Otherwise the peer sees an error.
   */
  close(isComplete: boolean): Promise<void>;
  /** Is called whenever bytes of a `write` leave. */
  onProgress: () => void;
  /** Is called once, where the connection fails while no call is under way. */
  onFailure: (error: unknown) => void;
}
