/** Where the dialogue runs: TCP, or a connection of the connection manager. */

/** One end of the dialogue. Reads reject with RoceError: ERR_ROCE_EXCHANGE where the peer left, ERR_ROCE_TIMEOUT for its silence. */
export interface Channel {
  readonly isClient: boolean;
  write(message: Uint8Array): Promise<void>;
  /** Exactly so many bytes. */
  read(bytes: number): Promise<Buffer>;
  /** So many bytes of `sizes`, ascending: those that the peer has sent. */
  readOneOf(sizes: readonly number[]): Promise<Buffer>;
  /** The peer has left. */
  readonly ended: boolean;
  /** Resolves when the peer has left, or after `milliseconds`. */
  untilEnded(milliseconds: number): Promise<void>;
  /** Ends this side in order, after the last message. */
  close(): Promise<void>;
  /** Ends this side at once. */
  destroy(): Promise<void>;
}

/** How long a peer may be silent, and the signs of life in addition to its messages. */
export interface Patience {
  /** Seconds. */
  readonly timeout: number;
  readonly signal: AbortSignal;
  /** Changes while the peer is active otherwise: packets that bring the measurement on. */
  readonly signs?: (() => Promise<number>) | undefined;
}
