/** Options of message connections. */

/** Sizes of a connection's queues, and how it watches its peer. */
export interface MessageOptions {
  /** Bytes of the largest message, in both directions. The smaller one of both sides holds. Default 64 KiB. */
  maxMessage?: number;
  /** Messages that are on their way at a time, each way. The smaller number of both sides holds. Default 16. */
  slots?: number;
  /**
   * Milliseconds of silence after which a zero-length WRITE asks the peer's adapter whether it is there; 0: never. Default 2000: two small
   * packets each 2 s on a connection that is idle.
   */
  keepAlive?: number;
  /** Milliseconds without a message in either direction after which the connection is closed. Default 0: never. */
  idleTimeout?: number;
  /** Milliseconds that `close` waits for the peer. Default 5000: one repetition of the disconnect with Linux's intervals. */
  closeTimeout?: number;
}

export const DEFAULTS = {
  maxMessage: 65_536,
  slots: 16,
  keepAlive: 2000,
  idleTimeout: 0,
  closeTimeout: 5000,
} as const;
