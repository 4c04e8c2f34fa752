/** The common behaviour of every responder, whichever service it belongs to. */
import type { TxBatch } from '../batch.ts';
import type { InboundPacket } from '../inbound.ts';

export interface Responder {
  /** The next request's PSN (`rq_psn`). */
  readonly expectedPsn: number;
  /** RC: READs and atomics served at once; as many as `max_dest_rd_atomic`, or some more. */
  readonly resources: number;
  /** Whether the peer may send a request with this PSN now: the next one, or one whose answer it may still wait for. */
  awaits(packet: InboundPacket): boolean;
  /** RTR: requests begin at this PSN. */
  start(psn: number): void;
  /** Sets `max_dest_rd_atomic`; remembered requests and owed replies stay, as far as there is room. */
  setResources(depth: number): void;
  /** One request packet that admission let through. */
  receive(packet: InboundPacket): void;
  /**
   * A run of up to `most` request packets that admission let through, whose BTHs differ from this one's in PSNs that rise by one; in the slab
   * they begin `step` bytes apart. A service without it takes each packet by itself.
   *
   * @returns how many were taken; 0, without any effect: not by this way
   */
  receiveRun?(packet: InboundPacket, most: number, step: number): number;
  /** Replies that wait to be sent. */
  readonly owed: number;
  /**
   * Adds up to `budget` replies to the batch, and returns how many. Without `reads` it stops at the first READ
   * response: short replies do not wait behind those of other queue pairs.
   */
  transmit(batch: TxBatch, budget: number, reads: boolean): number;
  /**
   * ERR: the message that is arriving ends, READs are answered no more. ACKs of delivered messages,
   * and the NAK with the reason of the end, still leave.
   */
  stop(): void;
  /** Nobody answers READs any more: after `stop`, the first that waits is refused, if the NAK that ended the connection waits behind it. */
  refuseReads?(): void;
  /** RESET: as just created. */
  reset(): void;
  /** The queue pair is gone. */
  close(): void;
  /** The broken invariant, if there is one. */
  check(): string | undefined;
}
