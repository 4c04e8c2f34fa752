/** A queue pair as its parts see it. */
import type { Congestion } from '../congestion/options.ts';
import type { QpType } from '../constants.ts';
import type { KeepEarly, QpCap, Recovery } from '../control.ts';
import type { QpCounters } from '../counters.ts';
import type { QpAttributes } from './attributes.ts';

export interface Owner {
  readonly qpn: number;
  readonly type: QpType;
  /** The same as a `Service` bit. */
  readonly service: number;
  readonly pd: number;
  readonly cap: QpCap;
  readonly recovery: Recovery;
  /** How its responder keeps early packets now; `auto` is as `quiet`. */
  readonly keepEarly: KeepEarly;
  readonly congestion: Congestion;
  /** Its rate obeys congestion notifications, so that its data may be marked. */
  readonly reacts: boolean;
  /** RC: acknowledged and retried. */
  readonly reliable: boolean;
  /** UD and GSI: each message is one packet to an address of its own. */
  readonly datagram: boolean;
  /** The high bits of the opcodes it sends and takes: a `Transport`. */
  readonly transport: number;
  /** Its QPN, and above it the mark of its present life: what its slots of batches carry. */
  readonly slotTag: number;
  /** Index of the send ring's memory in the region table: where inline data is sent from. */
  readonly sqRegion: number;
  /** The program posts to the send queue; else it is for rendezvous. */
  readonly hasSends: boolean;
  /** `QpStateCode`. */
  readonly state: number;
  /** It may have packets in flight: in RTS, and in SQD, which lets end what was started. */
  readonly sends: boolean;
  readonly attributes: QpAttributes;
  /** Its ACKs carry the count of posted receives (end-to-end flow control, §9.7.7.2). */
  readonly credits: boolean;
  readonly counters: QpCounters;
  /** There may be something to send: a turn is wanted. */
  wantsTurn(): void;
  /** A reply is owed: a turn to send it is wanted. */
  wantsReplyTurn(): void;
  /** The responder found a fault that ends the queue pair: ERR. */
  toError(): void;
  /** The retries are used up. @returns whether the connection has migrated, so that there are new ones */
  migrates(): boolean;
  /** Everything that SQD lets end has ended. */
  sendQueueDrained(): void;
  /** The oldest send request has completed with an error: ERR for reliable connections, else SQE. */
  sendFailed(): void;
  /** A completion found no room in its queue, which has overrun: the queue pair cannot go on. */
  completionLost(): void;
  /** A fault of the engine itself was found in it: the queue pair ends. */
  failed(): void;
  /** A state that no input can lead to. */
  bug(text: string): void;
}
