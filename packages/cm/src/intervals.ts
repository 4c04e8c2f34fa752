/** The connection manager's times: codes of the wire, and how long this side waits. Times are µs. */

/** Linux's values (core/cma.c, Linux 6.12). */
export const DEFAULT_TIMING: Required<Timing> = {
  responseTimeout: 20,
  maxRetries: 15,
  packetLifetime: 16,
  serviceTimeout: 24,
};

/** Codes 0 … 31 of about 4.096 µs · 2^code, and a count. Each side waits for the times in the initiator's messages. */
export interface Timing {
  /** How long a peer takes to answer a message, code; written into REQ for both directions. Default 20: 4.1 s. */
  responseTimeout?: number;
  /** How often a message is repeated, 0 … 15. Default 15. */
  maxRetries?: number;
  /** How long a packet takes to the peer at most, code. Default 16: 0.26 s. */
  packetLifetime?: number;
  /** The service timeout of this side's MRA, code. Default 24: 66 s. */
  serviceTimeout?: number;
}

/** A code as µs, as Linux rounds it: 2^(code − 8) ms, 1 ms at least (core/cm.c `cm_convert_to_ms`). */
export const codeMicroseconds = (code: number): number => 1000 * 2 ** Math.max(code - 8, 0);

/** The longest time that a peer may ask for: 66 s, Linux's own for an MRA. A code of 31 would be hours. */
const MAX_ASKED = 24;

/** A code of the peer's as µs, bounded. */
export const askedMicroseconds = (code: number): number => codeMicroseconds(Math.min(code, MAX_ASKED));

/** The interval of repetitions that a peer asks for: with all of them, the wait is no longer than one time may be. */
export const askedInterval = (code: number, retries: number): number =>
  Math.min(askedMicroseconds(code), codeMicroseconds(MAX_ASKED) / (retries + 1));

/** How long an initiator waits for the answer to a message (core/cm.c `ib_send_cm_req`). */
export const answerMicroseconds = (packetLifetime: number, responseTimeout: number): number =>
  2 * codeMicroseconds(packetLifetime) + codeMicroseconds(responseTimeout);

/**
 * The local ACK timeout of a queue pair, from the packet lifetime and the peer's ACK delay (core/cm.c `cm_ack_timeout`;
 * IBTA vol 1 §12.7.34).
 */
export function ackTimeoutCode(ackDelay: number, packetLifetime: number): number {
  const round = packetLifetime + 1;
  const code =
    round >= ackDelay ? round + (ackDelay >= round - 1 ? 1 : 0) : ackDelay + (round >= ackDelay - 1 ? 1 : 0);
  return Math.min(31, code);
}
