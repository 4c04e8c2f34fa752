/** The interface of congestion control, for a requester: how much may be in flight, and how fast. */

/**
 * How a loss showed: responses or NAKs arrive past it, and the missing packets are retransmitted (`GAP`), or all in flight, which the peer discards
 * (`WHOLE`); or nothing arrived at all (`TIMEOUT`).
 */
export const Loss = { GAP: 0, TIMEOUT: 1, WHOLE: 2 } as const;

/**
 * One controller per reliable connection. PSNs show the round trip that a signal belongs to; the controller
 * compares them within half of their range only.
 */
export interface CongestionController {
  /** Packets that may be in flight. */
  readonly window: number;
  /** The fastest that packets may leave, a whole number of kbit/s; 0: as fast as the window allows. */
  readonly rate: number;
  /** A packet of so many bytes leaves under the rate, IP header and ICRC counted; retransmissions too. */
  onSent(bytes: number): void;
  /** `packets` more are acknowledged, all before `unackedPsn`; everything before `sendPsn` was sent. */
  onAck(packets: number, unackedPsn: number, sendPsn: number): void;
  /** A loss was seen, with everything in [`unackedPsn`, `sendPsn`) in flight. */
  onLoss(loss: number, unackedPsn: number, sendPsn: number): void;
  /** The last timeout was none: what was in flight had arrived. */
  undo(): void;
  /** A congestion notification packet arrived (IBTA vol 1 A17.9.3). */
  onCnp(): void;
  /** A new connection. */
  reset(): void;
  /** The broken promise, if there is one. */
  check(): string | undefined;
}
